"""Values that describe an export: the request, the interface that runs its tasks, the result."""

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct, field

from mqtool.choices import TableFormat
from mqtool.errors import UsageError
from mqtool.export.commit import Manifest
from mqtool.export.parquet import WriteOptions
from mqtool.export.plan import StorePlan
from mqtool.export.request import ReadRequest
from mqtool.export.sources import Source
from mqtool.export.task import Task, TaskResult

MAX_TASKS = 100_000
"""Maximum tasks of one store. Each writes separate files, and one process plans and lists them all."""


def check_split(split_bytes: int | None, log_bytes: int) -> None:
    """Checks that a log of this size does not result in too many tasks.

    Raises:
        UsageError: it would.
    """
    if split_bytes is not None and log_bytes // max(1, split_bytes) >= MAX_TASKS:
        minimum = -(-log_bytes // MAX_TASKS)
        raise UsageError(
            f"tasks of {split_bytes} bytes are more than {MAX_TASKS}; give a size of at least {minimum} bytes"
        )


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


class Runner(Protocol):
    """Runs the tasks of an export."""

    def run(self, tasks: list[Task], done: Callable[[TaskResult], None]) -> None:
        """Runs all tasks and calls `done` with each result. Raises the error of a task that failed."""
