"""`mqtool runbook`: known troubles, from the symptom to the proof."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import ConfigOption, DebugOption, FormatOption, TopicOption, option
from mqtool.cli.runbook_schema import RUNBOOK, RUNBOOK_LIST, RUNBOOK_PAGE
from mqtool.cli.schema import prints

HELP = """
mqtool runbook run RB-03 /data/store

Known troubles of a store, as code. `list` names them, `show ID` prints the page, `run ID STORE` goes through the steps:
detect, explain (what a start of the broker would do and cost), plan, gates; and with --apply --yes: apply and verify.
Without --apply nothing is changed. What was changed is taken back by `mqtool undo STORE`; what needs a new directory
(--to) leaves the store as it is. Exit code 4 if the symptom is not there or a gate is not met; 1 if it is there and
cannot be mended, or was not wholly mended. --protocol FILE writes the evidence as Markdown for a ticket.

impact: with --apply changes the store by a plan or writes the directory of --to; else writes nothing but --protocol
"""

INPUT = "What the runbook needs"


class Action(StrEnum):
    """Values of ACTION."""

    LIST = "list"
    SHOW = "show"
    RUN = "run"


class Broker(StrEnum):
    """Values of `--broker`."""

    V4_9 = "4.9"
    V5_5 = "5.5"


AtOption = Annotated[int | None, option("--at", metavar="OFFSET", panel=INPUT, help="Physical offset of a record.")]
BeforeOption = Annotated[
    int | None, option("--before", metavar="OFFSET", panel=INPUT, help="Physical offset; segments before it go.")
]


@prints(RUNBOOK, RUNBOOK_LIST, RUNBOOK_PAGE)
def runbook(
    ctx: typer.Context,
    action: Annotated[Action, typer.Argument(metavar="ACTION", help="list, show or run.", show_default=False)],
    identity: Annotated[str | None, typer.Argument(metavar="[ID]", help="RB-01 to RB-22, or the name.")] = None,
    store: Annotated[Path | None, typer.Argument(metavar="[STORE]", help="Root directory of the store.")] = None,
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
    from mqtool.cli.runbook_run import run, show  # noqa: PLC0415 - `--help` loads no numpy
    from mqtool.errors import UsageError  # noqa: PLC0415
    from mqtool.repair.runbooks import Request  # noqa: PLC0415

    wanted = {Action.LIST: (False, False), Action.SHOW: (True, False), Action.RUN: (True, True)}[action]
    if (identity is not None, store is not None) != wanted:
        raise UsageError("expected `runbook list`, `runbook show ID` or `runbook run ID STORE`")
    if identity is None or store is None:
        return show(ctx.obj, identity, output_format)
    request = Request(
        apply, yes, config, broker.value if broker else None, tuple(copies or ()), to, tuple(topic or ()), at, before
    )
    return run(ctx.obj, identity, store, request, protocol, output_format)
