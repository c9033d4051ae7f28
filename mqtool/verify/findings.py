"""The result of `verify`: findings, states of checks, losses, and the verdict.

Values only. The codes and their meaning are in docs/checks.md, the rules in the modules named after the kinds of
files. Docs pages: docs/verify.md, docs/checks.md.
"""

import enum
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct, field

from mqtool.recovery.losses import LossCount
from mqtool.store.known_losses import LostOffsets


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
    """A broken invariant."""

    code: str  # stable, see `catalogue`
    severity: Severity  # of this finding; lower than the code's if the broker's recovery repairs it
    file: str  # path below the store's root; the full path if it is elsewhere
    position: int | None = None  # byte in that file
    physical_offset: int | None = None  # byte address in the CommitLog
    topic: str | None = None  # and queue_id: of the messages concerned
    queue_id: int | None = None
    lost_bytes: int = 0  # bytes of the CommitLog that contain no valid record
    lost_messages: int = 0  # number of messages proved lost
    evidence: str = ""  # expected and found
    next_step: str = ""  # the command to run


class CheckState(Struct, frozen=True):
    """The result of one check."""

    area: Area  # of the check
    state: State  # UNKNOWN if it could not run or did not finish
    findings: int  # number of findings
    detail: str  # what was checked, or why it could not be


class LostRange(Struct, frozen=True):
    """Bytes of the CommitLog without a valid record."""

    start: int  # and end: physical offsets, half-open
    end: int
    kind: str  # `records.damage.DamageKind`
    file: str  # and position: of `start`
    position: int
    messages: int = 0  # number of messages proved to have been there


class QueueLoss(Struct, frozen=True):
    """Lost messages of one queue."""

    topic: str  # and queue_id: which queue
    queue_id: int
    offsets: tuple[tuple[int, int], ...]  # (first, last) queue offsets, inclusive, ascending
    # "units" (the queue's own units point to them), "offsets" (the remaining queue offsets skip them) or "known" (a
    # repair recorded them)
    proof: str

    @property
    def messages(self) -> int:
        """Number of lost messages."""
        return sum(last - first + 1 for first, last in self.offsets)


class GroupLoss(Struct, frozen=True):
    """The effect of a queue's loss on one consumer group."""

    group: str  # and topic, queue_id: consumer group and queue
    topic: str
    queue_id: int
    consumer_offset: int  # next queue offset that the group will read
    consumed: int  # lost messages that it had consumed
    unread: int  # lost messages that it will never receive


class Losses(Struct, frozen=True):
    """Everything that is lost: ranges of the log, and messages of the requested topics."""

    ranges: tuple[LostRange, ...] = ()
    queues: tuple[QueueLoss, ...] = ()
    groups: tuple[GroupLoss, ...] = ()
    waiting: int = 0  # number of lost messages that wait for delivery

    @property
    def bytes(self) -> int:
        """Bytes of the CommitLog without a valid record."""
        return sum(part.end - part.start for part in self.ranges)

    @property
    def offsets(self) -> tuple[LostOffsets, ...]:
        """The lost messages as a repair records them."""
        return tuple(LostOffsets(part.topic, part.queue_id, part.offsets) for part in self.queues)

    @property
    def messages(self) -> int:
        """Number of messages proved lost."""
        return sum(queue.messages for queue in self.queues)


class Statistics(Struct, frozen=True):
    """How much was checked."""

    records: int = 0  # number of valid records in the CommitLog
    log_bytes: int = 0  # bytes of the CommitLog that were read
    units: int = 0  # and entries: number in all queues, and in all index files
    entries: int = 0
    seconds: float = 0.0  # elapsed time


OWNER_DENIED = "owner-denied"
"""Code of anything that the owner of the store, as whom the broker runs, may not use."""
NO_CONFIG = (
    "config/ is missing: copy it from a backup or a replica. Without one, rebuild it: that restores topics and "
    "groups, but not the groups' positions"
)
"""Detail of the check of config/ if there is none."""
_SIZE = "lint-size"
"""Code of a size in broker.conf that does not fit the files."""


class NextStart(Struct, frozen=True):
    """What the next start of a broker would do."""

    release: str  # release of the broker that starts
    release_evidence: str  # why that release: given, detected or assumed
    verdict: str  # `Outcome.verdict`, or why it is unknown
    losses: LossCount | None = None  # of messages of the requested topics; None if unknown, or if it does not start
    # The start fails, or messages are lost by it or not served after it; None if unknown.
    do_not_start: bool | None = None
    # The start of the other known release; see `other_start`.
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
    """The complete result."""

    store: str  # path of the root, as given
    state: State  # the worst of the checks
    live: bool  # whether a broker was running; then only what is certain is reported
    complete: bool  # False if it was stopped early; `--state` resumes
    checks: tuple[CheckState, ...]  # every check in the order of `Area`
    findings: tuple[Finding, ...]  # in a stable order
    losses: Losses = field(default_factory=Losses)  # what is lost
    statistics: Statistics = field(default_factory=Statistics)  # how much was read
    # What the next start of a broker does; None if the check was stopped early, or the store is remote.
    next_start: NextStart | None = None
    config: Path | None = None  # the broker's configuration file; None without one
    # Messages that an earlier repair could not save, according to its record; see `store.known_losses`.
    known: tuple[QueueLoss, ...] = ()

    @property
    def known_lost(self) -> int:
        """Number of messages that an earlier repair could not save."""
        return sum(loss.messages for loss in self.known)

    @property
    def missing_config(self) -> str:
        """What to do about a missing config/; "" if it is there."""
        details = (check.detail for check in self.checks if check.area is Area.CONFIG)
        return next((detail for detail in details if detail == NO_CONFIG), "")

    def count(self, severity: Severity) -> int:
        """Returns how many findings have a severity."""
        return sum(finding.severity is severity for finding in self.findings)

    @property
    def serious(self) -> int:
        """Number of findings that are errors, or could not be checked."""
        return sum(finding.severity.is_serious for finding in self.findings)

    @property
    def state_words(self) -> str:
        """The state for a reader: a wrong size in broker.conf, or a wrong owner, corrupts nothing."""
        codes = {finding.code for finding in self.findings if finding.severity.is_serious}
        return "no file is damaged" if codes and codes <= {_SIZE, OWNER_DENIED} else self.state

    @property
    def start_words(self) -> str | None:
        """What the next start does, in words, and under which condition; None if it was not predicted."""
        if self.next_start is None:
            return None
        is_denied = any(finding.code == OWNER_DENIED for finding in self.findings)
        return f"{'with permission: ' if is_denied else ''}{self.next_start.headline}"


def corrections(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Returns the lines to write into a broker.conf whose sizes do not fit the files, each with the reason.

    With such a configuration nothing else can be judged or repaired.
    """
    return tuple(f"{finding.file}: {finding.evidence}" for finding in findings if finding.code == _SIZE)


def cut_short(findings: Iterable[Finding]) -> Iterator[str]:
    """Yields what to do first about each file that is too short and ends inside a record: most often a broken copy."""
    codes: dict[str, set[str]] = {}
    for finding in findings:
        codes.setdefault(finding.file, set()).add(finding.code)
    for file, reported in codes.items():
        if {"log-segment-size", "log-cut"} <= reported:
            yield (
                f"{file} ends inside a record, as a copy does that was interrupted: copy it again if its source is "
                "still there, or add --with COPY to `mqtool repair STORE -o NEW` if there is another copy of the log"
            )


def state_of(findings: Iterable[Finding]) -> State:
    """Returns the state that findings alone imply."""
    return worst(_STATE_OF[finding.severity] for finding in findings)


def worst(states: Iterable[State]) -> State:
    """Returns the worst of some states; CLEAN if there is none."""
    present = set(states)
    return next((state for state in _RANK if state in present), State.CLEAN)
