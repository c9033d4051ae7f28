"""Compares ConsumeQueues in RocksDB unit by unit with what dispatch of the log would write.

Source: RocksDBConsumeQueueStore, RocksDBConsumeQueueTable, RocksDBConsumeQueueOffsetTable (5.5.0).
"""

from collections import Counter

import numpy as np
from msgspec.structs import replace

from mqtool.errors import FormatError, StoreError, UnreadableError
from mqtool.formats import java
from mqtool.formats.consume_queue import (
    CHECKPOINT_TOPIC,
    ROCKS_BOUND,
    ROCKS_MAX,
    RocksBound,
    RocksUnit,
    parse_bound_key,
)
from mqtool.records.damage import Damage
from mqtool.records.dispatch import STORED_FIELDS, Dispatcher, QueueUnits
from mqtool.records.queue_build import queue_numbers, queue_of
from mqtool.store import Store
from mqtool.store.queues.rocksdb_queues import MAX_OFFSETS, QueueDatabase, queue_database
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.findings import Severity
from mqtool.verify.survey import Survey

Name = tuple[str, int]


class RocksCheck:
    """Checks the RocksDB database of a store's queues."""

    def __init__(self, store: Store, survey: Survey, collector: FindingCollector) -> None:
        self._log = store.commit_log
        self._survey = survey
        self._collector = collector
        self._path = queue_database(survey.root, store.config)
        self._matched: Counter[Name] = Counter()
        self._ends: dict[Name, RocksBound] = {}

    def run(self) -> str:
        """Compares all queues; returns a text that states what was checked.

        Raises UnavailableError if the library for RocksDB is not installed, UnreadableError if the system does not let
        a file be read; this is also a finding.
        """
        try:
            with QueueDatabase(self._path) as database:
                queues = {(topic, queue_id): (first, last) for topic, queue_id, first, last in database.queues()}
                self._ends = database.ends()
                dispatcher = Dispatcher(self._survey.rules)
                for item in self._log.walk(crc=False):
                    if not isinstance(item, Damage):
                        self._compare(database, dispatcher.dispatch(item).units, dispatcher.topics.names)
                units = sum(self._count(database, name, *queues[name]) for name in sorted(queues))
                self._bounds(database, queues)
                self._leftovers(database)
        except UnreadableError as error:
            self._collector.add("rocksdb-not-read", error.path, error.reason)
            raise
        except StoreError as error:
            self._collector.add("rocksdb-unreadable", self._path, str(error))
            return "0 unit(s)"
        return f"{units} unit(s) in {len(queues)} queue(s) in RocksDB"

    def _compare(self, database: QueueDatabase, units: QueueUnits, names: list[str]) -> None:
        """Compares the units of some records with the database, queue by queue."""
        if not len(units):
            return
        numbers = queue_numbers(units.topic, units.queue_id)
        for number in np.unique(numbers).tolist():
            name = queue_of(number, names)
            if not self._survey.includes(name[0]):
                continue
            of_queue = units.select(numbers == number)
            first, last = int(of_queue.queue_offset.min()), int(of_queue.queue_offset.max())
            if name in self._ends:
                last = min(last, self._ends[name].queue_offset)  # nobody reads units after it
            stored = dict(database.units(*name, first, last - first + 1))
            for offset, *expected in of_queue.tuples("queue_offset", *STORED_FIELDS):
                self._unit(name, offset, RocksUnit(*expected), stored.get(offset))

    def _unit(self, name: Name, offset: int, expected: RocksUnit, stored: RocksUnit | None) -> None:
        at = (expected.physical_offset, expected.physical_offset + expected.size)
        if self._survey.live and at[1] > self._survey.end:
            return
        if stored is None:
            repaired = None if self._survey.clean_stop else Severity.WARNING
            evidence = f"no unit at queue offset {offset} for the record at {at[0]}"
            self._collector.add("rocksdb-missing-unit", self._path, evidence, span=at, queue=name, severity=repaired)
            return
        self._matched[name] += 1
        if stored != expected:
            same_record = replace(stored, tags_code=expected.tags_code) == expected
            delay = stored.tags_code - stored.store_timestamp
            is_other_delay = same_record and self._survey.is_other_delay(name[0], delay)
            code = "queue-other-delay" if is_other_delay else "rocksdb-wrong-unit"
            evidence = f"unit at queue offset {offset}: expected {_words(expected)}, found {_words(stored)}"
            self._collector.add(code, self._path, evidence, span=at, queue=name)

    def _count(self, database: QueueDatabase, name: Name, first: int, last: int) -> int:
        """Counts a queue's units; reports units without a record in the log."""
        count = extra = 0
        for _, unit in database.units(*name, first, last - first + 1):
            count += 1
            extra += self._survey.min_offset <= unit.physical_offset
        extra -= self._matched[name]
        if extra > 0 and not self._survey.live and self._survey.includes(name[0]):
            evidence = f"{extra} of {count} unit(s) point to no record of this queue"
            self._collector.add("rocksdb-extra-unit", self._path, evidence, queue=name)
        return count

    def _bounds(self, database: QueueDatabase, queues: dict[Name, tuple[int, int]]) -> None:
        """Compares the stored last units with the real ones, and the dispatch position with the log."""
        if self._survey.live:
            return
        for key, value in database.bounds():
            try:
                topic, queue_id, which = parse_bound_key(key)
                name = (java.decode_utf8(topic), queue_id)
                if topic == CHECKPOINT_TOPIC:
                    position = int.from_bytes(value, "big", signed=True)
                    if position > self._survey.end:
                        evidence = f"dispatched up to {position}, but the log ends at {self._survey.end}"
                        self._collector.add("rocksdb-bound", self._path, evidence)
                elif which == ROCKS_MAX:
                    bound, last = ROCKS_BOUND.parse(value), queues.get(name, (0, -1))[1]
                    has_expired = bound.physical_offset < self._survey.min_offset
                    if bound.queue_offset > last and not has_expired:
                        evidence = f"max is {bound.queue_offset}, but the last unit is {last}"
                        self._collector.add("rocksdb-bound", self._path, evidence, queue=name)
            except FormatError as error:
                self._collector.add("rocksdb-bound", self._path, f"key {key.hex()}: {error}")

    def _leftovers(self, database: QueueDatabase) -> None:
        """Notes units after the stored end of a queue; records that need them are reported as without a unit."""
        for name, end in sorted(self._ends.items()):
            count = sum(1 for _ in database.units(*name, end.queue_offset + 1, MAX_OFFSETS, strict=False))
            if count and not self._survey.live and self._survey.includes(name[0]):
                evidence = f"{count} unit(s) after max, which is {end.queue_offset}"
                self._collector.add("rocksdb-leftover", self._path, evidence, queue=name)


def _words(unit: RocksUnit) -> str:
    return f"({unit.physical_offset}, {unit.size}, {unit.tags_code}, {unit.store_timestamp})"
