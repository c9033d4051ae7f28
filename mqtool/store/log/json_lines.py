"""Messages of a store as lines of JSON, built from columns: several times faster than row by row."""

from collections.abc import Iterator
from concurrent.futures import Future

import numpy as np
from msgspec import Struct

from mqtool import native
from mqtool.formats import commit_log
from mqtool.jobs.pool import in_order, thread_pool
from mqtool.records.columns import BY_NAME, Rows
from mqtool.records.damage import Damage
from mqtool.records.frames import Frames
from mqtool.store.log.json_rows import json_lines as lines_of
from mqtool.store.log.message import messages_of
from mqtool.store.log.selection import Selection
from mqtool.store.store import Store

_AHEAD = 2
"""Blocks that are built ahead of those that the threads are at."""
BLOCK = 16_384
"""Messages of a block: their text stays in the processor's cache, and memory flat."""


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


def in_threads(items: Iterator[Frames | Damage], make: LineMaker, workers: int) -> Iterator[Lines | Damage]:
    """Yields the lines of each block of frames, and damage, in order; `workers` threads build the lines."""
    with thread_pool(workers) as (pool, _):
        begun = (_known(item) if isinstance(item, Damage) else pool.submit(make, item) for item in items)
        for piece in in_order(begun, workers + _AHEAD):
            yield piece.result()


def _known(damage: Damage) -> "Future[Lines | Damage]":
    future: Future[Lines | Damage] = Future()
    future.set_result(damage)
    return future


def json_lines(
    store: Store, body_mode: str = "text", *, raw: bool = False, jobs: int = 1, **conditions: object
) -> Iterator[Lines | Damage]:
    """Yields the messages of `Store.messages` as blocks of lines, and damage between them; conditions as there.

    `body_mode` is that of `store.log.json_rows.row_of`. `jobs` is the number of threads, including this one, if
    `native.lines` builds the lines; Python builds them in one.
    """
    make, selection = LineMaker(body_mode, raw), Selection.of(**conditions)
    items = _items(store, selection)
    if jobs > 1 and native.in_use():
        yield from in_threads(items, make, jobs - 1)
    else:
        yield from (item if isinstance(item, Damage) else make(item) for item in items)


def _items(store: Store, selection: Selection) -> Iterator[Frames | Damage]:
    """Yields blocks of the selected frames, and damage."""
    left = selection.limit
    if left == 0:
        return
    for item in store.commit_log.walk(selection.start, selection.end):
        if isinstance(item, Damage):
            yield item
            continue
        frames = _exact(selection.narrow(item), selection).select(slice(0, left))
        for first in range(0, len(frames), BLOCK):
            yield frames.select(slice(first, first + BLOCK))
        if left is not None:
            left -= len(frames)
            if left == 0:
                return


def _exact(frames: Frames, selection: Selection) -> Frames:
    if not selection.needs_properties or not len(frames):
        return frames
    return frames.select(np.array([selection.matches(message) for message in messages_of(frames)], bool))
