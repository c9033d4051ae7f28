"""Reads only records whose physical offset and size are given, and validates them like those of a walk.

They are laid out in memory as in the log. The operating system allocates only the pages that are written, so records
far apart can form one set of frames.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from mqtool.formats import commit_log
from mqtool.records.damage import Damage, DamageKind
from mqtool.records.frames import Frames
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.remote import is_url

_GAP, _REMOTE_GAP = 1 << 8, 1 << 20
"""Maximum gap in bytes that is read rather than skipped, on local disks and in object storage."""
_SPAN, _RUN = 1 << 30, 8 << 20
"""Maximum bytes of log, and of records, in one set of frames."""


def frames_at_offsets(log: CommitLog, offsets: np.ndarray, sizes: np.ndarray) -> Iterator[Frames | Damage]:
    """Yields the records at the given offsets, and damage where there is no record.

    Args:
        log: to read.
        offsets: int64, physical offsets, ascending and distinct; in the log.
        sizes: int64, total_size according to the queue or index.
    """
    for low, high in pairwise(_edges(log, offsets, sizes)):
        yield from _run(log, offsets[low:high], sizes[low:high])


def _edges(log: CommitLog, offsets: np.ndarray, sizes: np.ndarray) -> list[int]:
    """Returns where sets of frames begin and end: at segment boundaries, and after a maximum number of bytes."""
    if not len(offsets):
        return [0]
    bases = np.array([segment.base for segment in log.segments], np.int64)
    breaks = np.diff(np.searchsorted(bases, offsets, side="right")) > 0
    breaks |= np.diff((offsets - offsets[0]) // _SPAN) > 0
    breaks |= np.diff(np.cumsum(sizes) // _RUN) > 0
    return [0, *(np.flatnonzero(breaks) + 1).tolist(), len(offsets)]


def _run(log: CommitLog, offsets: np.ndarray, sizes: np.ndarray) -> Iterator[Frames | Damage]:
    start = int(offsets[0])
    index = log.segment_at(start)
    limit = start if index is None else log.segments[index].end
    inside = offsets + sizes <= limit
    for offset, size in zip(offsets[~inside].tolist(), sizes[~inside].tolist(), strict=True):
        yield _damage(log, offset, offset + size, "a unit names more bytes than the segment has")
    offsets, sizes = offsets[inside], sizes[inside]
    if not len(offsets):
        return
    data, was_read = _read(log, offsets, sizes)
    for offset, size in zip(offsets[~was_read].tolist(), sizes[~was_read].tolist(), strict=True):
        yield _damage(log, offset, offset + size, "the file ends before this record does", DamageKind.MISSING)
    frames = Frames(data, start, offsets[was_read] - start, sizes[was_read])
    if not len(frames):
        return
    valid = frames.valid & np.isin(frames.column("magic_code"), commit_log.RECORD_MAGICS)
    valid &= frames.column("total_size") == frames.sizes
    matches = valid.copy()
    some = frames.select(valid)
    matches[valid] = some.crc_matches | (some.column("body_crc") == 0)
    for at in np.flatnonzero(~matches).tolist():
        offset, size = int(frames.positions[at]) + start, int(frames.sizes[at])
        if valid[at]:
            yield _damage(log, offset, offset + size, "the body's CRC is another than stored", DamageKind.BAD_CRC)
        else:
            yield _damage(log, offset, offset + size, "no record where one is named")
    if matches.any():
        yield frames.select(matches)


def _read(log: CommitLog, offsets: np.ndarray, sizes: np.ndarray) -> tuple[memoryview, np.ndarray]:
    """Returns the bytes from the first to the last record, with zeros between them, and which records are complete."""
    start, ends = int(offsets[0]), np.maximum.accumulate(offsets + sizes)
    data = np.zeros(int(ends[-1]) - start, np.uint8).data
    index = log.segment_at(start)
    is_remote = index is not None and is_url(str(log.segments[index].path))
    breaks = np.flatnonzero(offsets[1:] - ends[:-1] > (_REMOTE_GAP if is_remote else _GAP)) + 1
    was_read = np.ones(len(offsets), bool)
    for low, high in pairwise([0, *breaks.tolist(), len(offsets)]):
        first, end = int(offsets[low]), int(ends[high - 1])
        window = log.read(first, end - first)
        data[first - start : first - start + len(window)] = window
        was_read[low:high] = offsets[low:high] + sizes[low:high] <= first + len(window)
    return data, was_read


def _damage(log: CommitLog, start: int, end: int, detail: str, kind: DamageKind = DamageKind.BAD_HEADER) -> Damage:
    index = log.segment_at(start)
    if index is None:
        return Damage(start, end, DamageKind.MISSING, "no segment contains the record that a unit names")
    segment = log.segments[index]
    return Damage(start, end, kind, detail, segment.path, start - segment.base)
