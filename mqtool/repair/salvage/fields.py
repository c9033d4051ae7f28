"""Corrects impossible values of fields without a checksum, in records that are valid otherwise.

A client cannot read a record whose body is marked as compressed and is not, or whose host has an impossible port; a
broker takes a store time of zero for the end of the log. The old value is lost, the message is not.
"""

import numpy as np

from mqtool.formats import commit_log, properties
from mqtool.formats.commit_log import SysFlag
from mqtool.records.frames import Frames
from mqtool.verify.log.record_rules import impossible_fields, not_compressed

_COMPRESSION = int(SysFlag.COMPRESSED) | commit_log.COMPRESSION_MASK
_BEHIND_PORT = {"born_port": "store_timestamp", "store_port": "reconsume_times"}
"""The field after a port, which is the last part of a host."""


def correct_fields(frames: Frames, time: int) -> tuple[Frames, list[int]]:
    """Returns frames with corrected fields, and the physical offsets of the changed records.

    A store time becomes that of the record before, a born time the store time, a port 0.

    Args:
        frames: valid otherwise; at least one.
        time: store time of the record before them, 0 if there is none.
    """
    times = frames.column("store_timestamp")
    changes = _Changes(frames)
    for field in impossible_fields(frames, times):
        for row in np.flatnonzero(field.broken).tolist():
            near = _near(times, row, time)
            if field.name in _BEHIND_PORT:
                changes.write(row, _BEHIND_PORT[field.name], 4, 0, back=4)
            elif field.name != "queue_id" and near > 0:
                changes.write(row, field.name, 8, near)
    for row, _ in not_compressed(frames):
        changes.write(row, "sys_flag", 4, int(frames.column("sys_flag")[row]) & ~_COMPRESSION)
    return changes.result()


def _near(times: np.ndarray, row: int, before: int) -> int:
    """Returns the valid store time nearest to a record, preferring earlier records."""
    earlier = np.flatnonzero(times[: row + 1] > 0)
    if len(earlier):
        return int(times[earlier[-1]])
    later = np.flatnonzero(times[row:] > 0)
    return before or (int(times[row + later[0]]) if len(later) else 0)


class _Changes:
    """Collects new values of fields."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._data: bytearray | None = None
        self._rows: set[int] = set()

    def write(self, row: int, name: str, width: int, value: int, *, back: int = 0) -> None:
        """Stores a value at a field, or `back` bytes before it."""
        if self._data is None:
            self._data = bytearray(self._frames.view)
        at = int(self._frames.positions[row]) - back
        at += commit_log.field_offset(name, int(self._frames.host_shape[row]))
        self._data[at : at + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "big")
        self._rows.add(row)

    def result(self) -> tuple[Frames, list[int]]:
        """Returns the changed frames, and the physical offsets of the changed records."""
        frames, data = self._frames, self._data
        if data is None:
            return frames, []
        for row in self._rows:
            start = int(frames.positions[row])
            end = start + int(frames.sizes[row])
            data[start:end] = properties.renew_crc32(bytes(data[start:end]))
        changed = sorted(int(frames.base + frames.positions[row]) for row in self._rows)
        return Frames(memoryview(data), frames.base, frames.positions, frames.sizes), changed
