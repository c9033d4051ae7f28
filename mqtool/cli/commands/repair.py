"""`mqtool repair`: checks a store, shows the one plan that is enough, and carries it out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mqtool.cli import options
from mqtool.cli.cells import counted
from mqtool.cli.changes import DryRunOption, YesOption, after_apply, consent
from mqtool.cli.document import commands, prose, section
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import TABLE_FORMATS, Format
from mqtool.cli.output import Output
from mqtool.cli.schema import (
    CONFIG,
    DATA,
    NEXT_STEPS,
    TABLE,
    UNDO,
    Column,
    OutputSchema,
    count,
    flag,
    listing,
    prints,
    text,
)
from mqtool.cli.start_outcome import LOST, lost_row
from mqtool.commands import Opened, command, new_store_command
from mqtool.errors import UsageError

if TYPE_CHECKING:
    from mqtool.repair.plans import Diagnosis
    from mqtool.repair.salvage import SalvageOptions
    from mqtool.verify import Finding

HELP = """
mqtool repair /data/store

Check a store, show what is wrong, what is already lost, and the one plan that repairs it; then ask, apply the plan and
verify the result. `mqtool undo STORE` restores every byte. Where no change in place is enough, it says why, and names
the one alternative, mostly -o NEW: copy every intact record to a new store, and take what is lost from other copies of
the log (--with). Exit code 1 if there is no plan, if an error is left, or if the new store lacks messages.

impact: changes the store, or writes what -o names, after consent
"""

REPAIR = OutputSchema(
    "repair",
    "what is wrong with a store, and how to repair it",
    (
        text("store", "root of the store"),
        CONFIG,
        text("status", "state that verify gives it: clean, dirty, corrupt or unknown"),
        Column("wrong", "array", "what is wrong: number of findings, code and first file", show=TABLE),
        count("already_lost", "messages without an intact record in the store; null if unknown", nullable=True),
        listing("lost", "lost messages by queue; of a new store, those that it lacks", *LOST),
        text("start", "what the next start of the broker would do, in words; null if unknown", nullable=True),
        count(
            "lost_by_start", "further messages that the next start of the broker loses; null if unknown", nullable=True
        ),
        count("not_served", "intact messages that no consumer gets; null if unknown", nullable=True),
        count("lost_by_change", "further messages that the repair loses; null if unknown", nullable=True),
        Column("changes", "array", "what the plan does", show=TABLE),
        count("files", "files that change"),
        text("reason", "why there is no plan; null if there is one, or none is needed", nullable=True),
        Column("left", "array", "errors that the repair leaves, by their codes or in words", show=TABLE),
        text(
            "then", "the command for the errors that the repair in place leaves, after it; null if none", nullable=True
        ),
        text(
            "new_store",
            "the command that makes a new store: the one way, or instead of a repair in place that leaves errors; null "
            "if a repair in place leaves none",
            nullable=True,
        ),
        flag("dry_run", "nothing was changed"),
        Column("unclaimed", "array", "repaired topics in which no group has a position", show=TABLE),
        text("target", "the new store; null for a repair in place", nullable=True),
        flag("complete", "no error is left and no message is missing; null if nothing was done", nullable=True),
        text("result", "state that verify gives the repaired store; null if nothing was done", nullable=True),
        Column("notes", "array", "what is different in the new store, in words", show=TABLE),
        UNDO,
        NEXT_STEPS,
        Column("plan", "object", "the plan, as `mqtool plan repair` writes it", items="any", show=DATA, nullable=True),
    ),
    single=True,
)

_COPIED = "every record that is intact or confirmed by its queue"
_ABSENT = ("queue-missing", "config-topic-missing")
"""Codes of topics that a repair brings back."""
_LINES = 6
"""Codes that are listed; of the others, the number."""


@prints(REPAIR)
def repair(
    ctx: typer.Context,
    store: options.StoreArgument,
    *,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    target: Annotated[Path | None, options.output_option("Root of the new store; must not exist.")] = None,
    copies: Annotated[list[Path] | None, options.copies_option()] = None,
    release: options.StartedReleaseOption = None,
    config: options.FoundConfigOption = None,
    output_format: options.FormatOption = Format.TABLE,
) -> ExitCode:
    """Diagnoses, asks, repairs, and says how to undo it."""
    from mqtool.cli.verification_formats import next_steps_of, step_after
    from mqtool.repair.plans import diagnose
    from mqtool.repair.salvage import SalvageOptions, check_salvage

    if copies and target is None:
        raise UsageError("--with takes lost messages from another copy; add -o NEW for the new store")
    started = release and release.value
    options = SalvageOptions(tuple(copies or ()), config=config)
    if target is not None:
        check_salvage(store, target, options)
    diagnosis = diagnose(store, config, started, in_place=target is None)
    document, named = _document(store, diagnosis), Opened(store, config, started)
    new = new_store_command(named)
    if diagnosis.plan is not None:
        left = step_after(store, config, diagnosis.plan, diagnosis.verification)
        document |= {"new_store": f"{new} --yes"} if left == new else {"then": left}

    def show(code: ExitCode) -> ExitCode:
        output = Output(ctx.obj, REPAIR, output_format)
        if output_format in TABLE_FORMATS:
            from mqtool.cli.verification_formats import STYLES
            from mqtool.verify import State

            undo = [document["undo"]] if document["undo"] else []
            is_choice, is_open = _is_choice(document), document["dry_run"]
            then = document["new_store"] if is_choice else document["then"] if is_open else None
            verdict, *lines = _lines(document, diagnosis)
            return output.page(
                [
                    prose(verdict, style=STYLES[State(document["status"])]) + prose(*lines),
                    section("lost messages", document["lost"], wide=True),
                    commands("in place" if is_choice else "next", document["next_steps"])
                    + commands("to a new store" if is_choice else "then", [then] if then else []),
                    commands("undo", undo),
                ],
                code,
            )
        return output.document(document, code)

    if target is None and diagnosis.plan is None:
        if document["wrong"] or diagnosis.reason:
            steps = [new] if diagnosis.needs_new_store else next_steps_of(store, config, diagnosis.verification)
            if steps == [new]:
                steps = [f"{new} --yes"]
                document["new_store"] = steps[0]
            document["next_steps"] = steps
        return show(ExitCode.NO if diagnosis.reason else ExitCode.OK)
    files = f"Change {counted(document['files'], 'file')} of {store}?"
    question = files if target is None else f"Copy every intact record to {target}?"
    again = command("repair", named, *_new_store(target, copies), "--yes")
    document |= {"target": None if target is None else str(target), "next_steps": [again]}
    code = consent(ctx.obj, question, show, yes=yes, dry_run=dry_run)
    if code is not None:
        return code
    done = _apply(diagnosis, named) if target is None else _salvage(store, target, options)
    document |= {"dry_run": False, **done}
    return show(ExitCode.OK if document["complete"] else ExitCode.NO)


def _new_store(target: Path | None, copies: list[Path] | None) -> tuple[object, ...]:
    words: tuple[object, ...] = () if target is None else ("-o", target)
    return (*words, *(word for path in copies or () for word in ("--with", path)))


def _document(store: Path, diagnosis: Diagnosis) -> dict[str, Any]:
    from mqtool.repair.changes import change_to_json
    from mqtool.verify import Severity

    repaired = diagnosis.plan
    plan = None if repaired is None else repaired.plan
    forecast = None if plan is None else plan.forecast
    start = diagnosis.verification.next_start
    losses = start.losses if start else None
    findings = [item for item in diagnosis.verification.findings if item.severity is not Severity.NOTE]
    return {
        "store": str(store),
        "config": diagnosis.verification.config and str(diagnosis.verification.config),
        "status": diagnosis.verification.state.value,
        "wrong": _wrong(findings),
        "already_lost": diagnosis.already_lost,
        "lost": [
            lost_row(f"{lost.topic}/{lost.queue_id}", lost.offsets, wide=True)
            for lost in diagnosis.verification.losses.queues
        ],
        "start": diagnosis.verification.start_words,
        "lost_by_start": losses and losses.by_start,
        "not_served": losses and losses.unserved,
        "lost_by_change": (0 if plan is not None else None) if forecast is None else forecast.losses.by_change,
        "changes": [] if plan is None else [change_to_json(change)["verb"] for change in plan.changes],
        "files": 0 if plan is None else len(plan.steps),
        "reason": diagnosis.reason or None,
        "left": [] if repaired is None else sorted({i.code for i in repaired.remaining if i.severity.is_serious}),
        "then": None,
        "new_store": None,
        "dry_run": True,
        "unclaimed": [],
        "target": None,
        "complete": None,
        "result": None,
        "notes": [],
        "undo": None,
        "next_steps": [],
        "plan": None,
    }


def _is_choice(document: dict[str, Any]) -> bool:
    """Whether a new store would leave out what the repair in place leaves."""
    return document["dry_run"] and document["target"] is None and bool(document["changes"] and document["new_store"])


def _lines(document: dict[str, Any], diagnosis: Diagnosis) -> Iterator[str]:
    """Yields the document for a reader."""
    from mqtool.cli.verification_formats import start_lines
    from mqtool.store.config.broker_config import UNCHECKED
    from mqtool.verify import cut_short

    start = diagnosis.verification.next_start
    yield f"{document['store']}: {diagnosis.verification.state_words}"
    yield from (f"  {line}" for line in document["wrong"])
    if document["wrong"] and start is not None:
        yield from start_lines(start, document["start"])
    yield UNCHECKED if document["config"] is None else f"broker.conf: {document['config']}"
    yield from cut_short(diagnosis.verification.findings)
    if document["already_lost"] and document["lost_by_start"] is None:
        yield f"lost already: {counted(document['already_lost'], 'message')}"
    if document["target"] is not None:
        yield f"Repair: copy {_COPIED}, to {document['target']}; the old store is only read"
        if document["reason"] is not None:
            yield f"Why not in place: {document['reason']}"
    elif document["reason"] is not None:
        is_new = document["new_store"] is not None
        way = f"; the only way is a new store with {_COPIED}" if is_new else ""
        yield f"No repair{' in place' if is_new else ''}: {document['reason']}{way}"
    elif not document["changes"]:
        yield "nothing to repair"
    else:
        lost = document["lost_by_change"]
        number = counted(lost, "message") if lost else "no message"
        loss = "what it loses is unknown" if lost is None else f"loses {number}"
        yield f"Repair: {', '.join(document['changes'])}: {counted(document['files'], 'file')}; {loss}"
    if not document["dry_run"]:
        lost = sum(row["messages"] for row in document["lost"])
        missing = counted(lost, "message") if lost else "no message"
        kept = f"; {missing} of the old store {'is' if lost < 2 else 'are'} missing in the new one"
        yield f"Done: verify now says {document['result']}{kept if document['target'] is not None else ''}"
        if document["target"] is not None:
            yield "Retention counts the new files from now on; keep the old store until consumers get their messages."
            yield from (f"Note: {note}" for note in document["notes"])
    if document["unclaimed"]:
        yield (
            f"No group has a position in {', '.join(document['unclaimed'])}: a new consumer mostly begins at the end. "
            f"To begin earlier, check the result, run `{command('discard-undo', document['store'], '--yes')}`, and "
            "follow `mqtool help set-a-groups-position`"
        )
    if _is_choice(document) and diagnosis.plan is not None:
        left = sum(finding.severity.is_serious for finding in diagnosis.plan.remaining)
        stay = f"{counted(left, 'error')} {'stays' if left == 1 else 'stay'} ({', '.join(document['left'])})"
        yield f"Choose: in place, the broker can start, and {stay};"
        yield "to a new store, nothing damaged is copied, and no repair in place is needed first."
    else:
        yield from (f"  remains: {problem}" for problem in document["left"])


def _wrong(findings: list[Finding]) -> list[str]:
    """Returns a line for each of the worst codes, and one for the others."""
    counts = Counter(finding.code for finding in findings)
    first = {finding.code: finding for finding in reversed(findings)}
    codes = sorted(first, key=lambda code: not first[code].severity.is_serious)
    several = {finding.code for finding in findings if finding.file != first[finding.code].file}
    places = {code: f"{first[code].file}{' and others' if code in several else ''}" for code in codes}
    lines = [f"{counts[code]} x {code}, {first[code].severity.value}: {places[code]}" for code in codes]
    more = len(lines) - _LINES
    return lines if more <= 0 else [*lines[:_LINES], f"and {more} more codes; `mqtool verify` lists all"]


def _apply(diagnosis: Diagnosis, named: Opened) -> dict[str, Any]:
    """Applies the plan."""
    from mqtool.formats.topics import is_system_topic
    from mqtool.repair import apply
    from mqtool.store import open_store

    assert diagnosis.plan is not None
    applied = apply(diagnosis.plan.plan, backup_acknowledged=True)
    assert applied.verification is not None
    serious = {finding.code for finding in applied.verification.findings if finding.severity.is_serious}
    before, after = (
        {item.topic for item in check.findings if item.topic and item.code in _ABSENT}
        for check in (diagnosis.verification, applied.verification)
    )
    with open_store(applied.store, diagnosis.verification.config) as store:
        claimed = {topic for group in store.metadata.consumer_offsets.values() for topic in group}
    return {
        "complete": not serious,
        "unclaimed": sorted(topic for topic in before - after - claimed if not is_system_topic(topic)),
        "result": applied.verification.state.value,
        "left": sorted(serious),
        "undo": command("undo", Path(named.root), "--yes"),
        "next_steps": after_apply(applied, named),
    }


def _salvage(store: Path, target: Path, options: SalvageOptions) -> dict[str, Any]:
    """Copies every intact record to a new store."""
    from mqtool.repair.salvage import salvage

    saved = salvage(store, target, options)
    problems = {
        "a broker refuses to start on the new store": not saved.starts,
        "bytes that could not be read are missing; what they held is unknown": saved.has_unread,
        "topics, groups and positions could not be read": saved.has_unread_tables,
        f"{saved.lost_bytes} bytes of the old log contain no valid record": bool(saved.holes) and not saved.lost,
    }
    return {
        "complete": saved.is_complete,
        "result": saved.verify,
        "lost": [
            lost_row(f"{row.topic}/{row.queue_id}", row.lost_offsets, wide=True) for row in saved.queues if row.lost
        ],
        "left": [problem for problem, is_there in problems.items() if is_there],
        "notes": saved.notes,
        "next_steps": saved.next_steps,
    }
