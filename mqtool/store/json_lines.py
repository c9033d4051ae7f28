"""Messages of a store as ready lines of JSON, made from columns: several times faster than row by row."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mqtool.formats import commit_log
from mqtool.scan.columns import BY_NAME, Rows
from mqtool.scan.damage import Damage
from mqtool.scan.frames import Frames
from mqtool.scan.json_rows import json_lines as lines_of
from mqtool.store.message import from_record
from mqtool.store.selection import Selection
from mqtool.store.store import Store

BLOCK = 16_384
"""Messages of a block: their text stays in the processor's cache, and memory flat."""


@dataclass(frozen=True, slots=True)
class Lines:
    """A block of lines.

    Attributes:
        data: JSON Lines, each line ended by a line feed.
        count: how many.
        end: physical offset after the last of these messages.
        undecoded: physical offsets of those whose body is as stored, because it cannot be decompressed.
    """

    data: memoryview
    count: int
    end: int
    undecoded: tuple[int, ...]


def json_lines(
    store: Store, body_mode: str = "text", *, raw: bool = False, **wanted: object
) -> Iterator[Lines | Damage]:
    """Yields the messages of `Store.messages` as blocks of lines, and damage between them.

    Args:
        store: where.
        body_mode: "none", "text", "hex" or "base64"; see `scan.json_rows.row_of`.
        raw: bodies as stored.
        wanted: as for `Store.messages`.
    """
    selection = Selection.of(**wanted)
    left = selection.limit
    if left == 0:
        return
    for item in store.commit_log.frames(selection.start, selection.end):
        if isinstance(item, Damage):
            yield item
            continue
        frames = _exact(selection.narrow(item), selection).select(slice(0, left))
        for first in range(0, len(frames), BLOCK):
            yield _block(frames.select(slice(first, first + BLOCK)), body_mode, raw=raw)
        if left is not None:
            left -= len(frames)
            if left == 0:
                return


def _exact(frames: Frames, selection: Selection) -> Frames:
    if not selection.needs_properties or not len(frames):
        return frames
    messages = (from_record(commit_log.parse_record(frames.view, at)) for at in frames.positions.tolist())
    return frames.select(np.array([selection.matches(message) for message in messages], bool))


def _block(frames: Frames, body_mode: str, *, raw: bool) -> Lines:
    undecoded: tuple[int, ...] = ()
    compressed = frames.column("sys_flag") & commit_log.SysFlag.COMPRESSED
    if compressed.any() and not raw:
        decoded = np.asarray(BY_NAME["body_decoded"].build(Rows(frames)).to_numpy(zero_copy_only=False), bool)
        undecoded = tuple((frames.positions[~decoded] + frames.base).tolist())
    end = frames.base + int(frames.positions[-1] + frames.sizes[-1])
    return Lines(lines_of(frames, body_mode, raw=raw), len(frames), end, undecoded)
