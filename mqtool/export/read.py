"""Reads one partition into rows: reopens the segments read-only, walks, selects, builds columns."""

import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np

from mqtool.errors import CorruptionError, StoreError
from mqtool.export.plan import Partition, Span
from mqtool.export.rows import Rows, rows_of
from mqtool.export.schema import ReadRequest
from mqtool.export.sources import Source
from mqtool.records.damage import Damage, DamageKind
from mqtool.records.frames import Frames
from mqtool.store.files import MappedFile, ReadFile
from mqtool.store.log.log_walk import walk_file
from mqtool.store.remote import as_path, is_url


def read_partition(
    partition: Partition, request: ReadRequest, narrow: Callable[[Frames], Frames] | None = None
) -> Iterator[Rows | Damage]:
    """Yields the rows of a partition in CommitLog order, and the damage between them.

    Args:
        partition: of a plan.
        request: which messages and columns.
        narrow: an additional filter on records.

    Raises:
        CorruptionError: damage, if the request has `fail_fast`.
        StoreError: a segment cannot be read.
    """
    start_index, selection = _StartIndex(partition.source), request.selection
    for span in partition.spans:
        for item in walk_span(span, start_index):
            if isinstance(item, Damage):
                if item.overlaps(selection.start, selection.end):
                    yield check_tolerated(item, request)
                continue
            chosen = selection.narrow(item.between(selection.start, selection.end))
            for frames in pieces(chosen if narrow is None else narrow(chosen), request):
                rows = rows_of(frames, partition.source.broker, request)
                if rows is not None:
                    yield rows


def check_tolerated(damage: Damage, request: ReadRequest) -> Damage:
    """Returns the damage if the request tolerates damage.

    Raises:
        CorruptionError: it does not.
    """
    if request.fail_fast:
        what = f"{damage.kind}, {damage.end - damage.start} bytes: {damage.detail}; mode permissive reports and skips"
        raise CorruptionError(what, damage.path or "commitlog", damage.start)
    return damage


def walk_span(span: Span, start_index: "_StartIndex | None" = None) -> Iterator[Frames | Damage]:
    """Yields the valid frames of a span and the damage between them.

    A segment that has disappeared since planning is reported as damage: the broker has deleted it.

    Raises:
        StoreError: the segment cannot be read, or the whole store is missing on this machine.
    """
    path = as_path(span.path)
    try:
        file = ReadFile(path)
    except StoreError as error:
        if not _was_deleted(error, path):
            raise
        yield Damage(span.start, span.end, DamageKind.MISSING, f"gone since planning: {error}", path)
        return
    with closing(file):
        segment = MappedFile(path, span.base, file.size, span.entries)
        start, end = span.start - span.base, span.end - span.base
        for item in walk_file(file, segment, start=start, end=end, start_index=start_index):
            yield item.at(path, span.base) if isinstance(item, Damage) else item


def _was_deleted(error: StoreError, path: Path) -> bool:
    """Whether the broker has deleted a segment. If its directory is missing too, a disk or a mount is missing instead.

    Raises:
        StoreError: the directory does not exist on this machine.
    """
    if not isinstance(error.__cause__, FileNotFoundError):
        return False
    if not is_url(str(path)) and not path.parent.is_dir():
        where = socket.gethostname()
        raise StoreError(f"neither the segment nor its directory is on {where}; is the store mounted there?", path)
    return True


class _StartIndex:
    """Record starts according to the queues; the store is opened only if damage makes this necessary."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @cached_property
    def _judge(self) -> object:
        try:
            return self._source.open().commit_log.start_index
        except StoreError:
            return None

    def __call__(self, physical_offset: int) -> bool | None:
        judge = self._judge
        return judge(physical_offset) if callable(judge) else None


def pieces(frames: Frames, request: ReadRequest) -> Iterator[Frames]:
    """Splits frames into batches by bytes and rows."""
    if not len(frames):
        return
    before = np.cumsum(frames.sizes) - frames.sizes
    by_bytes, by_rows = before // request.batch_bytes, np.arange(len(frames)) // request.batch_rows
    edges = [0, *(np.flatnonzero(np.diff(by_bytes) | np.diff(by_rows)) + 1).tolist(), len(frames)]
    for low, high in pairwise(edges):
        yield frames.select(slice(low, high))
