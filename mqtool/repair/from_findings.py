"""Turns findings of `verify` into the changes that repair them, and lists those that no change repairs."""

import glob
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.commands import Opened
from mqtool.errors import RefusedError, UsageError
from mqtool.formats import file_names
from mqtool.rebuild.metadata import composable
from mqtool.repair.changes import (
    Change,
    Pad,
    RebuildIndex,
    RebuildMetadata,
    RebuildQueues,
    RebuildTimer,
    RecordLosses,
    RenameSegments,
    SetAside,
    Truncate,
)
from mqtool.repair.log_files import is_padded, sole_records
from mqtool.repair.outlook import Comparison, LossesError, NotInPlaceError, Preview
from mqtool.repair.paths import check_name
from mqtool.repair.plan_builder import build, forecast_of, steps_of
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.files import MappedFile
from mqtool.store.known_losses import LostOffsets
from mqtool.store.store import Store, open_store
from mqtool.verify import CATALOGUE, Area, Finding, Severity, State, Verification, verify

_TAILS = ("log-torn-tail", "log-stale-tail", "log-garbage-tail")
_IN_THE_WAY = (
    "log-stray-file",
    "log-segment-extra",
    "queue-stray-file",
    "queue-file-extra",
    "index-stray-file",
)
_NOT_DIRECTORIES = ("queue-not-directory", "index-not-directory")
_NOT_BY_REBUILD = ("queue-transaction-unit", "topic-only-in-log")
_CONFIG = (
    "config-unreadable",
    "config-missing",
    "config-topic-missing",
    "config-offset-ahead",
    "config-offset-negative",
    "config-delay-ahead",
    "config-delay-behind",
    "config-delay-expired",
    "config-delay-missing",
    "config-delay-orphan",
)
_QUEUES = (Area.CONSUME_QUEUE, Area.CONSUME_QUEUE_EXT, Area.BATCH_CONSUME_QUEUE)


TRIED_LOG = 4 << 30
"""Bytes of the CommitLog up to which a plan is tried out; beyond, the order of the steps goes by the codes alone."""

TRIED_FINDINGS = 5_000
"""Findings up to which a plan is tried out: each may be a file of the preview, which is made three times."""


class RepairProposal(Struct, frozen=True):
    """The changes proposed for some findings."""

    changes: tuple[Change, ...]  # for one plan
    remaining: tuple[Finding, ...] = ()  # findings that these changes do not repair
    # Whether another plan, made after the undo data of this one is discarded, may repair some of `remaining`.
    needs_another_run: bool = False
    new: tuple[Finding, ...] = ()  # errors that the store would have after these changes only

    def refusal(self, opened: Opened) -> NotInPlaceError | None:
        """Returns why it is refused: new errors, such as units of a queue whose messages are all lost."""
        if not self.new:
            return None
        counts = Counter(finding.code for finding in self.new)
        words = ", ".join(f"{count} x {code}" for code, count in counts.items())
        return NotInPlaceError("new-errors", f"after a change in place there would be {words}", opened)

    @property
    def is_verified(self) -> bool:
        """Whether its result is verified before it is offered: findings remain, or filler may end queues."""
        return bool(self.remaining) or any(isinstance(change, Pad) for change in self.changes)


def changes_of(
    store: Store, findings: Iterable[Finding], lost: tuple[LostOffsets, ...] | None = None
) -> RepairProposal:
    """Returns the changes that repair findings.

    Three kinds of change are proposed alone, in this order: files in the place of directories, misnamed segments, the
    end of the log. Everything else is derived from the log, so the log must be complete and its end certain first.
    `lost` are losses that `verify` proved; without them none is recorded.
    """
    repairable = [finding for finding in findings if finding.severity is not Severity.NOTE]
    blocking = [item for item in repairable if item.code in _NOT_DIRECTORIES and _is_file(store, item.file)]
    if blocking:
        return RepairProposal(
            (SetAside(tuple(item.file for item in blocking)),), tuple(repairable), needs_another_run=True
        )
    misplaced = {file.path for file in store.layout.misplaced}
    named, others = _split(
        repairable, lambda item: item.code == "log-segment-name" and store.path / item.file in misplaced
    )
    if named:
        return RepairProposal(
            (RenameSegments(tuple(finding.file for finding in named)),), others, needs_another_run=bool(others)
        )
    tails, others = _split(repairable, lambda item: item.code in _TAILS)
    if tails:
        cut = Truncate(store.commit_log.max_offset)
        return RepairProposal(_with_losses([cut], lost), others, needs_another_run=bool(others))
    collector = _ChangeCollector({file.path: file for file in store.layout.commit_log.files}, composable(store))
    remaining = [finding for finding in repairable if not collector.take(store, finding)]
    return RepairProposal(
        _with_losses(collector.changes(), lost),
        tuple(finding for finding in remaining if not collector.removes(finding)),
    )


def _with_losses(changes: Sequence[Change], lost: tuple[LostOffsets, ...] | None) -> tuple[Change, ...]:
    """Returns changes with the record of losses, if they remove units or gaps that prove them."""
    removes = any(isinstance(change, Pad | RebuildQueues | Truncate) for change in changes)
    return (*changes, RecordLosses(lost)) if removes and lost else tuple(changes)


def _split(
    findings: Iterable[Finding], is_first: Callable[[Finding], bool]
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Splits findings into those that satisfy a condition and the others."""
    parts: dict[bool, list[Finding]] = {True: [], False: []}
    for finding in findings:
        parts[is_first(finding)].append(finding)
    return tuple(parts[True]), tuple(parts[False])


class _ChangeCollector(Struct):
    """Collects the changes that findings ask for."""

    segments: dict[Path, MappedFile]
    composable: frozenset[str]
    topics: set[str | None] = field(default_factory=set)
    index: bool = False
    timer: bool = False
    files: set[str] = field(default_factory=set)
    set_aside: set[str] = field(default_factory=set)
    padded: set[str] = field(default_factory=set)

    def take(self, store: Store, finding: Finding) -> bool:
        """Adds the changes that repair a finding; returns False if there are none."""
        check = CATALOGUE[finding.code]
        if check.severity is Severity.UNKNOWN and not check.runbooks:
            return False  # what is there could not be read: nothing may be written there
        area = check.area
        if finding.code in _IN_THE_WAY or (
            finding.code == "log-segment-name" and _is_named_into_another(store, finding)
        ):
            may_go = _is_file(store, finding.file) and sole_records(store, store.path / finding.file) is None
            if may_go:
                self.set_aside.add(finding.file)
            return may_go
        if finding.code == "queue-ahead-of-log" and not store.commit_log.segments:
            return False  # only the units prove that the messages existed
        if finding.code == "log-segment-size":
            return self._take_segment(store, finding.file)
        if area in _QUEUES and finding.code not in _NOT_BY_REBUILD:
            self.topics.add(finding.topic)
        elif area is Area.INDEX:
            self.index = True
        elif area is Area.TIMER and finding.code != "timer-not-file":
            self.timer = True
        elif area is Area.CHECKPOINT and finding.code not in ("checkpoint-unreadable", "checkpoint-not-file"):
            self.files.add(file_names.CHECKPOINT)
        elif finding.code in _CONFIG and (name := f"{file_names.CONFIG}/{_main_name(finding)}") in self.composable:
            self.files.add(name)
        else:
            return False
        return True

    def removes(self, finding: Finding) -> bool:
        """Whether the changes for other findings also repair this one: they restore the queue of the group's offset."""
        return finding.code == "config-offset-orphan" and finding.topic in self.topics

    def _take_segment(self, store: Store, name: str) -> bool:
        """Removes an empty segment, extends a short one, or cuts zeros off; returns False for one with more in it."""
        known = store.layout.commit_log_size
        segment = self.segments.get(store.path / name)
        if segment is None or known is None or (segment.size and not is_padded(segment, known.value)):
            return False
        (self.padded if segment.size else self.set_aside).add(name)
        if 0 < segment.size < known.value and store.layout.commit_log.files[-1].base > segment.base:
            self.topics.add(None)  # units and entries of what was cut off lead nowhere
            self.index = True
        return True

    def changes(self) -> list[Change]:
        """Returns the collected changes, one of each kind."""
        changes: list[Change] = []
        if self.topics:
            named = sorted(topic for topic in self.topics if topic is not None)
            changes.append(RebuildQueues(() if None in self.topics else tuple(map(glob.escape, named))))
        if self.index:
            changes.append(RebuildIndex())
        if self.timer:
            changes.append(RebuildTimer())
        if self.files:
            changes.append(RebuildMetadata(tuple(sorted(self.files))))
        if self.set_aside:
            changes.append(SetAside(tuple(sorted(self.set_aside))))
        if self.padded:
            changes.append(Pad(tuple(sorted(self.padded))))
        return changes


def is_small(store: Store, verification: Verification) -> bool:
    """Whether trying a plan takes about as long as `verify` itself."""
    size = sum(segment.size for segment in store.commit_log.segments)
    return size <= TRIED_LOG and len(verification.findings) <= TRIED_FINDINGS


def try_out(store: Store, proposal: RepairProposal, findings: Sequence[Finding]) -> RepairProposal | RefusedError:
    """Builds and judges the result of changes proposed for findings, as `mqtool plan` does, without writing a plan.

    Returns the proposal with the findings that remain after the changes, or the reason why a plan is refused. Raises
    MqtoolError if the result cannot be judged, OSError if no file can be built.
    """
    with tempfile.TemporaryDirectory(prefix="mqtool-try-") as work:
        staged = build(store, proposal.changes, Path(work))
        steps = steps_of(staged)
        if not steps:
            return RepairProposal((), tuple(finding for finding in findings if finding.severity is not Severity.NOTE))
        try:
            forecast_of(store, proposal.changes, staged, steps, must_repair=not proposal.needs_another_run)
            if not proposal.is_verified:
                return proposal
            with Preview(store).tree(staged.files, staged.removed) as (root, config):
                left = remaining_after(proposal, findings, root, config)
        except LossesError as error:  # of this store, or of what it becomes
            return error
        return left.refusal(Opened(store.path, store.config.file)) or left


def remaining_after(
    proposal: RepairProposal, findings: Sequence[Finding], root: Path, config: BrokerConfig
) -> RepairProposal:
    """Returns a proposal whose `remaining` are the findings that remain in a tree that looks like the changed store.

    Raises LossesError if the changes are the first of several, and after those that follow a start would still lose
    messages that the store holds.
    """
    with open_store(root, config) as store:
        after = verify(store)
        following = changes_of(store, after.findings) if proposal.needs_another_run else proposal
        if proposal.needs_another_run:
            _check_following(store, following, after.findings)
    known = {finding.code for finding in findings}
    serious = (finding for finding in after.findings if finding.severity.is_serious)
    new = () if proposal.needs_another_run else tuple(item for item in serious if item.code not in known)
    remaining = {(finding.code, finding.file) for finding in after.findings}
    not_planned = set(proposal.remaining)
    unknown = {Area.LINT, *(check.area for check in after.checks if check.state is State.UNKNOWN)}
    left = tuple(
        finding
        for finding in findings
        if finding.severity is not Severity.NOTE
        and (
            (finding.code, finding.file) in remaining
            or (finding in not_planned and CATALOGUE[finding.code].area in unknown)
        )
    )
    another = proposal.needs_another_run and bool(following.changes)
    return replace(proposal, remaining=left, needs_another_run=another, new=new)


def _check_following(store: Store, following: RepairProposal, findings: Sequence[Finding]) -> None:
    """Raises LossesError if a store that the first of several plans changed cannot be repaired by the others."""
    if following.changes:
        tried = try_out(store, following, findings)
        if isinstance(tried, LossesError):
            raise tried
        return
    losses = Preview(store).unchanged
    if isinstance(losses, Comparison) and not losses.is_repaired:
        raise losses.refusal(Opened(store.path, store.config.file))


def _is_file(store: Store, name: str) -> bool:
    return not Path(name).is_absolute() and (store.path / check_name(name, store.path)).is_file()


def _is_named_into_another(store: Store, finding: Finding) -> bool:
    """Whether a misnamed segment is one from which the log is not read."""
    path = store.path / finding.file
    return path in {file.path for file in store.layout.segments} - {file.path for file in store.layout.log_segments}


def _main_name(finding: Finding) -> str:
    """Returns the configuration file that a finding concerns; for a topic's configuration topics.json."""
    if finding.code == "config-topic-missing":
        return file_names.TOPICS
    return Path(finding.file).name.removesuffix(file_names.BACKUP_SUFFIX)


def findings_of(document: object, where: Path) -> tuple[str, list[Finding], tuple[LostOffsets, ...]]:
    """Reads the output of `mqtool verify --format json`; returns the store as named there, findings and losses."""
    if not isinstance(document, dict) or document.get("schema") != "verify":
        raise UsageError(f"{where}: expected what `mqtool verify STORE --format json` prints")
    try:
        names = ("code", "file", "position", "physical_offset", "topic", "queue_id", "evidence")
        findings = [
            Finding(severity=Severity(row["severity"]), **{name: row[name] for name in names})
            for row in document["findings"]
            if row["code"] in CATALOGUE
        ]
        rows = document.get("lost_messages_of_queues", [])
        queues = [{name: row[name] for name in ("topic", "queue_id", "offsets")} for row in rows]
        lost = msgspec.convert(queues, tuple[LostOffsets, ...])
        store = document["store"]
        if b"\0" in os.fsencode(store) or not all(map(_has_names, document["findings"])):
            raise TypeError("a name is not a text")  # noqa: TRY301 - reported with the others
    except (KeyError, TypeError, ValueError) as error:  # msgspec's error is a ValueError
        raise UsageError(f"{where}: expected findings of mqtool verify: {error}") from error
    return store, findings, lost


def _has_names(row: dict[str, Any]) -> bool:
    return isinstance(row["file"], str) and isinstance(row["topic"], str | None)
