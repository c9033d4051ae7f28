"""`mqtool plan`: writes the effect of a change to a file, to review before applying it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct, field

from mqtool.cli import offset_plan, zones
from mqtool.cli.changes import STEPS, step_rows
from mqtool.cli.exits import ExitCode
from mqtool.cli.filters import Filters
from mqtool.cli.input_file import is_dash, read_input
from mqtool.cli.invocation import Format, note
from mqtool.cli.options import (
    ConfigOption,
    DebugOption,
    FormatOption,
    GrepOption,
    KeyOption,
    QueueOption,
    TagOption,
    TimeOption,
    TopicOption,
    UniqueKeyOption,
    ZoneOption,
    option,
)
from mqtool.cli.output import Output
from mqtool.cli.schema import DATA, TABLE, WIDE, Column, OutputSchema, count, prints, text
from mqtool.commands import command
from mqtool.errors import NothingToChangeError, UsageError
from mqtool.records.damage import Damage

if TYPE_CHECKING:
    from mqtool.repair import Change, Plan
    from mqtool.repair.from_findings import RepairProposal
    from mqtool.store.offset_moves import Effect
    from mqtool.store.store import Store
    from mqtool.verify import Finding


HELP = """
mqtool plan rebuild consumequeue /data/store --topic Orders --queue 3 -o plan.json

Write a plan for a change, to review before applying it: which files change, their SHA-256 before and after, and the
preconditions. Nothing is changed until `mqtool apply`. WORDS are a verb and the store:

repair: verify the store and repair everything that a plan can repair.
rebuild consumequeue|index|metadata|timer|all: rebuild derived files in place; limit with --topic, --queue, --file.
`all` does not include the timer's files.
undelete: restore the topics of --topic from the log, with configuration and queues.
truncate: cut the log at --at, a record's physical offset, so that it stays cut; without --at, clear what follows its
end.
redact: blank the bodies of the messages at --at (offset, TOPIC/QUEUE@OFFSET or id) or of all that match.
trim: set aside the segments that end at or before --before, and derived files that only point to them.
purge: remove all messages of --topic from the log and close the gaps between the others, so that `mqtool finalize`
frees the space. Every physical offset changes; queue offsets and groups' positions stay.
set-aside: move files (--file) out of the store.
rename-segments: rename CommitLog files (--file, or all) to match the offsets in their records.
pad: extend short segments (--file) to the size of the others.
offsets: set the positions of consumer groups (--group) with one of --to, --shift, --clamp, --from-group, --from,
--through, --delete; limit with --topic, --queue. The plan states which messages each group gets again and which it
never gets. --broker plans the same for a running broker, and signs requests with the account in mqadmin's
conf/tools.yml below ROCKETMQ_HOME, or in MQTOOL_ACCESS_KEY and MQTOOL_SECRET_KEY.

Or --from FINDINGS, the output of `mqtool verify --format json`, `-` for stdin: plan the changes that repair these
findings. Exit code 1 if the plan leaves an error unrepaired, or if there is nothing to change.

impact: writes the plan file and scratch files in --work-dir; the store is only read
"""


PLAN = OutputSchema(
    "plan",
    1,
    "what a plan will do",
    (
        text("store", "root of the store"),
        text("plan", "file with the plan"),
        Column("changes", "array", "what was asked for", items="any", show=DATA),
        Column("complete", "boolean", "false if damage prevents something from being rebuilt or repaired", show=TABLE),
        count("files", "how many files change"),
        count("space", "bytes of disk space needed in addition"),
        text("digest", "SHA-256 that detects an edited plan", show=WIDE),
        STEPS,
        offset_plan.MOVES,
        offset_plan.MESSAGES,
        Column("notes", "array", "worth knowing before it is applied", show=TABLE),
        Column(
            "left",
            "array",
            "findings that are still there after it (repair, --from)",
            show=TABLE,
            fields=(
                text("code", "see `mqtool checks`"),
                text("file", "below the store"),
                text("remedy", "what to do about it"),
            ),
        ),
        Column("gates", "array", "preconditions for applying it, in addition to unchanged files", show=WIDE),
        text("next_step", "the command to type"),
    ),
    single=True,
)

BROKER_PLAN = OutputSchema(
    "plan.broker",
    1,
    "what a plan will do to positions on a running broker",
    (
        text("broker", "HOST:PORT"),
        text("name", "brokerName"),
        text("plan", "file with the plan"),
        offset_plan.MOVES,
        offset_plan.MESSAGES,
        Column("notes", "array", "worth knowing before it is applied", show=TABLE),
        text("next_step", "the command to type"),
    ),
    single=True,
)

CHANGE = "Change"

WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[VERB [WHAT]] [STORE]", help="What to change, and the root directory of the store.", show_default=False
    ),
]
PlanOption = Annotated[Path, option("--output", "-o", metavar="PLAN", help="New file for the plan; - for stdout.")]
FromOption = Annotated[
    Path | None,
    option(
        "--from",
        metavar="FINDINGS",
        panel=CHANGE,
        help="Output of verify --format json; - for stdin. For offsets: a store, backup or file with positions.",
    ),
]
FileOption = Annotated[
    list[str] | None,
    option("--file", metavar="NAME", panel=CHANGE, help="Index file, config/NAME or path below the store; repeatable."),
]
AtOption = Annotated[
    list[str] | None,
    option(
        "--at",
        metavar="ADDRESS",
        panel=CHANGE,
        help="Physical offset, place in a queue or id; see truncate and redact above.",
    ),
]
BeforeOption = Annotated[
    int | None, option("--before", metavar="OFFSET", panel=CHANGE, help="Physical offset that stays, for trim.")
]
WorkOption = Annotated[
    Path | None,
    option("--work-dir", metavar="DIR", help="Directory for scratch files. Default: the system's temporary directory."),
]


_LARGEST = 1 << 28
"""Bytes of findings that are read."""
_FROM, _REPAIR, _OFFSETS = "from", "repair", "offsets"
"""Verbs whose changes follow from findings: those of `--from`, or those of verify now."""
_NARROWED_BY = {
    "rebuild all": frozenset[str](),
    "rebuild consumequeue": frozenset({"topic", "queue"}),
    "rebuild index": frozenset({"files"}),
    "rebuild metadata": frozenset({"files"}),
    "rebuild timer": frozenset[str](),
    "undelete": frozenset({"topic"}),
    "truncate": frozenset({"at"}),
    "redact": frozenset({"at", "topic", "queue", "key", "unique_key", "tag", "time", "grep"}),
    "trim": frozenset({"before"}),
    "purge": frozenset({"topic"}),
    "set-aside": frozenset({"files"}),
    "rename-segments": frozenset({"files"}),
    "pad": frozenset({"files"}),
    _OFFSETS: frozenset({"topic", "queue", *offset_plan.OffsetOptions.__struct_fields__}),
}
"""Options that go with each of the other verbs."""


class _Options(Struct, frozen=True):
    words: list[str]
    out: Path
    findings: Path | None
    files: list[str]
    at: list[str]
    before: int | None
    filters: Filters
    offsets: offset_plan.OffsetOptions
    damage: list[str] = field(default_factory=list)
    """What could not be checked, in words."""
    read: list[tuple[str, list[Finding]]] = field(default_factory=list)
    """The findings, once they are read: a pipe can be read only once."""

    def given(self) -> set[str]:
        """Returns the names of the options that narrow a change."""
        chosen = {name for name in ("files", "at", "before") if getattr(self, name) not in (None, [])}
        names = ("topic", "queue", "key", "unique_key", "tag", "time", "grep")
        chosen |= self.offsets.given()
        return chosen | {name for name in names if getattr(self.filters, name) is not None}


@prints(PLAN, BROKER_PLAN)
def plan(
    ctx: typer.Context,
    words: WordsArgument = None,
    *,
    out: PlanOption,
    findings: FromOption = None,
    topic: TopicOption = None,
    queue: QueueOption = None,
    file: FileOption = None,
    at: AtOption = None,
    before: BeforeOption = None,
    key: KeyOption = None,
    unique_key: UniqueKeyOption = None,
    tag: TagOption = None,
    time: TimeOption = None,
    grep: GrepOption = None,
    group: offset_plan.GroupOption = None,
    to: offset_plan.ToOption = None,
    shift: offset_plan.ShiftOption = None,
    clamp: offset_plan.ClampOption = False,
    from_group: offset_plan.FromGroupOption = None,
    through: offset_plan.ThroughOption = None,
    delete: offset_plan.DeleteOption = False,
    list_messages: offset_plan.ListOption = False,
    broker: offset_plan.BrokerOption = None,
    online: offset_plan.OnlineOption = False,
    work_dir: WorkOption = None,
    config: ConfigOption = None,
    output_format: FormatOption = Format.TABLE,
    _zone: ZoneOption = zones.DEFAULT,
    _debug: DebugOption = False,
) -> ExitCode:
    """Makes and writes a plan, and shows it; ends with 1 if the plan leaves an error unrepaired."""
    from mqtool.cli.selected import require_selected
    from mqtool.store.queue_messages import StoredQueues
    from mqtool.store.store import open_store

    filters = Filters(topic=topic, queue=queue, key=key, unique_key=unique_key, tag=tag, time=time, grep=grep)
    moved = offset_plan.OffsetOptions(
        group, to, shift, clamp, from_group, through, delete, list_messages, broker, online
    )
    options = _Options(words or [], out, findings, file or [], at or [], before, filters, moved)
    if broker is not None:
        return _plan_for_broker(Output(ctx.obj, BROKER_PLAN, output_format), broker, options)
    verb, path = _words(options)
    if not is_dash(out):
        _check_output(out, path)
    with open_store(path, config) as store:
        if verb != _OFFSETS:  # a position may be of a topic that is deleted
            require_selected([store], topic, queue)
        task = _task(verb, store, options)
    new_plan, left, is_complete = _planned(path, task, config, work_dir)
    code = ExitCode.OK if is_complete and not options.damage and _is_enough(left) else ExitCode.NO
    document = _document(new_plan, options, left) | task.columns
    if is_dash(out):
        _write_to_stdout(new_plan, document)
        return code
    _write(out, new_plan.to_json())
    with open_store(path, config) as store:
        messages = offset_plan.listing_of(task.effects, StoredQueues(store)) if list_messages else None
        return Output(ctx.obj, PLAN, output_format).document(document, code, messages)


class _Task(Struct, frozen=True):
    """What a plan is to do.

    Attributes:
        changes: of the store.
        findings: those that the changes repair, if the plan is made from findings.
        proposal: which of them the changes leave; None without findings.
        columns: further columns of the output.
        effects: of moves of positions, one for each queue.
    """

    changes: tuple[Change, ...]
    findings: tuple[Finding, ...] = ()
    proposal: RepairProposal | None = None
    columns: dict[str, Any] = field(default_factory=lambda: {"positions": [], "messages": []})
    effects: tuple[Effect, ...] = ()


def _task(verb: str, store: Store, options: _Options) -> _Task:
    """Returns what a verb, findings and options ask for.

    Raises:
        NothingToChangeError: no finding asks for a change.
    """
    from mqtool.repair.from_findings import changes_of
    from mqtool.verify import verify

    if verb in (_FROM, _REPAIR):
        findings = verify(store).findings if verb == _REPAIR else tuple(_findings(options)[1])
        proposal = changes_of(store, findings)
        if not proposal.changes:
            raise NothingToChangeError(f"{store.path}: these findings contain nothing that a plan can repair")
        return _Task(proposal.changes, findings, proposal)
    if verb == _OFFSETS:
        change, effects = _offsets(store, options)
        columns: dict[str, Any] = {"positions": [row for _, row in effects], "messages": []}
        return _Task((change,), columns=columns, effects=tuple(effect for effect, _ in effects))
    return _Task(_changes(verb, store, options))


def _planned(
    path: Path, task: _Task, config: Path | None, work_dir: Path | None
) -> tuple[Plan, RepairProposal | None, bool]:
    """Returns the plan, what it leaves of the findings, and whether it does all that was asked."""
    from mqtool.repair import make_plan
    from mqtool.repair.from_findings import remaining_after

    proposal = task.proposal
    must_repair = proposal is not None and not proposal.needs_another_run
    after: list[RepairProposal] = []

    def look(root: Path, keys: Mapping[str, str]) -> None:
        if proposal is not None and proposal.remaining:
            after.append(remaining_after(proposal, task.findings, root, keys))

    new_plan = make_plan(path, task.changes, config=config, work_dir=work_dir, must_repair=must_repair, inspect=look)
    if after:  # what damage kept from being made is in it, if it is an error
        return new_plan, after[0], True
    return new_plan, proposal, new_plan.complete


def _plan_for_broker(output: Output, address: str, options: _Options) -> ExitCode:
    """Makes, writes and shows a plan of positions on a running broker."""
    from mqtool.cli.broker_offsets import plan_for_broker

    if options.words != [_OFFSETS] or options.given() - _NARROWED_BY[_OFFSETS]:
        raise UsageError(
            "--broker replaces the store of `plan offsets`; leave out the store and options of other plans"
        )
    if is_dash(options.out) or options.out.exists():
        raise UsageError(f"{options.out}: expected a file name for the plan")
    with plan_for_broker(address, options.offsets, options.findings, options.filters) as (new_plan, document, messages):
        _write(options.out, new_plan.to_json())
        document |= {"plan": str(options.out), "next_step": command("apply", options.out, "--yes")}
        return output.document(document, listing=messages)


def _check_output(out: Path, store: Path) -> None:
    """Raises UsageError if the plan cannot be written to its place; checked before the log is read."""
    from mqtool.store.real_path import is_inside

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


def _write_to_stdout(plan: Plan, document: dict[str, Any]) -> None:
    """Prints the plan itself; notes for its reader go to stderr."""
    sys.stdout.buffer.write(plan.to_json().encode())
    sys.stdout.buffer.flush()
    for line in document["notes"]:
        note(line)
    for finding in document["left"]:
        note(f"left: {finding['code']}: {finding['file']}: {finding['remedy']}")
    note(f"files that change: {document['files']}; next: {document['next_step']}")


def _is_enough(proposal: RepairProposal | None) -> bool:
    """Whether a plan repairs every error, or is the first of two that do."""
    return (
        proposal is None
        or proposal.needs_another_run
        or not any(finding.severity.is_serious for finding in proposal.remaining)
    )


def _words(options: _Options) -> tuple[str, Path]:
    """Returns the verb, "" with --from, and the store."""
    words = list(options.words)
    if options.findings is not None and words[:1] != [_OFFSETS]:
        if len(words) > 1 or options.given():
            raise UsageError("--from determines the changes; leave out the verb, --topic, --queue and --file")
        return _FROM, Path(words[0]) if words else Path(_findings(options)[0])
    verb = next((verb for verb in (*_NARROWED_BY, _REPAIR) if words[: len(verb.split())] == verb.split()), None)
    if verb is None:
        raise UsageError(f"expected one of {', '.join((_REPAIR, *_NARROWED_BY))}, found {' '.join(words[:2])!r}")
    rest = words[len(verb.split()) :]
    if len(rest) != 1:
        raise UsageError(f"{verb}: expected one store, found {len(rest)}")
    if options.offsets.list and is_dash(options.out):
        raise UsageError("--list: stdout is for the plan with -o -; name a file for the plan")
    if options.offsets.online:
        raise UsageError("--online is for a running broker; give --broker HOST:PORT instead of a store")
    extra = options.given() - _NARROWED_BY.get(verb, frozenset())
    if extra:
        raise UsageError(
            f"{verb}: --{min(extra).replace('_', '-').replace('files', 'file')} does not apply to it; leave it out"
        )
    return verb, Path(rest[0])


def _findings(options: _Options) -> tuple[str, list[Finding]]:
    """Returns the store and the findings that `--from` names: a file, a pipe, or `-` for stdin; read once."""
    from mqtool.repair.from_findings import findings_of

    path = options.findings
    assert path is not None
    if not options.read:
        try:
            options.read.append(findings_of(json.loads(read_input(path, _LARGEST)), path))
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path}: expected JSON: {error}") from error
    return options.read[0]


def _changes(verb: str, store: Store, options: _Options) -> tuple[Change, ...]:
    """Returns the changes that a verb and the options name."""
    from mqtool import repair
    from mqtool.store.topics import purgeable_topics

    if verb.startswith("rebuild "):
        return _rebuilds(verb, options)
    change: Change
    match verb:
        case "undelete":
            if not options.filters.topic:
                raise UsageError("undelete: name the topics with --topic")
            change = repair.Undelete(tuple(options.filters.topic))
        case "truncate":
            change = repair.Truncate(_log_end(store, options))
        case "redact":
            change = repair.Redact(_redacted(store, options))
        case "trim":
            if options.before is None:
                raise UsageError("trim: give the first physical offset to keep with --before")
            change = repair.Trim(options.before)
        case "purge":
            if not options.filters.topic:
                raise UsageError("purge: name the topics with --topic")
            change = repair.Purge(purgeable_topics([store], options.filters.topic))
        case "set-aside":
            change = repair.SetAside(_files(store, options, verb))
        case "rename-segments":
            change = repair.RenameSegments(_misnamed(store, options))
        case _:
            change = repair.Pad(_files(store, options, verb))
    return (change,)


def _offsets(store: Store, options: _Options) -> tuple[Change, list[tuple[Effect, dict[str, Any]]]]:
    """Returns the change of positions that the options ask for, and what it does: effects, each with its row."""
    from mqtool.repair import MoveOffsets
    from mqtool.store.offset_moves import moves_of
    from mqtool.store.queue_messages import StoredQueues

    committed = store.metadata.consumer_offsets
    queues, filters = StoredQueues(store), options.filters
    scope = offset_plan.scope_of(options.offsets, filters.topic, filters.queue)
    target = offset_plan.target_of(options.offsets, options.findings, committed)
    moves = moves_of(scope, target, committed, store.metadata.groups, queues)
    if not moves:
        raise NothingToChangeError(f"{store.path}: nothing to change: every position already has the requested value")
    return MoveOffsets(tuple(moves)), list(offset_plan.move_rows(moves, queues))


def _rebuilds(verb: str, options: _Options) -> tuple[Change, ...]:
    from mqtool import repair

    match verb.removeprefix("rebuild "):
        case "consumequeue":
            return (repair.RebuildQueues(tuple(options.filters.topic or ()), options.filters.queue),)
        case "index":
            if len(options.files) > 1:
                raise UsageError("rebuild index: give one --file, or none to rebuild all files")
            return (repair.RebuildIndex(options.files[0] if options.files else None),)
        case "metadata":
            return (repair.RebuildMetadata(tuple(options.files)),)
        case "timer":
            return (repair.RebuildTimer(),)
    return repair.RebuildQueues(), repair.RebuildIndex(), repair.RebuildMetadata()


def _log_end(store: Store, options: _Options) -> int:
    """Returns the physical offset at which to cut."""
    if not options.at:
        return store.commit_log.max_offset
    if len(options.at) > 1 or not options.at[0].isdecimal():
        raise UsageError(f"truncate: expected one physical offset, found --at {' '.join(options.at)}")
    return int(options.at[0])


def _redacted(store: Store, options: _Options) -> tuple[int, ...]:
    """Returns the physical offsets of the selected messages."""
    from mqtool.store.address import resolve

    offsets = {message.physical_offset for address in options.at for message in resolve(store, address).messages}
    if len(options.at) > len(offsets):
        raise UsageError("redact: there is no message at one of the addresses; check them with `mqtool get`")
    log = store.commit_log
    selection = options.filters.keywords(log.min_offset, log.max_offset)
    if not selection and not options.at:
        raise UsageError("redact: select messages with --at, --key, --unique-key, --grep, …")
    if selection:
        for message in store.messages(**selection):
            if isinstance(message, Damage):
                options.damage.append(f"damage: physical offsets {message.start} to {message.end} could not be read")
            else:
                offsets.add(message.physical_offset)
    return tuple(sorted(offsets))


def _misnamed(store: Store, options: _Options) -> tuple[str, ...]:
    """Returns the CommitLog files that will be named as their records state."""
    if options.files:
        return _files(store, options, "rename-segments")
    if not store.layout.misplaced:
        raise UsageError("rename-segments: nothing to do; the name of every segment agrees with its records")
    return tuple(file.path.relative_to(store.path).as_posix() for file in store.layout.misplaced)


def _files(store: Store, options: _Options, verb: str) -> tuple[str, ...]:
    """Returns the named files, relative to the store, however they were named."""
    if not options.files:
        raise UsageError(f"{verb}: name the files with --file")
    root = store.path.absolute()
    named = (Path(name).absolute() for name in options.files)
    pairs = zip(options.files, named, strict=True)
    return tuple(path.relative_to(root).as_posix() if path.is_relative_to(root) else name for name, path in pairs)


def _document(plan: Plan, options: _Options, proposal: RepairProposal | None) -> dict[str, Any]:
    from mqtool.repair.changes import change_to_json
    from mqtool.repair.plan import GATES
    from mqtool.verify import CATALOGUE

    left = proposal.remaining if proposal is not None else ()
    notes = [*plan.notes, *options.damage]
    if plan.forecast is not None:
        notes.insert(0, f"messages that a start loses: {plan.forecast.words}")
    if proposal is not None and proposal.needs_another_run:
        notes.append("the end of the log comes first: verify and plan again once this is finalized")
    return {
        "store": plan.store,
        "plan": str(options.out),
        "changes": [change_to_json(item) for item in plan.changes],
        "complete": plan.complete and not left and not options.damage,
        "files": len(plan.steps),
        "space": plan.space,
        "digest": plan.digest,
        "steps": step_rows(plan.steps),
        "positions": [],
        "messages": [],
        "notes": notes,
        "left": [{"code": item.code, "file": item.file, "remedy": CATALOGUE[item.code].remedy} for item in left],
        "gates": list(GATES),
        "next_step": command("apply", "-" if is_dash(options.out) else options.out, "--yes"),
    }
