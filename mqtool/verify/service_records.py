"""Finds messages that a background service of the broker cannot process.

These are delayed and timer messages, half and op messages, and POP records. A real broker retries such a message
forever and delivers nothing after it; `mqtool serve` skips it. The format that each service expects is in
`mqtool.formats.service_records`.
"""

from mqtool.errors import StoreError
from mqtool.formats import file_names, java, properties, service_records, timer, topics
from mqtool.store import Store
from mqtool.store.files import read_file
from mqtool.store.queues.consume_queue import Queue
from mqtool.store.queues.get_message import next_file
from mqtool.store.queues.pull import units_from
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.findings import Severity
from mqtool.verify.survey import Survey

CODE = "log-unusable-message"

MAX_PENDING = 100_000
"""Maximum number of messages read over all queues; if more are waiting, the rest is reported as unknown."""
UNKNOWN_DELAY_S = 366 * 86_400
"""Used for timerMaxDelaySec where no broker.conf is given: longer than brokers wait, shorter than made-up times."""
MAX_PASSED = 10_000
"""Number of messages before the service's offset in each queue that are read too."""


class ServiceRecordCheck:
    """Reads the messages that wait for the services of a store."""

    def __init__(self, store: Store, survey: Survey, collector: FindingCollector) -> None:
        """Takes the store, and where findings go."""
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
        state = "waits for its service" if is_pending else "its service has passed it"
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
