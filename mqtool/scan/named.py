"""Records that somebody names by place and size: read in runs, proved like those of a walk."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from mqtool.formats import commit_log
from mqtool.records.damage import Damage, DamageKind
from mqtool.records.frames import Frames
from mqtool.store.commit_log import CommitLog

_GAP = 1 << 14
"""Bytes between two records that are rather read than skipped."""
_RUN = 8 << 20


def named_frames(log: CommitLog, offsets: np.ndarray, sizes: np.ndarray) -> Iterator[Frames | Damage]:
    """Yields the records at some places, and damage where there is none.

    Args:
        log: where.
        offsets: int64, physical offsets, ascending and distinct; in the log.
        sizes: int64, total_size as the naming says.
    """
    for low, high in pairwise(_edges(log, offsets, sizes)):
        yield from _run(log, offsets[low:high], sizes[low:high])


def _edges(log: CommitLog, offsets: np.ndarray, sizes: np.ndarray) -> list[int]:
    """Returns where runs begin and end: at gaps, at starts of segments, and after so many bytes."""
    if not len(offsets):
        return [0]
    ends = offsets + sizes
    breaks = offsets[1:] - ends[:-1] > _GAP
    bases = np.array([segment.base for segment in log.segments], np.int64)
    breaks |= np.diff(np.searchsorted(bases, offsets, side="right")) > 0
    breaks |= np.diff((offsets - offsets[0]) // _RUN) > 0
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
    data = log.read(start, int((offsets + sizes).max()) - start)
    there = offsets + sizes <= start + len(data)
    for offset, size in zip(offsets[~there].tolist(), sizes[~there].tolist(), strict=True):
        yield _damage(log, offset, offset + size, "the file ends before this record does", DamageKind.MISSING)
    frames = Frames(memoryview(data), start, offsets[there] - start, sizes[there])
    if not len(frames):
        return
    valid = frames.valid & np.isin(frames.column("magic_code"), (commit_log.MAGIC_V1, commit_log.MAGIC_V2))
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


def _damage(log: CommitLog, start: int, end: int, detail: str, kind: DamageKind = DamageKind.BAD_HEADER) -> Damage:
    index = log.segment_at(start)
    if index is None:
        return Damage(start, end, kind, detail)
    segment = log.segments[index]
    return Damage(start, end, kind, detail, segment.path, start - segment.base)
