"""Checks what the broker's background services keep: the files of the timer, and messages in their system topics.

Timer wheel, timer log and timer checkpoint are compared with each other and with the CommitLog. A real broker retries
a message that a service cannot process forever and delivers nothing after it; `mqtool serve` skips it. The format that
each service expects is in `mqtool.formats.service_records`. Source: TimerWheel, TimerLog, TimerMessageStore (5.5.0).
"""

from pathlib import Path

import numpy as np

from mqtool.errors import FormatError, StoreError
from mqtool.formats import commit_log, file_names, java, properties, service_records, timer, topics
from mqtool.store import Store
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.describe import store_time
from mqtool.store.files import MappedFile, ReadFile, is_file, list_mapped_files, read_file, recording_unlisted
from mqtool.store.known_file import is_directory
from mqtool.store.paths import kind_of
from mqtool.store.queues.consume_queue import Queue
from mqtool.store.queues.get_message import next_file
from mqtool.store.queues.pull import units_from
from mqtool.store.waiting.timer import (
    checkpoint_path,
    known_log_file_size,
    read_checkpoint,
    read_log_file,
    read_wheel,
    saved_checkpoint,
)
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.findings import Severity
from mqtool.verify.survey import Survey, survey

TOPIC = topics.TIMER_TOPIC
DAMAGED, UNREAD = "are damaged", "cannot be read"
"""What may be wrong with the timer's files, as the predicate of a sentence."""
_HEAD_SIZE = commit_log.field_offset("physical_offset") + 8
_NO_UNITS = np.empty(0, [("position", np.int64), ("due", np.int64), ("physical", np.int64)])
_TOTAL, _PHYSICAL = commit_log.field_offset("total_size"), commit_log.field_offset("physical_offset")

CODE = "log-unusable-message"

MAX_PENDING = 100_000
"""Maximum number of messages read over all queues; if more are waiting, the rest is reported as unknown."""
UNKNOWN_DELAY_S = 366 * 86_400
"""Used for timerMaxDelaySec where no broker.conf is given: longer than brokers wait, shorter than made-up times."""
MAX_PASSED = 10_000
"""Number of messages before the service's offset in each queue that are read too."""


def timer_damage(store: Store) -> str:
    """Returns what is wrong with the files of a store's timer, as the predicate of a sentence; "" if nothing is."""
    try:
        with recording_unlisted(None):
            timer_survey = survey(store)
            queue = next((item for item in store.disk_queues() if item.topic == TOPIC), None)
            newest = max((store_time(store, at) or 0 for at in store.newest_records()), default=0)
            collector = FindingCollector(store.path, None)
            queue_end = None if queue is None else queue.max_offset
            check = TimerCheck(timer_survey, queue_end, newest, store.config, collector)
            if check.applies:
                check.run()
    except StoreError:
        return UNREAD
    return DAMAGED if any(item.severity is Severity.ERROR for item in collector.findings()) else ""


class TimerCheck:
    """Checks a store's timer."""

    def __init__(
        self, survey: Survey, queue_end: int | None, newest: int, config: BrokerConfig, collector: FindingCollector
    ) -> None:
        """Prepares the check.

        `queue_end` is the queue offset after the last unit of the queue of parked messages, None if there is none;
        `newest` the latest store timestamp in the log, 0 if it contains no record. A timerPrecisionMs that is not
        configured is inferred from the slots.
        """
        self._survey = survey
        self._queue_end = queue_end
        self._newest = newest
        self._config = config
        self._precision = config.integer("timerPrecisionMs")
        self._collector = collector
        listed = list_mapped_files(survey.root / file_names.TIMER_LOG)
        self._files = listed.files
        self._units = _NO_UNITS

    @property
    def applies(self) -> bool:
        """Whether the store has a timer, or had one that has read parked messages."""
        wheel, saved = self._survey.root / file_names.TIMER_WHEEL, checkpoint_path(self._survey.root)
        if self._files or wheel.exists() or is_directory(saved):
            return True
        return self._queue_end is not None and saved_checkpoint(self._survey.root).last_timer_queue_offset > 0

    def run(self) -> str:
        """Checks all parts; returns a text about what was checked."""
        known = known_log_file_size(self._survey.root, self._config)
        parts = [_NO_UNITS]
        for number, file in enumerate(self._files):
            is_deleted = file.size == 0 and file is self._files[-1]  # on a start (MappedFileQueue.doLoad)
            if known is not None and file.size != known.value and not is_deleted:
                self._collector.add("timer-log-size", file.path, f"expected {known.value} bytes, found {file.size}")
            if number and self._files[number - 1].end < file.base:
                self._collector.add(
                    "timer-log-gap", file.path, f"the file before ends at {self._files[number - 1].end}"
                )
            parts.append(self._read(file))
        self._units = np.concatenate(parts)
        checkpoint = self._checkpoint()
        slots = self._wheel(checkpoint)
        self._parked(checkpoint)
        return f"{len(self._units)} timer log unit(s), {slots} slot(s) waiting"

    def _read(self, file: MappedFile) -> np.ndarray:
        """Checks the units of one file; returns their positions, deliver times and records."""
        data = read_log_file(file.path)
        units = []
        at = 0
        while (unit := timer.unit_at(data, at)) is not None:
            position = file.base + at
            previous = unit.previous_position
            if previous != timer.NO_POSITION and not self._is_before(previous, position):
                evidence = f"position {position} names {previous} as its predecessor"
                self._collector.add("timer-bad-chain", file.path, evidence, position=at)
            self._record(file, at, unit)
            units.append((position, unit.deliver_time, unit.physical_offset))
            at += timer.LOG_UNIT_SIZE
        if at + timer.LOG_UNIT_SIZE <= len(data) and not timer.is_unused(data, at) and not self._survey.live:
            unit = timer.LOG_UNIT.parse(data, at)
            self._collector.add("timer-bad-unit", file.path, f"size {unit.size}, magic {unit.magic:#x}", position=at)
        return np.array(units, _NO_UNITS.dtype)

    def _is_before(self, previous: int, position: int) -> bool:
        """Whether a position can be that of an earlier unit; positions in expired files are accepted."""
        if not 0 <= previous < position:
            return False
        file = next((file for file in self._files if file.base <= previous < file.end), None)
        return file is None or (previous - file.base) % timer.LOG_UNIT_SIZE == 0

    def _record(self, file: MappedFile, at: int, unit: timer.TimerLogUnit) -> None:
        survey, physical = self._survey, unit.physical_offset
        if physical < survey.min_offset or survey.has_dledger or (survey.live and physical >= survey.end):
            return
        head = self._bytes_of_log(physical, _HEAD_SIZE)
        if len(head) == _HEAD_SIZE:
            total = int.from_bytes(head[_TOTAL : _TOTAL + 4], "big", signed=True)
            stated = int.from_bytes(head[_PHYSICAL : _PHYSICAL + 8], "big", signed=True)
            if total == unit.record_size and stated == physical:
                return
        evidence = f"no record of {unit.record_size} bytes at physical offset {physical}"
        span = (physical, physical + max(1, unit.record_size))
        self._collector.add("timer-dangling-unit", file.path, evidence, position=at, span=span)

    def _bytes_of_log(self, physical: int, size: int) -> bytes:
        """Returns bytes at a physical offset; fewer at the end of its segment."""
        segment = next((s for s in self._survey.segments if s.base <= physical < s.end), None)
        if segment is None:
            return b""
        with ReadFile(segment.path) as opened:
            return opened.read(physical - segment.base, size)

    def _checkpoint(self) -> timer.TimerCheckpoint:
        path, checkpoint = checkpoint_path(self._survey.root), read_checkpoint(self._survey.root)
        self._is_file(path)
        end = max((file.end for file in self._files), default=0)
        if checkpoint.last_timer_log_flush_position > end:
            evidence = (
                f"lastTimerLogFlushPos {checkpoint.last_timer_log_flush_position}, but the timer log ends at {end}"
            )
            self._ahead(path, evidence)
        end_of_queue = checkpoint.last_timer_queue_offset if self._queue_end is None else self._queue_end
        if checkpoint.last_timer_queue_offset > end_of_queue and not self._survey.live:
            self._ahead(
                path,
                f"lastTimerQueueOffset {checkpoint.last_timer_queue_offset}, but queue {TOPIC} ends at {end_of_queue}",
            )
        return checkpoint

    def _is_file(self, path: Path) -> bool:
        """Whether a path is a regular file; reports another one. Raises UnreadableError if the system does not say."""
        is_regular = is_file(path)
        if not is_regular and path.exists():
            evidence = f"expected a file, found a {kind_of(path.stat().st_mode)}"
            self._collector.add("timer-not-file", path, evidence)
        return is_regular

    def _ahead(self, path: Path, evidence: str) -> None:
        self._collector.add("timer-checkpoint-ahead", path, evidence)

    def _wheel(self, checkpoint: timer.TimerCheckpoint) -> int:
        """Checks the slots that have not been delivered; returns how many there are."""
        path = self._survey.root / file_names.TIMER_WHEEL
        if not self._is_file(path):
            return 0
        size = path.stat().st_size
        if size != timer.WHEEL_FILE_SIZE:
            self._collector.add("timer-wheel-size", path, f"expected {timer.WHEEL_FILE_SIZE} bytes, found {size}")
            return 0
        slots = read_wheel(self._survey.root)
        times = slots["time"].astype(np.int64)
        used = timer.used_slots(slots)
        precision = self._precision or self._inferred_precision(times[used], slots["last_position"][used])
        waiting = np.flatnonzero(timer.unread_slots(slots, checkpoint.last_read_time_ms, precision))
        positions = set(self._units["position"].tolist())
        for row in waiting.tolist() if not self._survey.live else ():
            first, last = int(slots["first_position"][row]), int(slots["last_position"][row])
            for position in {first, last} - positions:
                if self._kept(position):
                    evidence = f"slot of {times[row] * precision} ms leads to position {position}"
                    self._collector.add("timer-bad-slot", path, evidence, position=row * timer.SLOT_SIZE)
        return len(waiting)

    def _inferred_precision(self, times: np.ndarray, last: np.ndarray) -> int:
        """Returns the timerPrecisionMs for which the most slots match the deliver time of their newest unit."""
        if not len(self._units) or not len(times):
            return timer.DEFAULT_PRECISION_MS
        at = np.minimum(np.searchsorted(self._units["position"], last), len(self._units) - 1)
        known = self._units["position"][at] == last
        times, due = times[known], self._units["due"][at[known]]
        return max(timer.PRECISIONS_MS, key=lambda precision: int((due // precision == times).sum()))

    def _parked(self, checkpoint: timer.TimerCheckpoint) -> None:
        """Reports messages that the timer has read and not delivered yet, but that are missing from the timer log.

        A message that was already due when the timer read it never gets a unit. One that is due after the newest
        record was stored cannot be such a message. The broker deletes a file of the timer log only after the
        CommitLog has lost the records of all its units (TimerMessageStore.start).
        """
        queue = next((queue for queue in self._survey.queues if queue.key == (TOPIC, 0) and not queue.is_batch), None)
        if queue is None or self._survey.live or self._survey.has_dledger:
            return
        bound = max(checkpoint.last_read_time_ms, self._newest)
        missing = []
        for file, first, units in queue.chunks():
            physical = units["physical_offset"].astype(np.int64)
            number = file.base // queue.unit.size + first + np.arange(len(units))
            inside = (physical >= self._survey.min_offset) & (physical < self._survey.end) & (units["size"] > 0)
            read = inside & (number < checkpoint.last_timer_queue_offset) & ~np.isin(physical, self._units["physical"])
            for row in np.flatnonzero(read).tolist():
                due = self._due(int(physical[row]), int(units["size"][row]))
                if due is not None and due > bound:
                    missing.append((int(number[row]), due))
        if missing:
            first_offset, first_due = missing[0]
            evidence = (
                f"{len(missing)} waiting message(s) of {TOPIC} have no unit; the first has queue offset "
                f"{first_offset} and is due at {first_due} ms"
            )
            self._collector.add("timer-missing-unit", self._survey.root / file_names.TIMER_LOG, evidence)

    def _due(self, physical: int, size: int) -> int | None:
        """Returns the deliver time of a parked record; None if it is not a parked record."""
        data = self._bytes_of_log(physical, size)
        if len(data) < size:
            return None
        try:
            record = commit_log.parse_record(data)
            due = service_records.deliver_ms(properties.decode(record.properties))
        except FormatError:
            return None
        return due if record.topic == TOPIC.encode() and record.physical_offset == physical else None

    def _kept(self, position: int) -> bool:
        """Whether the timer log should still contain a position, because its file has not expired."""
        return not self._files or position >= self._files[0].base


class ServiceRecordCheck:
    """Reads the messages that wait for the services of a store."""

    def __init__(self, store: Store, survey: Survey, collector: FindingCollector) -> None:
        self._store, self._survey, self._collector = store, survey, collector
        self._left = MAX_PENDING
        self._max_delay = store.config.integer("timerMaxDelaySec") or UNKNOWN_DELAY_S

    def run(self) -> str:
        """Checks every queue of a service; returns why some of it was not read, "" if all was."""
        unread = ""
        for queue in self._store.queues():
            if service_records.has_format(queue.topic):
                unread = self._queue(queue) or unread
        return unread

    def _queue(self, queue: Queue) -> str:
        position = min(max(self._position(queue), queue.min_offset), queue.max_offset)
        offset = max(queue.min_offset, position - MAX_PASSED)
        while offset < queue.max_offset:
            units = units_from(queue, offset)
            following = next_file(offset, max(1, queue.file_units))
            for unit in units:
                if self._left <= 0:
                    return f"{queue.topic} queue {queue.queue_id} from offset {unit.queue_offset} on was not read"
                self._left -= 1
                self._message(queue, unit.queue_offset, unit.physical_offset, unit.size, position)
            offset = following
        return ""

    def _message(self, queue: Queue, offset: int, physical: int, size: int, position: int) -> None:
        try:
            record = self._store.commit_log.record(physical, size)
        except StoreError:  # damaged or gone, which the checks of log and queues report
            return
        values = properties.decode(record.properties)
        problem = service_records.problem_of(
            java.decode_utf8(record.topic), values, bytes(record.body), record.store_timestamp, self._max_delay
        )
        if problem is None:
            return
        is_pending = offset >= position
        state = "waiting for its service" if is_pending else "already passed by its service"
        segment = next(
            (candidate for candidate in self._survey.segments if candidate.base <= physical < candidate.end), None
        )
        self._collector.add(
            CODE,
            segment.path if segment else self._survey.root,
            f"queue offset {offset}, {state}: {problem}",
            position=physical - segment.base if segment else None,
            span=(physical, physical + size),
            queue=(queue.topic, queue.queue_id),
            severity=None if is_pending else Severity.NOTE,
        )

    def _position(self, queue: Queue) -> int:
        """Returns the queue offset of the next message that a service reads."""
        topic, queue_id, metadata = queue.topic, queue.queue_id, self._store.metadata
        if topic == topics.SCHEDULE_TOPIC:
            return metadata.delay_offsets.get(queue_id + 1, 0)
        if topic == topics.TIMER_TOPIC:
            return self._timer_position()
        is_revive = topic.startswith(topics.REVIVE_TOPIC_PREFIX)
        group = service_records.REVIVE_GROUP if is_revive else service_records.TRANSACTION_GROUP
        offset = metadata.consumer_offsets.get(group, {}).get(topic, {}).get(queue_id)
        return 0 if offset is None else offset + is_revive

    def _timer_position(self) -> int:
        path = self._survey.root / file_names.CONFIG / file_names.TIMER_CHECKPOINT
        try:
            return timer.parse_checkpoint(read_file(path)).last_timer_queue_offset
        except StoreError:
            return 0
