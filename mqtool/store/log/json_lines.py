"""Messages of a store as lines of JSON, built from columns: several times faster than row by row."""

from collections.abc import Iterator
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
from msgspec import Struct

from mqtool import native
from mqtool.errors import MqtoolError
from mqtool.formats import commit_log
from mqtool.jobs.pool import in_order, start_worker, thread_pool, worker_pool
from mqtool.records.columns import BY_NAME, Rows
from mqtool.records.damage import Damage
from mqtool.records.frames import Frames
from mqtool.store.files import ReadFile
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.log.json_rows import json_lines as lines_of
from mqtool.store.log.message import messages_of
from mqtool.store.log.selection import Selection
from mqtool.store.remote import is_remote
from mqtool.store.store import Store

_AHEAD = 2
"""Blocks handed to each worker, so that it has work while this process is busy."""
_WAITING = 8
"""Blocks that are ready or being made before this process waits for the first: what bounds memory."""


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


class Block(Struct, frozen=True):
    """Frames of one file, for another process."""

    path: Path  # the file
    start: int  # and size: the bytes that contain the frames
    size: int
    base: int  # physical offset of the first of these bytes
    positions: np.ndarray  # and sizes: int64, of each frame, relative to `start`
    sizes: np.ndarray


def in_threads(items: Iterator[Frames | Damage], make: LineMaker, workers: int) -> Iterator[Lines | Damage]:
    """Yields the lines of each block of frames, and damage, in order; `workers` threads build the lines."""
    with thread_pool(workers) as (pool, _):
        begun = (_BuiltBlock(item) if isinstance(item, Damage) else pool.submit(make, item) for item in items)
        for piece in in_order(begun, workers + _AHEAD):
            yield piece.result()


def in_processes(
    log: CommitLog, items: Iterator[Frames | Damage], make: LineMaker, workers: int
) -> Iterator[Lines | Damage]:
    """Like `spread`, with `workers` processes in addition to this one."""
    with worker_pool(workers, start_worker) as pool:
        yield from spread(log, items, make, pool, workers)


def spread(
    log: CommitLog, items: Iterator[Frames | Damage], make: LineMaker, pool: Executor, workers: int
) -> Iterator[Lines | Damage]:
    """Yields the lines of each block of frames, a few MiB, and damage, in order.

    This process builds lines too when it would have to wait for the pool's workers.
    """
    started = pool.submit(_ready)
    futures: list[Future[Lines | None]] = []

    def begun() -> Iterator[_BuiltBlock | _WorkerBlock]:
        for item in items:
            futures[:] = [future for future in futures if not future.done()]
            is_free = started.done() and len(futures) < workers * _AHEAD
            piece = _submit(item, log, make, pool) if is_free and not isinstance(item, Damage) else None
            if piece is None:
                yield _BuiltBlock(item if isinstance(item, Damage) else make(item))
            else:
                futures.append(piece.future)
                yield piece

    for piece in in_order(begun(), _WAITING):
        yield piece.result()


class _BuiltBlock(Struct, frozen=True):
    """Lines that this process has built."""

    lines: Damage | Lines

    def done(self) -> bool:
        """See `pool.StartedTask`."""
        return True

    def result(self) -> Damage | Lines:
        """Returns the lines."""
        return self.lines


class _WorkerBlock(Struct, frozen=True):
    """A block handed to a worker; its frames are kept in case the worker cannot build the lines."""

    future: "Future[Lines | None]"
    frames: Frames
    make: LineMaker

    def done(self) -> bool:
        """See `pool.StartedTask`."""
        return self.future.done()

    def result(self) -> Lines:
        """Waits for the worker; builds the lines here if it died or could not read the file."""
        try:
            lines = self.future.result()
        except BrokenProcessPool:  # the system killed it, most likely for memory
            lines = None
        return self.make(self.frames) if lines is None else lines


def _submit(frames: Frames, log: CommitLog, make: LineMaker, pool: Executor) -> _WorkerBlock | None:
    """Hands a block to a worker; returns None if no worker can build its lines."""
    block = _block(log, frames)
    if block is None:
        return None
    try:
        return _WorkerBlock(pool.submit(_make, block, make), frames, make)
    except BrokenProcessPool:
        return None


def _block(log: CommitLog, frames: Frames) -> Block | None:
    """Describes where a worker finds frames; None if it cannot read them."""
    first = int(frames.positions[0])
    index = log.segment_at(frames.base + first)
    if index is None or is_remote(log.segments[index].path):
        return None
    segment = log.segments[index]
    size = int(frames.positions[-1] + frames.sizes[-1]) - first
    base = frames.base + first
    return Block(segment.path, base - segment.base, size, base, frames.positions - first, frames.sizes)


def _make(block: Block, make: LineMaker) -> Lines | None:
    """Builds a block's lines; None if the file no longer contains these bytes."""
    try:
        with ReadFile(block.path) as file:
            data = file.read(block.start, block.size)
    except MqtoolError:
        return None
    if len(data) < block.size:
        return None
    lines = make(Frames(memoryview(data), block.base, block.positions, block.sizes))
    return Lines(bytes(lines.data), lines.count, lines.end, lines.undecoded)


def _ready() -> bool:
    """Tells that a worker has loaded what it needs."""
    return True


def json_lines(
    store: Store, body_mode: str = "text", *, raw: bool = False, jobs: int = 1, **conditions: object
) -> Iterator[Lines | Damage]:
    """Yields the messages of `Store.messages` as blocks of lines, and damage between them; conditions as there.

    `body_mode` is that of `store.log.json_rows.row_of`. `jobs` is the number of processes, or of threads if
    `native.lines` builds the lines, including this one; the lines are the same.
    """
    make, selection = LineMaker(body_mode, raw), Selection.of(**conditions)
    items = _items(store, selection)
    if jobs > 1 and native.in_use():
        yield from in_threads(items, make, jobs - 1)
    elif jobs > 1:
        yield from in_processes(store.commit_log, items, make, jobs - 1)
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
