"""`mqtool recover`: what a broker does to a store at its start, done without one."""

from enum import StrEnum
from typing import Annotated

import typer

from mqtool.cli.exits import ExitCode
from mqtool.cli.explain_start_schema import EXPLAIN_START
from mqtool.cli.invocation import Format
from mqtool.cli.options import ConfigOption, DebugOption, FormatOption, StoreArgument, option
from mqtool.cli.recover_schema import RECOVER
from mqtool.cli.schema import prints

HELP = """
mqtool recover /data/store --dry-run

Recover a store as a broker does when it starts, and leave it as after an orderly stop: the log is cut at the first
record that fails, queues and index are cut and dispatched to match. With --mode careful no byte is lost by that: what
would be cut or deleted is first moved to STORE/quarantine, and whole messages behind the damage are listed there in
messages.jsonl, which `mqtool append` takes. --dry-run prints what `mqtool explain-start` prints. Exit code 1 if
messages that consumers could get before are not there afterwards.

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


ModeOption = Annotated[Mode, option("--mode", help="compatible: as the broker; careful: nothing is destroyed.")]
BrokerOption = Annotated[
    Rules | None, option("--broker", help="The release whose rules hold. Default: the one that wrote the store.")
]
DryRunOption = Annotated[bool, option("--dry-run", help="Only say what would happen; nothing is written.")]


@prints(RECOVER, EXPLAIN_START)
def recover(
    ctx: typer.Context,
    store: StoreArgument,
    *,
    mode: ModeOption = Mode.COMPATIBLE,
    broker: BrokerOption = None,
    dry_run: DryRunOption = False,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.recover_run import run  # noqa: PLC0415 - `--help` loads no numpy

    release = None if broker is None else broker.value
    return run(ctx.obj, store, config, output_format, mode=mode.value, broker=release, dry_run=dry_run)
