"""One run of an export between recovery and commit; its request and its result.

A run also undoes what was exported from a part of the log that no longer exists, because the log was truncated. Each
commit contains the watermark that it reached. The newest watermark that still matches the log is where export and log
agree. The store's files from later commits are undone, and the log is exported again from there. Watermarks of commits
that were undone do not count, even if the log matches them again: their rows are no longer in the export.

Retention may have deleted the log at that place. Its rows then exist in the export only. They stay, and the log is
exported again from its beginning, if it is the same log: if its first exported record is the one that was exported.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct, field
from msgspec.structs import replace

from mqtool import __version__
from mqtool.choices import TableFormat
from mqtool.errors import ExportError, StoreError, StoreLockedError, WorkerError
from mqtool.export import commit as protocol
from mqtool.export import tables
from mqtool.export.commit import Manifest, all_manifests
from mqtool.export.limits import Limits, prefixes, size_until
from mqtool.export.parquet import FileEntry, TableWriter, WriteOptions, directory, rewrite
from mqtool.export.plan import Partition, StorePlan, cut_plan, log_end, partition_size, partitions
from mqtool.export.schema import DAMAGE_SCHEMA, PLACES, REJECTED_VALUE_SCHEMA, SALT_VARIABLE, ReadRequest, Table
from mqtool.export.sources import Source
from mqtool.export.state import Mark, State, check_mark, mark_at, plan_since, require_new_log
from mqtool.export.table_logs import CHANGED, ELSEWHERE
from mqtool.export.target import Target
from mqtool.export.task import Task, check_tolerated, damage_batch
from mqtool.export.task_result import TaskResult, discard, finished_tasks, key_of
from mqtool.jobs.progress import OnProgress
from mqtool.records.damage import Damage
from mqtool.store import Store
from mqtool.store.log.cuts import Cuts

_IDENTITY = {
    "physical_offset": "physical_offset",
    "store_timestamp": "store_timestamp",
    "store_size": "total_size",
    "queue_id": "queue_id",
}
"""Columns that show that a row is a record, and the record's fields."""


class Rewind(Struct, frozen=True):
    """What is undone for one store."""

    mark: Mark | None  # after which the log is exported again; None for its beginning
    removed: list[FileEntry]  # files that are undone
    # Those of them whose rows before the beginning of the log are written again.
    kept: list[FileEntry] = field(default_factory=list)


class ExportHistory:
    """The commits of an export."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._manifests: list[Manifest] | None = None

    def rewind(self, store: Store, broker: str) -> Rewind:
        """Returns what has to be undone, and where export and log agree, for a store whose log was truncated.

        Raises ExportError if rows would be lost, or it is unknown whether it is the same log.
        """
        if self._manifests is None:
            self._manifests = all_manifests(self._target)
        end = log_end(store, Cuts(store))
        manifests = [manifest for manifest in self._manifests if broker in manifest.stores]
        for manifest in reversed(_not_undone(manifests, broker)):
            mark = manifest.state.marks.get(broker)
            if mark is not None and self._holds(store, mark, end):
                return self._since(store, broker, mark, manifest.state.sequence, mark.offset)
        first = min((int(earlier.stores[broker]["start"]) for earlier in manifests), default=0)
        return self._since(store, broker, None, 0, first)

    def _holds(self, store: Store, mark: Mark, end: int) -> bool:
        try:
            check_mark(store, mark, end)
        except ExportError:
            return False
        return True

    def _since(self, store: Store, broker: str, mark: Mark | None, sequence: int, agreed: int) -> Rewind:
        """Undoes the commits after a sequence number, except for rows before the beginning of the log.

        `mark` is that of the newest commit that stays, None if all are undone; export and log agree up to the physical
        offset `agreed`.
        """
        later = [manifest for manifest in self._manifests or () if manifest.state.sequence > sequence]
        undone = {path for manifest in later for path in manifest.removed}
        entries = [e for manifest in later for e in manifest.files if e.broker == broker and e.path not in undone]
        first = store.commit_log.min_offset
        if first <= agreed:
            return Rewind(mark, entries)
        bounds = [(entry, *self._bounds(entry, store, agreed)) for entry in entries]
        removed = [entry for entry, _, high in bounds if high >= first]
        record = self._first_row([entry for entry in removed if entry.table == Table.MESSAGES], first)
        if not _is_in_log(store, record):
            raise _unknown(store, agreed, "its first exported record is not in the log")
        return Rewind(None, removed, [entry for entry, low, high in bounds if low < first <= high])

    @contextmanager
    def _file(self, entry: FileEntry) -> Iterator[Any]:
        try:
            source = self._target.open(entry.path)
        except FileNotFoundError as error:
            raise ExportError(
                f"is missing, although the export published it: {CHANGED}; {ELSEWHERE}", entry.path
            ) from error
        with source, pq.ParquetFile(source) as file:
            yield file

    def _bounds(self, entry: FileEntry, store: Store, agreed: int) -> tuple[int, int]:
        """Returns the smallest and the largest physical offset of the rows of a file."""
        with self._file(entry) as file:
            if PLACES[Table(entry.table)] not in file.schema_arrow.names:
                raise _unknown(store, agreed, "the export has no column physical_offset")
            limits = pc.min_max(file.read([PLACES[Table(entry.table)]]).column(0)).as_py()
        return (0, -1) if limits["min"] is None else (limits["min"], limits["max"])

    def _first_row(self, entries: list[FileEntry], first: int) -> dict[str, Any]:
        """Returns the row with the smallest physical offset from a place on; empty if there is none."""
        rows: list[dict[str, Any]] = []
        for entry in entries:
            with self._file(entry) as file:
                names = [name for name in _IDENTITY if name in file.schema_arrow.names]
                table = file.read(names)
            table = table.filter(pc.field("physical_offset") >= first)
            rows += table.take(pc.select_k_unstable(table, 1, [("physical_offset", "ascending")])).to_pylist()
        return min(rows, key=lambda row: int(row["physical_offset"]), default={})


def before(entry: FileEntry, end: int) -> Callable[[Any], Any]:
    """Returns a function that returns which rows of a file's table are before a physical offset."""
    return lambda table: pc.less(table[PLACES[Table(entry.table)]], end)


def _is_in_log(store: Store, row: dict[str, Any]) -> bool:
    """Whether the log has the record of a row: at the same offset, with the same store timestamp, size and queue."""
    if row.get("store_timestamp") is None:
        return False
    try:
        record = store.commit_log.record(row["physical_offset"])
    except StoreError:
        return False
    stored = {name: getattr(record, attribute) for name, attribute in _IDENTITY.items() if name in row}
    return stored == row | {"store_timestamp": round(row["store_timestamp"].timestamp() * 1000)}


def _unknown(store: Store, agreed: int, reason: str) -> ExportError:
    first = store.commit_log.min_offset
    return ExportError(
        f"the log agrees with the export up to physical offset {agreed} and now begins at {first}: {reason}, so "
        "mqtool cannot know whether it is the exported log; export into a new directory, with a new state",
        store.path,
    )


def _not_undone(manifests: list[Manifest], broker: str) -> list[Manifest]:
    """Returns the commits whose rows are still in the export; a commit that starts before their end undoes them.

    Files that a commit removes would not show this, because a commit may cover a range of the log without rows. The
    manifests cover the store, oldest first.
    """
    remaining: list[Manifest] = []
    for manifest in manifests:
        while remaining and int(remaining[-1].stores[broker]["end"]) > int(manifest.stores[broker]["start"]):
            remaining.pop()
        remaining.append(manifest)
    return remaining


class ExportRequest(Struct, frozen=True):
    """What to export, and where to."""

    sources: tuple[Source, ...]  # the stores
    target: str  # directory or URL
    read: ReadRequest = field(default_factory=ReadRequest)  # which messages and columns
    write: WriteOptions = field(default_factory=WriteOptions)  # how to write files
    state: str | None = None  # file or URL of the watermark; None for an export that is not incremental
    split_bytes: int | None = None  # bytes of log per task; None to choose by the size of the log
    table: TableFormat | None = None  # table format in addition to Parquet files; None for plain files
    rewind: bool = False  # if a log was truncated, undo what was exported from after the cut
    limits: Limits = field(default_factory=Limits)  # how much this run exports

    def shape(self) -> dict[str, Any]:
        """Returns the properties that must be the same in all runs of one export."""
        selection = self.read.selection
        return {
            "include": "all" if self.read.every_class else "committed",
            "columns": list(self.read.columns),
            "body": str(self.read.body),
            "redact": sorted(self.read.redact),
            "partition-by": list(self.write.partition_by),
            "topics": list(selection.topics),
            "queue": selection.queue_id,
            "time": [selection.begin_time, selection.end_time],
        }


class ExportResult(Struct, frozen=True):
    """What an export did."""

    manifest: Manifest  # of its commit; of the last commit if nothing was new
    stores: tuple[StorePlan, ...] = ()  # the plan of each store
    committed: bool = True  # whether anything was new
    finished_earlier: bool = False  # an interrupted run was completed, and nothing else was new
    completed: Manifest | None = None  # the commit of an interrupted run whose files this run published
    left: int = 0  # bytes of log that were there, but after the limits of the run
    is_late: bool = False  # only `Limits.until` kept the run from more
    tasks: int = 0  # and taken_over: tasks of the run, and those of them that an earlier run had finished
    taken_over: int = 0


class Runner(Protocol):
    """Runs the tasks of an export."""

    def run(self, tasks: list[Task], done: Callable[[TaskResult], None]) -> None:
        """Runs all tasks and calls `done` with each result. Raises the error of a task that failed."""


class ExportRun:
    """One run."""

    def __init__(
        self, request: ExportRequest, target: Target, state: State, last: Manifest | None, *, alone: bool
    ) -> None:
        """Plans nothing yet.

        `last` is the last commit of the target, None if it is new; `alone` means that no other run can be writing into
        it.
        """
        self._request = request
        self._target = target
        self._before = state
        self._last = last
        self._sequence = state.sequence + 1
        self._alone = alone
        self._staging = protocol.new_staging(self._sequence)
        left = protocol.stagings(target)
        self._left_stagings = list(left)
        self._earlier = finished_tasks(target, [path for path, number in left.items() if number == self._sequence])
        self._marks: dict[tuple[str, int], Mark | None] = {}
        """Marks of the ends of tasks, by broker and physical offset."""
        self._results: list[TaskResult] = []
        self._history = ExportHistory(target)
        self._removed: list[FileEntry] = []
        self._split, self._left, self._is_late = 0, 0, False
        self._kept: list[tuple[FileEntry, int]] = []
        """Files that are removed, although their rows before a physical offset stay."""

    def run(self, stores: list[Store], runner: Runner, on_progress: OnProgress) -> ExportResult:
        """Plans, runs and commits; closes the stores once planning is complete."""
        plans, damage, marks = self._plan(stores)
        tasks = self._tasks(plans)
        if self._alone:
            discard(self._target, self._left_stagings, {task.earlier.attempt for task in tasks if task.earlier})
        total = sum(task.partition.size for task in tasks)
        reached = all(plan.end == plan.start for plan in plans)
        if self._removed:
            tables.require_removable(self._request.table, self._target)
        is_done = not tasks and not damage and not self._removed and reached
        if is_done and self._last is not None and self._request.state is not None:  # a commit is continued with a state
            protocol.save_state(self._request.state, self._before)
            return replace(self._result(self._last, plans, tasks), committed=False)

        def done(result: TaskResult) -> None:
            self._results.append(result)
            on_progress(sum(task.log_bytes for task in self._results), total)

        on_progress(0, total)
        try:
            runner.run(tasks, done)
            files = self._files(damage)
            kept = self._rewritten()
        except BaseException as error:
            self._keep(tasks, error)
            raise
        state = State(self._before.export_id, self._sequence, self._request.shape(), marks)
        totals = self._totals(files, damage)
        incremental = self._request.state is not None
        removed = [entry.path for entry in self._removed]
        covered = {p.source.broker: {"path": p.source.path, "start": p.start, "end": p.end} for p in plans}
        manifest = Manifest(state, incremental, covered, [*files, *kept], totals, removed)
        self._commit(manifest, tasks)
        return self._result(manifest, plans, tasks)

    def _commit(self, manifest: Manifest, tasks: list[Task]) -> None:
        update_table = partial(tables.publish, self._request.table, self._target)
        try:
            protocol.commit(self._target, manifest, self._last, self._request.state, update_table)
        except WorkerError as error:
            self._keep(tasks, error)
            raise
        except StoreLockedError:
            if not protocol.is_taken_over(self._target, self._staging, self._sequence):
                self._target.remove(self._staging)
            raise

    def _result(self, manifest: Manifest, plans: list[StorePlan], tasks: list[Task]) -> ExportResult:
        taken_over = sum(result.is_taken_over for result in self._results)
        left, is_late = self._left, self._is_late
        return ExportResult(manifest, tuple(plans), left=left, is_late=is_late, tasks=len(tasks), taken_over=taken_over)

    def _keep(self, tasks: list[Task], error: BaseException) -> None:
        """Removes staging files but those of finished tasks; a note of the error says how many are kept."""
        with suppress(OSError, StoreError):
            finished = finished_tasks(self._target, [self._staging])
            discard(self._target, [self._staging], {task.attempt for task in finished.values()})
            kept = {task.key for task in tasks} & {*finished, *self._earlier}
            if kept:
                error.add_note(f"{len(kept)} of {len(tasks)} tasks are kept; run the same command again")

    def _plan(self, stores: list[Store]) -> tuple[list[StorePlan], list[tuple[Source, Damage]], dict[str, Any]]:
        """Plans all stores; returns the plans, the damage that planning found, and the watermarks after the run."""
        request = self._request
        news = [self._plan_one(source, store) for source, store in zip(request.sources, stores, strict=True)]
        whole = [plan for plan, _ in news]
        taken = prefixes(request.limits, whole, stores, request.read)
        total = sum(size_until(plan, prefix.end) for plan, prefix in zip(whole, taken, strict=True))
        before = next(iter(self._earlier.values()), None)  # the log has grown since, and must be cut as it was then
        self._split = request.split_bytes or (partition_size(total) if before is None else before.split)
        self._left = sum(plan.size for plan in whole) - total if request.limits else 0
        self._is_late = all(prefix.is_late for prefix, plan in zip(taken, whole, strict=True) if prefix.end < plan.end)
        plans: list[StorePlan] = []
        damage: list[tuple[Source, Damage]] = []
        marks = dict(self._before.marks)
        for (new, since), prefix, store in zip(news, taken, stores, strict=True):
            with store:
                plan = cut_plan(new, Cuts(store), self._split, prefix.end if request.limits else None)
                mark = mark_at(store, plan.end) or since
                ends = [partition.spans[-1].end for partition in partitions([plan], self._split)]
                self._marks |= {(plan.source.broker, end): mark_at(store, end) for end in ends}
            plans.append(plan)
            damage.extend((plan.source, check_tolerated(item, request.read)) for item in plan.damage)
            marks.pop(plan.source.broker, None)
            if mark is not None:
                marks[plan.source.broker] = mark
        return plans, damage, marks

    def _plan_one(self, source: Source, store: Store) -> tuple[StorePlan, Mark | None]:
        """Returns what is new in one store, each segment as one span, and the watermark after which it begins."""
        selection = self._request.read.selection
        mark = self._before.marks.get(source.broker)
        if mark is None:
            require_new_log(store, source.broker, self._before.marks)
        try:
            return plan_since(store, source, selection, mark), mark
        except ExportError:
            if not self._request.rewind:
                raise
        rewind = self._history.rewind(store, source.broker)
        self._removed.extend(rewind.removed)
        self._kept.extend((entry, store.commit_log.min_offset) for entry in rewind.kept)
        return plan_since(store, source, selection, rewind.mark), rewind.mark

    def _tasks(self, plans: list[StorePlan]) -> list[Task]:
        return [self._task(partition) for partition in partitions(plans, self._split)]

    def _task(self, partition: Partition) -> Task:
        request, key = self._request, self._key(partition)
        earlier = self._earlier.get(key)
        if earlier is not None and request.read.fail_fast and earlier.result.damaged_bytes:
            earlier = None
        where = request.target, self._staging, self._sequence
        return Task(partition, request.read, request.write, *where, self._split, key, earlier)

    def _key(self, partition: Partition) -> str:
        """Returns the key of a task; "" if its values are redacted with a salt that no other run knows."""
        request = self._request
        if request.read.redact and SALT_VARIABLE not in os.environ:
            return ""
        mark = self._marks[partition.source.broker, partition.spans[-1].end]
        read = replace(request.read, fail_fast=False)
        return key_of(__version__, replace(partition, number=0), mark, read, request.write)

    def _files(self, damage: list[tuple[Source, Damage]]) -> list[FileEntry]:
        """Returns the files of all tasks, and those that the driver itself adds."""
        results = sorted(self._results, key=lambda result: result.number)
        files = [entry for result in results for entry in result.files]
        for number, (source, item) in enumerate(damage):
            name = f"part-{self._sequence:08d}-planned-{number}"
            options = self._request.write
            writer = TableWriter(self._target, self._staging, Table.DAMAGE, DAMAGE_SCHEMA, name, options, source.broker)
            writer.add(damage_batch([item], source.broker, source.path))
            files.extend(writer.close())
        if self._sequence == 1:
            files.extend(self._empty_tables({entry.table for entry in files}))
        return files

    def _rewritten(self) -> list[FileEntry]:
        """Returns copies of files that are removed, with the rows that stay."""
        copies: list[FileEntry] = []
        for number, (entry, end) in enumerate(self._kept):
            name = f"part-{self._sequence:08d}-kept-{number:04d}.parquet"
            path = "/".join(part for part in (entry.table, directory(entry.partition), name) if part)
            staged = f"{self._staging}/{path}"
            rows, size = rewrite(self._target, entry.path, staged, before(entry, end), self._request.write.level)
            copies.append(FileEntry(entry.table, path, staged, rows, size, entry.partition, entry.broker, entry.path))
        return copies

    def _empty_tables(self, present: set[str]) -> list[FileEntry]:
        """Writes a file without rows for each table without rows, so that readers find its columns."""
        schemas = (
            (Table.MESSAGES, self._request.read.schema),
            (Table.DAMAGE, DAMAGE_SCHEMA),
            (Table.REJECTED_VALUES, REJECTED_VALUE_SCHEMA),
        )
        entries: list[FileEntry] = []
        for table, schema in schemas:
            if table not in present:
                options = WriteOptions(level=self._request.write.level)
                name = f"part-{self._sequence:08d}-empty"
                writer = TableWriter(self._target, self._staging, table, schema, name, options)
                writer.add(pa.RecordBatch.from_pylist([], schema), new_file=True)
                entries.extend(writer.close())
        return entries

    def _totals(self, files: list[FileEntry], damage: list[tuple[Source, Damage]]) -> dict[str, Any]:
        topics: Counter[str] = sum((result.topics for result in self._results), Counter())
        classes: Counter[str] = sum((result.classes for result in self._results), Counter())
        planned = sum(item.end - item.start for _, item in damage)
        return {
            "rows": protocol.totals_of(files),
            "topics": dict(sorted(topics.items())),
            "classes": dict(sorted(classes.items())),
            "damaged_bytes": planned + sum(result.damaged_bytes for result in self._results),
            "log_bytes": sum(result.log_bytes for result in self._results),
        }
