"""The result of `verify`: findings, states of checks, losses, and the verdict.

Values only. The codes and their meaning are in `catalogue`, the rules in the modules named after the kinds of
files. Docs pages: docs/verify.md, docs/checks.md.
"""

import enum
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct, field

from mqtool.recovery.losses import LossCount


class Severity(enum.StrEnum):
    """Severity of a finding."""

    ERROR = "error"
    """Broken, and the broker's next start does not repair it."""
    WARNING = "warning"
    """The broker's own recovery repairs it, or it has not done harm yet."""
    NOTE = "note"
    """Worth knowing; changes no verdict."""
    UNKNOWN = "unknown"
    """The check could not run."""

    @property
    def is_serious(self) -> bool:
        """Whether the finding must be resolved before the store can be trusted.

        A command that reports such a finding ends with exit code 1.
        """
        return self in (Severity.ERROR, Severity.UNKNOWN)


class State(enum.StrEnum):
    """State of the store, and of each check."""

    CLEAN = "clean"
    DIRTY = "dirty"
    """Warnings only."""
    CORRUPT = "corrupt"
    """At least one error."""
    UNKNOWN = "unknown"
    """The check could not run."""


class Area(enum.StrEnum):
    """The checks, in the order in which they are reported."""

    COMMIT_LOG = "commitlog"
    CONSUME_QUEUE = "consumequeue"
    CONSUME_QUEUE_EXT = "consumequeue_ext"
    BATCH_CONSUME_QUEUE = "batchconsumequeue"
    INDEX = "index"
    CHECKPOINT = "checkpoint"
    SHUTDOWN = "shutdown"
    CONFIG = "config"
    DLEDGER = "dledger"
    COMPACTION = "compaction"
    TIMER = "timer"
    CONTROLLER = "controller"
    LINT = "lint"


_STATE_OF = {
    Severity.ERROR: State.CORRUPT,
    Severity.WARNING: State.DIRTY,
    Severity.NOTE: State.CLEAN,
    Severity.UNKNOWN: State.UNKNOWN,
}
_RANK = (State.CORRUPT, State.DIRTY, State.UNKNOWN, State.CLEAN)


class Finding(Struct, frozen=True):
    """A broken invariant.

    Attributes:
        code: stable, see `catalogue`.
        severity: of this finding; lower than the code's if the broker's recovery repairs it.
        file: path below the store's root; the full path if it is elsewhere.
        position: byte in that file.
        physical_offset: byte address in the CommitLog.
        topic, queue_id: of the messages concerned.
        lost_bytes: bytes of the CommitLog that contain no valid record.
        lost_messages: number of messages proved lost.
        evidence: expected and found.
        next_step: the command to run.
    """

    code: str
    severity: Severity
    file: str
    position: int | None = None
    physical_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    lost_bytes: int = 0
    lost_messages: int = 0
    evidence: str = ""
    next_step: str = ""


class CheckState(Struct, frozen=True):
    """The result of one check.

    Attributes:
        area: of the check.
        state: UNKNOWN if it could not run or did not finish.
        findings: number of findings.
        detail: what was checked, or why it could not be.
    """

    area: Area
    state: State
    findings: int
    detail: str


class LostRange(Struct, frozen=True):
    """Bytes of the CommitLog without a valid record.

    Attributes:
        start, end: physical offsets, half-open.
        kind: `records.damage.DamageKind`.
        file, position: of `start`.
        messages: number of messages proved to have been there.
    """

    start: int
    end: int
    kind: str
    file: str
    position: int
    messages: int = 0


class QueueLoss(Struct, frozen=True):
    """Lost messages of one queue.

    Attributes:
        topic, queue_id: which queue.
        offsets: (first, last) queue offsets, inclusive, ascending.
        proof: "units" (the queue's own units point to them), "offsets" (the remaining queue offsets skip them).
    """

    topic: str
    queue_id: int
    offsets: tuple[tuple[int, int], ...]
    proof: str

    @property
    def messages(self) -> int:
        """Number of lost messages."""
        return sum(last - first + 1 for first, last in self.offsets)


class GroupLoss(Struct, frozen=True):
    """The effect of a queue's loss on one consumer group.

    Attributes:
        group, topic, queue_id: consumer group and queue.
        consumer_offset: next queue offset that the group will read.
        consumed: lost messages that it had consumed.
        unread: lost messages that it will never receive.
    """

    group: str
    topic: str
    queue_id: int
    consumer_offset: int
    consumed: int
    unread: int


class Losses(Struct, frozen=True):
    """Everything that is lost: ranges of the log, and messages of the requested topics."""

    ranges: tuple[LostRange, ...] = ()
    queues: tuple[QueueLoss, ...] = ()
    groups: tuple[GroupLoss, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes of the CommitLog without a valid record."""
        return sum(part.end - part.start for part in self.ranges)

    @property
    def messages(self) -> int:
        """Number of messages proved lost."""
        return sum(queue.messages for queue in self.queues)


class Statistics(Struct, frozen=True):
    """How much was checked.

    Attributes:
        records: number of valid records in the CommitLog.
        log_bytes: bytes of the CommitLog that were read.
        units, entries: number in all queues, and in all index files.
        seconds: elapsed time.
    """

    records: int = 0
    log_bytes: int = 0
    units: int = 0
    entries: int = 0
    seconds: float = 0.0


class NextStart(Struct, frozen=True):
    """What the next start of a broker would do.

    Attributes:
        release: release of the broker that starts.
        release_evidence: why that release: given, detected or assumed.
        verdict: `Outcome.verdict`, or why it is unknown.
        losses: of messages of the requested topics; None if unknown, or if it does not start.
        do_not_start: the start fails, or messages are lost by it or not served after it; None if unknown.
        other: the start of the other known release, if the release is assumed and the evidence for it disagrees, or if
            its outcome is another one.
    """

    release: str
    release_evidence: str
    verdict: str
    losses: LossCount | None = None
    do_not_start: bool | None = None
    other: "NextStart | None" = None

    @property
    def headline(self) -> str:
        """One sentence: what happens, and what to avoid."""
        if self.do_not_start is None:
            return f"what a start of {self.release} loses is unknown: {self.verdict}"
        words = (
            f"a start of {self.release} {self.losses.start_words}" if self.losses else f"{self.release} {self.verdict}"
        )
        return f"{words}; do not start the broker" if self.do_not_start else words


class Verification(Struct, frozen=True):
    """The complete result.

    Attributes:
        store: path of the root, as given.
        state: the worst of the checks.
        live: whether a broker was running; then only what is certain is reported.
        complete: False if it was stopped early; `--state` resumes.
        checks: every check in the order of `Area`.
        findings: in a stable order.
        losses: what is lost.
        statistics: how much was read.
        next_start: what the next start of a broker does; None if the check was stopped early, or the store is
            remote.
        config: the broker's configuration file; None without one.
        known_lost: messages that an earlier repair could not save, according to its record; see `store.known_losses`.
    """

    store: str
    state: State
    live: bool
    complete: bool
    checks: tuple[CheckState, ...]
    findings: tuple[Finding, ...]
    losses: Losses = field(default_factory=Losses)
    statistics: Statistics = field(default_factory=Statistics)
    next_start: NextStart | None = None
    config: Path | None = None
    known_lost: int = 0

    def count(self, severity: Severity) -> int:
        """Returns how many findings have a severity."""
        return sum(finding.severity is severity for finding in self.findings)

    @property
    def serious(self) -> int:
        """Number of findings that are errors, or could not be checked."""
        return sum(finding.severity.is_serious for finding in self.findings)


def corrections(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Returns the lines to write into a broker.conf whose sizes do not fit the files, each with the reason.

    With such a configuration nothing else can be judged or repaired.
    """
    return tuple(f"{finding.file}: {finding.evidence}" for finding in findings if finding.code == "lint-size")


def state_of(findings: Iterable[Finding]) -> State:
    """Returns the state that findings alone imply."""
    return worst(_STATE_OF[finding.severity] for finding in findings)


def worst(states: Iterable[State]) -> State:
    """Returns the worst of some states; CLEAN if there is none."""
    present = set(states)
    return next((state for state in _RANK if state in present), State.CLEAN)
