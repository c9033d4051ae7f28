"""An export as data: what is asked for, who runs its tasks, what came of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from mqtool.choices import TableFormat
from mqtool.errors import UsageError
from mqtool.export.commit import Manifest
from mqtool.export.parquet import WriteOptions
from mqtool.export.plan import StorePlan
from mqtool.export.request import ReadRequest
from mqtool.export.sources import Source
from mqtool.export.task import Task, TaskResult

MOST_TASKS = 100_000
"""Of one store. Each writes files of its own, and is planned and listed by one process."""


def check_split(split_bytes: int | None, log_bytes: int) -> None:
    """Compares the size of tasks with that of a log.

    Raises:
        UsageError: there would be too many of them.
    """
    if split_bytes is not None and log_bytes // max(1, split_bytes) >= MOST_TASKS:
        least = -(-log_bytes // MOST_TASKS)
        raise UsageError(
            f"tasks of {split_bytes} bytes are more than {MOST_TASKS}; give a size of at least {least} bytes"
        )


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
        table: what else the messages become; None for plain files.
        rewind: where a log was cut back, undo what was exported from beyond the cut.
    """

    sources: tuple[Source, ...]
    target: str
    read: ReadRequest = field(default_factory=ReadRequest)
    write: WriteOptions = field(default_factory=WriteOptions)
    state: str | None = None
    split_bytes: int | None = None
    table: TableFormat | None = None
    rewind: bool = False

    def shape(self) -> dict[str, Any]:
        """Returns what later runs of the same export must agree with."""
        wanted = self.read.selection
        return {
            "include": "all" if self.read.every_class else "committed",
            "columns": list(self.read.columns),
            "body": str(self.read.body),
            "redact": sorted(self.read.redact),
            "partition-by": list(self.write.partition_by),
            "topics": list(wanted.topics),
            "queue": wanted.queue_id,
            "time": [wanted.begin_time, wanted.end_time],
        }


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
