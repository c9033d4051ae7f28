"""The compiled pass over a segment for whoever needs only fixed fields and topics; see `native.logs.field_records`."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from mqtool import native
from mqtool.formats.commit_log import LAST_MILLIS
from mqtool.records.frames import INTS, LONGS, Frames
from mqtool.records.segment_bytes import page_aligned
from mqtool.records.topics import TopicTable
from mqtool.records.walk import Skim, Skimmed

ROWS = INTS + LONGS
"""Fields that the pass reads."""
_WINDOW = 1 << 20
"""Bytes read at a time; they stay in the processor's cache."""
_FIRST_STEP, _STEP = 8 << 20, 64 << 20
"""Bytes of one result: at first, so that who wants few rows waits for few, and at most; it doubles."""
_USUAL = 256
"""Bytes for which a result has room for one record; smaller records fill it before its bytes are read."""
_MAX_TOPICS = 4096
"""A log with more topics is left to array operations: each new one ends a call of the pass."""


class LogFile(Protocol):
    """What the pass needs of an open file."""

    @property
    def descriptor(self) -> int | None:
        """The system's descriptor; None for a file in object storage."""

    def data_end(self) -> int:
        """Returns a position after which there are only zeros."""


def field_pass(base: int, end: int, file: Callable[[], LogFile], count: Callable[[int], None]) -> Skim | None:
    """Returns a pass over one segment; None where its compiled form is not in use.

    Args:
        base, end, file, count: as for `FieldPass`.
    """
    return FieldPass(base, end, file, count).skim if native.in_use() else None


class FieldPass:
    """Reads fields of plain records of one segment; the walk that calls it reads all others.

    Its frames are without bytes: only `column` of a field in `ROWS`, `coded_topics`, `positions` and `sizes` have a
    meaning.
    """

    def __init__(self, base: int, end: int, file: Callable[[], LogFile], count: Callable[[int], None]) -> None:
        """Reads nothing yet.

        Args:
            base: physical offset of the segment's first byte.
            end: position after which no record may end.
            file: returns the segment, open.
            count: takes the number of bytes that were read.
        """
        self._base, self._end = base, end
        self._file, self._count = file, count
        self._window = page_aligned(_WINDOW)
        self._held = np.zeros(2, np.int64)
        self._topics = TopicTable()
        self._step = _FIRST_STEP

    def skim(self, position: int) -> Skimmed:
        """Reads records from a position on; implements `records.walk.Skim`."""
        file = self._file()
        descriptor, end = file.descriptor, min(self._end, file.data_end())
        if descriptor is None:
            return Skimmed(position, 0)
        rows = self._step // _USUAL
        positions, codes = np.empty(rows, np.int64), np.empty(rows, np.int32)
        ints, longs = np.empty((len(INTS), rows), np.int32), np.empty((len(LONGS), rows), np.int64)
        stop, at, taken = position + self._step, position, 0
        self._step = min(2 * self._step, _STEP)
        while len(self._topics.names) < _MAX_TOPICS:
            taken, at, bytes_read, topic_at, topic_length = native.logs.field_records(
                descriptor,
                self._base,
                at,
                end,
                stop,
                self._window,
                self._held,
                self._topics.slots,
                LAST_MILLIS,
                taken,
                positions,
                ints,
                longs,
                codes,
            )
            self._count(bytes_read)
            if topic_at < 0:
                break
            self._topics.learn(self._window[topic_at : topic_at + topic_length].tobytes())
        if not taken:
            return Skimmed(at, 0)
        columns = dict(zip(ROWS, (*ints[:, :taken], *longs[:, :taken]), strict=True))
        frames = Frames(memoryview(b""), self._base, positions[:taken], columns["total_size"], columns)
        frames.coded_topics = codes[:taken], list(self._topics.names)
        return Skimmed(at, int(columns["store_timestamp"][-1]), frames)
