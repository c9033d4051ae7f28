"""An export from beginning to end, whoever runs its tasks: plan, run, commit.

`export` on one machine uses worker processes; `spark.export` hands in a runner of its own.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa

from mqtool.errors import UsageError
from mqtool.export import commit as protocol
from mqtool.export.commit import Manifest
from mqtool.export.fingerprints import require_different_logs
from mqtool.export.parquet import FileEntry, TableWriter, WriteOptions
from mqtool.export.plan import StorePlan, partitions
from mqtool.export.read import accept
from mqtool.export.request import ReadRequest
from mqtool.export.resume import plan_since
from mqtool.export.schema import DAMAGE_SCHEMA, DEAD_LETTER_SCHEMA, Table
from mqtool.export.sources import Source
from mqtool.export.state import State, mark_at
from mqtool.export.target import Target, target_of
from mqtool.export.task import Task, TaskResult, damage_batch
from mqtool.scan.damage import Damage

Done = Callable[[int, int], None]
"""Is told bytes of log done, and of all."""


@dataclass(frozen=True)
class ExportRequest:
    """What is to be exported, and where to.

    Attributes:
        sources: the stores.
        target: directory or URL.
        read: which messages.
        write: how files are written.
        state: file or URL of the watermark; None for an export that stands for itself.
        split_bytes: bytes of log in a task; None to choose by the size of the log.
    """

    sources: tuple[Source, ...]
    target: str
    read: ReadRequest = field(default_factory=ReadRequest)
    write: WriteOptions = field(default_factory=WriteOptions)
    state: str | None = None
    split_bytes: int | None = None

    def shape(self) -> dict[str, Any]:
        """Returns what later runs of the same export must agree with."""
        wanted = self.read.selection
        return {
            "include": "all" if self.read.every_class else "committed", "columns": list(self.read.columns),
            "body": str(self.read.body), "redact": sorted(self.read.redact),
            "partition-by": list(self.write.partition_by), "topics": list(wanted.topics), "queue": wanted.queue_id,
            "time": [wanted.begin_time, wanted.end_time],
        }  # fmt: skip


@dataclass(frozen=True)
class ExportResult:
    """What an export did.

    Attributes:
        manifest: of its commit; of the last one if nothing was new.
        stores: what each store's part was.
        committed: whether anything was new.
        finished_earlier: an interrupted run was completed, and nothing else was new.
    """

    manifest: Manifest
    stores: tuple[StorePlan, ...] = ()
    committed: bool = True
    finished_earlier: bool = False


class Runner(Protocol):
    """Runs tasks somewhere."""

    def run(self, tasks: list[Task], done: Callable[[TaskResult], None]) -> None:
        """Runs all tasks; tells of each that ended. Raises what a task raised."""


def _silent(_done: int, _total: int) -> None:
    """Tells nobody."""


def export(request: ExportRequest, runner: Runner, progress: Done = _silent) -> ExportResult:
    """Exports; all files of the run are published, or none.

    Args:
        request: what.
        runner: where its tasks run.
        progress: is told how far it has come.

    Raises:
        ExportError: the directory, the log or the request is not what the state says.
        CorruptionError: damage, with `fail_fast`.
        StoreError, OSError: reading or writing failed; nothing was published.
    """
    if request.state is not None and (request.read.selection.start, request.read.selection.end) != (None, None):
        raise UsageError("an incremental export chooses its offsets itself")
    target = target_of(request.target)
    with target.lock(f"{protocol.META}/lock"):
        last, finished = protocol.recover(target)
        if last is not None and finished and request.state is None:
            return ExportResult(last, finished_earlier=True)
        saved = None if request.state is None else protocol.load_state(request.state)
        state = protocol.starting_state(last, saved, request.state, request.target)
        protocol.check_shape(state, request.shape(), request.target)
        result = _Run(request, target, state, last).go(runner, progress)
        return result if result.committed else replace(result, finished_earlier=finished)


class _Run:
    """One run between recovery and commit."""

    def __init__(self, request: ExportRequest, target: Target, state: State, last: Manifest | None) -> None:
        self._request = request
        self._target = target
        self._before = state
        self._last = last
        self._sequence = state.sequence + 1
        self._staging = protocol.staging_name(self._sequence)
        self._results: list[TaskResult] = []

    def go(self, runner: Runner, progress: Done) -> ExportResult:
        plans, damage, marks = self._plan()
        tasks = self._tasks(plans)
        total = sum(task.partition.size for task in tasks)
        reached = all(p.end <= self._reached(p.source.broker) for p in plans)
        if not tasks and not damage and reached and self._last is not None:
            if self._request.state is not None:
                protocol.save_state(self._request.state, self._before)
            return ExportResult(self._last, tuple(plans), committed=False)

        def done(result: TaskResult) -> None:
            self._results.append(result)
            progress(sum(one.log_bytes for one in self._results), total)

        progress(0, total)
        try:
            runner.run(tasks, done)
            files = self._files(damage)
        except BaseException:
            self._target.remove(self._staging)
            raise
        state = State(self._before.export_id, self._sequence, self._request.shape(), marks)
        manifest = Manifest(state, self._request.state is not None, _covered(plans), files, self._totals(files, damage))
        protocol.commit(self._target, manifest, self._request.state)
        return ExportResult(manifest, tuple(plans))

    def _reached(self, broker: str) -> int:
        mark = self._before.marks.get(broker)
        return -1 if mark is None else mark.offset

    def _plan(self) -> tuple[list[StorePlan], list[tuple[Source, Damage]], dict[str, Any]]:
        """Plans all stores; returns the plans, damage that planning found, and the marks after the run."""
        plans: list[StorePlan] = []
        damage: list[tuple[Source, Damage]] = []
        marks = dict(self._before.marks)
        with ExitStack() as opened:
            stores = [opened.enter_context(source.open()) for source in self._request.sources]
            require_different_logs(stores)
            for source, store in zip(self._request.sources, stores, strict=True):
                before = self._before.marks.get(source.broker)
                plan = plan_since(
                    store, source, self._request.read.selection, before, target=self._request.split_bytes
                )  # fmt: skip
                plans.append(plan)
                damage.extend((source, accept(one, self._request.read)) for one in plan.damage)
                mark = mark_at(store, plan.end)
                if mark is not None:
                    marks[source.broker] = mark
        return plans, damage, marks

    def _tasks(self, plans: list[StorePlan]) -> list[Task]:
        request = self._request
        return [
            Task(partition, request.read, request.write, request.target, self._staging, self._sequence)
            for partition in partitions(plans, request.split_bytes)
        ]

    def _files(self, damage: list[tuple[Source, Damage]]) -> list[FileEntry]:
        """Returns the files of all tasks, and those that the driver adds itself."""
        results = sorted(self._results, key=lambda result: result.number)
        files = [entry for result in results for entry in result.files]
        name = f"part-{self._sequence:08d}-planned"
        writer = TableWriter(self._target, self._staging, Table.DAMAGE, DAMAGE_SCHEMA, name, self._request.write)
        for source, one in damage:
            writer.add(damage_batch([one], source.broker, source.path))
        files.extend(writer.close())
        if self._sequence == 1:
            files.extend(self._empty_tables({entry.table for entry in files}))
        return files

    def _empty_tables(self, present: set[str]) -> list[FileEntry]:
        """A table without rows is a file without rows, so that whoever reads it finds its columns."""
        schemas = (
            (Table.MESSAGES, self._request.read.schema), (Table.DAMAGE, DAMAGE_SCHEMA),
            (Table.DEAD_LETTERS, DEAD_LETTER_SCHEMA),
        )  # fmt: skip
        found: list[FileEntry] = []
        for table, schema in schemas:
            if table not in present:
                options = WriteOptions(level=self._request.write.level)
                name = f"part-{self._sequence:08d}-empty"
                writer = TableWriter(self._target, self._staging, table, schema, name, options)
                writer.add(pa.RecordBatch.from_pylist([], schema), new_file=True)
                found.extend(writer.close())
        return found

    def _totals(self, files: list[FileEntry], damage: list[tuple[Source, Damage]]) -> dict[str, Any]:
        topics: Counter[str] = sum((result.topics for result in self._results), Counter())
        classes: Counter[str] = sum((result.classes for result in self._results), Counter())
        planned = sum(one.end - one.start for _, one in damage)
        return {
            "rows": protocol.totals_of(files), "topics": dict(sorted(topics.items())),
            "classes": dict(sorted(classes.items())),
            "damaged_bytes": planned + sum(result.damaged_bytes for result in self._results),
            "log_bytes": sum(result.log_bytes for result in self._results),
        }  # fmt: skip


def _covered(plans: list[StorePlan]) -> dict[str, dict[str, Any]]:
    return {p.source.broker: {"path": p.source.path, "start": p.start, "end": p.end} for p in plans}
