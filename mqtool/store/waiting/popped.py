"""Open check points of POP: messages that a group popped and did not acknowledge.

When messages are popped, a check point is written as a timer message, and so is each acknowledgement. The timer
delivers both to the revive topic after the invisible time, and the broker then delivers unacknowledged messages again.
So open check points are among the waiting timers, and in the revive topic after the position of the revive group.
Source: PopMessageProcessor, AckMessageProcessor, PopReviveService (5.5.0).
"""

import contextlib
from collections.abc import Iterable, Iterator

from mqtool.errors import FormatError, StoreError
from mqtool.formats import properties, topics
from mqtool.formats.service_records import REVIVE_GROUP, Ack, CheckPoint, PointIdentity, revive_record
from mqtool.store.queues.consume_queue import Queue, units_from
from mqtool.store.store import Store


def open_check_points(store: Store, parked: Iterable[int]) -> list[CheckPoint]:
    """Returns check points with unacknowledged messages; `CheckPoint.done` names the acknowledged ones.

    An unreadable record is not a check point and acknowledges nothing.

    Args:
        store: the store.
        parked: physical offsets of waiting timer messages.
    """
    points: dict[PointIdentity, CheckPoint] = {}
    acks: list[Ack] = []
    for record in _records(store, parked):
        if isinstance(record, CheckPoint):
            points[record.identity] = record
        else:
            acks.append(record)
    names = broker_names(store, points.values())
    for ack in acks:
        ack.acknowledge(points, names)
    return [point for point in points.values() if len(point.done) < len(set(point.offsets))]


def broker_names(store: Store, points: Iterable[CheckPoint]) -> set[str]:
    """Returns the configured name of the store's broker; without one, all names of brokers in some check points."""
    named = store.config.text("brokerName")
    return {named} if named else {point.broker_name for point in points} - {""}


def open_offsets(point: CheckPoint) -> list[int]:
    """Returns the queue offsets of a check point's unacknowledged messages."""
    return sorted(set(point.offsets) - point.done)


def _records(store: Store, parked: Iterable[int]) -> Iterator[CheckPoint | Ack]:
    for physical_offset in parked:
        record = revive_record_at(store, physical_offset, is_parked=True)
        if record is not None:
            yield record
    for queue in store.queues():
        if queue.topic.startswith(topics.REVIVE_TOPIC_PREFIX):
            yield from _arrived(store, queue)


def _arrived(store: Store, queue: Queue) -> Iterator[CheckPoint | Ack]:
    """Yields the content of a revive queue after the last check point that the broker has settled."""
    positions = store.metadata.consumer_offsets.get(REVIVE_GROUP, {}).get(queue.topic, {})
    start = max(queue.min_offset, positions.get(queue.queue_id, -1) + 1)
    for physical_offset in units_from(queue, start)[1].tolist():
        record = revive_record_at(store, physical_offset)
        if record is not None:
            yield record


def revive_record_at(store: Store, physical_offset: int, *, is_parked: bool = False) -> CheckPoint | Ack | None:
    """Returns the check point or acknowledgement in a record, None if it is another message or unreadable.

    Args:
        store: the store.
        physical_offset: of the record.
        is_parked: the record is a timer message and must be for a revive topic.
    """
    with contextlib.suppress(FormatError, StoreError):
        record = store.commit_log.record(physical_offset)
        values = properties.decode(record.properties)
        if is_parked and not values.get(properties.REAL_TOPIC, "").startswith(topics.REVIVE_TOPIC_PREFIX):
            return None
        return revive_record(values.get(properties.TAGS, ""), bytes(record.body))
    return None
