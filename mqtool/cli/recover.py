"""`mqtool recover`: what a broker does to a store when it starts, without a broker, and with an undo."""

from enum import StrEnum
from typing import Annotated

import typer

from mqtool.cli.consent import KeepOption
from mqtool.cli.exits import ExitCode
from mqtool.cli.explain_start_schema import EXPLAIN_START
from mqtool.cli.invocation import Format
from mqtool.cli.options import ConfigOption, DebugOption, FormatOption, StoreArgument, option
from mqtool.cli.recover_schema import RECOVER
from mqtool.cli.schema import prints

HELP = """
mqtool recover /data/store --dry-run

Recover a store as a broker does when it starts, and leave it as after a clean shutdown: the log is cut at the first
record that fails, queues and index are cut and dispatched to match. Nothing is destroyed: what is cut or deleted is
moved to STORE/quarantine, where messages.jsonl lists the intact messages after the damage for `mqtool append`, and
`mqtool undo STORE` restores the store byte for byte. --mode compatible cuts exactly as the broker does, without
STORE/quarantine; --no-keep does without the undo and asks first, or takes --yes. --dry-run prints what
`mqtool explain-start` prints. Exit code 1 if messages that consumers could get before are lost.

impact: changes the store, under its lock; with --dry-run nothing
"""


class Mode(StrEnum):
    """Values of `--mode`."""

    COMPATIBLE = "compatible"
    CAREFUL = "careful"


class Rules(StrEnum):
    """Values of `--broker`."""

    V4_9 = "4.9"
    V5_5 = "5.5"


ModeOption = Annotated[
    Mode, option("--mode", help="careful: keep what is cut in STORE/quarantine; compatible: as the broker.")
]
BrokerOption = Annotated[
    Rules | None, option("--broker", help="The release whose rules hold. Default: the one that wrote the store.")
]
DryRunOption = Annotated[bool, option("--dry-run", help="Print what would happen; write nothing.")]
YesOption = Annotated[bool, option("--yes", help="With --no-keep: do not ask.")]


@prints(RECOVER, EXPLAIN_START)
def recover(
    ctx: typer.Context,
    store: StoreArgument,
    *,
    mode: ModeOption = Mode.CAREFUL,
    broker: BrokerOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    keep: KeepOption = True,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.recover_run import Request, run  # noqa: PLC0415 - `--help` loads no numpy

    release = None if broker is None else broker.value
    return run(ctx.obj, Request(store, config, mode.value, release, dry_run, yes, keep), output_format)
