"""`mqtool plan`: writes the effect of a change to a file, to review first. Each kind of change is a subcommand."""

import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.choices import Compat, RecoveryMode
from mqtool.cli import cells, offset_plan, options
from mqtool.cli.changes import STEPS, AllowUnreadOption, step_rows
from mqtool.cli.document import Listing
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, note
from mqtool.cli.options import GENERAL, RebuildTarget, is_dash, option, read_input
from mqtool.cli.output import Output
from mqtool.cli.schema import (
    CONFIG,
    DATA,
    NEXT_STEP,
    TABLE,
    WIDE,
    Column,
    OutputSchema,
    count,
    listing,
    prints,
    size,
    text,
)
from mqtool.cli.selection import Filters, require_selected
from mqtool.commands import command
from mqtool.errors import NothingToChangeError, UsageError
from mqtool.records.damage import Damage

if TYPE_CHECKING:
    from mqtool.repair import Change, Plan
    from mqtool.store.groups.offset_moves import Effect
    from mqtool.store.known_losses import LostOffsets
    from mqtool.store.store import Store
    from mqtool.verify import Finding


HELP = """
mqtool plan repair /data/store -o plan.json

Write a plan for a change, to review before applying it: which files change, their SHA-256 before and after, and the
preconditions. Nothing is changed until `mqtool apply`. Each subcommand plans one kind of change.

impact: writes the plan file, and scratch files in --work-dir; the store is only read
"""

_IMPACT = """

impact: writes the plan file, and scratch files in --work-dir; the store is only read
"""

REPAIR = """
mqtool plan repair /data/store -o plan.json

Repair everything that verify finds and a plan can repair. With --findings, the output of `mqtool verify --format json`
says what; otherwise the store is verified now. Exit code 1 if the plan leaves an error unrepaired, or if there is
nothing to change."""

REBUILD = """
mqtool plan rebuild consumequeue /data/store --topic Orders --queue 3 -o plan.json

Rebuild derived files from the log, in place. `consumequeue` can be limited with --topic and --queue, `index` and
`metadata` with --file. `all` does not include the timer's files."""

UNDELETE = """
mqtool plan undelete /data/store --topic Orders -o plan.json

Restore deleted topics from the log, with configuration and queues."""

TRUNCATE = """
mqtool plan truncate /data/store --at 4096 -o plan.json

Cut the log at a record's physical offset so that it stays cut. Without --at, clear what follows its end."""

REDACT = """
mqtool plan redact /data/store --key order-17 -o plan.json

Blank the bodies of messages: those named with --message, or all that match. Keys and properties stay."""

TRIM = """
mqtool plan trim /data/store --before 1073741824 -o plan.json

Set aside the segments that end at or before an offset, and the derived files that only point to them. Messages that a
group has not read, that wait for delivery, or of which that is unknown are set aside only with --allow-unread."""

PURGE = """
mqtool plan purge /data/store --topic Orders -o plan.json

Remove all messages of topics from the log. The gaps between the others are closed, so that `mqtool discard-undo` frees
the space. Every physical offset changes; queue offsets and groups' positions stay. Messages that a group has not read,
or of which that is unknown, are removed only with --allow-unread."""

SET_ASIDE = """
mqtool plan set-aside /data/store --file commitlog/notes.txt -o plan.json

Move files out of the store."""

RENAME_SEGMENTS = """
mqtool plan rename-segments /data/store -o plan.json

Rename CommitLog files to match the offsets in their records: those named with --file, or all."""

PAD = """
mqtool plan pad /data/store --file commitlog/00000000000000000000 -o plan.json

Extend short segments to the size of the others."""

RECOVER = """
mqtool plan recover /data/store -o plan.json

Recover a store as a broker does when it starts. The log is cut at the first record that fails, queues and index are cut
and dispatched to match, and the store is left as after a clean shutdown. What is cut is moved to STORE/quarantine,
where messages.jsonl lists the intact messages after the damage for `mqtool append`. --mode compatible cuts exactly as
the broker does, without STORE/quarantine. If consumers would lose messages that the store still has, the plan
is refused (exit code 4) with what loses fewer, unless --accept-loss states their number. Messages that are lost already
do not count."""

OFFSETS = """
mqtool plan offsets /data/store --group billing --to earliest -o plan.json

Set the positions of consumer groups. One of --to, --shift, --clamp, --from-group, --positions, --through and --delete
says where to. The plan states which messages each group gets again and which it never gets. --broker plans the same for
a running broker in place of a store, and signs requests with the account in mqadmin's conf/tools.yml below
ROCKETMQ_HOME, or in MQTOOL_ACCESS_KEY and MQTOOL_SECRET_KEY."""


PLAN = OutputSchema(
    "plan",
    "what a plan will do",
    (
        text("store", "root of the store"),
        CONFIG,
        text("plan", "file with the plan"),
        Column("changes", "array", "the requested changes", items="any", show=DATA),
        Column("complete", "boolean", "false if damage prevents something from being rebuilt or repaired", show=TABLE),
        count("files", "how many files change"),
        size("space", "additional disk space needed, in bytes"),
        text("digest", "SHA-256 that detects an edited plan", show=WIDE),
        STEPS,
        offset_plan.MOVES,
        offset_plan.MESSAGES,
        Column("notes", "array", "what to know before applying it", show=TABLE),
        listing(
            "left",
            "findings that remain after it (repair)",
            text("code", "see `mqtool help CODE`"),
            text("file", "below the store"),
            text("remedy", "what to do about it"),
        ),
        Column("gates", "array", "preconditions for applying it, in addition to unchanged files", show=WIDE),
        NEXT_STEP,
    ),
    single=True,
)

BROKER_PLAN = OutputSchema(
    "plan.broker",
    "what a plan will do to positions on a running broker",
    (
        text("broker", "HOST:PORT"),
        text("name", "brokerName"),
        text("plan", "file with the plan"),
        offset_plan.MOVES,
        offset_plan.MESSAGES,
        Column("notes", "array", "what to know before applying it", show=TABLE),
        NEXT_STEP,
    ),
    single=True,
)


PlanOption = Annotated[Path, options.output_option("New file for the plan; - for stdout.")]
FileOption = Annotated[
    list[str] | None,
    option("--file", metavar="NAME", help="Index file, config/NAME or path below the store; may be repeated."),
]
WorkOption = Annotated[
    Path | None,
    option(
        "--work-dir",
        metavar="DIR",
        panel=GENERAL,
        help="Directory for scratch files. Default: the system's temporary directory.",
    ),
]

LARGEST = 1 << 28
"""Bytes of findings that are read."""


class _Planned(Struct, frozen=True):
    """A plan, and what it leaves."""

    plan: "Plan"  # the plan
    is_enough: bool  # whether it does what was asked for
    left: "tuple[Finding, ...]" = ()  # findings that are still there after it
    notes: tuple[str, ...] = ()  # further words for its reader
    positions: list[dict[str, Any]] = field(default_factory=list)  # rows of moves of positions


class _Place(Struct, frozen=True):
    """The store that is planned for."""

    path: Path
    config: Path | None
    work_dir: Path | None

    def open(self) -> "Store":
        """Returns the opened store."""
        from mqtool.store.store import open_store

        return open_store(self.path, self.config)

    def plan(self, *changes: "Change", damage: tuple[str, ...] = (), allow_unread: bool = False) -> _Planned:
        """Returns the plan of changes; damage kept it from being complete."""
        from mqtool.repair import make_plan

        plan = make_plan(self.path, changes, config=self.config, work_dir=self.work_dir, allow_unread=allow_unread)
        return _Planned(plan, plan.complete and not damage, notes=damage)

    def names(self, files: list[str]) -> tuple[str, ...]:
        """Returns files relative to the store, however they were named."""
        root = self.path.absolute()
        pairs = [(name, Path(name).absolute()) for name in files]
        return tuple(path.relative_to(root).as_posix() if path.is_relative_to(root) else name for name, path in pairs)


def repair(
    place: _Place,
    *,
    findings: Annotated[
        Path | None, option("--findings", metavar="FILE", help="Output of verify --format json; - for stdin.")
    ] = None,
) -> _Planned:
    """Plans what repairs the findings of a file, or those of verify now."""
    from mqtool.repair.plans import plan_repair

    known, lost = (None, None) if findings is None else _findings(findings)
    repaired = plan_repair(place.path, known, lost=lost, config=place.config, work_dir=place.work_dir)
    notes = (
        (
            "this plan repairs the end of the log first: after applying it, discard its undo data, then verify and "
            "plan again"
        ),
    )
    return _Planned(repaired.plan, repaired.is_enough, repaired.remaining, notes if repaired.needs_another_run else ())


def _findings(path: Path) -> "tuple[list[Finding], tuple[LostOffsets, ...]]":
    from mqtool.repair.from_findings import findings_of

    try:
        return findings_of(json.loads(read_input(path, LARGEST)), path)[1:]
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: expected JSON: {error}") from error


def rebuild(
    what: Annotated[
        RebuildTarget,
        typer.Argument(
            metavar="WHAT",
            help="consumequeue, index, metadata (config/*.json, checkpoint), timer, or all but the timer.",
            show_default=False,
        ),
    ],
    place: _Place,
    *,
    topic: options.TopicOption = None,
    queue: options.QueueOption = None,
    file: FileOption = None,
) -> _Planned:
    """Plans derived files that are made again from the log."""
    from mqtool import repair as library

    if (topic or queue is not None) and what is not RebuildTarget.CONSUMEQUEUE:
        raise UsageError(f"rebuild {what}: --topic and --queue do not apply to it; leave them out")
    if file and what not in (RebuildTarget.INDEX, RebuildTarget.METADATA):
        raise UsageError(f"rebuild {what}: --file does not apply to it; leave it out")
    if file and len(file) > 1 and what is RebuildTarget.INDEX:
        raise UsageError("rebuild index: give one --file, or none to rebuild all files")
    with place.open() as store:
        require_selected([store], topic, queue)
    match what:
        case RebuildTarget.CONSUMEQUEUE:
            return place.plan(library.RebuildQueues(tuple(topic or ()), queue))
        case RebuildTarget.INDEX:
            return place.plan(library.RebuildIndex(file[0] if file else None))
        case RebuildTarget.METADATA:
            return place.plan(library.RebuildMetadata(tuple(file or ())))
        case RebuildTarget.TIMER:
            return place.plan(library.RebuildTimer())
    return place.plan(library.RebuildQueues(), library.RebuildIndex(), library.RebuildMetadata())


def undelete(place: _Place, *, topic: options.TopicsOption) -> _Planned:
    """Plans topics that are restored from the log."""
    from mqtool.repair import Undelete

    with place.open() as store:
        require_selected([store], topic)
    return place.plan(Undelete(tuple(topic)))


def purge(place: _Place, *, topic: options.TopicsOption, allow_unread: AllowUnreadOption = False) -> _Planned:
    """Plans a log without the messages of topics."""
    from mqtool.repair import Purge
    from mqtool.store.topics import purgeable_topics

    with place.open() as store:
        require_selected([store], topic)
        topics = purgeable_topics([store], topic)
    return place.plan(Purge(topics), allow_unread=allow_unread)


def truncate(
    place: _Place,
    *,
    at: Annotated[int | None, option("--at", metavar="OFFSET", min=0, help="Physical offset of a record.")] = None,
) -> _Planned:
    """Plans the end of the log."""
    from mqtool.repair import Truncate

    if at is None:
        with place.open() as store:
            at = store.commit_log.max_offset
    return place.plan(Truncate(at))


def redact(
    place: _Place,
    *,
    messages: Annotated[
        list[str] | None,
        option("--message", metavar="ADDRESS", help="Physical offset, TOPIC/QUEUE@OFFSET or id; may be repeated."),
    ] = None,
    topic: options.TopicOption = None,
    queue: options.QueueOption = None,
    key: options.KeyOption = None,
    unique_key: options.UniqueKeyOption = None,
    tag: options.TagOption = None,
    time: options.TimeOption = None,
    grep: options.GrepOption = None,
    _zone: options.ZoneOption = cells.DEFAULT_ZONE,
) -> _Planned:
    """Plans the bodies of the selected messages."""
    from mqtool.repair import Redact
    from mqtool.store.find import resolve

    filters = Filters(topic=topic, queue=queue, key=key, unique_key=unique_key, tag=tag, time=time, grep=grep)
    damage = []
    with place.open() as store:
        require_selected([store], topic, queue)
        offsets = {
            message.physical_offset for address in messages or () for message in resolve(store, address).messages
        }
        if len(messages or ()) > len(offsets):
            raise UsageError("redact: there is no message at one of the addresses; check them with `mqtool get`")
        selection = filters.keywords(store.commit_log.min_offset, store.commit_log.max_offset)
        if not selection and not messages:
            raise UsageError("redact: select messages with --message, --key, --unique-key, --grep, …")
        for message in store.messages(**selection) if selection else ():
            if isinstance(message, Damage):
                damage.append(f"damage: physical offsets {message.start} to {message.end} could not be read")
            else:
                offsets.add(message.physical_offset)
    return place.plan(Redact(tuple(sorted(offsets))), damage=tuple(damage))


def trim(
    place: _Place,
    *,
    before: Annotated[
        int, option("--before", metavar="OFFSET", help="Physical offset; the segment that contains it is kept.")
    ],
    allow_unread: AllowUnreadOption = False,
) -> _Planned:
    """Plans a log that begins later."""
    from mqtool.repair import Trim

    return place.plan(Trim(before), allow_unread=allow_unread)


FilesOption = Annotated[list[str], option("--file", metavar="NAME", help="Path below the store; may be repeated.")]


def set_aside(place: _Place, *, file: FilesOption) -> _Planned:
    """Plans a store without some files."""
    from mqtool.repair import SetAside

    return place.plan(SetAside(place.names(file)))


def rename_segments(place: _Place, *, file: FileOption = None) -> _Planned:
    """Plans other names of CommitLog files."""
    from mqtool.repair import RenameSegments

    names = place.names(file or [])
    if not names:
        with place.open() as store:
            names = tuple(known.path.relative_to(store.path).as_posix() for known in store.layout.misplaced)
    if not names:
        raise UsageError("rename-segments: nothing to do; the name of every segment agrees with its records")
    return place.plan(RenameSegments(names))


def pad(place: _Place, *, file: FilesOption) -> _Planned:
    """Plans longer segments."""
    from mqtool.repair import Pad, RecordLosses

    return place.plan(Pad(place.names(file)), RecordLosses())


def recover(
    place: _Place,
    *,
    mode: Annotated[
        RecoveryMode,
        option("--mode", help="careful: keep what is cut in STORE/quarantine; compatible: as the broker."),
    ] = RecoveryMode.CAREFUL,
    accept_loss: Annotated[
        int | None,
        option(
            "--accept-loss",
            metavar="N",
            help="Number of messages that the recovery may lose, not counting those already lost.",
        ),
    ] = None,
    release: Annotated[
        Compat | None, options.release_option("Release whose rules apply. Default: the one that wrote the store.")
    ] = None,
) -> _Planned:
    """Plans the recovery of a broker."""
    from mqtool.repair.plans import plan_recovery

    plan = plan_recovery(
        place.path, release, mode, accept_loss=accept_loss, config=place.config, work_dir=place.work_dir
    )
    return _Planned(plan, is_enough=True)


def _command(work: Callable[..., _Planned]) -> Callable[..., ExitCode]:
    """Returns the command of a change: with the options of the function that plans it, and with those of every plan."""

    @prints(PLAN, BROKER_PLAN, group="plan")
    def run(
        ctx: typer.Context,
        store: options.StoreArgument,
        *,
        out: PlanOption,
        work_dir: WorkOption = None,
        config: options.FoundConfigOption = None,
        output_format: options.FormatOption = Format.TABLE,
        **own: Any,
    ) -> ExitCode:
        _check_output(out, store)
        with options.stated_release(store, config, own.get("release"), has_option="release" in own):
            return _print(ctx, work(place=_Place(store, config, work_dir), **own), out, output_format)

    context, root, *shared, _ = inspect.signature(run).parameters.values()
    own = [parameter for parameter in inspect.signature(work).parameters.values() if parameter.name != "place"]
    arguments = [parameter for parameter in own if parameter.kind is not parameter.KEYWORD_ONLY]
    keywords = [parameter for parameter in own if parameter.kind is parameter.KEYWORD_ONLY]
    parameters = [context, *arguments, root, *keywords, *shared]
    run.__dict__["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


@prints(PLAN, BROKER_PLAN, group="plan")
def offsets(
    ctx: typer.Context,
    store: Annotated[
        Path | None, typer.Argument(metavar="[STORE]", help="Root directory of a store; none with --broker.")
    ] = None,
    *,
    out: PlanOption,
    group: offset_plan.GroupOption,
    topic: options.TopicOption = None,
    queue: options.QueueOption = None,
    to: offset_plan.ToOption = None,
    shift: offset_plan.ShiftOption = None,
    clamp: offset_plan.ClampOption = False,
    from_group: offset_plan.FromGroupOption = None,
    source: offset_plan.PositionsOption = None,
    through: offset_plan.ThroughOption = None,
    delete: offset_plan.DeleteOption = False,
    list_messages: offset_plan.ListOption = False,
    broker: offset_plan.BrokerOption = None,
    online: offset_plan.OnlineOption = False,
    work_dir: WorkOption = None,
    config: options.FoundConfigOption = None,
    output_format: options.FormatOption = Format.TABLE,
    _zone: options.ZoneOption = cells.DEFAULT_ZONE,
) -> ExitCode:
    """Plans the positions of groups in a store, or on a running broker."""
    moved = offset_plan.OffsetOptions(group, topic or [], queue, to, shift, clamp, from_group, source, through, delete)
    if (store is None) == (broker is None):
        raise UsageError("offsets: expected one store, or --broker HOST:PORT in place of it")
    if list_messages and is_dash(out):
        raise UsageError("--list: stdout is for the plan with -o -; name a file for the plan")
    if broker is not None:
        output = Output(ctx.obj, BROKER_PLAN, output_format)
        return _plan_for_broker(output, broker, out, moved, list_messages=list_messages, online=online)
    if online:
        raise UsageError("--online is for a running broker; give --broker HOST:PORT instead of a store")
    assert store is not None
    _check_output(out, store)
    place = _Place(store, config, work_dir)
    planned, effects = _moved(place, moved)
    from mqtool.store.groups.offset_moves import StoredQueues

    with place.open() as opened:
        messages = offset_plan.listing_of(effects, StoredQueues(opened)) if list_messages else None
        return _print(ctx, planned, out, output_format, messages)


def _moved(place: _Place, options: offset_plan.OffsetOptions) -> "tuple[_Planned, list[Effect]]":
    """Plans positions in a store; returns their effects too."""
    from mqtool.repair import MoveOffsets
    from mqtool.store.groups.offset_moves import StoredQueues, moves_of

    with place.open() as store:
        committed, queues = store.metadata.consumer_offsets, StoredQueues(store)
        target = offset_plan.target_of(options, committed)
        moves = moves_of(offset_plan.scope_of(options), target, committed, store.metadata.groups, queues)
        if not moves:
            words = "nothing to change: every position already has the requested value"
            raise NothingToChangeError(f"{store.path}: {words}")
        effects = list(offset_plan.move_rows(moves, queues))
    planned = place.plan(MoveOffsets(tuple(moves)))
    return replace(planned, positions=[row for _, row in effects]), [effect for effect, _ in effects]


def _plan_for_broker(
    output: Output,
    address: str,
    out: Path,
    options: offset_plan.OffsetOptions,
    *,
    list_messages: bool,
    online: bool,
) -> ExitCode:
    """Makes, writes and shows a plan of positions on a running broker."""
    from mqtool.cli.offset_plan import plan_for_broker

    if is_dash(out) or out.exists():
        raise UsageError(f"{out}: expected a file name for the plan")
    connected = plan_for_broker(address, options, list_messages=list_messages, online=online)
    with connected as (new_plan, document, messages):
        _write(out, new_plan.to_json())
        document |= {"plan": str(out), "next_step": command("apply", out, "--yes")}
        return output.document(document, listing=messages)


def _check_output(out: Path, store: Path) -> None:
    """Raises UsageError if the plan cannot be written to its place; checked before the log is read."""
    from mqtool.store.paths import is_inside

    if is_dash(out):
        return
    if is_inside(out, store):
        raise UsageError(f"{out}: this is inside the store {store}; name a file elsewhere")
    if out.exists():
        raise UsageError(f"{out}: this file exists; give a new name")


def _write(out: Path, content: str) -> None:
    from mqtool.jobs.atomic import create_file, writing

    with writing(out):
        try:
            create_file(out, content.encode())
        except FileExistsError as error:
            raise UsageError(f"{out}: this file exists; give a new name") from error


def _print(
    ctx: typer.Context, planned: _Planned, out: Path, output_format: Format, messages: Listing | None = None
) -> ExitCode:
    """Writes the plan and shows it; for `-o -` the plan goes to stdout, and notes for its reader to stderr."""
    document = _document(planned, out, ctx.params["config"])
    code = ExitCode.OK if planned.is_enough else ExitCode.NO
    if not is_dash(out):
        _write(out, planned.plan.to_json())
        return Output(ctx.obj, PLAN, output_format).document(document, code, messages)
    sys.stdout.buffer.write(planned.plan.to_json().encode())
    sys.stdout.buffer.flush()
    for line in document["notes"]:
        note(line)
    for finding in document["left"]:
        note(f"left: {finding['code']}: {finding['file']}: {finding['remedy']}")
    note(f"files that change: {document['files']}; next: {document['next_step']}")
    return code


def _document(planned: _Planned, out: Path, config: Path | None) -> dict[str, Any]:
    from mqtool.repair.changes import change_to_json
    from mqtool.repair.plan import GATES
    from mqtool.verify import CATALOGUE

    plan, left = planned.plan, planned.left
    forecast = [] if plan.forecast is None else [f"messages that a start loses: {plan.forecast.words}"]
    return {
        "store": plan.store,
        "config": config and str(config),
        "plan": str(out),
        "changes": [change_to_json(item) for item in plan.changes],
        "complete": planned.is_enough and plan.complete and not left,
        "files": len(plan.steps),
        "space": plan.space,
        "digest": plan.digest,
        "steps": step_rows(plan.steps),
        "positions": planned.positions,
        "messages": [],
        "notes": [*forecast, *plan.notes, *planned.notes],
        "left": [{"code": item.code, "file": item.file, "remedy": CATALOGUE[item.code].remedy} for item in left],
        "gates": list(GATES),
        "next_step": command("apply", "-" if is_dash(out) else out, "--yes"),
    }


SUBCOMMANDS = {
    "repair": (_command(repair), REPAIR + _IMPACT),
    "rebuild": (_command(rebuild), REBUILD + _IMPACT),
    "undelete": (_command(undelete), UNDELETE + _IMPACT),
    "truncate": (_command(truncate), TRUNCATE + _IMPACT),
    "redact": (_command(redact), REDACT + _IMPACT),
    "trim": (_command(trim), TRIM + _IMPACT),
    "purge": (_command(purge), PURGE + _IMPACT),
    "set-aside": (_command(set_aside), SET_ASIDE + _IMPACT),
    "rename-segments": (_command(rename_segments), RENAME_SEGMENTS + _IMPACT),
    "pad": (_command(pad), PAD + _IMPACT),
    "offsets": (offsets, OFFSETS + _IMPACT),
    "recover": (_command(recover), RECOVER + _IMPACT),
}
"""Functions by verb, with their help."""
