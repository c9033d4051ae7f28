"""At which queue offset each unit goes, also where records are missing or state a queue offset that cannot be.

A whole log is simple: the units of a queue come in order and without gaps. After damage they do not, and then a
record's neighbours in its queue decide whom to believe: two records in a row that agree are right about where they
are, a single one that its successor contradicts is not. The broker itself ignores the stated offset and appends
(ConsumeQueue.putMessagePositionInfo), which moves every later message to a wrong offset; here each message keeps its
own, so that consumer offsets stay true.
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mqtool.formats.commit_log import MIN_RECORD_SIZE
from mqtool.rebuild.listing import Listing


class NoteKind(enum.StrEnum):
    """What was unusual about a unit's place. Stable names: they appear in output."""

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


@dataclass(frozen=True, slots=True)
class Note:
    """Something unusual in one queue.

    Attributes:
        kind: what.
        first, last: queue offsets concerned, inclusive.
        physical_offset: of the record at which it was seen.
    """

    kind: NoteKind
    first: int
    last: int
    physical_offset: int


@dataclass(frozen=True, slots=True)
class Run:
    """Units for consecutive queue offsets; offsets left out before `first` are a hole."""

    first: int
    units: np.ndarray


@dataclass(frozen=True, slots=True)
class Cut:
    """Units at `offset` and after it are to be removed."""

    offset: int


Step = Run | Cut


class HoleBudget:
    """How many units of filling all queues together may get: no more than records fit into the log, and some.

    Attributes:
        left: units.
    """

    _SPARE = 1 << 20

    def __init__(self, log_bytes: int) -> None:
        self.left = log_bytes // MIN_RECORD_SIZE + self._SPARE

    def take(self, count: int) -> bool:
        """Whether so many are left; then they are taken."""
        if count > self.left:
            return False
        self.left -= count
        return True


class Placement:
    """Decides for one queue.

    Attributes:
        next: queue offset after the last unit placed, None before the first.
        shift: how much larger the stated offsets are than the places, after a jump that was not filled.
        held: stated offset and unit that wait for the one after them.
        notes: what was unusual.
    """

    def __init__(self, budget: HoleBudget) -> None:
        self.next: int | None = None
        self.shift = 0
        self.held: tuple[np.ndarray, np.ndarray] | None = None
        self.notes: Listing[Note] = Listing()
        self._budget = budget

    def place(self, offsets: np.ndarray, units: np.ndarray, *, is_end: bool = False) -> Iterator[Step]:
        """Places the queue's next units.

        Args:
            offsets: int64, as the records state them.
            units: one per offset, with a field `physical_offset`.
            is_end: nothing follows; what was held back is placed too.

        Yields:
            What to do, in order.
        """
        if self.held is not None:
            offsets = np.concatenate([self.held[0], offsets])
            # numpy would give the result the byte order of the machine
            units = np.concatenate([self.held[1], units], dtype=units.dtype)
            self.held = None
        if not len(offsets):
            return
        if self.next is None:
            self.next = int(offsets[0])
        if int(offsets[0]) - self.shift == self.next and _is_consecutive(offsets):
            yield self._run(units)
            return
        offsets, units = _without_repeats(offsets, units)
        edges = [0, *(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist(), len(offsets)]
        for number in range(len(edges) - 1):
            start, end = edges[number], edges[number + 1]
            following = int(offsets[end]) if end < len(offsets) else None
            if following is None and not is_end and end - start == 1 and not self._is_next(offsets[start]):
                self.held = offsets[start:], units[start:]
                return
            yield from self._place_run(int(offsets[start]), units[start:end], following)

    def _is_next(self, offset: int) -> bool:
        return bool(offset - self.shift == self.next)

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
            is_last = then is None and at < self.next  # nobody contradicts it: rather placed than dropped
            if not is_last and (then == self.next or (then != self.next + 1 and stated > 0 and at < self.next)):
                self._note(NoteKind.FOREIGN, stated, stated, units)
                return
            if is_last or then == self.next + 1 or stated == 0:
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


def _is_consecutive(offsets: np.ndarray) -> bool:
    return bool(offsets[-1] - offsets[0] == len(offsets) - 1) and bool((np.diff(offsets) == 1).all())


def _without_repeats(offsets: np.ndarray, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Leaves out a record's second unit in the same queue, as the broker does (an LMQ named twice)."""
    kept = np.ones(len(offsets), bool)
    kept[1:] = units["physical_offset"][1:] != units["physical_offset"][:-1]
    return (offsets, units) if kept.all() else (offsets[kept], units[kept])
