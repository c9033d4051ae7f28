"""A block of messages as lines of JSON."""

import numpy as np
from msgspec import Struct

from mqtool.formats import commit_log
from mqtool.records.columns import BY_NAME, Rows
from mqtool.records.frames import Frames
from mqtool.store.log.json_rows import json_lines as lines_of


class Lines(Struct, frozen=True):
    """A block of lines."""

    data: bytes | memoryview  # JSON Lines, each line ended by a line feed
    count: int  # number of lines
    end: int  # physical offset after the last of these messages
    # Physical offsets of messages whose body is left as stored because it cannot be decompressed.
    undecoded: tuple[int, ...]


class LineMaker(Struct, frozen=True):
    """Builds lines from frames."""

    body_mode: str  # "none", "text", "hex" or "base64"; see `store.log.json_rows.row_of`
    raw: bool  # bodies as stored

    def __call__(self, frames: Frames) -> Lines:
        """Returns the lines of at least one frame."""
        undecoded: tuple[int, ...] = ()
        compressed = frames.column("sys_flag") & commit_log.SysFlag.COMPRESSED
        if compressed.any() and not self.raw:
            decoded = np.asarray(BY_NAME["body_decoded"].build(Rows(frames)).to_numpy(zero_copy_only=False), bool)
            undecoded = tuple((frames.positions[~decoded] + frames.base).tolist())
        end = frames.base + int(frames.positions[-1] + frames.sizes[-1])
        return Lines(lines_of(frames, self.body_mode, raw=self.raw), len(frames), end, undecoded)
