"""`mqtool runbook`: handles known problems, from the symptom to the proof."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from msgspec.structs import replace

from mqtool import guide
from mqtool.cli import options
from mqtool.cli.changes import STEPS, AllowUnreadOption, DryRunOption, YesOption, consent, step_rows
from mqtool.cli.document import blocks, commands, section
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import JSON_FORMATS, TABLE_FORMATS, Format, Invocation, note
from mqtool.cli.options import is_there, option
from mqtool.cli.output import Output
from mqtool.cli.schema import (
    CONFIG,
    DATA,
    NEXT_STEP,
    NEXT_STEPS,
    UNDO,
    WIDE,
    Column,
    OutputSchema,
    count,
    flag,
    listing,
    prints,
    text,
)
from mqtool.cli.selection import require_selected
from mqtool.commands import command
from mqtool.errors import StoreError, UsageError

if TYPE_CHECKING:
    from mqtool.repair.runbooks import Protocol


HELP = """
mqtool runbook match /data/store

Detect and repair known problems of a store, step by step. `match` shows which runbooks apply, `list` lists all, `show`
prints one, `run` goes through its steps.

impact: `run` changes the store by a plan or writes the directory of -o, after consent; nothing else does
"""


RUNBOOK_LIST = OutputSchema(
    "runbook-list",
    "the runbooks",
    (
        text("id", "what `run` takes"),
        text("name", "the trouble"),
        text("symptom", "the first of them"),
        text("needs", "options needed to apply it", show=WIDE),
    ),
)

RUNBOOK_MATCH = OutputSchema(
    "runbook-match",
    "a matching runbook, in the order in which to run them",
    (
        text("id", "which"),
        text("name", "the trouble"),
        text("why", "codes of verify, facts, or the words of its symptom"),
        replace(NEXT_STEP, show=DATA),
    ),
)

RUNBOOK_PAGE = OutputSchema(
    "runbook-page",
    "the page of a runbook",
    (text("id", "which"), text("name", "the trouble"), text("page", "Markdown")),
    single=True,
)

RUNBOOK = OutputSchema(
    "runbook",
    "result of running a runbook",
    (
        text("runbook", "id"),
        text("name", "the trouble"),
        text("store", "root of the store"),
        CONFIG,
        text("broker", "release that the start was predicted for"),
        text("begun", "RFC 3339"),
        flag("present", "the problem is present; null if unknown", nullable=True, label="problem found"),
        flag("applied", "something was applied"),
        flag("repaired", "the problem is solved; null if nothing was applied", nullable=True),
        count(
            "already_lost",
            "messages without an intact record when the run began; null if unknown",
            nullable=True,
            label="lost already",
        ),
        count(
            "lost_by_start",
            "further messages that a start without the run loses; null if it does not start",
            nullable=True,
            label="lost if started instead",
        ),
        count(
            "lost_waiting", "those of lost_by_start that wait for delivery; null if unknown", nullable=True, show=WIDE
        ),
        count("not_served", "intact messages that no consumer got; null if unknown", nullable=True),
        count(
            "lost_by_change",
            "further messages that a start after the run loses; null if nothing was applied, or that is unknown",
            nullable=True,
            label="lost by the run",
        ),
        text("made", "the new directory", nullable=True, label="new directory"),
        listing(
            "steps",
            "in order",
            text("name", "detect, explain, plan, gate, apply or verify"),
            text("status", "done, refused, skipped or failed"),
            text("summary", "in words"),
            Column("evidence", "array", "facts, one each", show=DATA),
        ),
        Column(
            "plan", "object", "of a change in place, as `mqtool plan` writes it", items="any", show=DATA, nullable=True
        ),
        NEXT_STEPS,
        UNDO,
    ),
    single=True,
    version=3,
)

LIST = """
mqtool runbook list

List the runbooks.

impact: read-only
"""

SHOW = """
mqtool runbook show RB-03

Print a runbook: symptom, cause, steps, limits, and the codes of verify that it covers.

impact: read-only
"""

MATCH = """
mqtool runbook match /data/store

Show which runbooks are about what is wrong with a store, and the one command to type next; or those for a code of
verify, a runbook's own id or name, or a line of a broker's log or a part of it (the longest match first). Exit code 1
if there is none.

impact: read-only
"""

RUN = """
mqtool runbook run RB-03 /data/store

Go through the steps of a runbook: detect, explain (what a broker would do and lose on startup), plan, check
preconditions; after consent also apply and verify. `mqtool undo STORE` undoes
a change; runbooks that need a new directory (-o) leave the store as it is. Exit code 4 if the symptom is absent or a
precondition is not met; 1 if that is unknown, if it cannot be repaired, or not completely, or if the new store lacks
messages. --protocol FILE writes the evidence as Markdown for a ticket.

impact: changes the store by a plan or writes the directory of -o, after consent; else writes nothing but --protocol
"""

INPUT = "What the runbook needs"


AtOption = Annotated[int | None, option("--at", metavar="OFFSET", panel=INPUT, help="Physical offset of a record.")]
BeforeOption = Annotated[
    int | None,
    option("--before", metavar="OFFSET", panel=INPUT, help="Physical offset; segments before it are set aside."),
]


def _ids(incomplete: str) -> list[str]:
    from mqtool.repair.runbooks import RUNBOOKS

    names = (name.lower() if incomplete[:1].islower() else name for name in RUNBOOKS)
    return [name for name in names if name.startswith(incomplete)]


IdArgument = Annotated[
    str,
    typer.Argument(metavar="ID", help="RB-01, rb1, 1, or the name.", autocompletion=_ids, show_default=False),
]
StoreArgument = Annotated[
    Path, typer.Argument(metavar="STORE", help="Root directory of the store.", show_default=False)
]


@prints(RUNBOOK_LIST)
def list_runbooks(ctx: typer.Context, *, output_format: options.FormatOption = Format.TABLE) -> ExitCode:
    """Lists all runbooks."""
    from mqtool.repair.runbooks import RUNBOOKS

    output = Output(ctx.obj, RUNBOOK_LIST, output_format)
    output.rows(
        {"id": runbook.id, "name": runbook.name, "symptom": runbook.symptom[0], "needs": runbook.needs}
        for runbook in RUNBOOKS.values()
    )
    return output.finish()


@prints(RUNBOOK_PAGE)
def show(
    ctx: typer.Context,
    identity: IdArgument,
    *,
    output_format: options.FormatOption = Format.TABLE,
) -> ExitCode:
    """Prints the page of one."""
    from mqtool.repair.runbooks import runbook_of

    runbook = runbook_of(identity)
    text = runbook.page()
    if output_format in JSON_FORMATS or output_format is Format.CSV:
        document = {"id": runbook.id, "name": runbook.name, "page": text}
        return Output(ctx.obj, RUNBOOK_PAGE, output_format).document(document)
    sys.stdout.buffer.write(text.encode())
    return ExitCode.OK


@prints(RUNBOOK_MATCH)
def match(
    ctx: typer.Context,
    what: Annotated[
        str, typer.Argument(metavar="STORE|CODE|LINE", help="Store, code, or log line in quotes.", show_default=False)
    ],
    *,
    release: options.StartedReleaseOption = None,
    output_format: options.FormatOption = Format.TABLE,
    config: options.FoundConfigOption = None,
) -> ExitCode:
    """Prints the runbooks that fit a store, a code of verify or a line of a log."""
    from mqtool.cli.verification_formats import next_steps
    from mqtool.repair.runbooks import Case, Request, by_code, by_line, by_name, by_store
    from mqtool.repair.runbooks.model import words_of
    from mqtool.store.store import open_store
    from mqtool.verify import CATALOGUE, Area
    from mqtool.verify.finding_collector import unread

    step: str | None = None
    steps: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    if what in CATALOGUE:
        matches = by_code(what)
    elif is_there(what):
        request = Request(config=config, broker=release and release.value)
        with options.stated_release(Path(what), config, release), open_store(what, config) as store:
            case = Case(store, request)
            matches = by_store(case)
            unknown = words_of(unread(case.verification.findings, *Area))
            steps = next_steps(store, case.verification) if matches or unknown else ()
            first = [command("runbook", "run", hit.runbook.id, request.opened(store.path)) for hit in matches[:1]]
            step = next(iter([*steps, *first]), None)
    else:
        matches = by_name(what) or by_line(what)
    if unknown:
        note(f"whether {'other runbooks fit' if matches else 'one fits'} is unknown: {unknown[0]}")
    elif not matches:
        guides = [f"; `{command('help', page.topic)}` quotes it" for page, _ in guide.logged(guide.pages(), what)]
        remedy = f": {CATALOGUE[what].remedy}" if what in CATALOGUE else "".join(guides[:1])
        note(f"no runbook fits{remedy}")
    rows = [
        {
            "id": runbook.id,
            "name": runbook.name,
            "why": why,
            "next_step": step or command("runbook", "show", runbook.id),
        }
        for runbook, why in ((hit.runbook, hit.why) for hit in matches)
    ]
    output, code = Output(ctx.obj, RUNBOOK_MATCH, output_format), ExitCode.OK if matches else ExitCode.NO
    if output_format in TABLE_FORMATS:
        table = section("runbooks", rows, RUNBOOK_MATCH.columns, wide=True)
        return output.page([table, commands("next", [row["next_step"] for row in rows[:1]] or list(steps))], code)
    output.rows(rows)
    return output.finish(code)


@prints(RUNBOOK)
def run(
    ctx: typer.Context,
    identity: IdArgument,
    store: StoreArgument,
    *,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    protocol: Annotated[
        Path | None, option("--protocol", metavar="FILE", help="New file for the evidence, as Markdown.")
    ] = None,
    release: options.StartedReleaseOption = None,
    copies: Annotated[list[Path] | None, options.copies_option(INPUT)] = None,
    target: Annotated[Path | None, options.output_option("New directory for the result.")] = None,
    topic: options.TopicOption = None,
    at: AtOption = None,
    before: BeforeOption = None,
    used: options.UsedOption = None,
    allow_unread: AllowUnreadOption = False,
    output_format: options.FormatOption = Format.TABLE,
    config: options.FoundConfigOption = None,
) -> ExitCode:
    """Runs one, prints and keeps its protocol."""
    from mqtool.repair.runbooks import Request, runbook_of
    from mqtool.repair.runbooks import run as run_book
    from mqtool.store.paths import is_inside
    from mqtool.store.store import open_store

    runbook = runbook_of(identity)
    if protocol is not None and protocol.exists():
        raise UsageError(f"{protocol}: this file exists; give a new name for the protocol")
    if protocol is not None and is_inside(protocol, store):
        raise UsageError(f"{protocol}: this is inside the store {store}; name a file elsewhere")
    if protocol is not None and not protocol.parent.is_dir():
        raise UsageError(f"{protocol}: expected a file in an existing directory")
    if topic:
        with open_store(store, config) as opened_store:
            require_selected([opened_store], topic)
    request = Request(
        config=config,
        broker=release and release.value,
        copies=tuple(copies or ()),
        to=target,
        topics=tuple(topic or ()),
        at=at,
        before=before,
        allow_unread=allow_unread,
        used=used,
    )

    planned = None if yes else run_book(runbook, store, request)
    if planned is not None and not (planned.ready and code_of(planned) is ExitCode.OK):
        return _print(ctx.obj, planned, protocol, output_format, code_of(planned))

    def show(code: ExitCode) -> ExitCode:
        assert planned is not None  # `consent` shows nothing with --yes
        return _print(ctx.obj, planned, protocol, output_format, code)

    code = consent(ctx.obj, f"Carry out {runbook.id} on {store}?", show, yes=yes, dry_run=dry_run)
    if code is not None:
        return code
    result = run_book(runbook, store, replace(request, apply=True, backup_acknowledged=True))
    return _print(ctx.obj, result, protocol, output_format, code_of(result))


def _print(
    invocation: Invocation, result: Protocol, protocol: Path | None, output_format: Format, code: ExitCode
) -> ExitCode:
    """Prints and keeps a protocol; for readers with the files that change, or with what is for them to do."""
    from mqtool.repair.plan import Step

    _write_protocol(protocol, result)
    output, document = Output(invocation, RUNBOOK, output_format), result.as_dict()
    if output_format not in TABLE_FORMATS:
        return output.document(document, code)
    wide = output_format is Format.WIDE
    shown = [*blocks(RUNBOOK.columns, document, wide=wide)]
    if result.plan is not None:
        files = step_rows(msgspec.convert(result.plan["steps"], list[Step]))
        shown.append(section("files that change", files, STEPS.fields, wide=wide))
    else:
        words = [fact for step in result.steps if step.name == "plan" for fact in step.evidence]
        shown.append(section("what to do", words, wide=wide))
    return output.page(shown, code)


def _write_protocol(path: Path | None, result: Protocol) -> None:
    """Writes the evidence; what an earlier step of this run wrote is replaced."""
    from mqtool.jobs.atomic import replace_file

    if path is not None:
        try:
            replace_file(path, result.markdown().encode())
        except OSError as error:
            done = "; the runbook was applied all the same" if result.applied else ""
            raise StoreError(f"cannot be written: {error.strerror}{done}", path) from error


def code_of(protocol: Protocol) -> ExitCode:
    """Returns the exit code of a run."""
    from mqtool.repair.runbooks.runner import FAILED, REFUSED, SKIPPED

    status = {step.name: step.status for step in protocol.steps}
    if status["detect"] == REFUSED or status.get("gate") == REFUSED:
        return ExitCode.REFUSED
    if (
        FAILED in status.values()
        or status.get("plan") in (REFUSED, SKIPPED)
        or protocol.repaired is False
        or protocol.is_lossy
    ):
        return ExitCode.NO
    return ExitCode.OK


SUBCOMMANDS = {"match": (match, MATCH), "list": (list_runbooks, LIST), "show": (show, SHOW), "run": (run, RUN)}
"""Functions by verb, with their help."""
