"""Checks that the records of each queue have consecutive queue offsets.

Offsets skipped around damage prove which messages are lost; an offset skipped elsewhere is a finding itself. One
pass, with a few array operations per window; a window is sorted only if the sum of its offsets differs from that of
a sequence.
"""

import numpy as np
from msgspec import Struct, field

from mqtool.records.dispatch import QueueUnits
from mqtool.records.number_sets import WordTable, stable_order
from mqtool.records.queue_build import queue_numbers, queue_of

MAX_JUMPS = 100_000
"""Jumps that are kept per segment."""


class Jump(Struct, frozen=True):
    """Two records of one queue, successive in the log, whose queue offsets are not consecutive."""

    topic: str  # and queue_id: which queue
    queue_id: int
    expected: int  # queue offset after the first of them
    actual: int  # queue offset of the second
    before: int  # and after: physical offsets of the two
    after: int


class QueueSpan(Struct):
    """The queues that occur in a section of the log; item i of each array describes queue i."""

    queues: list[tuple[str, int]] = field(default_factory=list)  # topic and queue id
    # first, first_at: queue offset and physical offset of the first record.
    first: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    first_at: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    # following, last_at: queue offset after the last record, physical offset of that record.
    following: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    last_at: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    messages: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # number of messages
    jumps: list[Jump] = field(default_factory=list)  # inside the section


class Continuity:
    """Follows all queues through one segment.

    Attributes:
        numbers: of the queues in `span`, by topic number and queue id in one word.
        span: result so far.
    """

    def __init__(self, topics: "list[str]") -> None:
        """Starts before the first record.

        Args:
            topics: names by topic number; may grow.
        """
        self._topics = topics
        self.numbers = WordTable()
        self.span = QueueSpan()

    def codes(self, units: QueueUnits) -> np.ndarray:
        """Returns a dense number per unit for its queue, int32; `span.queues` names them."""
        codes = self.numbers.numbers_of(queue_numbers(units.topic, units.queue_id).view(np.uint64))
        span, known = self.span, len(self.span.queues)
        fresh = self.numbers.values[known:]
        if fresh:
            span.queues.extend(queue_of(number, self._topics) for number in fresh)
            for name in ("first", "first_at", "following", "last_at", "messages"):
                old = getattr(span, name)
                fill = 0 if name == "messages" else -1
                setattr(span, name, np.concatenate([old, np.full(len(fresh), fill, np.int64)]))
        return codes

    def follow(self, codes: np.ndarray, units: QueueUnits) -> None:
        """Processes the units of one window, in log order."""
        if not len(units):
            return
        span = self.span
        after = units.queue_offset + units.batch_size
        single = bool((units.batch_size == 1).all())
        count = np.bincount(codes, None if single else units.batch_size, len(span.queues)).astype(np.int64)
        fresh = (span.messages == 0) & (count > 0)
        if fresh.any():
            first = fresh[codes]
            reverse = np.flatnonzero(first)[::-1]
            span.first[codes[reverse]] = units.queue_offset[reverse]
            span.first_at[codes[reverse]] = units.physical_offset[reverse]
        before = np.where(fresh, span.first, span.following)
        before_at = span.last_at.copy()
        span.following[codes] = after
        span.last_at[codes] = units.physical_offset
        span.messages += count
        total = np.bincount(codes, units.queue_offset - before[codes], minlength=len(count))
        breaks = (span.following - before != count) | (total != count * (count - 1) / 2)
        if ((count > 0) & breaks).any():
            self._find_jumps(codes, units, before, before_at, fresh)

    def _find_jumps(
        self, codes: np.ndarray, units: QueueUnits, before: np.ndarray, before_at: np.ndarray, fresh: np.ndarray
    ) -> None:
        order = stable_order(codes)
        code, offset, at = codes[order], units.queue_offset[order], units.physical_offset[order]
        expected = np.empty(len(order), np.int64)
        expected[1:] = offset[:-1] + units.batch_size[order][:-1]
        previous = np.empty(len(order), np.int64)
        previous[1:] = at[:-1]
        opens = np.ones(len(order), bool)
        opens[1:] = code[1:] != code[:-1]
        expected[opens] = before[code[opens]]
        previous[opens] = np.where(fresh[code[opens]], at[opens], before_at[code[opens]])
        for i in np.flatnonzero(expected != offset).tolist()[: MAX_JUMPS - len(self.span.jumps)]:
            topic, queue_id = self.span.queues[int(code[i])]
            jump = Jump(topic, queue_id, int(expected[i]), int(offset[i]), int(previous[i]), int(at[i]))
            self.span.jumps.append(jump)


def join(spans: "list[QueueSpan]") -> QueueSpan:
    """Returns the span of consecutive sections, including the jumps between them."""
    joined: dict[tuple[str, int], list[int]] = {}
    jumps: list[Jump] = []
    for span in spans:
        for i, queue in enumerate(span.queues):
            if not span.messages[i]:
                continue
            first, first_at, following, last_at = (
                int(column[i]) for column in (span.first, span.first_at, span.following, span.last_at)
            )
            known = joined.get(queue)
            if known is None:
                joined[queue] = [first, first_at, following, last_at, int(span.messages[i])]
                continue
            if known[2] != first:
                jumps.append(Jump(*queue, known[2], first, known[3], first_at))
            known[2:] = [following, last_at, known[4] + int(span.messages[i])]
        jumps.extend(span.jumps)
    columns = np.array(list(joined.values()), np.int64).reshape(-1, 5)
    jumps.sort(key=lambda jump: (jump.after, jump.topic, jump.queue_id))
    return QueueSpan(list(joined), columns[:, 0], columns[:, 1], columns[:, 2], columns[:, 3], columns[:, 4], jumps)
