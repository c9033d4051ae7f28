"""Sorts more rows than fit in memory: sorted runs, and their merge.

Rows arrive in CommitLog order, so within one queue they are already sorted. A run contains some tens of megabytes of
sorted rows; runs beyond a memory budget are written to an unnamed temporary file. The merge goes group by group, a
group being one queue in one partition: first the group's slice of the first run, then that of the second, and so on.
No rows are compared.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from mqtool.export.parquet import group_edges, partition_columns
from mqtool.export.rows import Rows, compact, concatenate, take
from mqtool.export.schema import SORT_COLUMNS
from mqtool.jobs.atomic import naming

RUN_BYTES = 32 << 20
"""Arrow bytes of a run."""
HELD_BYTES = 64 << 20
"""Arrow bytes of sorted runs that stay in memory."""
PART_BYTES = 1 << 20

Key = tuple[Any, ...]
"""Values of the partition columns, then topic and queue id."""
SortPosition = tuple[int, int, int]
"""Queue offset, physical offset, position in the batch."""


class SortedRows(Struct, frozen=True):
    """Sorted rows of one group."""

    key: Key  # of the group
    batch: Any  # `pa.RecordBatch`
    # Its first row sorts before the last row of the group's previous piece, because the queue was reset.
    steps_back: bool


class SortedRuns:
    """Accepts rows and returns them sorted; a context manager because of its temporary file."""

    def __init__(
        self, partition_by: tuple[str, ...], *, run_bytes: int = RUN_BYTES, held_bytes: int = HELD_BYTES
    ) -> None:
        """Starts empty; the first sort keys are `partition_by`, of `topic`, `date`, `hour`."""
        self._partition_by = partition_by
        self._run_bytes, self._held_bytes = run_bytes, held_bytes
        self._waiting: list[Rows] = []
        self._waiting_bytes = self._held = 0
        self._runs: list[_Run] = []
        self._spill: _Spill | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._spill is not None:
            self._spill.close()

    def add(self, rows: Rows) -> None:
        """Adds rows, in CommitLog order."""
        self._waiting.append(rows)
        self._waiting_bytes += rows.batch.nbytes
        if self._waiting_bytes >= self._run_bytes:
            self._seal()

    def merged(self) -> Iterator[SortedRows]:
        """Yields all rows, sorted by group; nothing may be added afterwards."""
        self._seal()
        where: dict[Key, list[tuple[_Run, _Group]]] = {}
        for run in self._runs:
            for group in run.groups:
                where.setdefault(group.key, []).append((run, group))
        for key in sorted(where, key=_nulls_last):
            last: SortPosition | None = None
            for run, group in where[key]:
                steps_back = last is not None and group.first < last
                for batch in run.slices(group.start, group.stop):
                    yield SortedRows(key, batch, steps_back)
                    steps_back = False
                last = group.last

    def _seal(self) -> None:
        """Sorts the collected rows into a run."""
        if not self._waiting:
            return
        rows = concatenate([sorted_run.batch for sorted_run in self._waiting])
        keys = pa.concat_batches([sorted_run.keys for sorted_run in self._waiting])
        self._waiting, self._waiting_bytes = [], 0
        keys = partition_columns(keys, self._partition_by)
        by = tuple(dict.fromkeys((*self._partition_by, *SORT_COLUMNS)))
        order = pc.sort_indices(keys, [(name, "ascending") for name in by])
        run = _Run(take(rows, order), _groups(keys.take(order), self._partition_by))
        self._runs.append(run)
        self._held += run.held
        if self._held > self._held_bytes:
            self._spill = self._spill or _Spill(compact(rows.slice(0, 0)).schema)
            for sorted_run in self._runs:
                sorted_run.move_to(self._spill)
            self._held = 0


def _nulls_last(key: Key) -> tuple[tuple[bool, Any], ...]:
    return tuple((value is None, 0 if value is None else value) for value in key)


class _Group(Struct, frozen=True):
    key: Key
    start: int
    stop: int
    first: SortPosition
    last: SortPosition


def _groups(keys: Any, partition_by: tuple[str, ...]) -> list[_Group]:
    """Returns the groups of sorted rows."""
    names = (*partition_by, "topic", "queue_id")
    edges = group_edges(keys, names)
    heads, tails = (keys.take(pa.array(edges[at] - shift)) for at, shift in ((slice(0, -1), 0), (slice(1, None), 1)))
    values = zip(*(heads[name].to_pylist() for name in names), strict=True)
    spans = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    return [
        _Group(key, start, stop, first, last)
        for key, (start, stop), first, last in zip(values, spans, _places(heads), _places(tails), strict=True)
    ]


def _places(keys: Any) -> list[SortPosition]:
    columns = [keys["queue_offset"], keys["physical_offset"], pc.fill_null(keys["batch_index"], -1)]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


class _Run:
    def __init__(self, batch: Any, groups: list[_Group]) -> None:
        self.groups = groups
        self.held = batch.nbytes
        self._batch = batch
        self._spill: _Spill | None = None
        self._first_part, self._part_rows = 0, max(1, batch.num_rows * PART_BYTES // max(1, batch.nbytes))
        self._kept: tuple[int, Any] = (-1, None)

    def move_to(self, spill: "_Spill") -> None:
        """Writes the run into the file and frees its memory."""
        if self._spill is None:
            self._first_part = spill.write(self._batch, self._part_rows)
            self._spill, self._batch, self.held = spill, None, 0

    def slices(self, start: int, stop: int) -> Iterator[Any]:
        """Yields rows, split at the parts of the file. If requested in ascending order, each part is read only once."""
        if self._spill is None:
            yield self._batch.slice(start, stop - start)
            return
        for part in range(start // self._part_rows, (stop - 1) // self._part_rows + 1):
            if self._kept[0] != part:
                self._kept = part, self._spill.read(self._first_part + part)
            base = part * self._part_rows
            low = max(start, base)
            yield self._kept[1].slice(low - base, min(stop, base + self._part_rows) - low)


class _Spill:
    """Record batches in an unnamed temporary file, which the system deletes when the process ends."""

    def __init__(self, schema: Any) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="mqtool-")  # noqa: SIM115 - closed by `close`
        self._schema = schema
        self._ends = [0]

    def write(self, batch: Any, rows: int) -> int:
        """Appends a batch in parts of `rows` rows; returns the number of the first part."""
        first = len(self._ends) - 1
        with naming(Path(tempfile.gettempdir())):
            self._file.seek(self._ends[-1])
            for start in range(0, batch.num_rows, rows):
                data = compact(batch.slice(start, rows)).serialize()
                self._file.write(data)
                self._ends.append(self._ends[-1] + data.size)
        return first

    def read(self, number: int) -> Any:
        """Returns one part."""
        start, end = self._ends[number], self._ends[number + 1]
        self._file.seek(start)
        return pa.ipc.read_record_batch(pa.py_buffer(self._file.read(end - start)), self._schema)

    def close(self) -> None:
        """Closes the file, which frees its disk space."""
        self._file.close()
