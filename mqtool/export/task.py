"""One task of an export: reads a partition and writes staged Parquet files. Runs in any process, on any machine.

The segments are reopened read-only. It is the same code on one machine and on Spark, so both produce the same files.
"""

import secrets
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, closing
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from mqtool.errors import CorruptionError, StoreError
from mqtool.export.parquet import TableWriter, WriteOptions
from mqtool.export.plan import Partition, Span
from mqtool.export.rows import Rows, rows_of
from mqtool.export.runs import SortedRuns
from mqtool.export.schema import DAMAGE_SCHEMA, REJECTED_VALUE_SCHEMA, ReadRequest, Table
from mqtool.export.sources import Source
from mqtool.export.target import target_of
from mqtool.export.task_result import FinishedTask, TaskResult
from mqtool.records.damage import Damage, DamageKind
from mqtool.records.frames import Frames
from mqtool.store.files import MappedFile, ReadFile
from mqtool.store.log.log_walk import walk_file
from mqtool.store.remote import as_path, is_url

LETTERS = 1000


def read_partition(
    partition: Partition, request: ReadRequest, narrow: Callable[[Frames], Frames] | None = None
) -> Iterator[Rows | Damage]:
    """Yields the rows of a partition in CommitLog order, and the damage between them; `narrow` filters records.

    Raises CorruptionError for damage, if the request has `fail_fast`, StoreError if a segment cannot be read.
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
    """Returns the damage if the request tolerates damage; raises CorruptionError if it does not."""
    if request.fail_fast:
        what = (
            f"{damage.kind}, {damage.end - damage.start} bytes: {damage.detail}; mode permissive reports it and "
            "continues"
        )
        raise CorruptionError(what, damage.path or "commitlog", damage.start)
    return damage


def walk_span(span: Span, start_index: "_StartIndex | None" = None) -> Iterator[Frames | Damage]:
    """Yields the valid frames of a span and the damage between them.

    A segment that has disappeared since planning is reported as damage: the broker has deleted it. Raises StoreError if
    the segment cannot be read, or the whole store is missing on this machine.
    """
    path = as_path(span.path)
    try:
        file = ReadFile(path)
    except StoreError as error:
        if not _was_deleted(error, path):
            raise
        yield Damage(span.start, span.end, DamageKind.MISSING, f"deleted since planning: {error}", path)
        return
    with closing(file):
        segment = MappedFile(path, span.base, file.size, span.entries)
        start, end = span.start - span.base, span.end - span.base
        for item in walk_file(file, segment, start=start, end=end, start_index=start_index):
            yield item.at(path, span.base) if isinstance(item, Damage) else item


def _was_deleted(error: StoreError, path: Path) -> bool:
    """Whether the broker has deleted a segment.

    If its directory is missing too, a disk or a mount is missing instead, which is a StoreError.
    """
    if not isinstance(error.__cause__, FileNotFoundError):
        return False
    if not is_url(str(path)) and not path.parent.is_dir():
        where = socket.gethostname()
        raise StoreError(f"neither the segment nor its directory exists on {where}; is the store mounted there?", path)
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


class Task(Struct, frozen=True):
    """The input of a task."""

    partition: Partition  # what to read
    read: ReadRequest  # which messages and columns
    write: WriteOptions  # how to write them
    target: str  # URL of the export
    staging: str  # directory in the target for unpublished files
    sequence: int  # of the commit that the files will belong to; part of their names
    split: int = 0  # see `FinishedTask`
    key: str = ""  # of its manifest; "" if no later run can take it over
    earlier: FinishedTask | None = None  # the same task, if an earlier run has finished it


def run_task(task: Task, is_over: Event | None = None) -> TaskResult:
    """Reads a partition, sorts it, writes it; each attempt has a separate directory. Takes over what is finished.

    Another thread sets `is_over` when nobody wants the result any more, which then is a CancelledError. Raises
    CorruptionError for damage, if the request has `fail_fast`, StoreError or OSError if reading or writing failed.
    """
    attempt = f"{task.staging}/{task.partition.number:05d}-{secrets.token_hex(4)}"
    name = f"part-{task.sequence:08d}-{task.partition.number:05d}"
    target = target_of(task.target)
    if task.earlier is not None and task.earlier.is_whole(target):
        return task.earlier.renamed(task.partition.number, name)
    result = TaskResult(task.partition.number, task.partition.size)
    broker = task.partition.source.broker
    with ExitStack() as opened:

        def writer(table: Table, schema: Any) -> TableWriter:
            table_writer = TableWriter(target, attempt, table, schema, name, task.write, broker)
            opened.callback(table_writer.abandon)
            return table_writer

        rejected = writer(Table.REJECTED_VALUES, REJECTED_VALUE_SCHEMA)
        damages: list[Damage] = []
        with SortedRuns(task.write.partition_by) as runs:
            waiting: list[dict[str, Any]] = []
            for item in read_partition(task.partition, task.read):
                _check(is_over)
                if isinstance(item, Damage):
                    damages.append(item)
                    continue
                _count(result, item)
                runs.add(item)
                waiting.extend({"broker": broker, **value} for value in item.rejected_values)
                if len(waiting) >= LETTERS:
                    rejected.add(pa.RecordBatch.from_pylist(waiting, REJECTED_VALUE_SCHEMA))
                    waiting = []
            if waiting:
                rejected.add(pa.RecordBatch.from_pylist(waiting, REJECTED_VALUE_SCHEMA))
            messages = writer(Table.MESSAGES, task.read.schema)
            for piece in runs.merged():
                _check(is_over)
                messages.add(piece.batch, piece.key[: len(task.write.partition_by)], new_file=piece.steps_back)
        damage = writer(Table.DAMAGE, DAMAGE_SCHEMA)
        if damages:
            damage.add(damage_batch(damages, broker, task.partition.source.path))
        result.damaged_bytes = sum(part.end - part.start for part in damages)
        result.files = [entry for table in (messages, damage, rejected) for entry in table.close()]
    if task.key:
        FinishedTask(task.key, task.split, name, attempt, result).save(target)
    return result


def _check(is_over: Event | None) -> None:
    if is_over is not None and is_over.is_set():
        raise CancelledError


def _count(result: TaskResult, rows: Rows) -> None:
    for column, counter in (("topic", result.topics), ("record_class", result.classes)):
        for counted in pc.value_counts(rows.keys[column]).to_pylist():
            counter[counted["values"]] += counted["counts"]


def damage_batch(damage: list[Damage], broker: str, root: str) -> Any:
    """Returns rows of the damage table; the store's path `root` is removed from file names."""
    rows = [
        {
            "broker": broker,
            "start": d.start,
            "end": d.end,
            "kind": str(d.kind),
            "detail": d.detail,
            "file": None if d.path is None else str(d.path).removeprefix(root).lstrip("/"),
            "position": d.position,
        }
        for d in damage
    ]
    return pa.RecordBatch.from_pylist(rows, DAMAGE_SCHEMA)
