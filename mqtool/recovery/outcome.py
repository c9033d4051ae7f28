"""The outcome of a start, as data: how the broker would answer, and the plan that the engine can carry out.

`mqtool explain-start` prints it, and the engine's own recovery executes it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from mqtool.formats.checkpoint import Checkpoint
from mqtool.recovery.action_log import Step
from mqtool.recovery.losses import LossCount, Ranges, count_of
from mqtool.recovery.reading import QueueReading

GIVEN = "given"
"""The release was chosen by whoever asks."""

OTHER = "the other release"
"""The release is the known one that was not assumed."""

IndexSummary = tuple[str, int, int, int, int]
"""Name (or "new"), begin and end physical offset, used slots, entry counter (one more than entries)."""


class QueueOutcome(Struct, frozen=True):
    """One queue after the start.

    Attributes:
        min_offset, max_offset: queue offsets that are served; the maximum is exclusive.
        next_offset: queue offset of the next message; None if the broker does not know the queue.
    """

    min_offset: int
    max_offset: int
    next_offset: int | None


class FileChanges(Struct, frozen=True):
    """Differences in the directory after the start and a clean shutdown. Paths are relative to the root.

    Attributes:
        deleted, created, changed: regular files; a created index file is `index/<new-N>`, because its name comes
            from the clock.
    """

    deleted: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


class FilePlan(Struct, frozen=True):
    """One file that is kept.

    Attributes:
        path: of the existing or future file.
        base: offset of its first byte.
        end: number of bytes that count as written.
        is_new: created by the start with full length, zeros except for what is appended.
    """

    path: Path
    base: int
    end: int
    is_new: bool


class QueuePlan(Struct, frozen=True):
    """The content of a queue after the start.

    Attributes:
        kind: "SimpleCQ" or "BatchCQ".
        files: in order.
        max_physical_offset: physical offset up to which it has units; dispatch skips records before it.
        appended: by file, position of the first new unit and the units' bytes.
    """

    kind: str
    files: tuple[FilePlan, ...]
    max_physical_offset: int
    appended: tuple[tuple[Path, int, bytes], ...] = ()


class Plan(Struct, frozen=True):
    """What recovery does to a store; nothing has been done yet.

    Attributes:
        steps: in the broker's order.
        segments: files of the log that are kept, with the end of their data.
        scan_from, cut_at: physical offsets: start of the scan, end of the log; None if nothing was scanned.
        dispatch_from: physical offset from which dispatch continues while the store runs.
        queues: by topic and queue id.
        index_files: kept ones, in order.
        checkpoint: its fields afterwards.
    """

    steps: tuple[Step, ...]
    segments: tuple[FilePlan, ...]
    scan_from: int | None
    cut_at: int | None
    dispatch_from: int
    queues: Mapping[tuple[str, int], QueuePlan]
    index_files: tuple[Path, ...]
    checkpoint: Checkpoint


class Effort(Struct, frozen=True):
    """The work of the start, and how long it may take.

    Attributes:
        scanned_bytes, scanned_records, dispatched_records: by recovery and the first dispatch.
        min_minutes, max_minutes: with everything in the page cache, and from a slow disk.
    """

    scanned_bytes: int
    scanned_records: int
    dispatched_records: int
    min_minutes: float
    max_minutes: float


class Outcome(Struct, frozen=True):
    """What a release would make of a store that it is started on now.

    Attributes:
        release: "4.9" or "5.5".
        clean_stop: no abort file is there: recovered normally.
        exit: exit code of the process; None if it keeps running, or hangs.
        refusal: the broker's own words; None if it starts.
        hung: where the start hangs; None if it does not.
        after_start: minimum and maximum physical offset; None if it did not come so far.
        queues: by "topic/queue"; None unless it runs.
        lost: queue offsets by "topic/queue" that are proven now and not delivered then; None unless it runs,
            or where the log was not read for it.
        gone: those of `lost` that are lost already: no intact record is left.
        unserved: those of `lost` whose records stay in the log, but no queue leads to them, now or then.
        readable: messages that consumers get intact; None as for lost.
        repeated: queue offsets that consumers get more than once.
        index_after: index files after the start and an orderly stop.
        index_lost: index entries of records in the log that the start deletes for good; None as for lost, or if the
            number of slots is unknown.
        abort_after: the abort file is there then.
        files: what is different then.
        why, accepted, undecided: rules applied; faults taken without a word; what the files do not decide.
        effort: how much there is to do.
        readings: what consumers get at every queue offset, by "topic/queue"; empty as for lost.
        plan: what recovery does; None if load() did not come so far.
        evidence: where sizes of files are known from.
        release_evidence: why this release: given, detected, or assumed.
    """

    release: str
    clean_stop: bool
    exit: int | None
    refusal: str | None
    hung: str | None
    after_start: tuple[int, int] | None
    queues: Mapping[str, QueueOutcome] | None
    lost: Mapping[str, Ranges] | None
    gone: Mapping[str, Ranges] | None
    unserved: Mapping[str, Ranges] | None
    readable: int | None
    repeated: Mapping[str, Ranges] | None
    index_after: tuple[IndexSummary, ...]
    index_lost: int | None
    abort_after: bool
    files: FileChanges
    why: tuple[str, ...]
    accepted: tuple[str, ...]
    undecided: tuple[str, ...]
    effort: Effort
    readings: Mapping[str, QueueReading] = field(default_factory=dict)
    plan: Plan | None = None
    evidence: Mapping[str, str] = field(default_factory=dict)
    release_evidence: str = GIVEN

    @property
    def runs(self) -> bool:
        """Whether the broker serves clients."""
        return self.exit is None and self.hung is None

    @property
    def verdict(self) -> str:
        """The outcome in one line."""
        if self.exit is not None:
            return f"does not start, exit {self.exit}: {self.refusal}"
        if self.hung is not None:
            return f"never finishes starting: {self.hung}"
        if self.lost is None:
            return "starts; which messages are lost was not checked"
        count = self.count()
        if count == LossCount():
            return "starts, and no message is lost"
        return f"starts, {'but' if count.by_start else 'and'} {count.start_words}"

    @property
    def do_not_start(self) -> bool:
        """Whether the start fails, or messages are lost by it or not served after it."""
        return not self.runs or self.count().do_not_start

    def count(self, includes: Callable[[str], bool] = lambda _: True) -> LossCount:
        """Returns the losses in numbers, of the queues that are included by their names."""
        gone, unserved = count_of(self.gone, includes), count_of(self.unserved, includes)
        by_start = None if self.lost is None else count_of(self.lost, includes) - gone - unserved
        return LossCount(gone, by_start, unserved)

    def as_dict(self) -> dict[str, Any]:
        """Returns the outcome as JSON values: a broker's answer by its field names, and the reasons."""
        return {
            "release": self.release,
            "release_evidence": self.release_evidence,
            "clean_stop": self.clean_stop,
            "exit": self.exit,
            "refusal": self.refusal,
            "hung": self.hung,
            "after_start": self.after_start and dict(zip(("min", "max"), self.after_start, strict=True)),
            "scan_from": self.plan and self.plan.scan_from,
            "cut_at": self.plan and self.plan.cut_at,
            "queues": self.queues and {name: _queue(queue) for name, queue in self.queues.items()},
            "lost": _lists(self.lost),
            "gone": _lists(self.gone),
            "unserved": _lists(self.unserved),
            "readable": self.readable,
            "repeated": _lists(self.repeated),
            "index_after": [list(summary) for summary in self.index_after],
            "index_lost": self.index_lost,
            "abort_after": self.abort_after,
            "files": {
                "deleted": list(self.files.deleted),
                "created": list(self.files.created),
                "changed": list(self.files.changed),
            },
            "why": list(self.why),
            "accepted": list(self.accepted),
            "undecided": list(self.undecided),
            "effort": {
                "scanned_bytes": self.effort.scanned_bytes,
                "scanned_records": self.effort.scanned_records,
                "dispatched_records": self.effort.dispatched_records,
                "minutes": [self.effort.min_minutes, self.effort.max_minutes],
            },
        }


def _queue(queue: QueueOutcome) -> dict[str, int | None]:
    return {"min": queue.min_offset, "max": queue.max_offset, "next": queue.next_offset}


def _lists(by_queue: Mapping[str, Ranges] | None) -> dict[str, list[list[int]]] | None:
    return (
        None
        if by_queue is None
        else {name: [list(interval) for interval in ranges] for name, ranges in by_queue.items()}
    )
