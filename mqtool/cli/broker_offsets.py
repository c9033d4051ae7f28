"""Plans and applies positions on a running broker; results are documents of `plan` and `apply`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqtool.cli import offset_plan
from mqtool.cli.document import Listing
from mqtool.cli.input_file import is_dash
from mqtool.cli.offset_plan import OffsetOptions
from mqtool.commands import command
from mqtool.errors import NothingToChangeError, RefusedError, StoreError, UsageError

if TYPE_CHECKING:
    from mqtool.server.offsets import BrokerPlan, BrokerPositions
    from mqtool.store.groups.offset_moves import Move, Target


@contextlib.contextmanager
def plan_for_broker(
    address: str, options: OffsetOptions, *, list_messages: bool, online: bool
) -> Iterator[tuple[BrokerPlan, dict[str, Any], Listing | None]]:
    """Makes a plan of positions on a broker, its effect as a document, and with `--list` the messages.

    The messages are asked from the broker while they are printed, so the connection is open within the block.

    Args:
        address: "host:port" of the broker.
        options: those of `plan offsets`.
        list_messages: list each message that is delivered again or never.
        online: move positions of running consumers.

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
        target = offset_plan.target_of(options, committed)
        moves = moves_of(offset_plan.scope_of(options), target, committed, groups, broker)
        if not moves:
            raise NothingToChangeError(f"{address}: nothing to change: every position already has the requested value")
        time = None
        if online and not broker.resets_by_itself:
            time = _time(target, options.queue_id, broker)
        lints = tuple(_lints(moves, groups, committed))
        created = datetime.now(UTC).isoformat(timespec="seconds")
        plan = BrokerPlan(address, broker.name, created, tuple(moves), online, time, lints)
        check_broker(broker, plan)
        rows = list(offset_plan.move_rows(moves, broker))
        document = {
            "broker": address,
            "name": broker.name,
            "positions": [row for _, row in rows],
            "messages": [],
            "notes": [*lints, *(words_of(effect, moment) for effect, _ in rows)],
        }
        yield plan, document, offset_plan.listing_of([effect for effect, _ in rows], broker) if list_messages else None


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

    Raises:
        RefusedError: the plan was edited; a precondition does not hold.
        ConnectionError, RemoteProtocolError: the broker does not answer, or refuses.
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

    Raises:
        RefusedError: the file belongs to another plan.
        StoreError: it cannot be written.
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
