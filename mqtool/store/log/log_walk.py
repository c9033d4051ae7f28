"""Creates walks over the files of a log. No other code outside `mqtool.records` does.

Code that reads a log takes `Frames` and `Damage` from `CommitLog.walk`, or segment by segment from `walk_file`.
"""

from typing import Protocol

from mqtool.records.entries import walk_of
from mqtool.records.record_search import RecordStartIndex
from mqtool.records.walk import SegmentSpan, SegmentWalk, Skim
from mqtool.store.files import MappedFile


class Readable(Protocol):
    """What a walk needs of a file; `ReadFile` and its wrappers have it."""

    def read(self, position: int, count: int) -> bytes:
        """Returns the bytes from a position; fewer only at the end of the file."""

    def data_end(self) -> int:
        """Returns a position after which the file contains only zeros."""


class Refillable(Readable, Protocol):
    """A file that can be read into an existing buffer."""

    def read_into(self, position: int, target: memoryview) -> int:
        """Reads into a buffer; returns the number of bytes."""


def walk_file(
    file: Readable,
    segment: MappedFile,
    *,
    start: int = 0,
    end: int | None = None,
    is_last: bool = False,
    crc: bool = True,
    refills: bool = False,
    start_index: RecordStartIndex | None = None,
    skim: Skim | None = None,
) -> SegmentWalk:
    """Returns the walk over one file, or over a part of it.

    Args:
        segment: its base, its size, and whether its records are DLedger entries.
        start: position of a record; from any other position the walk finds the next one.
        end: position after the last record to read, None for the end of the file.
        is_last: no file of the log follows: an unfinished end is its tail, not damage.
        crc: whether a wrong body CRC makes a record damage.
        refills: read every window into the same memory, if the file supports that; frames are then valid only until
            the next item is taken.
        start_index: another source of record starts.
        skim: takes records that the walk need not read itself; not used for records in DLedger entries.
    """
    span = _span(file, segment, start, end, is_last)
    read_into = getattr(file, "read_into", None) if refills else None
    return walk_of(file.read, span, check_crc=crc, start_index=start_index, read_into=read_into, skim=skim)


def refilling_walk(
    file: Refillable,
    segment: MappedFile,
    *,
    start: int = 0,
    end: int | None = None,
    is_last: bool = False,
    with_crc: bool = False,
    start_index: RecordStartIndex | None = None,
    skim: Skim | None = None,
) -> SegmentWalk:
    """Returns a walk that reads every window into the same memory, for passes over a complete log.

    Frames are valid only until the next item is taken. A wrong body CRC makes no damage. Other arguments are those of
    `walk_file`.

    Args:
        with_crc: the caller will ask for CRCs: they are then computed in the same pass if that is faster.
        skim: takes records that need not become frames; not used for records in DLedger entries.
    """
    span = _span(file, segment, start, end, is_last)
    return walk_of(
        file.read,
        span,
        check_crc=False,
        start_index=start_index,
        read_into=file.read_into,
        with_crc=with_crc,
        skim=skim,
    )


def _span(file: Readable, segment: MappedFile, start: int, end: int | None, is_last: bool) -> SegmentSpan:
    size = segment.size if end is None else end
    full_size = max(segment.size, size)
    return SegmentSpan(
        segment.base, size, start, file.data_end(), is_last, entries=segment.entries, full_size=full_size
    )
