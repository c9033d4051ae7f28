"""Check points of POP that are still open: messages that a group popped and did not acknowledge.

A check point is written as a timer message when messages are popped, and so is each acknowledgement. The timer delivers
both to the revive topic when the invisible time is over, and the broker then puts again what was not acknowledged.
So open check points are among the timers that wait, and in the revive topic after the position of the revive group.
Source: PopMessageProcessor, AckMessageProcessor, PopReviveService (5.5.0).
"""

import contextlib
from collections.abc import Iterable, Iterator

from mqtool.errors import FormatError, StoreError
from mqtool.formats import properties, topics
from mqtool.formats.service_records import REVIVE_GROUP, Ack, CheckPoint, revive_record
from mqtool.store.consume_queue import Queue
from mqtool.store.queue_units import units_from
from mqtool.store.store import Store


def open_check_points(store: Store, parked: Iterable[int]) -> list[CheckPoint]:
    """Returns check points with messages that are not acknowledged; `CheckPoint.done` has the others.

    A record that cannot be read is no check point and acknowledges nothing.

    Args:
        store: where.
        parked: physical offsets of timer messages that wait.
    """
    points: dict[object, CheckPoint] = {}
    acks: list[Ack] = []
    for record in _records(store, parked):
        if isinstance(record, CheckPoint):
            points[record.identity] = record
        else:
            acks.append(record)
    for ack in acks:
        point = points.get(ack.identity)
        if point is not None:
            point.done.update(offset for offset in ack.offsets if offset in point.offsets)
    return [point for point in points.values() if len(point.done) < len(set(point.offsets))]


def open_offsets(point: CheckPoint) -> list[int]:
    """Returns the queue offsets of a check point's messages that are not acknowledged."""
    return sorted(set(point.offsets) - point.done)


def _records(store: Store, parked: Iterable[int]) -> Iterator[CheckPoint | Ack]:
    for physical_offset in parked:
        found = revive_record_at(store, physical_offset, is_parked=True)
        if found is not None:
            yield found
    for queue in store.queues():
        if queue.topic.startswith(topics.REVIVE_TOPIC_PREFIX):
            yield from _arrived(store, queue)


def _arrived(store: Store, queue: Queue) -> Iterator[CheckPoint | Ack]:
    """Yields what is in a revive queue after the last check point that the broker has settled."""
    positions = store.metadata.consumer_offsets.get(REVIVE_GROUP, {}).get(queue.topic, {})
    start = max(queue.min_offset, positions.get(queue.queue_id, -1) + 1)
    for physical_offset in units_from(queue, start)[1].tolist():
        found = revive_record_at(store, physical_offset)
        if found is not None:
            yield found


def revive_record_at(store: Store, physical_offset: int, *, is_parked: bool = False) -> CheckPoint | Ack | None:
    """Returns the check point or acknowledgement in a record, None if it is another message or cannot be read.

    Args:
        store: where.
        physical_offset: of the record.
        is_parked: it is a timer message: it must be one for a revive topic.
    """
    with contextlib.suppress(FormatError, StoreError):
        record = store.commit_log.record(physical_offset)
        found = properties.decode(record.properties)
        if is_parked and not found.get(properties.REAL_TOPIC, "").startswith(topics.REVIVE_TOPIC_PREFIX):
            return None
        return revive_record(found.get(properties.TAGS, ""), bytes(record.body))
    return None
