"""Runs a runbook, and records every step with its evidence, as JSON values and as Markdown for a ticket.

The steps are the same for all runbooks; nothing is changed unless requested.
"""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.commands import command, new_store_command
from mqtool.errors import MqtoolError, NothingToChangeError, RefusedError
from mqtool.recovery.losses import LossCount, loss_numbers
from mqtool.repair.changes import change_to_json
from mqtool.repair.from_findings import RepairProposal
from mqtool.repair.gates import check_backup
from mqtool.repair.outlook import Comparison, NotInPlaceError, Preview
from mqtool.repair.plan import Plan
from mqtool.repair.plan_executor import apply
from mqtool.repair.plans import RepairPlan, plan_of
from mqtool.repair.runbooks.model import (
    Advice,
    Case,
    Detection,
    NewDirectory,
    Request,
    Runbook,
    after_directory,
    next_verify,
    run_again,
    start_of,
    with_directory,
)
from mqtool.store.config.broker_config import UNCHECKED, load
from mqtool.store.store import open_store
from mqtool.verify import CATALOGUE, Finding, State, corrections, verify
from mqtool.verify.finding_collector import PERMISSIONS
from mqtool.words import size

DONE = "done"
REFUSED = "refused"
SKIPPED = "skipped"
"""Not tried: a dry run, or a step before it ended the run."""
FAILED = "failed"
_FILES_TOLD = 100
_AFTER = {
    True: "the symptom is still present",
    False: "the symptom no longer occurs",
    None: "unknown whether the symptom is still present",
}


class Step(Struct, frozen=True):
    """One step of a run."""

    name: str  # detect, explain, plan, gate, apply, verify, undo
    status: str  # done, refused, skipped or failed
    summary: str  # in words
    evidence: tuple[str, ...] = ()  # facts, one each


class Protocol(Struct):
    """A complete run."""

    runbook: str  # and name: id and name of the runbook
    name: str
    store: Path  # root
    broker: str  # release whose start is predicted
    config: Path | None = None  # the broker's configuration file; None without one
    begun: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))  # RFC 3339
    present: bool | None = False  # whether the problem is present; None if that is unknown
    ready: bool = False  # whether nothing but consent is missing
    applied: bool = False  # whether a change was applied
    repaired: bool | None = None  # whether the problem is solved; None if nothing was applied
    is_lossy: bool = False  # whether the new directory lacks something, whatever lost it: exit code 1
    losses: LossCount | None = None  # when the run began, and by its change; None if unknown
    plan: dict[str, Any] | None = None  # JSON of the plan, None if nothing changes in place
    new_directory: Path | None = None  # the new directory, if one was created
    steps: list[Step] = field(default_factory=list)  # in order
    next_steps: tuple[str, ...] = ()  # commands to type, in this order
    undo: str | None = None  # the command that undoes the change; None if nothing changed in place

    def add(self, name: str, status: str, summary: str, evidence: tuple[str, ...] = ()) -> None:
        """Adds a step."""
        self.steps.append(Step(name, status, summary, evidence))

    def step(self, name: str) -> Step:
        """Returns the step with a name."""
        return next(step for step in self.steps if step.name == name)

    def as_dict(self) -> dict[str, Any]:
        """Returns the protocol as JSON values."""
        return {
            "runbook": self.runbook,
            "name": self.name,
            "store": str(self.store),
            "config": self.config and str(self.config),
            "broker": self.broker,
            "begun": self.begun,
            "present": self.present,
            "applied": self.applied,
            "repaired": self.repaired,
            **self._losses,
            "made": None if self.new_directory is None else str(self.new_directory),
            "steps": [
                {"name": step.name, "status": step.status, "summary": step.summary, "evidence": list(step.evidence)}
                for step in self.steps
            ],
            "plan": self.plan,
            "undo": self.undo,
            "next_steps": list(self.next_steps),
        }

    @property
    def _losses(self) -> dict[str, int | None]:
        return loss_numbers(self.losses)

    def markdown(self) -> str:
        """Returns the protocol as Markdown, for a ticket."""
        lines = [
            f"# {self.runbook} {self.name}",
            "",
            f"- store: `{self.store}`",
            f"- broker: RocketMQ {self.broker}",
            f"- broker.conf: {UNCHECKED if self.config is None else f'`{self.config}`'}",
            f"- begun: {self.begun}",
            f"- problem is present: {'unknown' if self.present is None else _yes(self.present)}",
            f"- applied: {_yes(self.applied)}",
            f"- repaired: {_yes(self.repaired)}",
            *(
                f"- messages {name.replace('_', ' ')}: {'unknown' if count is None else count}"
                for name, count in self._losses.items()
            ),
            "",
        ]
        for number, step in enumerate(self.steps, 1):
            lines += [f"## {number}. {step.name}: {step.status}", "", step.summary, ""]
            if step.evidence:
                lines += ["```text", *(fact.replace("```", "'''") for fact in step.evidence), "```", ""]
        if self.next_steps:
            lines += ["Next:", "", "```sh", *self.next_steps, "```", ""]
        if self.undo is not None:
            lines += [f"To undo the change: `{self.undo}`", ""]
        return "\n".join(lines)


def _yes(value: bool | None) -> str:
    return "not tried" if value is None else "yes" if value else "no"


def run(runbook: Runbook, root: Path, request: Request | None = None) -> Protocol:
    """Runs the steps of a runbook, without options as a dry run.

    Returns:
        What was found, planned and done. If the problem is not present, the protocol says so and ends with
            `detect`.

    Raises:
        UsageError: an option that the runbook requires is missing.
        NotAStoreError, LayoutError, UnsupportedFormatError: the store cannot be read.
        StoreError: the system reported an error while applying; the change was undone.
    """
    options = request or Request()
    with open_store(root, options.config) as store:
        case = Case(store, options)
        protocol = Protocol(runbook.id, runbook.name, root, case.broker, store.config.file)
        detection = runbook.detect(case)
        protocol.present = detection.present
        if detection.present is None:
            summary = "unknown whether the symptom is present: files that would show it cannot be read"
            protocol.add("detect", REFUSED if options.apply else FAILED, summary, detection.evidence)
            first = next((item for item in detection.findings if item.code in PERMISSIONS), detection.findings[0])
            protocol.next_steps = (first.next_step,)
            return protocol
        if not detection.present:
            protocol.add("detect", REFUSED, "the symptom is absent: nothing to do", detection.evidence)
            protocol.next_steps = (next_verify(root, options),)
            return protocol
        number = f": {len(detection.findings)} finding(s)" if detection.findings else ""
        protocol.add("detect", DONE, f"the symptom is present{number}", detection.evidence)
        preview = Preview(store, case.broker)
        _explain(protocol, case, preview)
        proposal = runbook.propose(case, detection)
        if options.apply and isinstance(proposal, RepairProposal):
            _ = case.verification  # while the store is as it was
        is_judged = options.config is not None and isinstance(proposal, RepairProposal)
        wrong = corrections(case.verification.findings) if is_judged else ()
    if wrong:
        protocol.add("plan", REFUSED, "the configuration does not fit the files: correct it first", wrong)
    elif isinstance(proposal, Advice):
        _advise(protocol, proposal)
    elif isinstance(proposal, NewDirectory):
        _make(protocol, runbook, proposal, options, preview)
    else:
        _change(protocol, runbook, proposal, case, detection)
    return protocol


def _explain(protocol: Protocol, case: Case, preview: Preview) -> None:
    start = case.start
    if isinstance(start, str):
        protocol.add("explain", SKIPPED, f"what a start would do is unknown: {start}")
        return
    now = preview.unchanged
    facts = [] if case.request.broker else [f"release {start.release} is {case.store.version.assumption}"]
    facts += [f"lost {name}: {_runs(ranges)}" for name, ranges in (start.lost or {}).items()]
    if isinstance(now, Comparison):
        protocol.losses = replace(now.forecast.losses, by_change=None)
        facts.append(f"messages already lost: {now.losses.gone}")
    facts += [f"deleted: {name}" for name in start.files.deleted]
    facts += [*start.why, *start.accepted]
    minutes = start.effort.min_minutes, start.effort.max_minutes
    facts.append(f"recovery reads {start.effort.scanned_bytes} bytes: {minutes[0]} to {minutes[1]} minutes")
    protocol.add("explain", DONE, f"RocketMQ {start.release} on the store as it is: {start.verdict}", tuple(facts))


def _runs(ranges: tuple[tuple[int, int], ...]) -> str:
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges[:20])


def _advise(protocol: Protocol, advice: Advice) -> None:
    first, *others = advice.words
    protocol.add("plan", SKIPPED, f"no automatic repair: {first}", tuple(others))
    protocol.next_steps = advice.next_steps


def _make(protocol: Protocol, runbook: Runbook, proposal: NewDirectory, request: Request, preview: Preview) -> None:
    if request.to is None or not request.apply:
        protocol.next_steps = (with_directory(runbook.id, protocol.store, request),)
    if request.to is None:
        protocol.add("plan", DONE, f"{proposal.what}; name the new directory with -o")
        protocol.add("apply", SKIPPED, "add -o and --yes to carry it out")
        return
    protocol.add("plan", DONE, f"{proposal.what} into {request.to}; the store itself is not changed")
    if not request.apply:
        protocol.ready = True
        protocol.add("apply", SKIPPED, "dry run: add --yes to carry it out")
        return
    result = proposal.make(request.to)
    protocol.applied, protocol.new_directory, protocol.is_lossy = True, request.to, result.is_lossy
    words = f"{request.to} was created" if result.complete else f"{request.to} was created, but is not complete"
    protocol.add("apply", DONE, words, result.facts)
    config = load(request.config).for_copy(request.to)
    after = start_of(request.to, protocol.broker, config)
    with open_store(request.to, config) as opened:
        state = verify(opened).state
    words = after if isinstance(after, str) else after.verdict
    evidence = [f"RocketMQ {protocol.broker} on the new directory: {words}"]
    if proposal.repairs:
        outlook = preview.compare_with(request.to)
        protocol.losses = None if isinstance(outlook, str) else outlook.forecast.losses
        repaired = state is not State.CORRUPT if isinstance(outlook, str) else outlook.is_repaired
        evidence.append(outlook if isinstance(outlook, str) else outlook.forecast.words)
    else:
        repaired = after.runs if not isinstance(after, str) else state is not State.CORRUPT
    protocol.repaired = repaired and result.complete
    status = DONE if protocol.repaired else FAILED
    protocol.add("verify", status, f"verify: {state.value}", tuple(evidence))
    in_place = result.put_in_place if protocol.repaired else ()
    protocol.next_steps = (*after_directory(request.to, request.config, protocol.broker), *in_place)


def _change(protocol: Protocol, runbook: Runbook, proposal: RepairProposal, case: Case, detection: Detection) -> None:
    request, repair = case.request, _planned(protocol, runbook, proposal, case, detection)
    if repair is None or not _pass_gates(protocol, runbook, repair.plan, request):
        return
    if not request.apply:
        protocol.ready = True
        protocol.add("apply", SKIPPED, "dry run: add --yes to carry it out")
        protocol.next_steps = (run_again(runbook.id, protocol.store, request, "--yes"),)
        return
    done = apply(repair.plan, backup_acknowledged=True)
    protocol.applied = True
    protocol.add(
        "apply",
        DONE,
        f"{len(done.steps)} file(s) changed; the old files are in {done.quarantine}",
        (f"journal: {done.journal}",),
    )
    _prove(protocol, runbook, repair, case)
    protocol.undo = command("undo", protocol.store, "--yes")
    protocol.next_steps = (next_verify(protocol.store, request),)


def _planned(
    protocol: Protocol, runbook: Runbook, proposal: RepairProposal, case: Case, detection: Detection
) -> RepairPlan | None:
    """Returns the plan of a change; notes why if there is none, and returns None."""
    request, findings = case.request, case.verification.findings
    mine = set(detection.findings)

    def left(remaining: Iterable[Finding]) -> tuple[str, ...]:
        return tuple(
            f"left: {finding.code} {finding.file}: {CATALOGUE[finding.code].remedy}"
            for finding in remaining
            if finding in mine
        )

    try:
        repair = plan_of(
            protocol.store,
            proposal,
            findings,
            config=request.config,
            release=request.broker,
            allow_unread=request.allow_unread,
        )
    except NotInPlaceError as error:
        protocol.add("plan", REFUSED, str(error), left(proposal.remaining))
        protocol.next_steps = (error.next_step,)
        return None
    except NothingToChangeError:
        protocol.add("plan", REFUSED, "no change of these files repairs this", left(proposal.remaining))
        serious = [finding for finding in findings if finding.severity.is_serious]
        if any(runbook.id not in CATALOGUE[finding.code].runbooks for finding in serious):
            protocol.next_steps = (next_verify(protocol.store, request),)
        elif not case.store.layout.dledger_dirs:  # no new store is made of a DLedger log
            protocol.next_steps = (new_store_command(request.opened(protocol.store)),)
        return None
    protocol.plan = json.loads(repair.plan.to_json())
    facts = (*_files(repair.plan), *repair.plan.notes, *left(repair.remaining))
    protocol.add("plan", DONE, _summary(repair), facts)
    return repair


def _pass_gates(protocol: Protocol, runbook: Runbook, plan: Plan, request: Request) -> bool:
    """Checks the preconditions of a change without writing; returns whether they hold."""
    try:
        apply(plan, dry_run=True)
        if request.apply:
            check_backup(protocol.store, acknowledged=request.backup_acknowledged)
    except RefusedError as error:
        protocol.add("gate", REFUSED, str(error))
        if error.gate == "backup":
            protocol.next_steps = (run_again(runbook.id, protocol.store, request, "--yes"),)
        return False
    protocol.add("gate", DONE, "all preconditions met: store unlocked, no writer, enough space, files unchanged")
    return True


def _summary(repair: RepairPlan) -> str:
    plan = repair.plan
    verbs = ", ".join(change_to_json(change)["verb"] for change in plan.changes)
    more = "" if plan.complete else "; damage prevents a complete repair"
    hint = "; run it again after mqtool discard-undo" if repair.needs_another_run else ""
    return f"{verbs}: {len(plan.steps)} file(s), {size(plan.space)} of space{more}{hint}"


def _files(plan: Plan) -> tuple[str, ...]:
    lines = [f"{step.action} {step.path}" for step in plan.steps]
    more = len(lines) - _FILES_TOLD
    return (*lines[:_FILES_TOLD], f"and {more} more files") if more > 0 else tuple(lines)


def _prove(protocol: Protocol, runbook: Runbook, repair: RepairPlan, before: Case) -> None:
    """Detects the problem again, predicts the broker's start again, and compares `verify` with that before."""
    forecast = repair.plan.forecast
    with open_store(protocol.store, before.request.config) as store:
        case = Case(store, replace(before.request, broker=protocol.broker))
        try:
            detection = runbook.detect(case)
        except MqtoolError as error:
            protocol.add("verify", FAILED, f"the store cannot be read: {error}")
            return
        loses_more = forecast is not None and not forecast.is_repaired
        now = case.verification.state
        is_worse = now is State.CORRUPT and before.verification.state in (State.CLEAN, State.DIRTY)
        protocol.repaired = not (detection.present is not False or loses_more or is_worse)
        protocol.losses = protocol.losses if forecast is None else forecast.losses
        start = case.start
        verdict = start if isinstance(start, str) else start.verdict
        facts = [f"verify: {now.value}", f"RocketMQ {protocol.broker}: {verdict}"]
        facts += [] if forecast is None else [forecast.words]
        facts += detection.evidence
        summary = _AFTER[detection.present]
        if is_worse:
            summary += f", but verify now finds {case.verification.serious} error(s) or unknown check(s)"
        if repair.needs_another_run and detection.present and not is_worse:
            summary += "; run the runbook again after mqtool discard-undo"
        protocol.add("verify", DONE if protocol.repaired else FAILED, summary, tuple(facts))
