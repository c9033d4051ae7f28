"""One task of an export: reads a partition and writes staged Parquet files. Runs in any process, on any machine.

It is the same code on one machine and on Spark, so both produce the same files.
"""

import secrets
from collections import Counter
from concurrent.futures import CancelledError
from contextlib import ExitStack
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from mqtool.export.parquet import FileEntry, TableWriter, WriteOptions
from mqtool.export.plan import Partition
from mqtool.export.read import read_partition
from mqtool.export.rows import Rows
from mqtool.export.runs import SortedRuns
from mqtool.export.schema import DAMAGE_SCHEMA, REJECTED_VALUE_SCHEMA, ReadRequest, Table
from mqtool.export.target import target_of
from mqtool.records.damage import Damage

_LETTERS = 1000


class Task(Struct, frozen=True):
    """The input of a task."""

    partition: Partition  # what to read
    read: ReadRequest  # which messages and columns
    write: WriteOptions  # how to write them
    target: str  # URL of the export
    staging: str  # directory in the target for unpublished files
    sequence: int  # of the commit that the files will belong to; part of their names


class TaskResult(Struct):
    """The result of a task."""

    number: int  # of the partition
    log_bytes: int  # bytes of log that it covered
    files: list[FileEntry] = field(default_factory=list)  # staged, in order
    topics: Counter[str] = field(default_factory=Counter)  # and classes: number of rows by topic, and by record class
    classes: Counter[str] = field(default_factory=Counter)
    damaged_bytes: int = 0  # bytes of log in the damage table


def run_task(task: Task, is_over: Event | None = None) -> TaskResult:
    """Reads a partition, sorts it, writes it; each attempt has a separate directory.

    Args:
        task: what to do.
        is_over: set by another thread when nobody wants the result any more.

    Raises:
        CancelledError: `is_over` was set.
        CorruptionError: damage, if the request has `fail_fast`.
        StoreError, OSError: reading or writing failed.
    """
    attempt = f"{task.staging}/{task.partition.number:05d}-{secrets.token_hex(4)}"
    name = f"part-{task.sequence:08d}-{task.partition.number:05d}"
    target = target_of(task.target)
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
                if len(waiting) >= _LETTERS:
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
    return result


def _check(is_over: Event | None) -> None:
    if is_over is not None and is_over.is_set():
        raise CancelledError


def _count(result: TaskResult, rows: Rows) -> None:
    for column, counter in (("topic", result.topics), ("record_class", result.classes)):
        for counted in pc.value_counts(rows.keys[column]).to_pylist():
            counter[counted["values"]] += counted["counts"]


def damage_batch(damage: list[Damage], broker: str, root: str) -> Any:
    """Returns rows of the damage table.

    Args:
        damage: the damage.
        broker: the store's name.
        root: the store's path, which is removed from file names.
    """
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
