"""Decides at which queue offset each unit is placed, even if records are missing or state an impossible queue offset.

In an undamaged log the units of a queue arrive in order and without gaps. After damage they do not, and the
neighbouring records of the queue decide: two consecutive records that agree are believed; a single record that its
successor contradicts is not. No record takes the queue offset that a unit of the old queue gives to another one. The
broker itself ignores the stated offset and appends (ConsumeQueue.putMessagePositionInfo), which moves every later
message to a wrong offset. Here each message keeps its own, so that consumer offsets remain valid.
"""

import enum
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, pairwise
from typing import Generic, TypeVar

import numpy as np
from msgspec import Struct, field

from mqtool.formats.commit_log import MIN_RECORD_SIZE

LISTED = 10_000
"""How many of each kind are kept; more are only counted, so that a log of nothing but damage needs no memory."""

T = TypeVar("T")


Claim = Callable[[int], int | None]
"""`claim(queue_offset)`: physical offset of the record that has it, if the old queue and the record agree."""


class Listing(Struct, Generic[T]):
    """The first items of a possibly long sequence, and the count of all."""

    items: list[T] = field(default_factory=list)  # at most `LISTED`
    count: int = 0  # of all

    def add(self, item: T) -> None:
        """Counts one more item, and keeps it if there is room."""
        self.count += 1
        if len(self.items) < LISTED:
            self.items.append(item)

    def extend(self, items: Iterable[T], count: int) -> None:
        """Counts `count` more items, of which `items` are the first."""
        self.count += count
        self.items.extend(islice(items, LISTED - len(self.items)))

    def __bool__(self) -> bool:
        return self.count > 0


class NoteKind(enum.StrEnum):
    """What was unusual about the placement of a unit. The names are stable because they appear in output."""

    HOLE = "hole"
    """Queue offsets whose records are gone; a pull there gets the next message that is left."""
    RESTARTED = "restarted"
    """The queue goes on at a smaller offset: it was deleted and rebuilt, or lost its end; the newer records stay."""
    MISNUMBERED = "misnumbered"
    """A record states another queue offset than its place between its neighbours; it went to that place."""
    FOREIGN = "foreign"
    """A record states a queue offset that another record has; it got no unit."""
    SHIFTED = "shifted"
    """A jump too far to be filled; the queue goes on without it, so its messages have other offsets than they state."""


class Note(Struct, frozen=True):
    """Something unusual in one queue."""

    kind: NoteKind  # what was unusual
    first: int  # and last: queue offsets concerned, inclusive
    last: int
    physical_offset: int  # of the record at which it was detected


class Run(Struct, frozen=True):
    """Units for consecutive queue offsets; a gap before `first` is a hole to fill."""

    first: int
    units: np.ndarray


class Cut(Struct, frozen=True):
    """An instruction to remove the units at `offset` and after it."""

    offset: int


Step = Run | Cut


def _unclaimed(_offset: int) -> None:
    return None


class HoleBudget:
    """Limits the fill units of all queues together to slightly more than the records that fit into the log."""

    _SPARE = 1 << 20

    def __init__(self, log_bytes: int) -> None:
        self.remaining = log_bytes // MIN_RECORD_SIZE + self._SPARE  # units that remain

    def take(self, count: int) -> bool:
        """Takes `count` units if that many are left; returns whether they were."""
        if count > self.remaining:
            return False
        self.remaining -= count
        return True


class Placement:
    """Places the units of one queue.

    Attributes:
        waiting: stated offset and unit that wait for the unit after them.
    """

    def __init__(self, budget: HoleBudget, claim: Claim = _unclaimed, *, is_light: bool = False) -> None:
        self._claim = claim
        self._is_light = is_light
        self.next: int | None = None  # queue offset after the last unit placed; None before the first
        self.shift = 0  # stated offset minus placed offset, after a jump that was not filled
        self.waiting: tuple[np.ndarray, np.ndarray] | None = None
        self.notes: Listing[Note] = Listing()  # what was unusual
        self._budget = budget

    def place(self, offsets: np.ndarray, units: np.ndarray, *, is_end: bool = False) -> Iterator[Step]:
        """Places the queue's next units, given the queue offsets that their records state; yields what to do, in order.

        At the end, nothing follows, and waiting units are placed too.
        """
        if self.waiting is not None:
            offsets = np.concatenate([self.waiting[0], offsets])
            # numpy would return the result in the machine's byte order
            units = np.concatenate([self.waiting[1], units], dtype=units.dtype)
            self.waiting = None
        if not len(offsets):
            return
        if self.next is None:
            self.next = int(offsets[0])
        if int(offsets[0]) - self.shift == self.next and _is_consecutive(offsets):
            yield self._run(units)
            return
        offsets, units = self._own(*_without_repeats(offsets, units))
        edges = _edges(offsets)
        for number in range(len(edges) - 1):
            start, end = edges[number], edges[number + 1]
            following = int(offsets[end]) if end < len(offsets) else None
            if following is None and not is_end and end - start == 1 and offsets[start] - self.shift != self.next:
                self.waiting = offsets[start:], units[start:]
                return
            yield from self._place_run(int(offsets[start]), units[start:end], following)

    def _own(self, offsets: np.ndarray, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Omits units whose queue offset the old queue gives to another record.

        The first and the last unit decide about units with consecutive offsets, unless one of them is omitted.
        """
        kept = np.ones(len(offsets), bool)
        edges = _edges(offsets)
        for start, end in pairwise(edges):
            if self._is_own(offsets[start], units[start]) and self._is_own(offsets[end - 1], units[end - 1]):
                continue
            kept[start:end] = [self._is_own(offsets[row], units[row]) for row in range(start, end)]
            omitted = start + np.flatnonzero(~kept[start:end])
            self._note(NoteKind.FOREIGN, int(offsets[omitted[0]]), int(offsets[omitted[-1]]), units[omitted])
        return offsets[kept], units[kept]

    def _is_own(self, offset: np.int64, unit: np.void) -> bool:
        return self._claim(int(offset)) in (None, int(unit["physical_offset"]))

    def _run(self, units: np.ndarray) -> Run:
        assert self.next is not None
        first, self.next = self.next, self.next + len(units)
        return Run(first, units)

    def _place_run(self, stated: int, units: np.ndarray, following: int | None) -> Iterator[Step]:
        """Places units whose offsets are consecutive; `following` is the offset stated after them."""
        assert self.next is not None
        at = stated - self.shift
        if len(units) == 1 and at != self.next:
            then = None if following is None else following - self.shift
            is_last = then is None and at < self.next  # nothing contradicts it: placing loses less
            if not is_last and (then == self.next or (then != self.next + 1 and stated > 0 and at < self.next)):
                self._note(NoteKind.FOREIGN, stated, stated, units)
                return
            if is_last or then == self.next + 1 or stated == 0:
                if self._is_light:  # its offset is text among the properties, which no repair rewrites
                    self._note(NoteKind.FOREIGN, stated, stated, units)
                    return
                self._note(NoteKind.MISNUMBERED, stated, stated, units)
                yield self._run(units)
                return
        if at < self.next:
            self._note(NoteKind.RESTARTED, at, self.next - 1, units)
            yield Cut(at)
            self.next = at
        elif at > self.next:
            if self._budget.take(at - self.next):
                self._note(NoteKind.HOLE, self.next, at - 1, units)
                self.next = at
            else:
                self._note(NoteKind.SHIFTED, stated, stated, units)
                self.shift = stated - self.next
        yield self._run(units)

    def _note(self, kind: NoteKind, first: int, last: int, units: np.ndarray) -> None:
        self.notes.add(Note(kind, first, last, int(units["physical_offset"][0])))


def _edges(offsets: np.ndarray) -> list[int]:
    """Returns where runs of consecutive offsets begin, and the number of offsets."""
    inner = (np.flatnonzero(np.diff(offsets) != 1) + 1).tolist()
    return [0, *inner, len(offsets)] if len(offsets) else [0]


def _is_consecutive(offsets: np.ndarray) -> bool:
    return bool(offsets[-1] - offsets[0] == len(offsets) - 1) and bool((np.diff(offsets) == 1).all())


def _without_repeats(offsets: np.ndarray, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Omits a record's second unit in the same queue, as the broker does (an LMQ that is named twice)."""
    kept = np.ones(len(offsets), bool)
    kept[1:] = units["physical_offset"][1:] != units["physical_offset"][:-1]
    return (offsets, units) if kept.all() else (offsets[kept], units[kept])
