"""Compacted topics: compares each file of their log with its queue file, and the end of that log with the CommitLog.

Source: CompactionLog, CompactionStore, SparseConsumeQueue (5.5.0).
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mqtool.errors import CorruptionError
from mqtool.formats import file_names, java, properties
from mqtool.formats.consume_queue import BATCH_CONSUME_QUEUE_UNIT, SPARSE_END_UNIT, BatchConsumeQueueUnit, tags_code
from mqtool.records.damage import Damage
from mqtool.store import Store
from mqtool.store.files import MappedFile, ReadFile, list_directory, list_mapped_files
from mqtool.store.layout import queue_directories
from mqtool.store.log.log_walk import walk_file
from mqtool.store.log.message import Message, messages_of
from mqtool.store.queues.consume_queue import Queue, has_record, last_queue_offset, valid_units
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.findings import Severity
from mqtool.verify.survey import Recovery, Survey

_WORK = (file_names.COMPACTING, "replicating")
_UNWRITTEN = BatchConsumeQueueUnit(*(0,) * len(BATCH_CONSUME_QUEUE_UNIT.fields))


class CompactionCheck:
    """Checks the compacted topics of a store."""

    def __init__(self, store: Store, survey: Survey, recovery: Recovery, collector: FindingCollector) -> None:
        self._store = store
        self._survey = survey
        self._recovery = recovery
        self._collector = collector
        self._logs = survey.root / file_names.COMPACTION_LOG
        self._queues = survey.root / file_names.COMPACTION_CONSUME_QUEUE

    @property
    def applies(self) -> bool:
        """Whether the store has compacted topics."""
        return bool(queue_directories(self._logs) or queue_directories(self._queues) or self._dispatched())

    def run(self) -> str:
        """Checks all; returns a text that states what was checked, and raises StoreError if a file cannot be read."""
        names = {
            (topic, queue_id) for root in (self._logs, self._queues) for topic, queue_id, _ in queue_directories(root)
        }
        dispatched = self._dispatched()
        names |= set(dispatched)
        records = sum(self._queue(*name) for name in sorted(names))
        for queue in dispatched.values():
            self._compare_end(queue)
        return f"{records} record(s) in {len(names)} compacted queue(s)"

    def _dispatched(self) -> dict[tuple[str, int], Queue]:
        """Returns the queues whose messages a broker also writes to a compacted log."""
        if self._survey.live or self._store.config.flag("enableCompaction") is False:
            return {}
        compacted = {topic for topic, config in self._store.metadata.topics.items() if config.is_compacted}
        return {
            (queue.topic, queue.queue_id): queue
            for queue in (self._store.disk_queues() if compacted else ())
            if queue.topic in compacted and not queue.is_batch
        }

    def _compare_end(self, queue: Queue) -> None:
        """Reports the messages of a queue after the last one of its compacted log; those without a key do not count."""
        units = queue.units()
        offsets = np.arange(len(units)) + queue.first_offset
        log, last = self._store.commit_log, last_queue_offset(self._survey.root, queue.topic, queue.queue_id)
        later = np.flatnonzero(has_record(units) & (offsets > last) & (units["physical_offset"] >= log.min_offset))
        for row in later.tolist():
            physical, size = int(units["physical_offset"][row]), int(units["size"][row])
            try:
                record = log.record(physical, size)
            except CorruptionError:
                continue
            if java.is_blank(properties.decode(record.properties).get(properties.KEYS, "")):
                continue
            missing = later[later >= row]
            self._collector.add(
                "compaction-missing",
                self._logs / queue.topic / str(queue.queue_id),
                f"{len(missing)} message(s), queue offsets {offsets[row]} to {offsets[missing[-1]]}",
                span=(physical, physical + size),
                queue=(queue.topic, queue.queue_id),
                severity=Severity.WARNING if self._recovery.repairs_records(physical) else None,
            )
            return

    def _queue(self, topic: str, queue_id: int) -> int:
        log_path, queue_path = (root / topic / str(queue_id) for root in (self._logs, self._queues))
        logs, queues = list_mapped_files(log_path), list_mapped_files(queue_path)
        units = {file.base: file for file in queues.files}
        name = (topic, queue_id)
        for path in (*logs.strays, *queues.strays):
            self._stray(path, name)
        for base in {file.base for file in logs.files} ^ set(units):
            evidence = f"log and queue do not both have a file {base:020d}"
            self._collector.add("compaction-file", queue_path, evidence, queue=name)
        count, last = 0, -1
        for log in logs.files:
            messages = list(self._messages(log, _unit_starts(units.get(log.base)), name))
            count += len(messages)
            for message in messages:
                if message.queue_offset <= last:
                    evidence = f"queue offset {message.queue_offset} follows {last}"
                    self._collector.add(
                        "compaction-order", log.path, evidence, position=message.physical_offset - log.base, queue=name
                    )
                last = max(last, message.queue_offset)
            if log.base in units:
                self._compare(messages, units[log.base], name)
        return count

    def _stray(self, path: Path, name: tuple[str, int]) -> None:
        if path.name in _WORK:
            if list_directory(path):
                evidence = "left by an unfinished compaction; the broker removes it"
                self._collector.add("compaction-leftover", path, evidence, queue=name, severity=Severity.NOTE)
        elif path.name.endswith(file_names.DELETE_SUFFIX):
            evidence = "a file marked for deletion: its name is not a number, so the broker refuses to start"
            self._collector.add("compaction-leftover", path, evidence, queue=name)
        else:
            self._collector.add(
                "compaction-leftover", path, "belongs to no queue", queue=name, severity=Severity.WARNING
            )

    def _messages(self, log: MappedFile, starts: np.ndarray, name: tuple[str, int]) -> Iterator[Message]:
        """Yields the messages of a log file; reports damage, with the number of units that point there."""
        with ReadFile(log.path) as file:
            walk = walk_file(file, log, is_last=True)
            for item in walk:
                if isinstance(item, Damage):
                    self._collector.add(
                        "compaction-damage",
                        log.path,
                        f"{item.kind}: {item.detail}",
                        position=item.start - log.base,
                        queue=name,
                        lost_messages=int(((starts >= item.start) & (starts < item.end)).sum()),
                    )
                    continue
                yield from messages_of(item)
            if walk.tail is not None and walk.tail.kind != "clean" and not self._survey.live:
                at = walk.tail.end - log.base
                lost = int((starts >= walk.tail.end).sum())
                self._collector.add(
                    "compaction-damage", log.path, walk.tail.detail, position=at, queue=name, lost_messages=lost
                )

    def _compare(self, messages: list[Message], file: MappedFile, name: tuple[str, int]) -> None:
        """Compares units with the records of the log file of the same name, one by one."""
        size = BATCH_CONSUME_QUEUE_UNIT.size
        with ReadFile(file.path) as opened:
            data = opened.read(0, min(opened.data_end() + size, file.size))
        units = [BATCH_CONSUME_QUEUE_UNIT.parse(data, at) for at in range(0, len(data) - size + 1, size)]
        while units and units[-1] in (_UNWRITTEN, SPARSE_END_UNIT):
            units.pop()
        expected = [_unit_of(message) for message in messages]
        for number in range(max(len(units), len(expected))):
            unit = units[number] if number < len(units) else None
            expected_unit = expected[number] if number < len(expected) else None
            if unit != expected_unit and not self._survey.live:
                evidence = f"unit {number}: expected {_words(expected_unit)}, found {_words(unit)}"
                self._collector.add("compaction-unit", file.path, evidence, position=number * size, queue=name)
                return  # those after it are shifted


def _unit_starts(file: MappedFile | None) -> np.ndarray:
    """Returns the physical offsets to which the units of a file point."""
    if file is None:
        return np.empty(0, np.int64)
    with ReadFile(file.path) as opened:
        return valid_units(opened.read(0, file.size))["physical_offset"].astype(np.int64)


def _unit_of(message: Message) -> BatchConsumeQueueUnit:
    count = message.properties.get(properties.INNER_NUM, "")
    return BatchConsumeQueueUnit(
        message.physical_offset,
        message.store_size,
        tags_code(message.tags),
        message.store_timestamp,
        message.queue_offset,
        int(count) if count.isascii() and count.isdigit() and len(count) < 6 else 1,
    )


def _words(unit: BatchConsumeQueueUnit | None) -> str:
    if unit is None:
        return "none"
    return f"record {unit.physical_offset} of {unit.size} bytes with queue offset {unit.base_queue_offset}"
