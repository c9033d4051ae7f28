"""Plans of consumer positions, of a store or a running broker: options, their target, and the rows that are shown."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct

from mqtool.cli import ranges
from mqtool.cli.document import Listing
from mqtool.cli.options import group_option, is_dash, option
from mqtool.cli.schema import DATA, TABLE, Column, count, flag, listing, moment, nested, row_of, text
from mqtool.commands import command
from mqtool.errors import NothingToChangeError, RefusedError, StoreError, UsageError

if TYPE_CHECKING:
    from mqtool.repair.offsets import Positions
    from mqtool.server.offsets import BrokerPlan, BrokerPositions
    from mqtool.store.groups.offset_moves import Committed, Effect, Move, QueueMessages, Scope, Span, Target

POSITION = "New position"

_NUMBER = re.compile(r"\d{1,19}", re.ASCII)

GroupOption = Annotated[list[str], group_option()]

ToOption = Annotated[
    str | None,
    option("--to", metavar="POSITION", panel=POSITION, help="earliest, latest, @TIME or a queue offset."),
]

ShiftOption = Annotated[
    int | None, option("--shift", metavar="±N", panel=POSITION, help="Messages to move by, inside the queue.")
]

ClampOption = Annotated[
    bool, option("--clamp", panel=POSITION, help="Move positions outside of their queue to its nearest end.")
]

FromGroupOption = Annotated[
    str | None, option("--from-group", metavar="GROUP", panel=POSITION, help="Copy the positions of this group.")
]

PositionsOption = Annotated[
    Path | None,
    option("--positions", metavar="SOURCE", panel=POSITION, help="Take the positions of a store, a backup or a file."),
]

ThroughOption = Annotated[
    Path | None,
    option(
        "--through",
        metavar="IDS",
        panel=POSITION,
        help="Map positions to new places by the file of `replay --ids`.",
    ),
]

DeleteOption = Annotated[bool, option("--delete", panel=POSITION, help="Delete the positions.")]

ListOption = Annotated[bool, option("--list", help="List each message that is delivered again or never.")]

BrokerOption = Annotated[
    str | None,
    option("--broker", metavar="HOST:PORT", help="Plan for this running broker instead of a store."),
]

OnlineOption = Annotated[
    bool,
    option("--online", help="Move positions of running consumers through the broker's reset."),
]

_SPAN = (
    count("messages", "how many"),
    count("start", "first queue offset", show=DATA),
    count("end", "queue offset after the last", show=DATA),
    moment("first_time", "store time of the first"),
    moment("last_time", "store time of the last"),
    text("first_key", "key of the first, else its unique key", nullable=True),
    text("last_key", "key of the last, else its unique key", nullable=True),
)

_WHOSE = (text("group", "consumer group"), text("topic", "topic"), count("queue_id", "queue of the topic"))

MOVES = listing(
    "positions",
    "new positions of consumer groups, and the messages that consumers get again or never",
    *_WHOSE,
    count("before", "current position; null if there is none", nullable=True),
    count("after", "new position; null if it is deleted", nullable=True),
    count("again", "messages that are delivered again", show=TABLE),
    count("never", "messages that are never delivered", show=TABLE),
    count("ahead", "messages from the new position to the end of the queue"),
    flag("certain", "false if it depends on the clients' consumeFromWhere; the counts are then the maximum"),
    nested("again_span", "messages that are delivered again", *_SPAN, show=DATA, nullable=True),
    nested("never_span", "messages that are never delivered", *_SPAN, show=DATA, nullable=True),
)

MESSAGES = listing(
    "messages",
    "with --list, the messages that are delivered again or never",
    text("change", "again or never"),
    *_WHOSE,
    count("queue_offset", "place in the queue"),
    Column("store_time", "int64", "ms since epoch", show=TABLE, time=True),
    text("key", "first key, else unique key", nullable=True),
    text("message_id", "offset message id", show=DATA),
)


class OffsetOptions(Struct, frozen=True):
    """Options of `plan offsets`, as text; see `GroupOption` and its neighbours."""

    group: list[str]
    topics: list[str]
    queue_id: int | None = None
    to: str | None = None
    shift: int | None = None
    clamp: bool = False
    from_group: str | None = None
    source: Path | None = None
    through: Path | None = None
    delete: bool = False

    def targets(self) -> list[str]:
        """Returns the options that name new positions; `--through` may go with `--positions`."""
        names = ["to", "shift", "clamp", "from_group", "delete"]
        values = {name: getattr(self, name) for name in names}
        given = [
            f"--{name.replace('_', '-')}" for name, value in values.items() if value is not None and value is not False
        ]
        return given + (["--positions"] if self.source is not None or self.through is not None else [])


def scope_of(options: OffsetOptions) -> Scope:
    """Returns whose positions are moved."""
    from mqtool.store.groups.offset_moves import Scope

    return Scope(tuple(options.group), tuple(options.topics), options.queue_id)


def target_of(options: OffsetOptions, committed: Committed) -> Target:
    """Returns where positions are moved to; raises UsageError if that is not one target, or it cannot be read."""
    from mqtool.store.groups.offset_moves import Target, TargetKind

    if len(options.targets()) != 1:
        ways = "--to, --shift, --clamp, --from-group, --positions, --through, --delete"
        raise UsageError(f"offsets: expected one of {ways}, found {', '.join(sorted(options.targets())) or 'none'}")
    if options.to is not None:
        return _to(options.to)
    if options.shift is not None:
        return Target(TargetKind.SHIFT, options.shift)
    if options.from_group is not None:
        if options.from_group not in committed:
            hint = "`mqtool offsets` lists the groups that have some"
            raise UsageError(f"--from-group {options.from_group}: this group has no positions here; {hint}")
        return Target(TargetKind.GROUP, group=options.from_group, positions=committed)
    if options.clamp or options.delete:
        return Target(TargetKind.CLAMP if options.clamp else TargetKind.DELETE)
    return Target(TargetKind.GIVEN, positions=_given(options.through, options.source, committed))


def _given(through: Path | None, source: Path | None, committed: Committed) -> Positions | Committed:
    from mqtool.repair.offsets import map_positions, places_in, positions_at

    positions = committed if source is None else positions_at(source)
    return positions if through is None else map_positions(positions, places_in(through))


def _to(words: str) -> Target:
    from mqtool.store.groups.offset_moves import Target, TargetKind

    if words in ("earliest", "latest"):
        return Target(TargetKind(words))
    if words.startswith("@"):
        return Target(TargetKind.TIME, ranges.parse_time(words[1:]))
    if not _NUMBER.fullmatch(words):
        raise UsageError(f"--to {words!r}: expected earliest, latest, @TIME or a queue offset")
    return Target(TargetKind.OFFSET, int(words))


def move_rows(moves: Sequence[Move], queues: QueueMessages) -> Iterator[tuple[Effect, dict[str, Any]]]:
    """Yields the effect of each move and its row of the column `MOVES`."""
    from mqtool.store.groups.offset_moves import effect_of

    for move in moves:
        effect = effect_of(move, queues)
        yield (
            effect,
            row_of(
                MOVES.fields,
                move,
                again=effect.again.count if effect.again else 0,
                never=effect.never.count if effect.never else 0,
                ahead=effect.ahead,
                certain=effect.certain,
                again_span=_span(effect.again),
                never_span=_span(effect.never),
            ),
        )


def _span(span: Span | None) -> dict[str, Any] | None:
    if span is None:
        return None
    return {
        "messages": span.count,
        "start": span.start,
        "end": span.end,
        "first_time": span.first and span.first.store_time,
        "last_time": span.last and span.last.store_time,
        "first_key": span.first and span.first.key,
        "last_key": span.last and span.last.key,
    }


def listing_of(effects: Sequence[Effect], queues: QueueMessages) -> Listing:
    """Returns the column `MESSAGES`, read while it is printed: it may be as long as the queues."""
    count = sum(span.count for effect in effects for span in (effect.again, effect.never) if span is not None)
    return Listing(MESSAGES.name, count, _message_rows(effects, queues))


def _message_rows(effects: Sequence[Effect], queues: QueueMessages) -> Iterator[dict[str, Any]]:
    """Yields the rows of the column `MESSAGES`."""
    for effect in effects:
        move = effect.move
        for name, span in (("again", effect.again), ("never", effect.never)):
            if span is not None:
                for message in queues.messages(move.topic, move.queue_id, span.start, span.end):
                    whose = row_of(_WHOSE, move)
                    yield row_of(MESSAGES.fields, message, change=name, **whose)


@contextlib.contextmanager
def plan_for_broker(
    address: str, options: OffsetOptions, *, list_messages: bool, online: bool
) -> Iterator[tuple[BrokerPlan, dict[str, Any], Listing | None]]:
    """Makes a plan of positions on a broker, its effect as a document, and with `--list` the messages.

    The messages are asked from the broker while they are printed, so the connection is open within the block.

    Raises:
        UsageError: the options do not apply to a broker.
        RefusedError: the broker would ignore the positions.
        NothingToChangeError: it already has them.
    """
    from mqtool.server.offsets import BrokerPlan, BrokerPositions, check_broker
    from mqtool.store.groups.offset_moves import moves_of, words_of
    from mqtool.words import moment

    if options.delete:
        raise UsageError(
            "--delete: a running broker deletes positions only together with the group's configuration; stop the "
            "broker and plan for its store"
        )
    with BrokerPositions(address) as broker:
        committed, groups = broker.committed(), broker.groups()
        target = target_of(options, committed)
        moves = moves_of(scope_of(options), target, committed, groups, broker)
        if not moves:
            raise NothingToChangeError(f"{address}: nothing to change: every position already has the requested value")
        time = None
        if online and not broker.resets_by_itself:
            time = _time(target, options.queue_id, broker)
        lints = tuple(_lints(moves, groups, committed))
        created = datetime.now(UTC).isoformat(timespec="seconds")
        plan = BrokerPlan(address, broker.name, created, tuple(moves), online, time, lints)
        check_broker(broker, plan)
        rows = list(move_rows(moves, broker))
        document = {
            "broker": address,
            "name": broker.name,
            "positions": [row for _, row in rows],
            "messages": [],
            "notes": [*lints, *(words_of(effect, moment) for effect, _ in rows)],
        }
        yield plan, document, listing_of([effect for effect, _ in rows], broker) if list_messages else None


def _time(target: Target, queue_id: int | None, broker: BrokerPositions) -> int | None:
    """Returns the time that a broker of 4.9 sends to running consumers; None if the target is not a time."""
    from mqtool.store.groups.offset_moves import TargetKind

    times = {TargetKind.EARLIEST: 0, TargetKind.LATEST: -1, TargetKind.TIME: target.value}
    if target.kind not in times:
        return None
    if queue_id is not None:
        raise RefusedError(
            "online", "this broker moves all queues of a topic at once; leave out --queue", broker.address
        )
    return times[target.kind]


def _lints(moves: list[Move], groups: set[str], committed: dict[str, Any]) -> Iterator[str]:
    from mqtool.store.groups.offset_moves import case_lints

    named = sorted({move.group for move in moves})
    for name in named:
        if name not in groups:
            yield f"group {name} has no configuration: brokers since 5.0 refuse its position"
    yield from case_lints(named, {*groups, *committed})


def apply_to_broker(data: bytes, path: Path, *, dry_run: bool = False) -> dict[str, Any]:
    """Sets positions according to a plan; returns the result as a document.

    Raises RefusedError if the plan was edited or a precondition does not hold; ConnectionError, RemoteProtocolError.
    """
    from mqtool.server.offsets import BrokerPlan, BrokerPositions, apply_moves, check_broker

    plan = BrokerPlan.from_json(data, path)
    if plan is None:
        raise RefusedError("plan-unreadable", "expected a plan in JSON; write it with `mqtool plan`", path)
    undo = _undo_file(path)
    with BrokerPositions(plan.broker) as broker:
        if dry_run:
            check_broker(broker, plan)
            summary = {"moved": len(plan.moves), "already": 0, "notified": []}
        else:
            done = apply_moves(broker, plan, lambda back: _save(undo, back))
            summary = {"moved": done.moved, "already": done.already, "notified": list(done.notified)}
    written = None if dry_run or not summary["moved"] else str(undo)
    steps = [command("apply", path, "--yes")] if dry_run else [command("apply", written, "--yes")] if written else []
    return {"broker": plan.broker, "dry_run": dry_run, **summary, "undo": written, "next_steps": steps}


def _undo_file(plan: Path) -> Path:
    """Returns where the undo of a plan is written: plan.undo.json of plan.json, plan.redo.json of that."""
    if is_dash(plan):
        return Path("plan.undo.json")
    name = plan.stem
    return plan.with_name(f"{name[:-5]}.redo.json" if name.endswith(".undo") else f"{name}.undo.json")


def _save(path: Path, plan: BrokerPlan) -> None:
    """Writes an undo file; keeps one that an interrupted run has written.

    Raises RefusedError if the file belongs to another plan, StoreError if it cannot be written.
    """
    from mqtool.jobs.atomic import create_file
    from mqtool.server.offsets import BrokerPlan

    try:
        create_file(path, plan.to_json().encode())
    except FileExistsError as error:
        known = BrokerPlan.from_json(path.read_bytes(), path)
        if known is None or known.moves != plan.moves or known.created != plan.created:
            raise RefusedError("undo", "the undo file of another plan exists; move it elsewhere", path) from error
    except OSError as error:
        raise StoreError(f"cannot be written: {error.strerror}", path) from error
