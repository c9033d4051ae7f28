"""The broker's getMessage: messages of a queue from an offset on, with its filters, limits, statuses and next offsets.

One function over two views. The files of a running engine, a store on disk, a crashed store seen as if it had been
started, and a damaged store that is served read-only differ only in where units and records come from; each has a
`QueueView` and a `LogView`. Source: DefaultMessageStore.getMessage, isTheBatchFull, checkInDiskByCommitOffset,
rollNextFile of CommitLog and ConsumeQueue, ExpressionMessageFilter, DefaultMessageFilter,
FilterAPI.buildSubscriptionData (4.9.7, 5.5.0), BatchConsumeQueue.getBatchMsgIndexBuffer (5.5.0).
Docs page: docs/engine.md.
"""

import enum
from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from mqtool.formats import java
from mqtool.formats.consume_queue import ConsumeQueueExtUnit, is_ext_address
from mqtool.formats.release import V5_5
from mqtool.formats.sql92 import Expression

ALL = "*"

LONGEST_PULL = 128 << 20
"""Bytes; a longer one is not asked for (MAX_PULL_MSG_SIZE)."""

SHORTEST_PULL = 100

R = TypeVar("R")

F = TypeVar("F")


class MessageFilter(Protocol):
    """The interface that a get calls."""

    def by_unit(self, tags_code: int, ext: ConsumeQueueExtUnit | None) -> bool:
        """Whether the message may match, judging by its unit."""

    def by_record(self, properties: dict[str, str]) -> bool:
        """Whether the record matches; called only if `by_unit` returned True."""


class TagFilter:
    """Selects messages by the hashes of their tags; hashes may collide."""

    def __init__(self, expression: str) -> None:
        """Parses an expression such as "TagA || TagB"; "*" or "" selects all, "* " only the tag "*" (FilterAPI)."""
        self._takes_all = expression in ("", ALL)
        tags = () if self._takes_all else map(java.trim, expression.split("||"))
        self.tags = tuple(filter(None, tags))
        self._codes = frozenset(java.string_hash(tag) for tag in self.tags)

    def by_unit(self, tags_code: int, ext: ConsumeQueueExtUnit | None) -> bool:
        """Whether the tag's hash is one of the selected; always true if the extension cannot be read."""
        if self._takes_all:
            return True
        if is_ext_address(tags_code):
            if ext is None:
                return True
            tags_code = ext.tags_code
        return java.to_int32(tags_code) in self._codes

    def by_record(self, properties: dict[str, str]) -> bool:  # noqa: ARG002 - the other filter needs it
        """Always true: the client compares the tags themselves."""
        return True

    def by_tag(self, tag: str | None) -> bool:
        """Whether the tag itself is one of the selected (FilterUtils.isTagMatched)."""
        return not self.tags or tag in self.tags


class SqlFilter:
    """Selects messages whose properties satisfy an SQL92 expression."""

    def __init__(self, expression: str) -> None:
        """Compiles a consumer's expression; raises UsageError if the expression is invalid."""
        self._expression = Expression(expression, release=V5_5)

    def by_unit(self, tags_code: int, ext: ConsumeQueueExtUnit | None) -> bool:  # noqa: ARG002 - of every filter
        """Returns True: the record decides."""
        return True

    def by_record(self, properties: dict[str, str]) -> bool:
        """Whether the expression is true; one that is unknown because a property is missing counts as false."""
        return self._expression.matches(properties)


class GetStatus(enum.Enum):
    """The broker's GetMessageStatus."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_RESET = "OFFSET_RESET"


class Unit(NamedTuple):
    """A unit of either kind of queue."""

    queue_offset: int  # of its first message
    messages: int  # number of messages in its record
    physical_offset: int  # and size: of the record
    size: int
    tags_code: int  # hash of the tag, time of delivery, or address in the extension


class QueueView(Protocol):
    """The units of one queue."""

    @property
    def min_offset(self) -> int:
        """First queue offset whose record the log still has."""

    @property
    def max_offset(self) -> int:
        """Queue offset of the next message."""

    @property
    def unit_size(self) -> int:
        """Bytes of a unit."""

    def units_from(self, queue_offset: int, count: int, limit: int) -> Iterable[tuple[int, int, int, int, int]]:
        """Yields units, as the fields of `Unit`, from an offset to the end of its file; about `count` are needed."""

    @property
    def file_units(self) -> int:
        """Units of a file; 0 in a BatchConsumeQueue, where files do not begin at fixed queue offsets."""

    def ext_unit(self, address: int) -> ConsumeQueueExtUnit | None:
        """Returns the unit of the extension at an address, None if there is none."""


class Offsets(Protocol):
    """Queue offsets of the units of one file."""

    def __len__(self) -> int:
        """Number of units."""

    def __getitem__(self, index: int, /) -> int:
        """Returns the queue offset of the first message of a unit."""


class LogView(Protocol[R]):
    """The records of a log, in the form that the caller wants."""

    @property
    def min_offset(self) -> int:
        """Physical offset of the first byte; not positive if there is none."""

    @property
    def max_offset(self) -> int:
        """Physical offset after the last byte that can be read."""

    def record(self, physical_offset: int, size: int) -> R | None:
        """Returns a record, of 0 bytes too; None if its bytes are not complete."""

    def after_missing(self, physical_offset: int) -> int:
        """Returns the physical offset at which to continue after a missing record."""

    def properties(self, record: R) -> dict[str, str]:
        """Returns the properties of a record."""


class GetLimits(NamedTuple):
    """The broker's limits on one get."""

    bytes_in_memory: int = 262_144  # and count_in_memory, bytes_on_disk, count_on_disk: maxTransfer…OnMessageIn…
    count_in_memory: int = 32
    bytes_on_disk: int = 65_536
    count_on_disk: int = 8
    filter_bytes: int = 16_000  # bytes of the queue that a get reads at most (maxFilterMessageSize)
    memory: int | None = None  # bytes at the end of the log that count as being in memory; None if all of it does


DEFAULT_LIMITS = GetLimits()


class Found(NamedTuple, Generic[R]):
    """Result of a get."""

    status: GetStatus  # the answer
    next_begin_offset: int  # queue offset for the next get
    min_offset: int  # and max_offset: of the queue
    max_offset: int
    records: Sequence[R]  # those found, in order
    queue_offsets: Sequence[int]  # of each record, by its unit (of an inner batch: of its first message)
    size: int = 0  # sum of the records' sizes
    # The last record read is older than the part of the log in memory (GetMessageResult.suggestPullingFromSlave).
    suggest_slave: bool = False

    @property
    def resume_offset(self) -> int:
        """Queue offset at which to continue after a get that found nothing: `next_begin_offset`, inside the queue."""
        return max(self.min_offset, min(self.next_begin_offset, self.max_offset))

    def joined(self) -> bytes:
        """Returns all records as one `bytes`; for records that are bytes or views of them."""
        join = getattr(self.records, "joined", None)  # a sequence that can do it at once
        joined: bytes = join() if join is not None else b"".join(self.records)  # type: ignore[arg-type]
        return joined

    def copy_to(self, target: bytearray, at: int = 0) -> int:
        """Copies the bytes of all records into a bytearray, which grows if it must; returns the position after them."""
        copy = getattr(self.records, "copy_to", None)
        if copy is not None:
            end: int = copy(target, at)
            return end
        target[at : at + self.size] = self.joined()
        return at + self.size


def _outside(lowest: int, highest: int, queue_offset: int) -> tuple[GetStatus, int] | None:
    """Returns status and next offset for an offset outside of the queue; None for one inside."""
    if highest == 0:
        return GetStatus.NO_MESSAGE_IN_QUEUE, 0
    if queue_offset < lowest:
        return GetStatus.OFFSET_TOO_SMALL, lowest
    if queue_offset == highest:
        return GetStatus.OFFSET_OVERFLOW_ONE, queue_offset
    if queue_offset > highest:
        return GetStatus.OFFSET_OVERFLOW_BADLY, highest
    return None


def next_file(offset: int, per_file: int) -> int:
    """Returns the offset at which the file after that of another physical or queue offset begins (rollNextFile).

    `per_file` is in bytes or units. As Java divides, a negative offset, which a damaged unit may state, belongs to the
    first file.
    """
    return (java.divide(offset, per_file) + 1) * per_file


def find_batch_unit(files: Iterable[tuple[F, Offsets]], max_offset: int, queue_offset: int) -> tuple[F, int] | None:
    """Returns the unit with which a get from a BatchConsumeQueue begins: its file, and its index there.

    It is the one with a queue offset, or before a gap in which that offset lies. This is the broker's search, as
    offsets of damaged queues and of records without messages do not ascend. The files are given newest first, each with
    the queue offsets of its units.
    """
    if queue_offset >= max_offset:
        return None
    for file, offsets in files:
        if len(offsets) and offsets[0] <= queue_offset:
            return file, _last_up_to(offsets, queue_offset)
    return None


def _last_up_to(offsets: Offsets, queue_offset: int) -> int:
    """Returns the index that BatchConsumeQueue.binarySearch finds if the first offset is not higher."""
    left, last = 0, len(offsets) - 1
    right = last
    while True:
        middle = (left + right) // 2
        offset = offsets[middle]
        if offset == queue_offset:
            return middle
        if offset > queue_offset:
            right = middle - 1
        elif middle > left:
            left = middle
        else:
            return middle + 1 if middle < last and offsets[middle + 1] <= queue_offset else middle


def first_delivered(lowest: int, highest: int, queue_offset: int) -> int:
    """Returns the queue offset of the first message that a consumer at a position gets.

    The broker answers a pull outside of the queue with the offset at which the next pull should begin, and clients
    follow.
    """
    answer = _outside(lowest, highest, queue_offset)
    return queue_offset if answer is None else answer[1]


def get_message(
    queue: QueueView | None,
    log: LogView[R],
    queue_offset: int,
    max_msg_nums: int,
    message_filter: MessageFilter | None = None,
    max_bytes: int = LONGEST_PULL,
    limits: GetLimits = DEFAULT_LIMITS,
) -> Found[R]:
    """Returns messages of a queue, None if it is unknown, from an offset on; the filter selects some of them.

    `max_bytes` limits the sum of the records' sizes; the first record is returned whatever its size.
    """
    if queue is None:
        return Found(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0, [], [])
    lowest, highest = queue.min_offset, queue.max_offset  # once: a live queue grows meanwhile
    answer = _outside(lowest, highest, queue_offset)
    if answer is not None:
        return Found(*answer, lowest, highest, [], [])
    return _Get(queue, log, queue_offset, max_msg_nums, message_filter, max_bytes, limits).run(lowest, highest)


class _Get(Generic[R]):
    """One get in progress."""

    def __init__(
        self,
        queue: QueueView,
        log: LogView[R],
        offset: int,
        count: int,
        message_filter: MessageFilter | None,
        max_bytes: int,
        limits: GetLimits,
    ) -> None:
        self._queue = queue
        self._log = log
        self._offset = offset
        self._count = count
        self._filter = message_filter
        self._limits = limits
        self._max_bytes = max(SHORTEST_PULL, min(max_bytes, LONGEST_PULL))
        self._in_memory_from = 0 if limits.memory is None else log.max_offset - limits.memory
        self._status = GetStatus.NO_MATCHED_MESSAGE
        self._next = offset
        self._records: list[R] = []
        self._offsets: list[int] = []
        self._messages = 0
        self._size = 0
        self._last_looked_at = 0
        self._skip_to: int | None = None

    def run(self, lowest: int, highest: int) -> Found[R]:
        """Reads units of one file of the queue."""
        unit_size = self._queue.unit_size
        # What limits the search is counted in bytes of the queue, wherever its file ends.
        limit = -(-max(self._limits.filter_bytes, self._count * unit_size) // unit_size)
        end = min(highest, self._offset + limit)
        has_units = False
        for unit in self._queue.units_from(self._offset, self._count + 1, limit):
            has_units = True
            if unit[0] >= end or not self._take(*unit):
                break
        if not has_units:
            self._status = GetStatus.OFFSET_FOUND_NULL
            per_file = self._queue.file_units
            self._next = next_file(self._next, per_file) if per_file else 0
        suggest = self._last_looked_at < self._in_memory_from
        return Found(self._status, self._next, lowest, highest, self._records, self._offsets, self._size, suggest)

    def _take(self, number: int, count: int, physical_offset: int, size: int, code: int) -> bool:
        """Handles one unit; returns False if the get ends before it."""
        # Records of 0 bytes do not make the answer one that has messages (getBufferTotalSize, isTheBatchFull).
        is_first = not self._messages or not self._size
        if not is_first and self._is_full(count, size, in_memory=physical_offset >= self._in_memory_from):
            return False
        if self._size >= self._max_bytes:
            return False
        self._last_looked_at = physical_offset
        self._next = number + count  # also past a message that the filter leaves out
        if self._skip_to is not None and physical_offset < self._skip_to:
            return True
        if self._filter is not None and not self._filter.by_unit(code, self._ext(code)):
            return self._unmatched()
        # Once the segment with offset 0 is deleted, 0 means the oldest one (CommitLog.getMessage).
        record = self._log.record(physical_offset or max(0, self._log.min_offset), size)
        if record is None:
            if not self._size:
                self._status = GetStatus.MESSAGE_WAS_REMOVING
            self._skip_to = self._log.after_missing(physical_offset)
            return True
        if self._filter is not None and not self._filter.by_record(self._log.properties(record)):
            return self._unmatched()
        self._records.append(record)
        self._offsets.append(number)
        self._messages += count
        self._size += size
        self._status = GetStatus.FOUND
        self._skip_to = None
        return True

    def _unmatched(self) -> bool:
        if not self._size:
            self._status = GetStatus.NO_MATCHED_MESSAGE
        return True

    def _ext(self, code: int) -> ConsumeQueueExtUnit | None:
        return self._queue.ext_unit(code) if is_ext_address(code) else None

    def _is_full(self, count: int, size: int, *, in_memory: bool) -> bool:
        """Whether one more message is too much (isTheBatchFull); not called before the first."""
        if self._messages + count > self._count or self._size + size > self._max_bytes:
            return True
        limits = self._limits
        if in_memory:
            max_bytes, max_count = limits.bytes_in_memory, limits.count_in_memory
        else:
            max_bytes, max_count = limits.bytes_on_disk, limits.count_on_disk
        return self._size + size > max_bytes or self._messages > max_count - 1
