"""Messages that a group popped and did not acknowledge: open check points of POP, in the log or in RocksDB.

When messages are popped, a check point is written as a timer message, and so is each acknowledgement. The timer
delivers both to the revive topic after the invisible time, and the broker then delivers unacknowledged messages again.
So open check points are among the waiting timers, and in the revive topic after the position of the revive group.
With popConsumerKVServiceEnable each unacknowledged message has a record in the column family `popState` of `kvStore`
instead; an acknowledgement deletes it. Source: PopMessageProcessor, AckMessageProcessor, PopReviveService,
PopConsumerService, PopConsumerRocksdbStore, PopConsumerRecord (5.5.0).
"""

import contextlib
import json
from collections.abc import Iterable, Iterator

from msgspec import Struct

from mqtool.errors import FormatError, StoreError, UnavailableError
from mqtool.formats import java, properties, topics
from mqtool.formats.service_records import REVIVE_GROUP, Ack, CheckPoint, GroupQueue, PointIdentity, revive_record
from mqtool.store.config import rocksdb
from mqtool.store.queues.consume_queue import Queue, units_from
from mqtool.store.store import Store

POP_DATABASE = "kvStore"

_FAMILY = "popState"


def open_check_points(store: Store, parked: Iterable[int]) -> list[CheckPoint]:
    """Returns check points with unacknowledged messages; `CheckPoint.done` names the acknowledged ones.

    An unreadable record is not a check point and acknowledges nothing. `parked` are physical offsets of timer messages.
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
    """Returns the check point or acknowledgement in a record, or None; a parked one must be for a revive topic."""
    with contextlib.suppress(FormatError, StoreError):
        record = store.commit_log.record(physical_offset)
        values = properties.decode(record.properties)
        if is_parked and not values.get(properties.REAL_TOPIC, "").startswith(topics.REVIVE_TOPIC_PREFIX):
            return None
        return revive_record(values.get(properties.TAGS, ""), bytes(record.body))
    return None


class KvPopped(Struct, frozen=True):
    """Content of the database."""

    points: tuple[CheckPoint, ...] = ()  # a check point for each unacknowledged message
    unknown: str = ""  # why there may be others, otherwise ""


def popped_in_database(store: Store) -> KvPopped:
    """Returns the unacknowledged messages; none if the store has no such database."""
    path = store.path / POP_DATABASE
    try:
        if not path.is_dir() or not rocksdb.is_database(path):
            return KvPopped()
        with rocksdb.Database(path) as database:
            return _points(database)
    except (StoreError, UnavailableError) as error:
        return KvPopped(unknown=f"{POP_DATABASE}, which contains popped messages: {error}")


def _points(database: rocksdb.Database) -> KvPopped:
    points, problems = [], []
    for _, value in database.items(_FAMILY):
        try:
            points.append(_point(value))
        except (ValueError, TypeError, KeyError, FormatError, RecursionError):
            problems.append(value[:40])
    words = f"{POP_DATABASE}: {len(problems)} record(s) are not POP records"
    unknown = f"{words}, the first: {problems[0]!r}" if problems else ""
    return KvPopped(tuple(points), unknown)


def _point(value: bytes) -> CheckPoint:
    document = json.loads(value)
    offset = java.json_long(document["offset"])
    key = GroupQueue(str(document["groupId"]), str(document["topicId"]), java.json_int(document["queueId"]))
    return CheckPoint(
        key, offset, [offset], java.json_long(document["popTime"]), java.json_long(document["invisibleTime"]), ""
    )


def has_pop_database(store: Store) -> bool:
    """Whether the store has such a database."""
    path = store.path / POP_DATABASE
    return path.is_dir() and rocksdb.is_database(path)
