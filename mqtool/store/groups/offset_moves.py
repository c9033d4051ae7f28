"""Moves of consumer positions: the moves that a request asks for, and the messages that groups then get again or miss.

Positions come in as numbers, queues as `QueueMessages`: a store answers from its files, `mqtool.server.offsets` asks a
running broker. Plans for both (`mqtool.repair.offsets`, `mqtool.server.offsets`) consist of the same moves.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Protocol

from msgspec import Struct, field

from mqtool.errors import UsageError
from mqtool.formats.topics import is_retry_of
from mqtool.store.log.message import Message
from mqtool.store.log.selection import Globs
from mqtool.store.queues.get_message import first_delivered
from mqtool.store.store import Store

_AT_ONCE = 32

Committed = Mapping[str, Mapping[str, Mapping[int, int]]]
"""Group to topic to queue id to next queue offset."""

_OFFSET = (int, type(None))

_MOVE_FIELDS = {"group": (str,), "topic": (str,), "queue_id": (int,), "before": _OFFSET, "after": _OFFSET}


class QueueMessage(Struct, frozen=True):
    """Summary of a message in a queue."""

    queue_offset: int  # its place
    store_time: int  # ms since the epoch
    key: str | None  # its first key, otherwise its unique key; None if it has neither
    message_id: str  # offset message id

    @classmethod
    def of(cls, message: Message) -> "QueueMessage":
        """Returns the summary of a message."""
        key = next(iter(message.keys), message.unique_key)
        return cls(message.queue_offset, message.store_timestamp, key, message.offset_message_id)


class QueueMessages(Protocol):
    """Queues and their messages."""

    def topics(self) -> dict[str, tuple[int, ...]]:
        """Returns the queue ids of each topic that has queues."""

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Returns minimum and maximum offset of a queue; None if it is missing."""

    def at_time(self, topic: str, queue_id: int, time: int) -> int:
        """Returns the queue offset for a store time in ms, as the broker does (getOffsetInQueueByTime)."""

    def messages(self, topic: str, queue_id: int, start: int, end: int) -> Iterator[QueueMessage]:
        """Yields the messages with queue offsets in [start, end) that can be read, in order."""

    def message(self, topic: str, queue_id: int, queue_offset: int) -> QueueMessage | None:
        """Returns one message; None if it cannot be read."""


class StoredQueues:
    """The queues of a store on disk; after a crash as a broker's start completes them."""

    def __init__(self, store: Store) -> None:
        """Takes an open store."""
        self._store = store

    def topics(self) -> dict[str, tuple[int, ...]]:
        """Returns the queue ids of each topic that has queues."""
        queue_ids: dict[str, list[int]] = {}
        for queue in self._store.queues():
            queue_ids.setdefault(queue.topic, []).append(queue.queue_id)
        return {topic: tuple(ids) for topic, ids in queue_ids.items()}

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Returns minimum and maximum offset of a queue; None if it is missing."""
        queue = self._store.queue(topic, queue_id)
        return None if queue is None else (max(0, queue.min_offset), max(0, queue.max_offset))

    def at_time(self, topic: str, queue_id: int, time: int) -> int:
        """Returns the queue offset for a store time in ms, as the broker does (getOffsetInQueueByTime)."""
        return max(0, self._store.offset_in_queue_by_time(topic, queue_id, time))

    def messages(self, topic: str, queue_id: int, start: int, end: int) -> Iterator[QueueMessage]:
        """Yields the messages with queue offsets in [start, end) that can be read, in order."""
        at = start
        while at < end:
            result = self._store.get_message(topic, queue_id, at, min(_AT_ONCE, end - at))
            for message in result.messages:
                if start <= message.queue_offset < end:
                    yield QueueMessage.of(message)
            if result.next_begin_offset <= at:
                return
            at = result.next_begin_offset

    def message(self, topic: str, queue_id: int, queue_offset: int) -> QueueMessage | None:
        """Returns one message; None if it cannot be read."""
        return next(self.messages(topic, queue_id, queue_offset, queue_offset + 1), None)


class TargetKind(StrEnum):
    """How the new position in a queue is determined."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    OFFSET = "offset"
    SHIFT = "shift"
    CLAMP = "clamp"
    GROUP = "group"
    GIVEN = "given"
    DELETE = "delete"


_NEEDS_POSITION = (TargetKind.SHIFT, TargetKind.CLAMP, TargetKind.DELETE)


class Target(Struct, frozen=True):
    """The new positions."""

    kind: TargetKind  # how a new position is determined
    value: int = 0  # ms since the epoch (time), queue offset (offset), or number of messages forwards (shift)
    group: str = ""  # group whose positions are copied (group)
    positions: Committed = field(default_factory=dict)  # by group, topic and queue id (given)


class Scope(Struct, frozen=True):
    """The positions to move."""

    groups: tuple[str, ...]  # and topics: globs; no topics means the topics in which a group has positions
    topics: tuple[str, ...] = ()
    queue_id: int | None = None  # only this queue of each topic


class Move(Struct, frozen=True):
    """A new position of a group in one queue."""

    group: str  # and topic, queue_id: names group and queue
    topic: str
    queue_id: int
    before: int | None  # and after: next queue offset; None for no position
    after: int | None


def move_from_json(value: object) -> Move:
    """Reads a move, an object with its attributes; raises UsageError if a field is missing or has a wrong type."""
    if isinstance(value, dict) and value.keys() == _MOVE_FIELDS.keys():
        fits = all(type(value[name]) in allowed for name, allowed in _MOVE_FIELDS.items())
        if fits and (value["after"] or 0) >= 0:
            return Move(**value)
    raise UsageError(f"moves: found {str(value)[:60]!r}")


class Span(Struct, frozen=True):
    """Consecutive messages of a queue."""

    start: int  # and end: queue offsets, half-open
    end: int
    first: QueueMessage | None  # and last: the first and the last message; None if it cannot be read
    last: QueueMessage | None

    @property
    def count(self) -> int:
        """Number of queue offsets."""
        return self.end - self.start


class Effect(Struct, frozen=True):
    """Effect of a move on the messages of its queue, before a group's own filter."""

    move: Move  # the move
    again: Span | None  # messages that the group was past and will get again; None for none
    never: Span | None  # messages that the group had before it and will not get; None for none
    # False if the group has no position before or after the move. Clients then begin where their own setting says
    # (consumeFromWhere), and the two spans are the maximum.
    certain: bool
    has_queue: bool = True  # False if the queue is missing
    ahead: int = 0  # number of messages from the new position to the end of the queue


# -- from a request to moves -----------------------------------------------------------------------------------------


def moves_of(
    scope: Scope, target: Target, committed: Committed, known: Iterable[str], queues: QueueMessages
) -> list[Move]:
    """Returns the moves that a request asks for, without those that change nothing.

    `known` are further groups, those with a configuration. Raises UsageError if nothing matches, a position is outside
    of its queue, or a source has no positions.
    """
    groups = _groups(scope, target, committed, known)
    moves: list[Move] = []
    matched = False
    for group in groups:
        own = committed.get(group, {})
        for topic, queue_id in _places(scope, target, group, own, queues):
            matched = True
            before = own.get(topic, {}).get(queue_id)
            after = _after(target, group, topic, queue_id, before, queues)
            if after != before:
                moves.append(Move(group, topic, queue_id, before, after))
    if not matched:
        reason = f"{' '.join(scope.groups)} in {' '.join(scope.topics) or 'any topic'}"
        if scope.queue_id is not None:
            reason += f", queue {scope.queue_id}"
        hint = "name the topics with --topic to set positions in queues without one"
        if scope.topics:
            hint = "`mqtool info` lists topics and queues, `mqtool offsets` the positions"
        unknown = _unknown(groups, {*committed, *known})
        raise UsageError("; ".join([f"nothing to move: no position of {reason}", *unknown, hint]))
    return moves


def _unknown(groups: Iterable[str], every: Collection[str]) -> Iterator[str]:
    """Yields a line for each group that nobody knows, with names that differ from its own by case only."""
    for group in groups:
        if group not in every:
            alike = sorted(name for name in every if name.lower() == group.lower())
            hint = f"; {', '.join(alike)} differs only by case" if alike else ""
            yield f"no group {group} has a position or a configuration here{hint}"


def _groups(scope: Scope, target: Target, committed: Committed, known: Iterable[str]) -> list[str]:
    """Returns the selected groups; a name without wildcards may be that of a group without positions."""
    every = {*committed, *known, *(target.positions if target.kind is TargetKind.GIVEN else ())}
    globs = Globs(scope.groups)
    groups = sorted(name for name in every if globs.matches(name))
    if target.kind not in _NEEDS_POSITION:
        literal = (name for name in scope.groups if not set(name) & set("*?["))
        groups += [name for name in literal if name not in every]
    if not groups:
        unknown = "; ".join(_unknown(scope.groups, every))
        raise UsageError(f"{unknown}; `mqtool offsets` lists the groups that have positions")
    return groups


def _places(
    scope: Scope, target: Target, group: str, own: Mapping[str, Mapping[int, int]], queues: QueueMessages
) -> Iterator[tuple[str, int]]:
    """Yields the selected queues of a group, by topic and queue id."""
    globs = Globs(scope.topics)
    places = {(topic, queue_id) for topic, offsets in own.items() for queue_id in offsets}
    if target.kind in (TargetKind.GIVEN, TargetKind.GROUP):
        source = target.positions.get(target.group or group, {})
        places = {(topic, queue_id) for topic, offsets in source.items() for queue_id in offsets}
        if target.group:  # retries of the other group are not this one's
            places = {place for place in places if not is_retry_of(place[0], target.group)}
    elif target.kind not in _NEEDS_POSITION:
        existing = queues.topics()
        topics = existing if scope.topics else own
        places |= {
            (topic, queue_id) for topic in topics if globs.matches(topic) for queue_id in existing.get(topic, ())
        }
    for topic, queue_id in sorted(places):
        if globs.matches(topic) and scope.queue_id in (None, queue_id):
            yield topic, queue_id


def _after(
    target: Target, group: str, topic: str, queue_id: int, before: int | None, queues: QueueMessages
) -> int | None:
    """Returns the new position in one queue."""
    if target.kind is TargetKind.DELETE:
        return None
    if target.kind in (TargetKind.GIVEN, TargetKind.GROUP):
        return target.positions[target.group or group][topic][queue_id]
    low, high = queues.bounds(topic, queue_id) or (0, 0)
    match target.kind:
        case TargetKind.EARLIEST:
            return low
        case TargetKind.LATEST:
            return high
        case TargetKind.TIME:
            return queues.at_time(topic, queue_id, target.value)
        case TargetKind.OFFSET:
            if not low <= target.value <= high:
                reason = f"expected a queue offset of {low} to {high}, found {target.value}"
                raise UsageError(f"{topic}/{queue_id}: {reason}; choose queues with --topic and --queue")
            return target.value
    assert before is not None
    moved = before + (target.value if target.kind is TargetKind.SHIFT else 0)
    return min(max(moved, low), high)


def case_lints(groups: Iterable[str], every: Iterable[str]) -> Iterator[str]:
    """Yields a line for each group whose name differs from another's only in case."""
    names = set(every)
    for group in groups:
        others = sorted(name for name in names if name != group and name.lower() == group.lower())
        if others:
            yield f"group {group}: {', '.join(others)} differs only by case and is another group for the broker"


# -- from moves to messages ------------------------------------------------------------------------------------------


def effect_of(move: Move, queues: QueueMessages) -> Effect:
    """Returns which messages a group gets again, and which it will never get, because of a move."""
    bounds = queues.bounds(move.topic, move.queue_id)
    certain = move.before is not None and move.after is not None
    if bounds is None:
        return Effect(move, None, None, certain, has_queue=False)
    low, high = bounds

    def begins(offset: int) -> int:
        return min(max(first_delivered(low, high, offset), low), high)

    if move.before is not None and move.after is not None:
        was, will = begins(move.before), begins(move.after)
        again, never = (will, was), (was, will)
    elif move.after is not None:
        again, never = (high, high), (low, begins(move.after))
    else:
        was = begins(move.before or 0)
        again, never = (low, was), (was, high)
    ahead = 0 if move.after is None else high - begins(move.after)
    return Effect(move, _span(move, again, queues), _span(move, never, queues), certain, ahead=ahead)


def _span(move: Move, offsets: tuple[int, int], queues: QueueMessages) -> Span | None:
    start, end = offsets
    if start >= end:
        return None
    first = queues.message(move.topic, move.queue_id, start)
    return Span(start, end, first, queues.message(move.topic, move.queue_id, end - 1))


def words_of(effect: Effect, time: Callable[[int], str]) -> str:
    """Returns an effect as one line of a plan; `time` formats ms since the epoch."""
    move = effect.move
    names = ["none" if position is None else str(position) for position in (move.before, move.after)]
    parts = [f"group {move.group}, {move.topic}/{move.queue_id}: position {names[0]} → {names[1]}"]
    up_to = "" if effect.certain else "up to "
    for span, verb in ((effect.again, "delivered again"), (effect.never, "never delivered")):
        if span is not None:
            parts.append(f"{up_to}{span.count} message(s) {verb} ({_ends(span, time)})")
    if not effect.has_queue:
        parts.append("the queue is missing")
    elif move.before is None:
        parts.append(f"{effect.ahead} message(s) will be delivered")
    elif len(parts) == 1:
        parts.append("no message is delivered again or skipped")
    if not effect.certain:
        parts.append("without a position, clients begin where their consumeFromWhere states")
    return "; ".join(parts)


def _ends(span: Span, time: Callable[[int], str]) -> str:
    ends = []
    for offset, message in ((span.start, span.first), (span.end - 1, span.last)):
        known = f" {time(message.store_time)} key {message.key}" if message is not None else " not readable"
        ends.append(f"{offset}{known}")
    return " to ".join(ends if span.count > 1 else ends[:1])
