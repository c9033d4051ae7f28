"""Places at which a segment can be cut, so that several processes walk it side by side.

A place is looked for in the bytes and taken on trust: only the walk over the part before it, if it ends exactly
there, shows that a record of the log starts there, and not one inside a body.
"""

from collections.abc import Iterator

from mqtool.formats import commit_log
from mqtool.records.frame_scan import Stop
from mqtool.records.frames import frames_at
from mqtool.store.files import MappedFile, ReadFile

_LOOKS = (1 << 16, 1 << 20)
"""Bytes in which a place is looked for, first and if none was found."""

_MAGIC_V1 = commit_log.MAGIC_V1.to_bytes(4, "big", signed=True)
_MAGIC_AT = commit_log.FRAME.size - len(_MAGIC_V1)


def cuts_of(segment: MappedFile, start: int, distance: int) -> Iterator[int]:
    """Yields positions at which records seem to start.

    Args:
        segment: the file; none of a DLedger log.
        start: position behind which to begin.
        distance: bytes between two, about.

    Raises:
        StoreError: the file cannot be read.
    """
    with ReadFile(segment.path) as file:
        end, target = min(file.data_end(), segment.size), start + distance
        while target + distance // 2 < end:
            looks = (record_in(file.read(target, look), segment.base + target) for look in _LOOKS)
            found = next((place for place in looks if place is not None), None)
            if found is not None:
                target += found
                yield target
            target += distance


def record_in(data: bytes, base: int) -> int | None:
    """Returns the first position from which frames that state their own offsets lead out of the data."""
    at = data.find(_MAGIC_V1)
    while at >= 0:
        position = at - _MAGIC_AT
        if position >= 0:
            chain, frames = frames_at(memoryview(data), position, base)
            if chain.stop in (Stop.MORE, Stop.END) and len(frames) and frames.valid.all():
                return position
        at = data.find(_MAGIC_V1, at + 1)
    return None
