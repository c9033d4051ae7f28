"""From the findings of `verify` to the changes that repair them; findings that no change can repair are listed."""

import glob
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mqtool.errors import RefusedError, UsageError
from mqtool.formats import file_names
from mqtool.rebuild.metadata import composable
from mqtool.repair.building import build
from mqtool.repair.changes import (
    Change,
    Pad,
    RebuildIndex,
    RebuildMetadata,
    RebuildQueues,
    RebuildTimer,
    RenameSegments,
    SetAside,
    Truncate,
)
from mqtool.repair.making import forecast_of, steps_of
from mqtool.repair.outlook import LOSSES, Preview
from mqtool.repair.paths import check_name
from mqtool.repair.sole_records import sole_records
from mqtool.store.files import MappedFile
from mqtool.store.store import Store, open_store
from mqtool.verify import CATALOGUE, Area, Finding, Severity, State, verify
from mqtool.verify.catalogue.check import NOT_READ

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
    "config-delay-expired",
    "config-delay-missing",
    "config-delay-orphan",
)
_QUEUES = (Area.CONSUME_QUEUE, Area.CONSUME_QUEUE_EXT, Area.BATCH_CONSUME_QUEUE)


@dataclass(frozen=True)
class Mending:
    """What to do about findings.

    Attributes:
        changes: that repair them; for one plan.
        left: findings that they do not repair.
        again: some of `left` may be repaired by another plan, once this one is finalized.
    """

    changes: tuple[Change, ...]
    left: tuple[Finding, ...]
    again: bool = False


def changes_of(store: Store, findings: Iterable[Finding]) -> Mending:
    """Returns the changes that repair findings.

    Files in the place of directories come first, then misnamed segments, then the end of the log, each alone: all else
    is worked out from a log that is complete and whose end is certain.

    Args:
        store: opened; the one that was verified.
        findings: of `mqtool.verify.verify`, or read from its JSON.
    """
    wanted = [finding for finding in findings if finding.severity is not Severity.NOTE]
    blocking = [one for one in wanted if one.code in _NOT_DIRECTORIES and _is_file(store, one.file)]
    if blocking:
        return Mending((SetAside(tuple(one.file for one in blocking)),), tuple(wanted), again=True)
    misplaced = {file.path for file in store.layout.misplaced}
    named, others = _parted(wanted, lambda one: one.code == "log-segment-name" and store.path / one.file in misplaced)
    if named:
        return Mending((RenameSegments(tuple(finding.file for finding in named)),), others, again=bool(others))
    tails, others = _parted(wanted, lambda one: one.code in _TAILS)
    if tails:
        return Mending((Truncate(store.commit_log.max_offset),), others, again=bool(others))
    gathered = _Gathered({file.path: file for file in store.layout.commit_log.files}, composable(store))
    left = [finding for finding in wanted if not gathered.take(store, finding)]
    return Mending(gathered.changes(), tuple(finding for finding in left if not gathered.removes(finding)))


def _parted(
    findings: Iterable[Finding], is_first: Callable[[Finding], bool]
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Returns the findings that are asked for, and the others."""
    parts: dict[bool, list[Finding]] = {True: [], False: []}
    for finding in findings:
        parts[is_first(finding)].append(finding)
    return tuple(parts[True]), tuple(parts[False])


@dataclass
class _Gathered:
    """What findings ask for together."""

    segments: dict[Path, MappedFile]
    composable: frozenset[str]
    topics: set[str | None] = field(default_factory=set)
    index: bool = False
    timer: bool = False
    files: set[str] = field(default_factory=set)
    away: set[str] = field(default_factory=set)
    short: set[str] = field(default_factory=set)

    def take(self, store: Store, finding: Finding) -> bool:
        """Adds the changes that repair a finding; returns whether there are any."""
        area = CATALOGUE[finding.code].area
        if CATALOGUE[finding.code].no_runbook == NOT_READ:  # its place is unknown: nothing may be written there
            return False
        if finding.code in _IN_THE_WAY:
            may_go = _is_file(store, finding.file) and sole_records(store, store.path / finding.file) is None
            if may_go:
                self.away.add(finding.file)
            return may_go
        if finding.code == "queue-ahead-of-log" and not store.commit_log.segments:
            return False  # only the units prove that the messages existed
        if finding.code == "log-segment-size":
            return self._take_segment(store, finding.file)
        if area in _QUEUES and finding.code not in _NOT_BY_REBUILD:
            self.topics.add(finding.topic)
        elif area is Area.INDEX:
            self.index = True
        elif area is Area.TIMER:
            self.timer = True
        elif area is Area.CHECKPOINT and finding.code not in ("checkpoint-unreadable", "checkpoint-not-file"):
            self.files.add(file_names.CHECKPOINT)
        elif finding.code in _CONFIG and (name := f"{file_names.CONFIG}/{_main_name(finding)}") in self.composable:
            self.files.add(name)
        else:
            return False
        return True

    def removes(self, finding: Finding) -> bool:
        """Whether a finding ends with what others ask for: a group's offset has its queue again."""
        return finding.code == "config-offset-orphan" and finding.topic in self.topics

    def _take_segment(self, store: Store, name: str) -> bool:
        """Removes an empty segment, extends a short one to the length of the others; one that is too long stays."""
        known = store.layout.commit_log_size
        found = self.segments.get(store.path / name)
        if found is None or known is None or found.size >= known.value:
            return False
        (self.short if found.size else self.away).add(name)
        if found.size and store.layout.commit_log.files[-1].base > found.base:
            self.topics.add(None)  # units and entries of what was cut off lead nowhere
            self.index = True
        return True

    def changes(self) -> tuple[Change, ...]:
        """Returns one change of each kind."""
        found: list[Change] = []
        if self.topics:
            named = sorted(topic for topic in self.topics if topic is not None)
            found.append(RebuildQueues(() if None in self.topics else tuple(map(glob.escape, named))))
        if self.index:
            found.append(RebuildIndex())
        if self.timer:
            found.append(RebuildTimer())
        if self.files:
            found.append(RebuildMetadata(tuple(sorted(self.files))))
        if self.away:
            found.append(SetAside(tuple(sorted(self.away))))
        if self.short:
            found.append(Pad(tuple(sorted(self.short))))
        return tuple(found)


def try_out(store: Store, mending: Mending, findings: Iterable[Finding]) -> Mending | RefusedError:
    """Builds the result of changes aside and judges it, as a plan does, without making one.

    Args:
        store: opened; only read.
        mending: of it; with changes.
        findings: those that it was made of.

    Returns:
        The mending with the findings that remain afterwards; or why a plan is refused.

    Raises:
        MqtoolError: nothing can be said about it.
        OSError: no file can be built.
    """
    with tempfile.TemporaryDirectory(prefix="mqtool-try-") as work:
        built = build(store, mending.changes, Path(work))
        steps = steps_of(built)
        if not steps:
            return Mending((), tuple(one for one in findings if one.severity is not Severity.NOTE))
        try:
            forecast_of(store, mending.changes, built, steps, must_repair=not mending.again)
        except RefusedError as error:
            if error.gate != LOSSES:
                raise
            return error
        if not mending.left:
            return mending
        with Preview(store).tree(built.files, built.removed) as (root, config):
            return left_by(mending, findings, root, config)


def left_by(mending: Mending, findings: Iterable[Finding], root: Path, config: Mapping[str, str]) -> Mending:
    """Returns a mending whose `left` are the findings that remain after its changes.

    Args:
        mending: of a store.
        findings: of that store, those that it was made of.
        root: what the store looks like after the changes.
        config: broker keys to open it with.
    """
    with open_store(root, config) as store:
        after = verify(store)
    found = {(one.code, one.file) for one in after.findings}
    not_planned = set(mending.left)
    unknown = {Area.LINT, *(check.area for check in after.checks if check.state is State.UNKNOWN)}
    left = tuple(
        one
        for one in findings
        if one.severity is not Severity.NOTE
        and ((one.code, one.file) in found or (one in not_planned and CATALOGUE[one.code].area in unknown))
    )
    return replace(mending, left=left, again=mending.again and bool(left))


def _is_file(store: Store, name: str) -> bool:
    return not Path(name).is_absolute() and (store.path / check_name(name, store.path)).is_file()


def _main_name(finding: Finding) -> str:
    """Returns the configuration file that a finding is about; a topic's configuration is in topics.json."""
    if finding.code == "config-topic-missing":
        return file_names.TOPICS
    return Path(finding.file).name.removesuffix(file_names.BACKUP_SUFFIX)


def findings_of(document: object, where: Path) -> tuple[str, list[Finding]]:
    """Reads what `mqtool verify --format json` printed.

    Returns:
        The store as it was named there, and the findings.

    Raises:
        UsageError: it is no such document.
    """
    if not isinstance(document, dict) or document.get("schema") != "verify":
        raise UsageError(f"{where}: expected what `mqtool verify STORE --format json` prints")
    try:
        names = ("code", "file", "position", "physical_offset", "topic", "queue_id", "evidence")
        found = [
            Finding(severity=Severity(row["severity"]), **{name: row[name] for name in names})
            for row in document["findings"]
            if row["code"] in CATALOGUE
        ]
        store = document["store"]
        if not isinstance(store, str) or not all(isinstance(one.file, str) for one in found):
            raise TypeError("a name is none")  # noqa: TRY301 - reported with the others
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{where}: expected findings of mqtool verify: {error}") from error
    return store, found
