"""What a runbook is and gets: values, and the types of its questions: is the symptom present, what repairs it."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from mqtool.errors import MqtoolError, UsageError
from mqtool.recovery import Outcome, predict
from mqtool.repair.changes import Change
from mqtool.store.store import Store
from mqtool.verify import CATALOGUE, Finding, Verification, verify


@dataclass(frozen=True)
class Request:
    """What whoever runs a runbook says.

    Attributes:
        apply: apply the plan; without it everything is checked and planned, and nothing is changed.
        backup_acknowledged: there is a backup, or none is needed.
        config: broker keys.
        broker: release that would be started, "4.9" or "5.5"; None for the one that wrote the store.
        copies: other copies of the same log: slaves, backups.
        to: new directory for what a runbook writes outside of the store.
        topics: names, for runbooks about topics.
        at: a physical offset, for runbooks about one record.
        before: a physical offset, for runbooks about the front of the log.
        free_ratio: share of the disk that is free, 0 to 1; None to ask the system.
    """

    apply: bool = False
    backup_acknowledged: bool = False
    config: "str | Path | Mapping[str, object] | None" = None
    broker: str | None = None
    copies: tuple[Path, ...] = ()
    to: Path | None = None
    topics: tuple[str, ...] = ()
    at: int | None = None
    before: int | None = None
    free_ratio: float | None = None


@dataclass
class Case:
    """One store, checked by one runbook; expensive checks run once.

    Attributes:
        store: opened for reading.
        request: what was said.
    """

    store: Store
    request: Request

    @property
    def root(self) -> Path:
        """Root of the store."""
        return self.store.path

    @property
    def broker(self) -> str:
        """Release that would be started."""
        return self.request.broker or str(self.store.version.release)

    @cached_property
    def verification(self) -> Verification:
        """What verify says."""
        return verify(self.store)

    @cached_property
    def start(self) -> "Outcome | str":
        """What the broker's start would do; why that cannot be said."""
        return start_of(self.root, self.broker, self.request.config)

    def findings(self, codes: Collection[str]) -> tuple[Finding, ...]:
        """Returns findings with one of some codes."""
        return tuple(one for one in self.verification.findings if one.code in codes)


def start_of(root: Path, broker: str, config: "str | Path | Mapping[str, object] | None") -> "Outcome | str":
    """Returns what a broker's start would do to a store, or why that is not known."""
    try:
        return predict(root, broker, config)
    except MqtoolError as error:
        return str(error)


@dataclass(frozen=True)
class Detection:
    """Whether the trouble is there.

    Attributes:
        present: it is.
        evidence: in words, one fact each.
        findings: of verify that speak for it.
    """

    present: bool
    evidence: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class InPlace:
    """The store is changed by a plan; `mqtool undo` takes it back.

    Attributes:
        changes: for one plan.
        left: findings that it does not repair.
        again: more may be repaired by running it again after `mqtool finalize`.
    """

    changes: tuple[Change, ...]
    left: tuple[Finding, ...] = ()
    again: bool = False


@dataclass(frozen=True)
class Aside:
    """A new directory is made; the store stays as it is, and removing the directory takes it back.

    Attributes:
        what: in words.
        make: makes `to`, returns facts in words.
        repairs: the new directory has the messages of this store at their offsets, without its damage; else it is a
            copy, or another kind of store.
    """

    what: str
    make: Callable[[Path], Iterable[str]]
    repairs: bool = False


@dataclass(frozen=True)
class Advice:
    """Nothing that mqtool can carry out.

    Attributes:
        words: what to do, one step each.
        next_steps: commands to type.
        missing: what this release cannot do, "" if it is not for a program to decide.
    """

    words: tuple[str, ...]
    next_steps: tuple[str, ...] = ()
    missing: str = ""


Proposal = InPlace | Aside | Advice


@dataclass(frozen=True)
class Runbook:
    """One known trouble.

    Attributes:
        id: `RB-` and two digits.
        name: in words with dashes.
        symptom: what is seen, the broker's own words where it has some.
        cause: what has happened.
        today: what a start of the broker, or its operator, does about it, and what that costs.
        does: what the runbook does, one step each.
        limits: what it cannot do.
        needs: options that it needs to be carried out.
        detect: is it there?
        propose: the changes that repair it; only called if it is present.
    """

    id: str
    name: str
    symptom: tuple[str, ...]
    cause: str
    today: str
    does: tuple[str, ...]
    limits: str
    detect: Callable[[Case], Detection] = field(repr=False)
    propose: Callable[[Case, Detection], Proposal] = field(repr=False)
    needs: tuple[str, ...] = ()

    @property
    def codes(self) -> tuple[str, ...]:
        """Codes of verify that it is about."""
        return codes_of(self.id)


def codes_of(runbook: str) -> tuple[str, ...]:
    """Returns the codes of verify that name a runbook."""
    return tuple(code for code, check in CATALOGUE.items() if runbook in check.runbooks)


def by_findings(runbook: str) -> Callable[[Case], Detection]:
    """Returns a detection by the findings that name a runbook."""

    def detect(case: Case) -> Detection:
        found = case.findings(codes_of(runbook))
        return Detection(bool(found), words_of(found), found)

    return detect


_TOLD = 20


def words_of(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Returns a line for each of some findings; the rest are counted."""
    lines = [f"{one.code}: {one.file}{_place(one)}: {one.evidence}" for one in findings]
    more = len(lines) - _TOLD
    return (*lines[:_TOLD], f"and {more} more findings") if more > 0 else tuple(lines)


def _place(finding: Finding) -> str:
    return "" if finding.position is None else f" position {finding.position}"


def required_copies(case: Case) -> tuple[Path, ...]:
    """Returns the other copies of the log.

    Raises:
        UsageError: none was named.
    """
    if not case.request.copies:
        raise UsageError("this runbook compares the store with another copy of its log: name it with --with")
    return case.request.copies
