"""Positions of consumer groups compared with the queues, from every place that keeps them.

The library counterpart of `mqtool offsets`. Source: ConsumerOffsetManager, LmqConsumerOffsetManager (4.9.7,
5.5.0);
LocalFileOffsetStore of the Java client.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mqtool.errors import FormatError, UsageError
from mqtool.formats import config_files
from mqtool.formats.service_records import GroupQueue
from mqtool.formats.topics import REVIVE_TOPIC_PREFIX
from mqtool.store.files import read_file
from mqtool.store.groups.offset_moves import QueueMessages, StoredQueues
from mqtool.store.log.selection import Globs
from mqtool.store.store import Store
from mqtool.store.waiting.held_back import waiting_messages
from mqtool.store.waiting.pending import timer_offsets
from mqtool.store.waiting.popped import open_check_points, open_offsets, popped_in_database


class PositionKind(StrEnum):
    """Meaning of a position."""

    COMMITTED = "committed"
    """What the group has consumed."""
    PULLED = "pulled"
    """The end of the last pull (pullOffsetTable, 5.x)."""
    BROADCAST = "broadcast"
    """What one client of a broadcasting group has consumed; in that client's file, not in the store."""


class Position(Struct, frozen=True):
    """Position of a group in one queue."""

    kind: PositionKind  # meaning of the number
    # group, topic, queue_id: names group and queue; the group is empty for a client's file, which does not name it.
    group: str
    topic: str
    queue_id: int
    offset: int  # next queue offset
    source: str  # file or database, relative to the root; a client's file as the user named it
    is_read: bool  # whether a broker that starts on the store reads this source
    min_offset: int | None  # and max_offset: of the queue; None if the queue is missing
    max_offset: int | None
    lag: int | None  # number of messages after the position; None if the queue is missing
    next_time: int | None  # store time of the next message, ms since the epoch; None if there is none
    # Number of messages that the group popped and did not acknowledge. They are delivered again after their invisible
    # time, whatever the position. None if POP's database cannot be read.
    in_flight: int | None = 0


def positions_of(
    store: Store,
    groups: Iterable[str] | None = None,
    topics: Iterable[str] | None = None,
    broadcast: Iterable[Path] = (),
) -> Iterator[Position]:
    """Yields positions by source, kind, group, topic and queue id.

    Groups and topics are globs, None for all. `broadcast` are `offsets.json` files of clients of broadcasting groups;
    they do not name their group, so `groups` leaves them out. Raises UsageError if one is not such a file; StoreError.
    """
    queues, selected, named = StoredQueues(store), Globs(groups), Globs(topics)
    popped, tables = in_flight(store), store.metadata.offset_tables
    for table in tables.tables:
        is_read = table is tables.read
        kinds = (
            (PositionKind.COMMITTED, table.offsets.by_group()),
            (PositionKind.PULLED, table.offsets.pulled_by_group()),
        )
        for kind, by_group in kinds:
            for group, topic, queue_id, offset in _flat(by_group):
                if selected.matches(group) and named.matches(topic):
                    position = _position(queues, kind, (group, topic, queue_id), offset, (table.name, is_read))
                    out = None if popped is None else popped[GroupQueue(group, topic, queue_id)]
                    yield replace(position, in_flight=out) if kind is PositionKind.COMMITTED else position
    if not selected.is_everything:
        return
    for path in broadcast:
        for (topic, queue_id), offset in sorted(broadcast_offsets(store, path).items()):
            if named.matches(topic):
                yield _position(queues, PositionKind.BROADCAST, ("", topic, queue_id), offset, (str(path), False))


def in_flight(store: Store) -> Counter[GroupQueue] | None:
    """Returns by queue how many popped messages each group has not acknowledged, None if unknown; raises StoreError."""
    counts: Counter[GroupQueue] = Counter()
    database = popped_in_database(store)
    if database.unknown or store.unread_queues:
        return None
    points = [*database.points]
    if any(queue.topic.startswith(REVIVE_TOPIC_PREFIX) for queue in store.queues()):
        points += open_check_points(store, timer_offsets(waiting_messages(store)))
    for point in points:
        counts[point.key] += len(open_offsets(point))
    return counts


def _flat(by_group: dict[str, dict[str, dict[int, int]]]) -> Iterator[tuple[str, str, int, int]]:
    for group, by_topic in sorted(by_group.items()):
        for topic, offsets in sorted(by_topic.items()):
            for queue_id, offset in sorted(offsets.items()):
                yield group, topic, queue_id, offset


def _position(
    queues: QueueMessages,
    kind: PositionKind,
    name: tuple[str, str, int],
    offset: int,
    source: tuple[str, bool],
) -> Position:
    bounds = queues.bounds(name[1], name[2])
    low, high = bounds or (None, None)
    following = None
    if low is not None and high is not None and offset < high:
        following = queues.message(name[1], name[2], max(low, offset))
    lag = None if high is None else max(0, high - offset)
    return Position(kind, *name, offset, *source, low, high, lag, following.store_time if following else None)


def broadcast_offsets(store: Store, path: Path) -> dict[tuple[str, int], int]:
    """Returns the positions in a client's `offsets.json`, by topic and queue id.

    The store's configuration may state `brokerName`; positions on other brokers are then left out. Raises UsageError if
    it is not such a file, or it has several brokers and the configuration does not say which; StoreError.
    """
    try:
        table = config_files.parse_broadcast_offsets(read_file(path))
    except FormatError as error:
        raise UsageError(f"{path}: {error}") from error
    named = store.config.text("brokerName")
    brokers = sorted({broker for _, broker, _ in table if named in (None, broker)})
    if len(brokers) > 1:
        reason = ", ".join(brokers)
        raise UsageError(f"{path}: positions on {reason}; give --config with the brokerName of this store")
    return {(topic, queue_id): offset for (topic, broker, queue_id), offset in table.items() if broker in brokers}
