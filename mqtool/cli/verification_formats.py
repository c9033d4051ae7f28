"""Results of `mqtool verify` for readers, JUnit, Prometheus and Nagios, and the commands to type next.

Those begin with the one plan that covers the findings.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mqtool.cli import cells, document
from mqtool.cli.cells import counted
from mqtool.cli.options import release_words
from mqtool.cli.terminal import Style, paint
from mqtool.commands import PLAN_FILE, Opened, command, new_store_command
from mqtool.errors import MqtoolError, RefusedError
from mqtool.formats.release import release_of
from mqtool.recovery.losses import waiting_words
from mqtool.recovery.outcome import GIVEN
from mqtool.store import Store, open_store
from mqtool.store.config.broker_config import UNCHECKED
from mqtool.store.paths import owned_by_root
from mqtool.verify import CATALOGUE, Area, Finding, Severity, State, Verification, corrections, cut_short
from mqtool.verify.finding_collector import PERMISSIONS, area_of
from mqtool.verify.findings import OWNER_DENIED
from mqtool.words import size

if TYPE_CHECKING:
    from mqtool.repair.from_findings import RepairProposal
    from mqtool.repair.plans import RepairPlan
    from mqtool.repair.runbooks.model import Runbook
    from mqtool.verify.findings import NextStart

STYLES = {
    Severity.ERROR: Style.BAD,
    Severity.WARNING: Style.DOUBTFUL,
    Severity.UNKNOWN: Style.DOUBTFUL,
    State.CORRUPT: Style.BAD,
    State.DIRTY: Style.DOUBTFUL,
    State.UNKNOWN: Style.DOUBTFUL,
    State.CLEAN: Style.GOOD,
}
"""Colours of severities and states on a terminal; what is not listed has none."""

MAX = 100
"""Findings that `--format table` prints; `wide` prints all."""

_RUNS = 8

_REPAIRED = " after repair"

_WORDS = {
    Severity.ERROR: "error",
    Severity.UNKNOWN: "unreadable path",
    Severity.WARNING: "warning",
    Severity.NOTE: "note",
}
"""What the findings of each severity are called in the verdict."""

_NAGIOS = {State.CLEAN: "OK", State.DIRTY: "WARNING", State.CORRUPT: "CRITICAL", State.UNKNOWN: "UNKNOWN"}

_COPYING = ("RB-05", "RB-13")
"""Runbooks of damage inside the log and of missing segments: both make a new store, with all that is derived."""


def text(verification: Verification, steps: Sequence[str] = (), start: Sequence[str] = (), *, wide: bool) -> bytes:
    """Returns the complete result: the verdict, what to type first, then the details; `wide` explains all findings.

    The lines of `start` are about the next start of a store of another kind.
    """
    verdict, *more = [*_head(verification), *start]
    state = verification.state
    if not steps and state is State.DIRTY and verification.next_start and not verification.next_start.do_not_start:
        more.append("nothing to repair: start the broker")
    head = _coloured(document.prose(verdict), " ", state) + document.prose(*more)
    blocks = [
        head + document.commands("next", steps),
        *_findings(verification.findings, wide=wide, has_step=bool(steps)),
        *_losses(verification),
        _checks(verification),
    ]
    return document.joined(blocks)


def start_lines(start: NextStart, words: str | None) -> Iterator[str]:
    """Yields what the next start does, in words, and which release that is."""
    yield words or ""
    if start.other is not None:
        yield start.other.headline
    if start.release_evidence != GIVEN:
        yield release_words(start.release, start.release_evidence)


def _head(verification: Verification) -> Iterator[str]:
    counts = [
        counted(verification.count(severity), word) for severity, word in _WORDS.items() if verification.count(severity)
    ]
    verdict = ", ".join(counts) or (
        "nothing is wrong" if verification.state is State.CLEAN else "nothing wrong was found"
    )
    known = f"; {counted(verification.known_lost, 'message')} known lost" if verification.known_lost else ""
    if known and verification.state is State.CLEAN:
        yield f"{verification.store}: {verification.state}{_REPAIRED}{known}: {verdict}"
    else:
        yield f"{verification.store}: {verification.state_words}: {verdict}{known}"
    if verification.losses.messages:
        waiting = waiting_words(verification.losses.waiting)
        yield f"lost: {counted(verification.losses.messages, 'message')}{waiting}, {size(verification.losses.bytes)}"
    elif verification.losses.bytes:
        yield f"damaged: {size(verification.losses.bytes)} of the log; no message is known to be lost already"
    start = verification.next_start
    if start and (start.do_not_start or verification.state is not State.CLEAN):
        yield from start_lines(start, verification.start_words)
    if verification.config is not None:
        yield from corrections(verification.findings) or [f"broker.conf: {verification.config}"]
    elif start:
        yield UNCHECKED
    yield from cut_short(verification.findings)
    yield from owned_by_root(Path(verification.store))
    if verification.live:
        yield "a broker is running on it: only what is certain is reported"
    if not verification.complete:
        yield "stopped early: this is not all"
    unread = {
        CATALOGUE[finding.code].area
        for finding in verification.findings
        if finding.severity is Severity.UNKNOWN and finding.code in CATALOGUE and finding.code != OWNER_DENIED
    }
    read = {area_of(finding) for finding in verification.findings if finding.code == OWNER_DENIED} - unread
    unknown = [
        check.area.value
        for check in verification.checks
        if check.area in unread or (check.state is State.UNKNOWN and check.area not in read)
    ]
    if unknown:
        yield f"unknown: {', '.join(unknown)}"


def _findings(findings: Sequence[Finding], *, wide: bool, has_step: bool) -> Iterator[bytes]:
    """Yields the findings; with the command of each only if there is no command for all of them."""
    shown = findings if wide else findings[:MAX]
    yield from (_finding(finding, wide=wide, has_step=has_step) for finding in shown)
    if len(findings) > len(shown):
        yield document.prose(f"… {len(findings) - len(shown)} more: --format wide shows all")


def _finding(finding: Finding, *, wide: bool, has_step: bool) -> bytes:
    place = [finding.file] if finding.file else []
    if finding.position is not None:
        place.append(f"position {finding.position}")
    if finding.physical_offset is not None:
        place.append(f"physical offset {finding.physical_offset}")
    if finding.topic is not None:
        place.append(f"topic {finding.topic}" + ("" if finding.queue_id is None else f" queue {finding.queue_id}"))
    lost = [counted(finding.lost_messages, "message")] if finding.lost_messages else []
    lost += [size(finding.lost_bytes)] if finding.lost_bytes else []
    lines = [finding.evidence + (f"; lost {', '.join(lost)}" if lost else "")]
    if wide and finding.code in CATALOGUE:
        check = CATALOGUE[finding.code]
        lines += [check.meaning, check.remedy]
        lines += [f"runbook: {', '.join(check.runbooks)}"] if check.runbooks else []
    headline = document.prose(f"{finding.severity}: {finding.code}: {', '.join(place)}")
    return (
        _coloured(headline, "", finding.severity)
        + document.prose(*(f"  {line}" for line in lines))
        + document.commands("  next", [finding.next_step] if finding.next_step and not has_step else [])
    )


def _coloured(text: bytes, before: str, word: Severity | State) -> bytes:
    """Returns text with the first such word in its colour."""
    if word not in STYLES:
        return text
    for after in (":", _REPAIRED):
        text = text.replace(
            f"{before}{word}{after}".encode(), f"{before}{paint(word, STYLES[word])}{after}".encode(), 1
        )
    return text


def _losses(verification: Verification) -> Iterator[bytes]:
    if queues := (*verification.losses.queues, *verification.known):
        rows = [
            {
                "topic": loss.topic,
                "queue": loss.queue_id,
                "messages": loss.messages,
                "queue offsets": _runs(loss.offsets),
                "proof": loss.proof,
            }
            for loss in queues
        ]
        yield document.section("lost messages", rows, wide=True)
    if verification.losses.groups:
        rows = [
            {
                "group": loss.group,
                "topic": loss.topic,
                "queue": loss.queue_id,
                "consumer offset": loss.consumer_offset,
                "consumed": loss.consumed,
                "unread": loss.unread,
            }
            for loss in verification.losses.groups
        ]
        yield document.section("what the loss means for consumer groups", rows, wide=True)


def _runs(runs: Iterable[tuple[int, int]]) -> str:
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    return ", ".join(texts[:_RUNS]) + (", …" if len(texts) > _RUNS else "")


def _checks(verification: Verification) -> bytes:
    rows = [
        {"check": check.area.value, "state": check.state.value, "findings": check.findings, "checked": check.detail}
        for check in verification.checks
    ]
    return document.section("checks", rows, wide=True)


def junit(verification: Verification) -> bytes:
    """Returns JUnit XML: a suite per check; errors and warnings are failures, unknown checks are skipped."""
    suites = [_suite(verification, check.area) for check in verification.checks]
    head = f'<testsuites name="mqtool verify" time="{verification.statistics.seconds}">'
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', head, *suites, "</testsuites>", ""]
    return "\n".join(lines).encode("utf-8", "replace")


def _suite(verification: Verification, area: Area) -> str:
    check = next(item for item in verification.checks if item.area is area)
    mine = [item for item in verification.findings if area_of(item) is area and item.severity is not Severity.NOTE]
    cases = [_case(area, finding) for finding in mine]
    skipped = check.state is State.UNKNOWN or (not mine and not verification.complete)
    if skipped:
        cases.append(
            f"    <testcase classname={_attribute(area)} name={_attribute(area)}>\n"
            f"      <skipped message={_attribute(check.detail)}/>\n    </testcase>"
        )
    elif not mine:
        cases.append(f"    <testcase classname={_attribute(area)} name={_attribute(area)}/>")
    counts = f'tests="{len(cases)}" failures="{len(mine)}" skipped="{int(skipped)}"'
    return "\n".join([f"  <testsuite name={_attribute(area)} {counts}>", *cases, "  </testsuite>"])


def _case(area: Area, finding: Finding) -> str:
    from xml.sax.saxutils import escape

    place = finding.file + ("" if finding.position is None else f" position {finding.position}")
    name = _attribute(f"{finding.code} {place}".strip())
    step = f"\nnext: {cells.escape(finding.next_step)}" if finding.next_step else ""
    body = escape(cells.escape(finding.evidence) + step)
    message = _attribute(f"{finding.severity}: {finding.evidence}")
    failure = f"<failure type={_attribute(finding.code)} message={message}>{body}</failure>"
    return f"    <testcase classname={_attribute(area)} name={name}>\n      {failure}\n    </testcase>"


def _attribute(text: str) -> str:
    from xml.sax.saxutils import quoteattr

    return quoteattr(cells.escape(str(text)))


def prometheus(verification: Verification, now: float) -> bytes:
    """Returns the text format of Prometheus, for a textfile collector, with the time in seconds since the epoch."""
    return ("\n".join(_metrics(verification, now)) + "\n").encode("utf-8", "replace")


def _metrics(verification: Verification, now: float) -> Iterator[str]:
    store = _labels(store=verification.store)
    yield from _metric("state", "1 for the state that the store is in")
    yield from (
        _sample("state", int(verification.state is state), store=verification.store, state=state.value)
        for state in State
    )
    yield from _metric("check_state", "1 for the state that each check ended in")
    yield from (
        _sample("check_state", 1, store=verification.store, check=check.area.value, state=check.state.value)
        for check in verification.checks
    )
    yield from _metric("findings", "findings by code and severity")
    counts = Counter((finding.code, finding.severity.value) for finding in verification.findings)
    yield from (
        _sample("findings", count, store=verification.store, code=code, severity=severity)
        for (code, severity), count in sorted(counts.items())
    )
    yield from _metric("lost_messages", "messages proved to be gone, by queue")
    lost: Counter[tuple[str, int]] = Counter()
    for loss in verification.losses.queues:
        lost[loss.topic, loss.queue_id] += loss.messages
    yield from (
        _sample("lost_messages", count, store=verification.store, topic=topic, queue_id=str(queue_id))
        for (topic, queue_id), count in sorted(lost.items())
    )
    statistics = verification.statistics
    for name, description, value in (
        ("lost_bytes", "bytes of the CommitLog without a valid record", verification.losses.bytes),
        ("records", "valid records that were read", statistics.records),
        ("log_bytes", "bytes of the CommitLog that were read", statistics.log_bytes),
        ("complete", "0 if the check was stopped early", int(verification.complete)),
        ("duration_seconds", "how long the check took", statistics.seconds),
        ("time_seconds", "when the check ended, since the epoch", round(now, 3)),
    ):
        yield from _metric(name, description)
        yield f"mqtool_verify_{name}{store} {value}"


def _metric(name: str, description: str) -> Iterator[str]:
    yield f"# HELP mqtool_verify_{name} {description}"
    yield f"# TYPE mqtool_verify_{name} gauge"


def _sample(name: str, value: int, **labels: str) -> str:
    return f"mqtool_verify_{name}{_labels(**labels)} {value}"


def _labels(**labels: str) -> str:
    def quoted(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return "{" + ",".join(f'{name}="{quoted(value)}"' for name, value in labels.items()) + "}"


def nagios(verification: Verification) -> bytes:
    """Returns the output of a plugin: a status line with performance data, then a line per finding."""
    errors, warnings = verification.count(Severity.ERROR), verification.count(Severity.WARNING)
    summary = f"{verification.state}, {counted(errors, 'error')}, {counted(warnings, 'warning')}"
    summary += f", {counted(verification.losses.messages, 'lost message')}"
    if verification.next_start and verification.next_start.do_not_start:
        summary += f", {_plain(verification.start_words or '')}"
    data = (
        f"errors={errors} warnings={warnings} lost_messages={verification.losses.messages} "
        f"lost_bytes={verification.losses.bytes}B "
        f"records={verification.statistics.records} time={verification.statistics.seconds}s"
    )
    status = (
        "UNKNOWN" if not verification.complete and verification.state is State.CLEAN else _NAGIOS[verification.state]
    )
    lines = [f"VERIFY {status} - {_plain(verification.store)}: {summary} | {data}"]
    lines += [
        f"{finding.severity} {finding.code} {_plain(finding.file)}: {_plain(finding.evidence)}"
        for finding in verification.findings
    ]
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _plain(text: str) -> str:
    """Replaces bars, which would begin performance data."""
    return cells.escape(text).replace("|", "/")


def next_steps(store: Store, verification: Verification, *, may_try: bool = True) -> tuple[str, ...]:
    """Returns commands to type, the best first.

    There are none while a broker is running, before the check is complete, and before broker.conf is corrected.
    `may_try` builds the result of a plan aside and predicts the broker's start with it. Then the plan is named only if
    it loses nothing that the store still has, and runbooks only for what it leaves. Nothing is built if there is
    nothing to plan, no start can be predicted, or the store is not `is_small`.
    """
    is_wrong = any(finding.severity is not Severity.NOTE for finding in verification.findings)
    if verification.missing_config and verification.complete and not verification.live and not is_wrong:
        return (command("plan", "rebuild", "metadata", _opened(store, verification), "-o", PLAN_FILE),)
    if verification.live or not verification.complete or not is_wrong or corrections(verification.findings):
        return ()
    from mqtool.repair.journal import ending_command  # a clean store does without

    ending, undo = "", command("undo", store.path, "--yes")
    with contextlib.suppress(RefusedError):
        ending = ending_command(store.path)
    if ending == "undo":
        return (undo,)
    for finding in verification.findings:
        if finding.code in PERMISSIONS:  # what is wrong is unknown before all of it is read
            return (finding.next_step,)
    steps = _steps(store, verification, may_try=may_try)
    if not ending or _new_store(store, verification) in steps:
        return steps
    return (command("discard-undo", store.path, "--dry-run"), undo)


def step_after(root: Path, config: str | Path | None, repair: RepairPlan, verification: Verification) -> str | None:
    """Returns the command that follows a repair in place; None if it leaves no error."""
    from mqtool.repair.from_findings import RepairProposal

    left = tuple(finding for finding in repair.remaining if finding.severity.is_serious)
    if not left and not repair.needs_another_run:
        return None
    with open_store(root, config) as store:
        new = _new_store(store, verification)
        steps = () if repair.needs_another_run else _by_codes(store, RepairProposal((), left), verification)
        return new if new in steps else command("verify", _opened(store, verification))


def next_steps_of(root: Path, config: str | Path | None, verification: Verification) -> list[str]:
    """Opens a store that was verified, and returns its `next_steps`."""
    with open_store(root, config) as store:
        return list(next_steps(store, verification))


def _steps(store: Store, verification: Verification, *, may_try: bool) -> tuple[str, ...]:
    from mqtool.repair.from_findings import RepairProposal, changes_of, is_small, try_out

    proposal = changes_of(store, verification.findings, verification.losses.offsets)
    if proposal.changes and may_try and verification.next_start is not None and is_small(store, verification):
        try:
            return _steps_for(store, try_out(store, proposal, verification.findings), verification)
        except MqtoolError:  # `mqtool plan` ends with the same error
            proposal = RepairProposal(
                (), tuple(finding for finding in verification.findings if finding.severity is not Severity.NOTE)
            )
        except OSError:  # no space for what the plan would change
            pass
    return _by_codes(store, proposal, verification)


def _steps_for(store: Store, tried: RepairProposal | RefusedError, verification: Verification) -> tuple[str, ...]:
    """Returns the step if the plan was tried: the repair in place, or a new store where that would lose messages."""
    if isinstance(tried, RefusedError):
        return (_new_store(store, verification),)
    return (_repair(store, verification),) if tried.changes else _by_codes(store, tried, verification)


def _opened(store: Store, verification: Verification) -> Opened:
    start = verification.next_start
    release = start.release if start is not None and start.release_evidence == GIVEN else None
    return Opened(store.path, store.config.file, release)


def _repair(store: Store, verification: Verification) -> str:
    return command("repair", _opened(store, verification))


def _new_store(store: Store, verification: Verification) -> str:
    """Returns the command that copies every intact record to a new store."""
    return new_store_command(_opened(store, verification))


def _by_codes(store: Store, proposal: RepairProposal, verification: Verification) -> tuple[str, ...]:
    """Returns the step if no plan was tried: `mqtool repair` tries one, or states why there is none."""
    if proposal.changes:
        return (_repair(store, verification),)
    ways = _needed(finding for finding in proposal.remaining if finding.severity.is_serious)
    named = _opened(store, verification)
    if not ways:
        return () if _is_harmless(store, verification) else (command("explain-start", named),)
    return (
        _new_store(store, verification) if ways[0].id in _COPYING else command("runbook", "run", ways[0].id, named),
    )


def _is_harmless(store: Store, verification: Verification) -> bool:
    """Whether nothing is lost by a start and after it: `explain-start` adds nothing."""
    start = verification.next_start
    if start is None or any(item and item.do_not_start is not False for item in (start, start.other)):
        return False
    from mqtool.cli.after_start import losses_after_start

    try:
        return not losses_after_start(store, release_of(start.release))
    except MqtoolError:
        return False


def _needed(findings: Iterable[Finding]) -> tuple[Runbook, ...]:
    from mqtool.repair.runbooks import runbooks_for

    return runbooks_for(findings)
