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
    """One queue after the start."""

    min_offset: int  # and max_offset: queue offsets that are served; the maximum is exclusive
    max_offset: int
    next_offset: int | None  # queue offset of the next message; None if the broker does not know the queue


class FileChanges(Struct, frozen=True):
    """Differences in the directory after the start and a clean shutdown. Paths are relative to the root."""

    # deleted, created, changed: regular files; a created index file is `index/<new-N>`, because its name comes from the
    # clock.
    deleted: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


class FilePlan(Struct, frozen=True):
    """One file that is kept."""

    path: Path  # of the existing or future file
    base: int  # offset of its first byte
    end: int  # number of bytes that count as written
    is_new: bool  # created by the start with full length, zeros except for what is appended


class QueuePlan(Struct, frozen=True):
    """The content of a queue after the start."""

    kind: str  # "SimpleCQ" or "BatchCQ"
    files: tuple[FilePlan, ...]  # in order
    max_physical_offset: int  # physical offset up to which it has units; dispatch skips records before it
    appended: tuple[tuple[Path, int, bytes], ...] = ()  # by file, position of the first new unit and the units' bytes


class Plan(Struct, frozen=True):
    """What recovery does to a store; nothing has been done yet."""

    steps: tuple[Step, ...]  # in the broker's order
    segments: tuple[FilePlan, ...]  # files of the log that are kept, with the end of their data
    # scan_from, cut_at: physical offsets: start of the scan, end of the log; None if nothing was scanned.
    scan_from: int | None
    cut_at: int | None
    dispatch_from: int  # physical offset from which dispatch continues while the store runs
    queues: Mapping[tuple[str, int], QueuePlan]  # by topic and queue id
    index_files: tuple[Path, ...]  # kept ones, in order
    checkpoint: Checkpoint  # its fields afterwards


class Effort(Struct, frozen=True):
    """The work of the start, and how long it may take."""

    scanned_bytes: int  # and scanned_records, dispatched_records: by recovery and the first dispatch
    scanned_records: int
    dispatched_records: int
    min_minutes: float  # and max_minutes: with everything in the page cache, and from a slow disk
    max_minutes: float


class Outcome(Struct, frozen=True):
    """What a release would make of a store that it is started on now."""

    release: str  # "4.9" or "5.5"
    clean_stop: bool  # no abort file is there: recovered normally
    exit: int | None  # exit code of the process; None if it keeps running, or hangs
    refusal: str | None  # the broker's own words; None if it starts
    hung: str | None  # where the start hangs; None if it does not
    after_start: tuple[int, int] | None  # minimum and maximum physical offset; None if it did not come so far
    queues: Mapping[str, QueueOutcome] | None  # by "topic/queue"; None unless it runs
    # Queue offsets by "topic/queue" that are proven now and not delivered then; None unless it runs, or where the log
    # was not read for it.
    lost: Mapping[str, Ranges] | None
    gone: Mapping[str, Ranges] | None  # those of `lost` that are lost already: no intact record is left
    by_start: Mapping[str, Ranges] | None  # those of `lost` that the start loses
    # Those of `lost` whose records stay in the log, but no queue leads to them, now or then.
    unserved: Mapping[str, Ranges] | None
    readable: int | None  # messages that consumers get intact; None as for lost
    repeated: Mapping[str, Ranges] | None  # queue offsets that consumers get more than once
    index_after: tuple[IndexSummary, ...]  # index files after the start and an orderly stop
    # Index entries of records in the log that the start deletes for good; None as for lost, or if the number of slots
    # is unknown.
    index_lost: int | None
    abort_after: bool  # the abort file is there then
    files: FileChanges  # what is different then
    # why, accepted, undecided: rules applied; faults taken without a word; what the files do not decide.
    why: tuple[str, ...]
    accepted: tuple[str, ...]
    undecided: tuple[str, ...]
    effort: Effort  # how much there is to do
    # What consumers get at every queue offset, by "topic/queue"; empty as for lost.
    readings: Mapping[str, QueueReading] = field(default_factory=dict)
    plan: Plan | None = None  # what recovery does; None if load() did not come so far
    evidence: Mapping[str, str] = field(default_factory=dict)  # where sizes of files are known from
    waiting: Mapping[str, int] = field(default_factory=dict)  # by "topic/queue", how many of `by_start` wait
    release_evidence: str = GIVEN  # why this release: given, detected, or assumed
    has_negative_blank: bool = False  # the scan crossed a BLANK at which 5.5.1 would end the log
    known: int = 0  # number of messages that a repair recorded as lost, those of `lost` left out

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
            return "starts; whether messages are lost was not checked"
        count = self.count()
        known = f"; {self.known} known lost" if self.known else ""
        words = "loses no further message" if known and count == LossCount() else count.start_words
        return f"starts, {'but' if count.by_start else 'and'} {words}{known}"

    @property
    def do_not_start(self) -> bool:
        """Whether the start fails, or messages are lost by it or not served after it."""
        return not self.runs or self.count().do_not_start

    def count(self, includes: Callable[[str], bool] = lambda _: True) -> LossCount:
        """Returns the losses in numbers, of the queues that are included by their names."""
        gone, unserved = count_of(self.gone, includes), count_of(self.unserved, includes)
        by_start = None if self.lost is None else count_of(self.lost, includes) - gone - unserved
        waiting = sum(number for name, number in self.waiting.items() if includes(name))
        return LossCount(gone, by_start, unserved, waiting=waiting)

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
