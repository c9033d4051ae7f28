"""What somebody still needs of the messages that are to be deleted: a group has not read them, or they wait.

A group without a position starts at the end or at the beginning of a queue, as its consumers are configured
(RebalancePushImpl.computePullFromWhere, 4.9.7, 5.5.0). So nobody is known to need the messages of a queue in which no
group has a position, and they are counted apart. If no queue has one, the positions are lost: a broker that cannot
start because topics.json is damaged writes an empty consumerOffset.json (BrokerController.shutdown, 4.9.7, 5.5.0).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mqtool.formats.topics import is_lmq, is_system_topic
from mqtool.records.damage import Damage
from mqtool.records.dispatch import is_queued
from mqtool.store.queues.consume_queue import Queue, lags_of, units_from
from mqtool.store.store import Store
from mqtool.store.waiting.held_back import Undelivered, waiting_by_segment

ADVICE = "export these messages first, or add --allow-unread to delete them as well"


class Unread(Struct, frozen=True):
    """Messages of a queue in one segment that a group has not read."""

    group: str | None  # None: no group has a position in the queue
    topic: str
    queue_id: int
    first: int  # queue offset
    last: int  # queue offset, inclusive

    @property
    def messages(self) -> int:
        """Their number."""
        return self.last - self.first + 1


class Needed(Struct, frozen=True):
    """What somebody still needs of one segment, or of several."""

    unread: tuple[Unread, ...] = ()
    waiting: tuple[Undelivered, ...] = ()  # not delivered by the broker yet, or popped and not acknowledged
    unknown: str = ""  # why it is unknown which messages are unread; "" if it is known

    @property
    def unread_messages(self) -> int:
        """Number of messages that a group has not read, counted by group."""
        return sum(part.messages for part in self.unread if part.group is not None)

    @property
    def unclaimed_messages(self) -> int:
        """Number of messages of queues in which no group has a position."""
        return sum(part.messages for part in self.unread if part.group is None)

    @property
    def waiting_messages(self) -> int:
        """Number of messages that wait."""
        return sum(part.messages for part in self.waiting)

    def __bool__(self) -> bool:
        return bool(self.unknown or self.unread_messages or self.waiting)

    @property
    def words(self) -> str:
        """The numbers in one line."""
        if self.unknown:
            return f"which of them are unread is unknown: {self.unknown}"
        unclaimed = self.unclaimed_messages
        more = f", {unclaimed} in queues in which no group has a position" if unclaimed else ""
        return f"{self.unread_messages} unread, {self.waiting_messages} waiting for delivery{more}"

    @property
    def notes(self) -> list[str]:
        """A line for each group and queue with unread messages, and for each topic without positions."""
        counts: Counter[tuple[str, str]] = Counter()
        for part in self.unread:
            if part.group is None:
                counts["no group has a position for", part.topic] += part.messages
            else:
                counts[f"group {part.group} has not read", f"{part.topic}/{part.queue_id}"] += part.messages
        words = [f"{who} {count} messages of {queue} that are removed" for (who, queue), count in counts.items()]
        return [self.words, *words] if self.unknown else words


def combined(parts: Iterable[Needed]) -> Needed:
    """Returns what is needed of several segments."""
    listed = list(parts)
    return Needed(
        tuple(unread for part in listed for unread in part.unread),
        tuple(waiting for part in listed for waiting in part.waiting),
        next((part.unknown for part in listed if part.unknown), ""),
    )


def needed_by_segment(store: Store, topics: Collection[str] | None = None) -> list[Needed]:
    """Returns what is needed of each segment, oldest first, as queues and positions show it; raises StoreError."""
    bases = [segment.base for segment in store.commit_log.segments]
    unread: list[list[Unread]] = [[] for _ in bases]
    for group, queue, start in _positions(store):
        if topics is None or queue.topic in topics:
            offsets, physical = units_from(queue, max(start, queue.min_offset, 0))
            for (begin, end), segment in zip(pairwise(cuts(physical, bases)), unread, strict=True):
                if begin < end:
                    first, last = int(offsets[begin]), int(offsets[end - 1])
                    segment.append(Unread(group, queue.topic, queue.queue_id, first, last))
    lost = _unknown_positions(store)
    needed = []
    for parts, waiting in zip(unread, _waiting(store, topics), strict=True):
        claimed = tuple(part for part in parts if part.group is not None)
        is_unknown = bool(lost) and len(claimed) < len(parts)
        needed.append(Needed(claimed if lost else tuple(parts), waiting, lost if is_unknown else ""))
    return needed


def first_needed(store: Store, needed: Sequence[Needed], topics: Collection[str] | None = None) -> tuple[int, Needed]:
    """Returns how many of the first segments nobody needs, and what is needed of the next one; raises StoreError.

    Reads these segments: whether a message is read is unknown if no queue names it.
    """
    units: list[int] = []
    for number, part in enumerate(needed):
        if part:
            return number, part
        units = units or _units_by_segment(store, topics)
        if unknown := _unnamed(store, number, units[number], topics):
            return number, replace(part, unknown=unknown)
    return len(needed), Needed()


def cuts(physical: np.ndarray, bases: list[int]) -> list[int]:
    """Returns the index of the first unit of each segment, and the number of units."""
    return [*np.searchsorted(physical, bases).tolist(), len(physical)]


def _positions(store: Store) -> Iterator[tuple[str | None, Queue, int]]:
    """Yields queues with the position of each group that has not read all of it; with None if no group has one."""
    known: set[tuple[str, int]] = set()
    positions: dict[str, dict[str, dict[int, int]]] = {}
    tables = store.metadata.offset_tables
    for table in (*tables.tables, tables.read):  # a broker with another configuration reads another one
        for group, topics in table.offsets.by_group().items() if table else ():
            for topic, offsets in topics.items():
                positions.setdefault(group, {}).setdefault(topic, {}).update(offsets)
    for lag in lags_of(positions, store.queue):
        known.add((lag.topic, lag.queue_id))
        queue = store.queue(lag.topic, lag.queue_id)
        if queue is not None and lag.lag:
            yield lag.group, queue, lag.consumer_offset
    for queue in store.queues():
        is_ours = is_system_topic(queue.topic) or is_lmq(queue.topic)
        if not is_ours and (queue.topic, queue.queue_id) not in known:
            yield None, queue, 0


def _unknown_positions(store: Store) -> str:
    """Returns why the positions of groups are unknown; "" if they are known."""
    tables, groups = store.metadata.offset_tables, store.metadata.consumer_offsets
    if tables.unread or any(not is_system_topic(topic) for topics in groups.values() for topic in topics):
        return tables.unread
    return f"{tables.written} has no positions" if tables.read else f"{tables.written} and its .bak are missing"


def _waiting(store: Store, topics: Collection[str] | None) -> list[tuple[Undelivered, ...]]:
    return [
        tuple(item for item in waiting if topics is None or item.topic in topics)
        for _, waiting in waiting_by_segment(store)
    ]


def _units_by_segment(store: Store, topics: Collection[str] | None) -> list[int]:
    """Returns the number of records of each segment that queues of their own topic name."""
    bases = [segment.base for segment in store.commit_log.segments]
    counts = np.zeros(len(bases), np.int64)
    for queue in store.queues():
        if not is_lmq(queue.topic) and (topics is None or queue.topic in topics):
            counts += np.diff(cuts(units_from(queue, max(queue.min_offset, 0))[1], bases))
    return counts.tolist()


def _unnamed(store: Store, number: int, units: int, topics: Collection[str] | None) -> str:
    """Returns why it is unknown whether all messages of a segment are read; "" if queues name all of them.

    Messages of a topic that was deleted are nobody's.
    """
    segment, records = store.commit_log.segments[number], 0
    named = {queue.topic for queue in store.queues()} | store.metadata.topics.keys()
    for item in store.commit_log.walk(segment.base, segment.end, crc=False, refills=True):
        if isinstance(item, Damage):
            return f"{segment.path.name} is damaged at physical offset {item.start}"
        codes, names = item.coded_topics
        counted = [
            name in topics if topics is not None else name in named or store.metadata.topics_file is None
            for name in names
        ]
        records += int((np.array(counted, bool)[codes] & is_queued(item)).sum())
    return f"{records - units} messages of {segment.path.name} are in no queue" if records > units else ""
