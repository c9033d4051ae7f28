"""`mqtool recover`: recovers a store as a broker does on startup, without a broker, and with an undo."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from mqtool.choices import Compat, RecoveryMode
from mqtool.cli.consent import KeepOption, is_confirmed
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation
from mqtool.cli.options import ConfigOption, DebugOption, FormatOption, StoreArgument, option
from mqtool.cli.output import Output
from mqtool.cli.schema import TABLE, Column, OutputSchema, prints
from mqtool.cli.start_outcome import EXPLAIN_START, print_start_outcome
from mqtool.commands import command, opened
from mqtool.errors import (
    LayoutError,
    NotAStoreError,
    NothingToChangeError,
    RefusedError,
    StoreLockedError,
    UnreadableError,
    UnsupportedFormatError,
)
from mqtool.formats import file_names

if TYPE_CHECKING:
    from mqtool.engine.options import StoreOptions
    from mqtool.recovery import Outcome


HELP = """
mqtool recover /data/store --dry-run

Recover a store as a broker does when it starts, and leave it as after a clean shutdown: the log is cut at the first
record that fails, queues and index are cut and dispatched to match. Nothing is destroyed: what is cut or deleted is
moved to STORE/quarantine, where messages.jsonl lists the intact messages after the damage for `mqtool append`, and
`mqtool undo STORE` restores the store byte for byte. --mode compatible cuts exactly as the broker does, without
STORE/quarantine; --no-keep keeps no undo data; it asks first, unless --yes is given. --dry-run prints what
`mqtool explain-start` prints. Exit code 1 if messages that consumers could get before are lost.

impact: changes the store, under its lock; with --dry-run nothing
"""


def _texts(name: str, doc: str) -> Column:
    return Column(name, "array", doc, show=TABLE)


RECOVER = OutputSchema(
    "recover",
    1,
    "what a recovery did",
    (
        Column("path", "string", "the store's root directory", show=TABLE),
        Column("release", "string", "whose rules were followed: 4.9 or 5.5", show=TABLE),
        Column("mode", "string", "compatible or careful", show=TABLE),
        Column("clean_stop", "boolean", "the store had been shut down cleanly", show=TABLE),
        Column("scan_from", "int64", "physical offset from which records were checked", show=TABLE, nullable=True),
        Column("end", "int64", "physical offset at which the log continues", show=TABLE),
        Column("records", "int64", "how many were checked", show=TABLE),
        Column("dispatched", "int64", "how many were given to queues and index", show=TABLE),
        Column(
            "lost",
            "array",
            "messages that consumers could get before, and no longer",
            show=TABLE,
            fields=(
                Column("queue", "string", "topic/queue", show=TABLE),
                Column("first", "int64", "queue offset", show=TABLE),
                Column("last", "int64", "queue offset, inclusive", show=TABLE),
            ),
        ),
        _texts("deleted", "files that were deleted"),
        _texts("quarantined", "what was moved aside, below the store's root"),
        Column(
            "cut_messages", "int64", "complete messages in what was cut, listed in messages.jsonl there", show=TABLE
        ),
        _texts("why", "the rules that were applied"),
        _texts("accepted", "what is wrong and was accepted"),
        Column("kept", "string", "directory with the old files, for undo; null: none", show=TABLE, nullable=True),
        Column("undo", "string", "the command that restores the store; null: none", show=TABLE, nullable=True),
        Column("next_step", "string", "the command to run next", show=TABLE),
    ),
    single=True,
)


ModeOption = Annotated[
    RecoveryMode, option("--mode", help="careful: keep what is cut in STORE/quarantine; compatible: as the broker.")
]
BrokerOption = Annotated[
    Compat | None, option("--broker", help="Release whose rules apply. Default: the one that wrote the store.")
]
DryRunOption = Annotated[bool, option("--dry-run", help="Print what would happen without writing anything.")]
YesOption = Annotated[bool, option("--yes", help="Do not ask for confirmation with --no-keep.")]


_MARKS = (file_names.ABORT, file_names.ABORT_BACKUP)


class _Options(Struct, frozen=True):
    store: Path
    config: Path | None
    mode: RecoveryMode
    release: str
    yes: bool
    keep: bool


class _Outcome(Struct, frozen=True):
    """The changed files; paths relative to the root."""

    deleted: Sequence[str] = ()
    quarantined: Sequence[str] = ()
    kept: Path | None = None


@prints(RECOVER, EXPLAIN_START)
def recover(
    ctx: typer.Context,
    store: StoreArgument,
    *,
    mode: ModeOption = RecoveryMode.CAREFUL,
    broker: BrokerOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    keep: KeepOption = True,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    _debug: DebugOption = False,
) -> ExitCode:
    """Recovers and prints; ends with 1 if messages that consumers could get before are lost."""
    from mqtool.engine.start.detect import is_new, options_for

    if is_new(store):
        raise NotAStoreError("there is nothing to recover", store)
    try:
        options = options_for(store, config, broker, recovery=mode)
        release = options.compat.value
        if not dry_run:
            return _recover(ctx.obj, _Options(store, config, mode, release, yes, keep), options, output_format)
        return print_start_outcome(ctx.obj, store, config, output_format, broker=release)
    except UnreadableError as error:
        if dry_run:
            return print_start_outcome(ctx.obj, store, config, output_format, broker=broker and broker.value)
        reason = (
            "what a recovery would cut is unknown; nothing was changed. Run `mqtool recover --dry-run` to see "
            "what to do"
        )
        raise RefusedError("unreadable", f"{error.reason}; {reason}", error.path) from error


def _recover(invocation: Invocation, options: _Options, store_options: StoreOptions, output_format: Format) -> ExitCode:
    from mqtool.recovery import predict
    from mqtool.store.lock import lock_holder

    path = options.store
    if lock_holder(path) is not None:
        reason = "a broker or another mqtool has the store open, so there is nothing to recover; stop it cleanly"
        raise StoreLockedError(reason, path)
    expected = predict(path, options.release, options.config)
    _check(expected, path)
    lost = _lost(expected)
    if not options.keep and not is_confirmed(_question(path, lost), yes=options.yes):
        raise RefusedError(
            "consent", "--no-keep discards the undo data: confirm with --yes, or leave out --no-keep", path
        )
    done = _recover_with_undo(options) if options.keep else _recover_at_once(options, store_options)
    document = _document(options, expected, lost, done)
    return Output(invocation, RECOVER, output_format).document(document, ExitCode.NO if lost else ExitCode.OK)


def _check(expected: Outcome, path: Path) -> None:
    if expected.refusal is not None:
        raise LayoutError(f"cannot be opened: {expected.refusal}", path)
    if expected.hung is not None:
        raise LayoutError(f"a broker of {expected.release} would never finish starting: {expected.hung}", path)


def _lost(expected: Outcome) -> list[dict[str, Any]]:
    return [
        {"queue": name, "first": first, "last": last}
        for name, ranges in (expected.lost or {}).items()
        for first, last in ranges
    ]


def _question(path: Path, lost: list[dict[str, Any]]) -> str:
    count = sum(messages["last"] - messages["first"] + 1 for messages in lost)
    return f"Recover {path}? Consumers lose {count} message(s), and it cannot be undone."


def _recover_with_undo(options: _Options) -> _Outcome:
    from mqtool.engine.start.quarantine import DIRECTORY
    from mqtool.repair import Recover, apply, make_plan

    change = Recover(options.release, options.mode.value, time.time_ns() // 1_000_000)
    try:
        plan = make_plan(options.store, change, config=options.config)
        applied = apply(plan, backup_acknowledged=True, verify_after=False)
    except NothingToChangeError:
        return _Outcome()
    except (UnsupportedFormatError, RefusedError) as error:
        raise RefusedError("keep", f"{error}; or add --no-keep to recover without an undo", options.store) from error
    deleted = [step.path for step in applied.steps if step.after is None and step.path not in _MARKS]
    moved = [step.path for step in applied.steps if step.path.startswith(f"{DIRECTORY}/")]
    return _Outcome(deleted, moved, applied.quarantine)


def _recover_at_once(options: _Options, store_options: StoreOptions) -> _Outcome:
    from mqtool.engine.store import open_store

    with open_store(options.store, store_options, background=False) as store:
        recovered = store.recovered
    return _Outcome(recovered.deleted, recovered.quarantined)


def _document(options: _Options, expected: Outcome, lost: list[dict[str, Any]], done: _Outcome) -> dict[str, Any]:
    from mqtool.engine.start.quarantine import LISTING

    plan = expected.plan
    assert plan is not None
    listings = [options.store / name for name in done.quarantined if Path(name).name == LISTING]
    return {
        "path": str(options.store),
        "release": expected.release,
        "mode": options.mode.value,
        "clean_stop": expected.clean_stop,
        "scan_from": plan.scan_from,
        "end": max((segment.base + segment.end for segment in plan.segments), default=0),
        "records": expected.effort.scanned_records,
        "dispatched": expected.effort.dispatched_records,
        "lost": lost,
        "deleted": done.deleted,
        "quarantined": done.quarantined,
        "cut_messages": sum(len(listing.read_bytes().splitlines()) for listing in listings),
        "why": expected.why,
        "accepted": expected.accepted,
        "kept": None if done.kept is None else str(done.kept),
        "undo": None if done.kept is None else command("undo", options.store),
        "next_step": _next_step(options, listings),
    }


def _next_step(options: _Options, listings: list[Path]) -> str:
    """Returns the next command: restore what was cut, or check the result."""
    store = opened(options.store, options.config)
    return command("append", store, "--from", listings[0]) if listings else command("verify", store)
