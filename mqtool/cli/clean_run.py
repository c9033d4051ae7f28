"""What `mqtool clean` does once its options are read."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mqtool
from mqtool.cli import ranges
from mqtool.cli.clean_schema import CLEAN
from mqtool.cli.consent import agreed
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation, note
from mqtool.cli.output import Output
from mqtool.commands import command, opened
from mqtool.engine.retention.forecast import FileForecast, Forecast, forecast
from mqtool.engine.retention.rules import RetentionPolicy, policy_from_config
from mqtool.engine.start.detect import options_for
from mqtool.engine.store import open_store
from mqtool.errors import RefusedError, StoreLockedError, UnsupportedFormatError, UsageError
from mqtool.formats import file_names
from mqtool.repair import Applied, Trim, apply, make_plan
from mqtool.store import broker_config
from mqtool.verify.lock import is_held


@dataclass(frozen=True, slots=True)
class Request:
    """What the options said; see `clean`."""

    store: Path
    dry_run: bool
    yes: bool
    keep: bool
    now: bool
    as_of: str | None
    used: int | None
    reserved_hours: int | None
    config: Path | None

    def policy(self) -> RetentionPolicy:
        """Returns the rules."""
        found = policy_from_config(broker_config.load(self.config))
        return found if self.reserved_hours is None else replace(found, reserved_hours=self.reserved_hours)

    def time(self) -> int:
        """Returns the time to judge by; raises UsageError where options do not go together."""
        if not self.dry_run and (self.as_of is not None or self.used is not None):
            raise UsageError("--as-of and --used only ask what would be: give --dry-run, too")
        return time.time_ns() // 1_000_000 if self.as_of is None else ranges.parse_time(self.as_of)


def run(invocation: Invocation, request: Request, output_format: Format) -> ExitCode:
    """Lists what would be deleted, and deletes it after consent."""
    now, policy = request.time(), request.policy()
    used = None if request.used is None else request.used / 100
    if not request.dry_run:
        check_writable_now(request.store, request.config)
    with mqtool.open(request.store, request.config) as store:
        found = forecast(store, policy, now, used=used, manual=request.now)
    going = [one for one in found.files if one.goes]
    output = Output(invocation, CLEAN, output_format)
    if request.dry_run or not going:
        return output.document(_document(request, found, now, (), ""))
    if not agreed(_question(request, going, found), yes=request.yes):
        code = output.document(_document(request, found, now, (), ""), ExitCode.REFUSED)
        note(f"nothing was deleted: add --yes to delete {len(going)} segment(s)")
        return code
    if not request.keep:
        return output.document(_document(request, found, now, _delete(request, policy), ""))
    done = _set_aside(request, going[-1])
    removed = [request.store / step.path for step in done.steps]
    return output.document(_document(request, found, now, removed, str(done.quarantine)))


def check_writable_now(root: Path, config: Path | None) -> None:
    """Raises what keeps a store from being cleaned: a process has it open, or it needs recovery first."""
    if is_held(root):
        raise StoreLockedError(
            "a broker or another mqtool has the store open; a running broker deletes expired files itself, and "
            "`mqtool clean STORE --dry-run` shows when",
            root,
        )
    if (root / file_names.ABORT).exists():
        recover = command("recover", opened(root, config))
        raise RefusedError("unclean", f"the store was not shut down cleanly: run {recover} first", root)


def _question(request: Request, going: list[FileForecast], found: Forecast) -> str:
    unread, waiting = sum(map(_count, going)), sum(map(_waiting, going))
    size = sum(one.size for one in going)
    how = "They are kept for `mqtool undo`." if request.keep else "This cannot be undone."
    return (
        f"Delete {len(going)} of {len(found.files)} segments ({size} bytes, {unread} unread and {waiting} "
        f"undelivered message(s)) and "
        f"{len(found.followers)} file(s) of queues and index of {request.store}? {how}"
    )


def _set_aside(request: Request, last: FileForecast) -> Applied:
    """Deletes in a way that can be undone."""
    try:
        plan = make_plan(request.store, Trim(last.base + last.size), config=request.config)
        return apply(plan, backup_acknowledged=True, verify_after=False)
    except (UnsupportedFormatError, RefusedError) as error:
        raise RefusedError("keep", f"{error}; or delete without an undo: --no-keep", request.store) from error


def _delete(request: Request, policy: RetentionPolicy) -> list[Path]:
    """Deletes as the broker does, at once."""
    options = options_for(request.store, request.config)
    with open_store(request.store, options, policy=policy, background=False) as writer:
        if request.now:
            writer.clean_soon()
        return writer.clean()


def _next_step(request: Request, found: Forecast, removed: Sequence[Path], quarantine: str) -> str | None:
    if quarantine:
        return command("finalize", request.store, "--yes")
    if removed or not any(one.goes for one in found.files) or request.as_of is not None or request.used is not None:
        return None
    words = ["--now"] if request.now else []
    words += [] if request.reserved_hours is None else ["--reserved-hours", str(request.reserved_hours)]
    words += [] if request.keep else ["--no-keep"]
    return command("clean", opened(request.store, request.config), "--yes", *words)


def _document(request: Request, found: Forecast, now: int, removed: Sequence[Path], quarantine: str) -> dict[str, Any]:
    def name(path: Path) -> str:
        return path.relative_to(request.store).as_posix() if path.is_relative_to(request.store) else str(path)

    going = [one for one in found.files if one.goes]
    return {
        "path": str(request.store),
        "dry_run": request.dry_run,
        "at": now,
        "used": found.used,
        "trigger": found.trigger.value,
        "going": len(going),
        "unread_going": sum(map(_count, going)),
        "waiting_going": sum(map(_waiting, going)),
        "files": [
            {
                "file": name(one.path),
                "base": one.base,
                "size": one.size,
                "modified": one.modified,
                "goes": one.goes,
                "goes_at": one.goes_at,
                "unread": _count(one),
                "waiting": _waiting(one),
                "reason": one.reason,
            }
            for one in found.files
        ],
        "unread": [_unread(name(one.path), held) for one in going for held in one.unread],
        "unread_staying": [_unread(name(one.path), held) for one in found.files if not one.goes for held in one.unread],
        "waiting": [
            {"file": name(one.path), "kind": held.kind.value, "topic": held.topic, "queue_id": held.queue_id}
            | {"messages": held.messages}
            for one in going
            for held in one.waiting
        ],
        "followers": list(found.followers),
        "removed": sorted(map(name, removed)),
        "quarantine": quarantine or None,
        "undo": command("undo", request.store) if quarantine else None,
        "next_step": _next_step(request, found, removed, quarantine),
    }


def _count(file: FileForecast) -> int:
    return sum(one.last - one.first + 1 for one in file.unread)


def _waiting(file: FileForecast) -> int:
    return sum(one.messages for one in file.waiting)


def _unread(name: str, held: Any) -> dict[str, Any]:
    return {
        "file": name,
        "group": held.group,
        "topic": held.topic,
        "queue_id": held.queue_id,
        "first": held.first,
        "last": held.last,
    }
