"""`mqtool clean`: deletes what retention deletes, after showing what consumers would lose."""

from __future__ import annotations

import glob
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct
from msgspec.structs import asdict, replace

import mqtool
from mqtool import words
from mqtool.cli import cells, ranges
from mqtool.cli.changes import AllowUnreadOption, DryRunOption, KeepOption, YesOption, consent
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, note
from mqtool.cli.options import (
    FormatOption,
    FoundConfigOption,
    StoreArgument,
    UsedOption,
    ZoneOption,
    option,
    stated_release,
)
from mqtool.cli.output import Output
from mqtool.cli.schema import (
    CONFIG,
    NEXT_STEP,
    TABLE,
    UNDO,
    WIDE,
    Column,
    OutputSchema,
    count,
    listing,
    prints,
    row_of,
    size,
    text,
)
from mqtool.cli.terminal import Style
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
messages in it a group has not read. Then asks; without a terminal nothing is deleted unless --yes is given. From the
first file on with messages that a group has not read or that wait for delivery, or of which that is unknown, files are
deleted only with --allow-unread. Messages of queues in which no group has a position are counted, and deleted.
Deleted files are kept in STORE/.mqtool, where they take the same space: `mqtool undo STORE` restores them, `mqtool
discard-undo STORE --yes` frees their space. With --no-keep they are deleted at once, without an undo.

The rules are those of the broker: 72 hours, at 04:00 by this machine's clock, or when the disk is fuller than 75, 85,
90 per cent; --config broker.conf gives others. --as-of and --used only show what would happen at another time, or with
another disk. The store must have been shut down cleanly; a running broker deletes expired files itself.

impact: deletes files of the store, under its lock, after consent; with --dry-run nothing
"""

_FILE = text("file", "relative to the root")
_GROUP = text("group", "consumer group")
_FILES = (
    _FILE,
    Column("base", "int64", "physical offset of its first byte"),
    Column("size", "int64", "its bytes", is_size=True),
    Column("modified", "int64", "last modification, from which its age counts; ms since epoch", time=True),
    Column("is_deleted", "boolean", "it is deleted in this run", show=TABLE, label="deleted"),
    Column(
        "deleted_at",
        "int64",
        "when it is deleted if disk usage does not change; null for the last file, which is never deleted",
        time=True,
        nullable=True,
        label="on",
    ),
    Column("unread", "int64", "messages in it that some group has not read, counted by group", show=TABLE),
    count("waiting", "delays, timers, open transactions and popped messages in it, not delivered or acknowledged"),
    Column("reason", "string", "why it is deleted or kept", show=TABLE),
)
_OFFSETS = (
    text("topic", "topic"),
    Column("queue_id", "integer", "queue of the topic", show=TABLE),
    count("first", "queue offset"),
    count("last", "queue offset, inclusive"),
)

_WAITING = (
    _FILE,
    Column("kind", "string", "delay, timer, transaction or popped", show=TABLE),
    Column("topic", "string", "topic that keeps them, usually a system topic", show=TABLE),
    Column("queue_id", "integer", "its queue", show=TABLE),
    Column("messages", "int64", "how many", show=TABLE),
)

CLEAN = OutputSchema(
    "clean",
    "what retention deletes from a store",
    (
        Column(
            "summary",
            "string",
            "how many messages are deleted and kept, unread or waiting ones among them",
            TABLE,
            is_verdict=True,
        ),
        text("path", "the store's root directory", label="store"),
        CONFIG,
        Column("dry_run", "boolean", "only a prediction or dry run", show=TABLE),
        Column(
            "at", "int64", "time for which retention was evaluated, ms since epoch", TABLE, time=True, label="as of"
        ),
        Column("used", "number", "usage of the fullest disk, 0 to 1; -1 if unknown"),
        text("trigger", "why files are deleted, or why not", label="why"),
        Column("deleted_files", "integer", "files of the log that are deleted"),
        size(
            "freed",
            "bytes of the deleted files; of those that are kept for undo, only `discard-undo` frees them",
            label="size of deleted files",
        ),
        Column("deleted_unread", "int64", "messages in them that some group has not read, counted by group"),
        Column("deleted_unclaimed", "int64", "messages in them of queues in which no group has a position"),
        count(
            "deleted_waiting",
            "messages in them that are not delivered: delays, timers, open transactions, popped messages without ack",
            show=WIDE,
        ),
        Column("withheld_files", "integer", "expired files that are kept because somebody needs their messages"),
        listing("files", "files of the log, oldest first", *_FILES),
        listing(
            "unread",
            "messages in expired files, deleted or kept, that groups have not read",
            _FILE,
            _GROUP,
            *_OFFSETS,
            label="unread messages in expired files",
        ),
        listing(
            "unclaimed",
            "messages in expired files of queues in which no group has a position",
            _FILE,
            *_OFFSETS,
            label="messages in expired files that no group has begun to read",
        ),
        listing(
            "kept_unread",
            "messages in other files that groups have not read",
            _FILE,
            _GROUP,
            *_OFFSETS,
            show=WIDE,
            label="unread messages in other files",
        ),
        listing(
            "waiting",
            "messages in expired files, deleted or kept, that the broker has not delivered yet",
            *_WAITING,
            label="waiting messages in expired files",
        ),
        listing("followers", "files of queues and index that are deleted with them", label="deleted with them"),
        Column("removed", "array", "files that were deleted", show=TABLE, label="deleted"),
        Column("quarantine", "string", "directory that keeps the deleted files; null: none", show=TABLE, nullable=True),
        UNDO,
        Column(
            "keep",
            "string",
            "the command that first exports what is deleted of topics in which no group has a position; null if there "
            "is none",
            show=TABLE,
            nullable=True,
            label="to keep what no group has begun to read, first, to another disk",
            is_command=True,
        ),
        replace(NEXT_STEP, nullable=True),
    ),
    single=True,
)

NowOption = Annotated[bool, option("--now", help="Delete expired files at any hour.")]
AsOfOption = Annotated[
    str | None, option("--as-of", metavar="TIME", help="Only predict, for this time; RFC 3339 or epoch ms.")
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
        """Returns the reference time."""
        return time.time_ns() // 1_000_000 if self.as_of is None else ranges.parse_time(self.as_of)

    def predict(self, store: Store, policy: RetentionPolicy) -> Forecast:
        """Returns what is deleted, and what is kept."""
        from mqtool.engine.retention.forecast import forecast

        used = None if self.used is None else self.used / 100
        is_kept = not self.allow_unread
        return forecast(store, policy, self.time(), used=used, manual=self.now, keep_needed=is_kept)


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
    _zone: ZoneOption = cells.DEFAULT_ZONE,
) -> ExitCode:
    """Lists what would be deleted, and deletes it after consent."""
    from mqtool.engine.retention.forecast import longer_retention
    from mqtool.store.groups.unread import ADVICE, combined

    is_prediction = as_of is not None or used is not None
    if yes and is_prediction:
        raise UsageError("--as-of and --used only predict; leave out either them or --yes")
    dry_run = dry_run or is_prediction
    options = _Options(store, dry_run, yes, allow_unread, keep, now, as_of, used, reserved_hours, config)
    policy = options.policy()
    if not dry_run:
        _check_writable(store, config)
    try:
        with mqtool.open(store, config) as opened_store:
            prediction = options.predict(opened_store, policy)
            withheld = prediction.withheld[:1]
            longer = [longer_retention(opened_store, file.modified, prediction.at) for file in withheld]
            keep_first = _export(options, opened_store, prediction)
    except UnreadableError as error:
        reason = f"{error.reason}; mqtool cannot know which messages would be deleted unread, so nothing is deleted"
        raise RefusedError("unreadable", reason, error.path) from error
    output = Output(ctx.obj, CLEAN, output_format)
    deleted = prediction.deleted
    would = _document(options, prediction, (), "") | {"keep": keep_first}
    if longer:
        note(
            f"{len(prediction.withheld)} expired file(s) are kept: {ADVICE}; a broker that starts deletes them, unless "
            f"you first write {longer[0]}"
        )
    if not deleted:
        return output.document(would, ExitCode.REFUSED if prediction.withheld and not dry_run else ExitCode.OK)
    question = _question(options, prediction)
    needed = combined(file.needed for file in deleted)
    style = Style.DOUBTFUL if needed or needed.unclaimed_messages else None
    refusal = consent(
        ctx.obj, question, lambda code: output.document(would, code, style=style), yes=yes, dry_run=dry_run
    )
    if refusal is not None:
        return refusal
    with stated_release(store, config, has_option=False):
        if not keep:
            removed = _delete(options, replace(policy, batch_max=len(deleted)))
            return output.document(_document(options, prediction, removed, ""))
        done = _set_aside(options, deleted[-1])
    removed = [store / step.path for step in done.steps]
    note(
        f"the deleted files take up their space until {command('discard-undo', store, '--yes')}; then no undo is "
        "possible"
    )
    return output.document(_document(options, prediction, removed, str(done.quarantine)))


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


def _question(options: _Options, forecast: Forecast) -> str:
    how = "They are kept for `mqtool undo`, and take up their space until `mqtool discard-undo`."
    return (
        f"This {forecast.words}. Delete {forecast.count} of {len(forecast.files)} segments and "
        f"{len(forecast.followers)} file(s) of queues and index of {options.store}, {words.size(forecast.freed)}? "
        f"{how if options.keep else 'This cannot be undone.'}"
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
    is_unknown = not forecast.count and any(file.needed.unknown for file in forecast.withheld)
    if quarantine or is_unknown:
        return command("verify", Opened(options.store, options.config))
    if removed or not forecast.count or options.as_of is not None or options.used is not None:
        return None
    words = ["--now"] if options.now else []
    words += [] if options.reserved_hours is None else ["--reserved-hours", str(options.reserved_hours)]
    words += ["--allow-unread"] if options.allow_unread else []
    words += [] if options.keep else ["--no-keep"]
    return command("clean", Opened(options.store, options.config), "--yes", *words)


def _document(options: _Options, forecast: Forecast, removed: Sequence[Path], quarantine: str) -> dict[str, Any]:
    from mqtool.store.groups.unread import combined

    def name(path: Path) -> str:
        return path.relative_to(options.store).as_posix() if path.is_relative_to(options.store) else str(path)

    deleted = forecast.deleted
    needed = combined(file.needed for file in deleted)
    expired = len(deleted) + len(forecast.withheld)
    return {
        "summary": forecast.words,
        "path": str(options.store),
        "config": options.config and str(options.config),
        "dry_run": not (removed or options.yes),
        "at": forecast.at,
        "used": forecast.used,
        "trigger": forecast.trigger.value,
        "deleted_files": len(deleted),
        "freed": forecast.freed,
        "deleted_unread": needed.unread_messages,
        "deleted_unclaimed": needed.unclaimed_messages,
        "deleted_waiting": needed.waiting_messages,
        "withheld_files": len(forecast.withheld),
        "files": [
            row_of(_FILES, file, file=name(file.path), unread=whose.unread_messages, waiting=whose.waiting_messages)
            for file, whose in ((file, file.needed) for file in forecast.files)
        ],
        "unread": _unread(forecast.files[:expired], name),
        "unclaimed": _unread(forecast.files[:expired], name, is_claimed=False),
        "kept_unread": _unread(forecast.files[expired:], name),
        "waiting": [
            row_of(_WAITING, unread, file=name(file.path))
            for file in forecast.files[:expired]
            for unread in file.needed.waiting
        ],
        "followers": list(forecast.followers),
        "removed": sorted(map(name, removed)),
        "quarantine": quarantine or None,
        "undo": command("undo", options.store, "--yes") if quarantine else None,
        "keep": None,
        "next_step": _next_step(options, forecast, removed, quarantine),
    }


def _export(options: _Options, store: Store, forecast: Forecast) -> str | None:
    """Returns the command that exports the deleted messages of topics in which no group has a position.

    It ends with the millisecond of the last of them, in which kept messages may have been stored too.
    """
    from mqtool.store.describe import store_time
    from mqtool.store.groups.unread import combined
    from mqtool.store.queues.consume_queue import units_from

    parts = [part for part in combined(file.needed for file in forecast.deleted).unread if part.group is None]
    if not parts:
        return None
    queues = {part: store.queue(part.topic, part.queue_id) for part in parts}
    last = [units_from(queue, part.last)[1][:1].tolist() for part, queue in queues.items() if queue is not None]
    times = [time for offsets in last for offset in offsets if (time := store_time(store, offset)) is not None]
    topics = [("--topic", glob.escape(topic)) for topic in sorted({part.topic for part in parts})]
    until = ("--time", f"0..{max(times) + 1}") if times else ()
    return command("export", Opened(options.store, options.config), *topics, *until, "--output", "lake")


def _unread(
    files: Sequence[FileForecast], name: Callable[[Path], str], *, is_claimed: bool = True
) -> list[dict[str, Any]]:
    """Returns rows of unread messages in files: of queues in which a group has a position, or of the others."""
    return [
        {"file": name(file.path)} | {key: value for key, value in asdict(part).items() if value is not None}
        for file in files
        for part in file.needed.unread
        if (part.group is not None) is is_claimed
    ]
