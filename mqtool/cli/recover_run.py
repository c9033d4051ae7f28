"""What `mqtool recover` does once its options are read."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mqtool.cli import explain_start_run
from mqtool.cli.consent import agreed
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation
from mqtool.cli.output import Output
from mqtool.cli.recover_schema import RECOVER
from mqtool.commands import command, opened
from mqtool.engine import Compat, RecoveryMode
from mqtool.engine.options import StoreOptions
from mqtool.engine.start.detect import is_new, options_for
from mqtool.engine.start.quarantine import DIRECTORY, LISTING
from mqtool.engine.store import open_store
from mqtool.errors import (
    LayoutError,
    NotAStoreError,
    NothingToChangeError,
    RefusedError,
    StoreError,
    StoreLockedError,
    UnreadableError,
    UnsupportedFormatError,
)
from mqtool.formats import file_names
from mqtool.recovery import Outcome, predict
from mqtool.repair import Recover, apply, make_plan
from mqtool.verify.lock import is_held

_MARKS = (file_names.ABORT, file_names.ABORT_BACKUP)


@dataclass(frozen=True, slots=True)
class Request:
    """What the options said; see `recover`."""

    store: Path
    config: Path | None
    mode: str
    broker: str | None
    dry_run: bool
    yes: bool
    keep: bool


@dataclass(frozen=True, slots=True)
class _Done:
    """What became of the files; paths relative to the root."""

    deleted: Sequence[str] = field(default=())
    quarantined: Sequence[str] = field(default=())
    kept: Path | None = None


def run(invocation: Invocation, request: Request, output_format: Format) -> ExitCode:
    """Recovers and prints."""
    path = request.store
    if is_new(path):
        raise NotAStoreError("nothing is there to be recovered", path)
    try:
        return _run(invocation, request, output_format)
    except UnreadableError as error:
        if request.dry_run:
            return _preview(invocation, request, output_format, request.broker)
        words = "what a recovery would cut is unknown; nothing was changed. `mqtool recover --dry-run` says what to do"
        raise RefusedError("unreadable", f"{error.reason}; {words}", error.path) from error


def _preview(invocation: Invocation, request: Request, output_format: Format, broker: str | None) -> ExitCode:
    return explain_start_run.run(
        invocation, request.store, request.config, output_format, broker=broker, read_log=True, heap_bytes=None
    )


def _run(invocation: Invocation, request: Request, output_format: Format) -> ExitCode:
    path = request.store
    chosen = Compat(request.broker) if request.broker else None
    options = options_for(path, request.config, chosen, recovery=RecoveryMode(request.mode))
    release = options.compat.value
    if request.dry_run:
        return _preview(invocation, request, output_format, release)
    if is_held(path):
        words = "a broker or another mqtool has the store open, so there is nothing to recover; stop it cleanly"
        raise StoreLockedError(words, path)
    expected = predict(path, release, request.config)
    _check(expected, path)
    lost = _lost(expected)
    if not request.keep and not agreed(_question(path, lost), yes=request.yes):
        raise RefusedError("consent", "without an undo add --yes; or leave --no-keep out", path)
    done = _recover_with_undo(request, release) if request.keep else _recover_at_once(request, options)
    document = _document(request, expected, lost, done)
    return Output(invocation, RECOVER, output_format).document(document, ExitCode.NO if lost else ExitCode.OK)


def _check(expected: Outcome, path: Path) -> None:
    if expected.refusal is not None:
        raise LayoutError(f"cannot be opened: {expected.refusal}", path)
    if expected.hung is not None:
        raise StoreError(f"a broker of {expected.release} would never finish starting: {expected.hung}", path)


def _lost(expected: Outcome) -> list[dict[str, Any]]:
    return [
        {"queue": name, "first": first, "last": last}
        for name, ranges in (expected.lost or {}).items()
        for first, last in ranges
    ]


def _question(path: Path, lost: list[dict[str, Any]]) -> str:
    count = sum(one["last"] - one["first"] + 1 for one in lost)
    return f"Recover {path}? Consumers lose {count} message(s), and it cannot be undone."


def _recover_with_undo(request: Request, release: str) -> _Done:
    change = Recover(release, request.mode, time.time_ns() // 1_000_000)
    try:
        plan = make_plan(request.store, change, config=request.config)
        applied = apply(plan, backup_acknowledged=True, verify_after=False)
    except NothingToChangeError:
        return _Done()
    except (UnsupportedFormatError, RefusedError) as error:
        raise RefusedError("keep", f"{error}; or recover without an undo: --no-keep", request.store) from error
    deleted = [step.path for step in applied.steps if step.after is None and step.path not in _MARKS]
    moved = [step.path for step in applied.steps if step.path.startswith(f"{DIRECTORY}/")]
    return _Done(deleted, moved, applied.quarantine)


def _recover_at_once(request: Request, options: StoreOptions) -> _Done:
    with open_store(request.store, options, background=False) as store:
        found = store.recovered
    return _Done(found.deleted, found.quarantined)


def _document(request: Request, expected: Outcome, lost: list[dict[str, Any]], done: _Done) -> dict[str, Any]:
    plan = expected.plan
    assert plan is not None
    listings = [request.store / name for name in done.quarantined if Path(name).name == LISTING]
    return {
        "path": str(request.store),
        "release": expected.release,
        "mode": request.mode,
        "clean_stop": expected.clean_stop,
        "scan_from": plan.scan_from,
        "end": max((one.base + one.end for one in plan.segments), default=0),
        "records": expected.effort.scanned_records,
        "dispatched": expected.effort.dispatched_records,
        "lost": lost,
        "deleted": done.deleted,
        "quarantined": done.quarantined,
        "cut_messages": sum(len(listing.read_bytes().splitlines()) for listing in listings),
        "why": expected.why,
        "accepted": expected.accepted,
        "kept": None if done.kept is None else str(done.kept),
        "undo": None if done.kept is None else command("undo", request.store),
        "next_step": _next_step(request, listings),
    }


def _next_step(request: Request, listings: list[Path]) -> str:
    """Returns the command to run next: bring back what was cut, else look at the result."""
    store = opened(request.store, request.config)
    return command("append", store, "--from", listings[0]) if listings else command("verify", store)
