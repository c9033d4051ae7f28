"""`mqtool runbook`: known troubles, from the symptom to the proof."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import ConfigOption, DebugOption, FormatOption, TopicOption, option
from mqtool.cli.runbook_schema import RUNBOOK, RUNBOOK_LIST, RUNBOOK_MATCH, RUNBOOK_PAGE
from mqtool.cli.schema import prints

HELP = """
mqtool runbook match /data/store

Runbooks: known troubles of a store, as code. `match` says which it is, `list` names all, `show` prints a page, `run`
goes through the steps of one.

impact: `run --apply` changes the store by a plan or writes the directory of --to; nothing else does
"""

LIST = """
mqtool runbook list

List the runbooks.

impact: read-only
"""

SHOW = """
mqtool runbook show RB-03

Print the page of a runbook: symptom, cause, steps, limits, and the codes of verify that it is about.

impact: read-only
"""

MATCH = """
mqtool runbook match /data/store

Say which runbooks fit: a store (the order is the one to run them in), a code of verify, a runbook's own id or name, or
a line of a broker's log or a part of it (the longest match first). Exit code 1 if none does.

impact: read-only
"""

RUN = """
mqtool runbook run RB-03 /data/store

Go through the steps of a runbook: detect, explain (what a start of the broker would do and cost), plan, gates; and with
--apply --yes: apply and verify. Without --apply nothing is changed. What was changed is undone by `mqtool undo STORE`;
what needs a new directory (--to) leaves the store as it is. Exit code 4 if the symptom is not there or a gate is not
met; 1 if it is there and cannot be repaired, or not completely. --protocol FILE writes the evidence as Markdown for a
ticket.

impact: with --apply changes the store by a plan or writes the directory of --to; else writes nothing but --protocol
"""

INPUT = "What the runbook needs"


class Broker(StrEnum):
    """Values of `--broker`."""

    V4_9 = "4.9"
    V5_5 = "5.5"


AtOption = Annotated[int | None, option("--at", metavar="OFFSET", panel=INPUT, help="Physical offset of a record.")]
BeforeOption = Annotated[
    int | None, option("--before", metavar="OFFSET", panel=INPUT, help="Physical offset; segments before it go.")
]


def _ids(incomplete: str) -> list[str]:
    from mqtool.repair.runbooks import RUNBOOKS  # noqa: PLC0415 - only for completion

    return [name for name in RUNBOOKS if name.startswith(incomplete.upper())]


IdArgument = Annotated[
    str,
    typer.Argument(metavar="ID", help="RB-01 to RB-22, rb1, 1, or the name.", autocompletion=_ids, show_default=False),
]
StoreArgument = Annotated[
    Path, typer.Argument(metavar="STORE", help="Root directory of the store.", show_default=False)
]


@prints(RUNBOOK_LIST)
def list_runbooks(
    ctx: typer.Context, *, output_format: FormatOption = Format.TABLE, _debug: DebugOption = False
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.runbook_run import list_all  # noqa: PLC0415 - `--help` loads no numpy

    return list_all(ctx.obj, output_format)


@prints(RUNBOOK_PAGE)
def show(
    ctx: typer.Context, identity: IdArgument, *, output_format: FormatOption = Format.TABLE, _debug: DebugOption = False
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli import runbook_run  # noqa: PLC0415 - `--help` loads no numpy

    return runbook_run.show(ctx.obj, identity, output_format)


@prints(RUNBOOK_MATCH)
def match(
    ctx: typer.Context,
    what: Annotated[
        str, typer.Argument(metavar="STORE|CODE|LINE", help="Store, code, or log line in quotes.", show_default=False)
    ],
    *,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli import runbook_run  # noqa: PLC0415 - `--help` loads no numpy

    return runbook_run.match(ctx.obj, what, config, output_format)


@prints(RUNBOOK)
def run(
    ctx: typer.Context,
    identity: IdArgument,
    store: StoreArgument,
    *,
    apply: Annotated[bool, option("--apply", help="Carry it out; without it, look and plan only.")] = False,
    yes: Annotated[bool, option("--yes", help="There is a backup or snapshot, or none is needed.")] = False,
    protocol: Annotated[
        Path | None, option("--protocol", metavar="FILE", help="New file that takes the evidence as Markdown.")
    ] = None,
    broker: Annotated[
        Broker | None, option("--broker", help="Release that would be started; the store's own if not given.")
    ] = None,
    copies: Annotated[
        list[Path] | None,
        option("--with", metavar="STORE", panel=INPUT, help="Another copy of the same log; repeatable."),
    ] = None,
    to: Annotated[
        Path | None, option("--to", metavar="DIR", panel=INPUT, help="New directory that takes what is made.")
    ] = None,
    topic: TopicOption = None,
    at: AtOption = None,
    before: BeforeOption = None,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli import runbook_run  # noqa: PLC0415 - `--help` loads no numpy
    from mqtool.repair.runbooks import Request  # noqa: PLC0415

    request = Request(
        apply, yes, config, broker.value if broker else None, tuple(copies or ()), to, tuple(topic or ()), at, before
    )
    return runbook_run.run(ctx.obj, identity, store, request, protocol, output_format)


SUBCOMMANDS = {"match": (match, MATCH), "list": (list_runbooks, LIST), "show": (show, SHOW), "run": (run, RUN)}
"""Functions by verb, with their help."""
