"""What `mqtool clean` does once its options are read."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mqtool
from mqtool.cli import ranges
from mqtool.cli.clean_schema import CLEAN
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation
from mqtool.cli.output import Output
from mqtool.engine.detect import options_for
from mqtool.engine.forecast import FileForecast, Forecast, forecast
from mqtool.engine.retention import RetentionPolicy, policy_from_config
from mqtool.engine.store import open_store
from mqtool.errors import UnavailableError, UsageError
from mqtool.formats import file_names
from mqtool.store import broker_config


@dataclass(frozen=True, slots=True)
class Request:
    """What the options said; see `clean`."""

    store: Path
    dry_run: bool
    now: bool
    at: str | None
    used: int | None
    reserved_hours: int | None
    config: Path | None

    def policy(self) -> RetentionPolicy:
        """Returns the rules."""
        found = policy_from_config(broker_config.load(self.config))
        return found if self.reserved_hours is None else replace(found, reserved_hours=self.reserved_hours)

    def time(self) -> int:
        """Returns the time to judge by; raises UsageError where options do not go together."""
        if not self.dry_run and (self.at is not None or self.used is not None):
            raise UsageError("--at and --used only ask what would be: give --dry-run, too")
        return time.time_ns() // 1_000_000 if self.at is None else ranges.parse_time(self.at)


def run(invocation: Invocation, request: Request, output_format: Format) -> ExitCode:
    """Looks, and removes if asked to."""
    now, policy = request.time(), request.policy()
    used = None if request.used is None else request.used / 100
    with mqtool.open(request.store, request.config) as store:
        found = forecast(store, policy, now, used=used, manual=request.now)
    removed: list[Path] = []
    if not request.dry_run:
        if (request.store / file_names.ABORT).exists():
            raise UnavailableError(f"{request.store}: was not closed in order: run `mqtool recover` on it first")
        options = options_for(request.store, request.config)
        with open_store(request.store, options, policy=policy, background=False) as writer:
            if request.now:
                writer.clean_soon()
            removed = writer.clean()
    return Output(invocation, CLEAN, output_format).document(_document(request, found, now, removed))


def _document(request: Request, found: Forecast, now: int, removed: list[Path]) -> dict[str, Any]:
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
        "files": [
            {
                "file": name(one.path),
                "base": one.base,
                "size": one.size,
                "modified": one.modified,
                "goes": one.goes,
                "goes_at": one.goes_at,
                "unread": _count(one),
                "reason": one.reason,
            }
            for one in found.files
        ],
        "unread": [_unread(name(one.path), held) for one in going for held in one.unread],
        "unread_staying": [_unread(name(one.path), held) for one in found.files if not one.goes for held in one.unread],
        "followers": list(found.followers),
        "removed": sorted(map(name, removed)),
    }


def _count(file: FileForecast) -> int:
    return sum(one.last - one.first + 1 for one in file.unread)


def _unread(name: str, held: Any) -> dict[str, Any]:
    return {
        "file": name,
        "group": held.group,
        "topic": held.topic,
        "queue_id": held.queue_id,
        "first": held.first,
        "last": held.last,
    }
