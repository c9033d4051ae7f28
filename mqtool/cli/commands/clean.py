"""`mqtool clean`: deletes what retention deletes, after showing what consumers would lose."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct
from msgspec.structs import replace

import mqtool
from mqtool.cli import ranges, zones
from mqtool.cli.colour import Style
from mqtool.cli.consent import DryRunOption, KeepOption, YesOption, consent
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, note
from mqtool.cli.options import DebugOption, FormatOption, FoundConfigOption, StoreArgument, ZoneOption, option
from mqtool.cli.output import Output
from mqtool.cli.schema import CONFIG, NEXT_STEP, TABLE, Column, OutputSchema, prints, text
from mqtool.commands import Opened, command
from mqtool.errors import RefusedError, StoreLockedError, UnreadableError, UnsupportedFormatError, UsageError
from mqtool.formats import file_names

if TYPE_CHECKING:
    from mqtool.engine.retention.forecast import FileForecast, Forecast
    from mqtool.engine.retention.rules import RetentionPolicy
    from mqtool.repair import ApplyResult
    from mqtool.store.store import Store


HELP = """
mqtool clean /data/store --dry-run

Delete the files that a broker's retention deletes now: CommitLog segments, and the files of queues and index that only
lead there. First lists each segment with the reason why it is deleted or stays, when the others expire, and which
messages in it a group has not read. Then asks; without a terminal nothing is deleted unless --yes is given. Messages
that a group has not read, or that wait for delivery, are deleted only with --allow-unread, and so are all messages of
a damaged store, because it does not show what is unread. Deleted files are kept in STORE/.mqtool: `mqtool undo STORE`
restores them, `mqtool discard-undo STORE --yes` frees their space. With --no-keep they are deleted at once, without an
undo.

The rules are those of the broker: 72 hours, at 04:00 by this machine's clock, or when the disk is fuller than 75, 85,
90 per cent; --config broker.conf gives others. --as-of and --used show what would happen at another time, or with
another disk. The store must have been shut down cleanly; a running broker deletes expired files itself.

impact: deletes files of the store, under its lock, after consent; with --dry-run nothing
"""

_UNREAD = (
    Column("group", "string", "consumer group", show=TABLE),
    Column("topic", "string", "topic", show=TABLE),
    Column("queue_id", "integer", "queue of the topic", show=TABLE),
    Column("first", "int64", "queue offset", show=TABLE),
    Column("last", "int64", "queue offset, inclusive", show=TABLE),
)

CLEAN = OutputSchema(
    "clean",
    1,
    "what retention removes from a store",
    (
        Column(
            "summary",
            "string",
            "how many messages are deleted, unread or waiting ones among them",
            TABLE,
            is_verdict=True,
        ),
        text("path", "the store's root directory", label="store"),
        CONFIG,
        Column("dry_run", "boolean", "nothing was removed", show=TABLE),
        Column(
            "at", "int64", "time for which retention was evaluated, ms since epoch", TABLE, time=True, label="as of"
        ),
        Column("used", "number", "usage of the fullest disk, 0 to 1; -1 if unknown"),
        text("trigger", "why files are deleted, or why none is", label="why"),
        Column("deleted_files", "integer", "files of the log that are deleted"),
        Column("deleted_unread", "int64", "messages in them that some group has not read, counted by group"),
        Column(
            "deleted_waiting",
            "int64",
            "messages in them that are not delivered: delays, timers, open transactions, popped messages without ack",
        ),
        Column(
            "files",
            "array",
            "files of the log, oldest first",
            show=TABLE,
            fields=(
                Column("file", "string", "relative to the root", show=TABLE),
                Column("base", "int64", "physical offset of its first byte"),
                Column("size", "int64", "its bytes", is_size=True),
                Column("modified", "int64", "last change; its age counts from it; ms since epoch", time=True),
                Column("is_deleted", "boolean", "it is deleted in this run", show=TABLE, label="deleted"),
                Column(
                    "deleted_at",
                    "int64",
                    "when it is deleted if disk usage does not change; null: never, it is the last",
                    time=True,
                    nullable=True,
                    label="on",
                ),
                Column("unread", "int64", "messages in it that some group has not read, counted by group", show=TABLE),
                Column(
                    "waiting",
                    "int64",
                    "delays, timers, open transactions and popped messages in it, not delivered or acknowledged",
                    show=TABLE,
                ),
                Column("reason", "string", "why it is deleted or kept", show=TABLE),
            ),
        ),
        Column(
            "unread",
            "array",
            "messages in deleted files that groups have not read",
            show=TABLE,
            label="unread messages in deleted files",
            fields=(Column("file", "string", "relative to the root", show=TABLE), *_UNREAD),
        ),
        Column(
            "kept_unread",
            "array",
            "the same in files that are kept",
            label="unread messages in other files",
            fields=(Column("file", "string", "relative to the root", show=TABLE), *_UNREAD),
        ),
        Column(
            "waiting",
            "array",
            "messages in deleted files that the broker has not delivered yet",
            show=TABLE,
            label="waiting messages in deleted files",
            fields=(
                Column("file", "string", "relative to the root", show=TABLE),
                Column("kind", "string", "delay, timer, transaction or popped", show=TABLE),
                Column("topic", "string", "the topic that keeps them, mostly a system topic", show=TABLE),
                Column("queue_id", "integer", "its queue", show=TABLE),
                Column("messages", "int64", "how many", show=TABLE),
            ),
        ),
        Column(
            "followers",
            "array",
            "files of queues and index that are deleted with them",
            TABLE,
            label="deleted with them",
        ),
        Column("removed", "array", "files that were deleted", show=TABLE, label="deleted"),
        Column("quarantine", "string", "directory that keeps the deleted files; null: none", show=TABLE, nullable=True),
        Column("undo", "string", "the command that restores the deleted files", TABLE, nullable=True, is_command=True),
        replace(NEXT_STEP, nullable=True),
    ),
    single=True,
)

AllowUnreadOption = Annotated[
    bool, option("--allow-unread", help="Delete messages that are not read or not delivered yet, too.")
]
NowOption = Annotated[bool, option("--now", help="Delete expired files at any hour.")]
AsOfOption = Annotated[
    str | None, option("--as-of", metavar="TIME", help="With --dry-run: time to predict for; RFC 3339 or epoch ms.")
]
UsedOption = Annotated[
    int | None, option("--used", metavar="PERCENT", min=0, max=100, help="With --dry-run: disk usage to assume.")
]
ReservedOption = Annotated[
    int | None,
    option("--reserved-hours", metavar="N", min=0, help="Hours that a file is kept. Default: fileReservedTime, 72."),
]


class _Options(Struct, frozen=True):
    store: Path
    dry_run: bool
    yes: bool
    allow_unread: bool
    keep: bool
    now: bool
    as_of: str | None
    used: int | None
    reserved_hours: int | None
    config: Path | None

    def policy(self) -> RetentionPolicy:
        """Returns the rules."""
        from mqtool.engine.retention.rules import policy_from_config
        from mqtool.store.config import broker_config

        policy = policy_from_config(broker_config.load(self.config))
        return policy if self.reserved_hours is None else replace(policy, reserved_hours=self.reserved_hours)

    def time(self) -> int:
        """Returns the reference time; raises UsageError if options contradict each other."""
        if not self.dry_run and (self.as_of is not None or self.used is not None):
            raise UsageError("--as-of and --used only predict; add --dry-run")
        return time.time_ns() // 1_000_000 if self.as_of is None else ranges.parse_time(self.as_of)


@prints(CLEAN)
def clean(
    ctx: typer.Context,
    store: StoreArgument,
    *,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    allow_unread: AllowUnreadOption = False,
    keep: KeepOption = True,
    now: NowOption = False,
    as_of: AsOfOption = None,
    used: UsedOption = None,
    reserved_hours: ReservedOption = None,
    output_format: FormatOption = Format.TABLE,
    config: FoundConfigOption = None,
    _zone: ZoneOption = zones.DEFAULT,
    _debug: DebugOption = False,
) -> ExitCode:
    """Lists what would be deleted, and deletes it after consent."""
    from mqtool.engine.retention.forecast import forecast

    options = _Options(store, dry_run, yes, allow_unread, keep, now, as_of, used, reserved_hours, config)
    at, policy = options.time(), options.policy()
    if not dry_run:
        _check_writable(store, config)
    try:
        with mqtool.open(store, config) as opened_store:
            prediction = forecast(opened_store, policy, at, used=None if used is None else used / 100, manual=now)
            if not (dry_run or allow_unread) and any(file.is_deleted for file in prediction.files):
                _check_queues(opened_store, config)
    except UnreadableError as error:
        reason = f"{error.reason}; which messages would be deleted unread is unknown, so nothing is deleted"
        raise RefusedError("unreadable", reason, error.path) from error
    deleted = [file for file in prediction.files if file.is_deleted]
    output = Output(ctx.obj, CLEAN, output_format)
    would = _document(options, prediction, at, (), "")
    style = Style.DOUBTFUL if would["deleted_unread"] or would["deleted_waiting"] else None
    if not deleted:
        return output.document(would)
    if not dry_run and _is_withheld(options, prediction):
        code = output.document(would, ExitCode.REFUSED)
        note("nothing was deleted: export these messages first, or add --allow-unread to delete them, too")
        return code
    question = _question(options, deleted, prediction)
    refusal = consent(
        ctx.obj, question, lambda code: output.document(would, code, style=style), yes=yes, dry_run=dry_run
    )
    if refusal is not None:
        return refusal
    if not keep:
        return output.document(_document(options, prediction, at, _delete(options, policy), ""))
    done = _set_aside(options, deleted[-1])
    removed = [store / step.path for step in done.steps]
    return output.document(_document(options, prediction, at, removed, str(done.quarantine)))


def _check_writable(root: Path, config: Path | None) -> None:
    """Raises an error if the store cannot be cleaned: a process has it open, or it needs recovery first."""
    from mqtool.store.lock import lock_holder

    if lock_holder(root) is not None:
        raise StoreLockedError(
            "a broker or another mqtool has the store open; a running broker deletes expired files itself, and "
            "`mqtool clean STORE --dry-run` shows when",
            root,
        )
    if (root / file_names.ABORT).exists():
        start = command("explain-start", Opened(root, config))
        raise RefusedError(
            "unclean",
            f"the store was not shut down cleanly: run {start} to see what a start of the broker does to it, then "
            "start and stop the broker",
            root,
        )


def _check_queues(store: Store, config: Path | None) -> None:
    """Raises RefusedError if the store is damaged: the queues or positions that decide what is unread may be gone."""
    from mqtool.verify import State, verify

    state = verify(store).state
    if state in (State.CORRUPT, State.UNKNOWN):
        check = command("verify", Opened(store.path, config))
        raise RefusedError(
            "damage",
            f"the store is {state}, so which messages are unread is unknown: see {check}; or add --allow-unread",
            store.path,
        )


def _is_withheld(options: _Options, forecast: Forecast) -> bool:
    """Returns whether messages would be deleted that somebody still expects, without permission."""
    return not options.allow_unread and any(file.unread or file.waiting for file in forecast.files if file.is_deleted)


def _summary(forecast: Forecast) -> str:
    deleted = [file for file in forecast.files if file.is_deleted]
    messages, total = (sum(file.messages for file in files) for files in (deleted, forecast.files))
    unread, waiting = sum(map(_count, deleted)), sum(map(_waiting, deleted))
    return f"deletes {messages} of {total} messages: {unread} unread, {waiting} waiting for delivery"


def _question(options: _Options, deleted: list[FileForecast], forecast: Forecast) -> str:
    size = sum(file.size for file in deleted)
    how = "They are kept for `mqtool undo`." if options.keep else "This cannot be undone."
    return (
        f"This {_summary(forecast)}. Delete {len(deleted)} of {len(forecast.files)} segments ({size} bytes) and "
        f"{len(forecast.followers)} file(s) of queues and index of {options.store}? {how}"
    )


def _set_aside(options: _Options, last: FileForecast) -> ApplyResult:
    """Deletes in a way that can be undone."""
    from mqtool.repair import Trim, apply, make_plan

    try:
        plan = make_plan(options.store, Trim(last.base + last.size), config=options.config)
        return apply(plan, backup_acknowledged=True, verify_after=False)
    except (UnsupportedFormatError, RefusedError) as error:
        raise RefusedError("keep", f"{error}; or add --no-keep to delete without an undo", options.store) from error


def _delete(options: _Options, policy: RetentionPolicy) -> list[Path]:
    """Deletes as the broker does, at once."""
    from mqtool.engine.start.detect import options_for
    from mqtool.engine.store import open_store

    with open_store(
        options.store, options_for(options.store, options.config), policy=policy, background=False
    ) as writer:
        if options.now:
            writer.clean_soon()
        return writer.clean()


def _next_step(options: _Options, forecast: Forecast, removed: Sequence[Path], quarantine: str) -> str | None:
    if quarantine:
        return command("verify", Opened(options.store, options.config))
    if (
        removed
        or not any(file.is_deleted for file in forecast.files)
        or _is_withheld(options, forecast)
        or options.as_of is not None
        or options.used is not None
    ):
        return None
    words = ["--now"] if options.now else []
    words += [] if options.reserved_hours is None else ["--reserved-hours", str(options.reserved_hours)]
    words += ["--allow-unread"] if options.allow_unread else []
    words += [] if options.keep else ["--no-keep"]
    return command("clean", Opened(options.store, options.config), "--yes", *words)


def _document(
    options: _Options, forecast: Forecast, now: int, removed: Sequence[Path], quarantine: str
) -> dict[str, Any]:
    def name(path: Path) -> str:
        return path.relative_to(options.store).as_posix() if path.is_relative_to(options.store) else str(path)

    deleted = [file for file in forecast.files if file.is_deleted]
    return {
        "summary": _summary(forecast),
        "path": str(options.store),
        "config": options.config and str(options.config),
        "dry_run": not removed,
        "at": now,
        "used": forecast.used,
        "trigger": forecast.trigger.value,
        "deleted_files": len(deleted),
        "deleted_unread": sum(map(_count, deleted)),
        "deleted_waiting": sum(map(_waiting, deleted)),
        "files": [_file(name(file.path), file) for file in forecast.files],
        "unread": [_unread(name(file.path), unread) for file in deleted for unread in file.unread],
        "kept_unread": [
            _unread(name(file.path), unread) for file in forecast.files if not file.is_deleted for unread in file.unread
        ],
        "waiting": [
            {"file": name(file.path), "kind": unread.kind.value, "topic": unread.topic, "queue_id": unread.queue_id}
            | {"messages": unread.messages}
            for file in deleted
            for unread in file.waiting
        ],
        "followers": list(forecast.followers),
        "removed": sorted(map(name, removed)),
        "quarantine": quarantine or None,
        "undo": command("undo", options.store, "--yes") if quarantine else None,
        "next_step": _next_step(options, forecast, removed, quarantine),
    }


def _file(name: str, file: FileForecast) -> dict[str, Any]:
    return {
        "file": name,
        "base": file.base,
        "size": file.size,
        "modified": file.modified,
        "is_deleted": file.is_deleted,
        "deleted_at": file.deleted_at,
        "unread": _count(file),
        "waiting": _waiting(file),
        "reason": file.reason,
    }


def _count(file: FileForecast) -> int:
    return sum(interval.last - interval.first + 1 for interval in file.unread)


def _waiting(file: FileForecast) -> int:
    return sum(waiting.messages for waiting in file.waiting)


def _unread(name: str, unread: Any) -> dict[str, Any]:
    return {
        "file": name,
        "group": unread.group,
        "topic": unread.topic,
        "queue_id": unread.queue_id,
        "first": unread.first,
        "last": unread.last,
    }
