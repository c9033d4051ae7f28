"""Sets consumer offsets on a running broker, and verifies each; refuses changes that the broker would ignore.

A running consumer commits its own offset every few seconds and would overwrite the new one. Brokers since 5.0 can reset
offsets of running consumers by queue (useServerSideResetOffset). Brokers of 4.9 notify the clients, which move all
queues of a topic to a time. Source: ConsumerManageProcessor.updateConsumerOffset, AdminBrokerProcessor.resetOffset,
Broker2Client.resetOffset (4.9.7, 5.5.0).
"""

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from mqtool.errors import RefusedError
from mqtool.protocol.codes import RequestCode, ResponseCode
from mqtool.server.offsets.client import BrokerPositions
from mqtool.server.offsets.plan import BrokerPlan
from mqtool.store.offset_moves import Committed, Move

_NONE = -1
"""Offset that brokers treat as none."""


class AppliedMoves(Struct, frozen=True):
    """Result of applying a plan.

    Attributes:
        moved: number of queues whose offset was set.
        already: number of queues that already had the new offset.
        notified: groups whose running consumers were notified; they move within about 15 seconds (4.9).
    """

    moved: int
    already: int
    notified: tuple[str, ...] = ()


def check_broker(broker: BrokerPositions, plan: BrokerPlan) -> None:
    """Refuses a plan that the broker would ignore, or whose offsets would be overwritten.

    Raises:
        RefusedError: the text explains how to do it instead.
    """
    where = broker.address
    if broker.name != plan.name:
        raise RefusedError("broker", f"expected the broker {plan.name}, found {broker.name}", where)
    if broker.settings.get("brokerRole") == "SLAVE":
        raise RefusedError("slave", "a slave replaces its positions by its master's; name the master", where)
    running = {group: ids for group in _groups(plan) if (ids := broker.members(group))}
    for group, ids in running.items():
        _check_online(broker, plan, group, ids)
    if plan.online and not running and not broker.resets_by_itself:
        raise RefusedError("offline", "no consumer of these groups runs; plan without --online", where)


def _check_online(broker: BrokerPositions, plan: BrokerPlan, group: str, ids: list[str]) -> None:
    clients = f"{len(ids)} consumer(s) of group {group} run, {ids[0]} among them, and write over new positions"
    stop = "Stop them and apply again"
    if not plan.online:
        way = "plan with --online, which uses the broker's reset"
        if not broker.resets_by_itself:
            way = "plan --to earliest, latest or @TIME for complete topics with --online, which tells the consumers"
        raise RefusedError("online", f"{clients}. {stop}, or {way}", broker.address)
    if broker.resets_by_itself:
        return
    if plan.time is None:
        reason = "This broker tells running consumers a time only: plan --to earliest, latest or @TIME"
        raise RefusedError("online", f"{clients}. {reason}. Or stop them and plan without --online", broker.address)
    committed = broker.committed().get(group, {})
    for topic in sorted({move.topic for move in plan.moves if move.group == group}):
        queues = set(broker.topics().get(topic, ()))
        if queues - committed.get(topic, {}).keys():
            reason = f"group {group} has no position in each queue of {topic}, and the broker resets all or none"
            raise RefusedError("online", f"{reason}. {stop}, with a plan without --online", broker.address)


def apply_moves(broker: BrokerPositions, plan: BrokerPlan, save_undo: Callable[[BrokerPlan], None]) -> AppliedMoves:
    """Sets consumer offsets; if a call was interrupted, repeating it completes the plan.

    Args:
        broker: client connected to the broker.
        plan: the plan for this broker.
        save_undo: called with the undo plan before the first offset is set.

    Raises:
        RefusedError: an offset is neither the old nor the new one; consumers are running; or the broker ignores an
            offset.
        RemoteProtocolError: the broker refuses a request.
        ConnectionError: the broker does not answer.
    """
    check_broker(broker, plan)
    remaining = list(_remaining(broker, plan))
    already = len(plan.moves) - len(remaining)
    if not remaining:
        return AppliedMoves(0, already)
    save_undo(plan.undo())
    if plan.online and not broker.resets_by_itself:
        return AppliedMoves(len(remaining), already, _notify_consumers(broker, plan))
    for move in remaining:
        if plan.online and move.after is not None:
            _reset(broker, move)
        else:
            _update(broker, move)
    if not plan.online:
        _check_stored(broker, remaining)
    return AppliedMoves(len(remaining), already)


def _remaining(broker: BrokerPositions, plan: BrokerPlan) -> Iterator[Move]:
    """Yields the moves that have not been made yet."""
    committed = broker.committed()
    for move in plan.moves:
        current = _position(committed, move)
        if current == move.after:
            continue
        if current != move.before and not plan.online:  # running consumers commit other offsets meanwhile
            reason = f"{_place(move)}: expected position {move.before}, found {current}; plan again"
            raise RefusedError("plan-stale", reason, broker.address)
        yield move


def _position(committed: Committed, move: Move) -> int | None:
    return committed.get(move.group, {}).get(move.topic, {}).get(move.queue_id)


def _update(broker: BrokerPositions, move: Move) -> None:
    """Commits an offset, as a consumer does."""
    after = _NONE if move.after is None else move.after
    fields = {"consumerGroup": move.group, "topic": move.topic, "queueId": move.queue_id, "commitOffset": after}
    broker.call_ok(RequestCode.UPDATE_CONSUMER_OFFSET, **fields)


def _check_stored(broker: BrokerPositions, moves: Iterable[Move]) -> None:
    """Raises RefusedError if the broker answered SUCCESS but did not store an offset.

    The whole offset table is queried, because brokers of 4.9 answer 0 for an offset that does not exist.
    """
    committed = broker.committed()
    for move in moves:
        current = _position(committed, move)
        if current != move.after:
            reason = f"{_place(move)}: the broker answers SUCCESS and keeps position {current} in place of {move.after}"
            hint = "an earlier reset waits for the group's next pull; plan with --online to replace it"
            raise RefusedError("ignored", f"{reason}; {hint}", broker.address)


def _reset(broker: BrokerPositions, move: Move) -> None:
    """Resets an offset on the broker; running consumers continue there with their next pull."""
    broker.call_ok(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        topic=move.topic,
        group=move.group,
        queueId=move.queue_id,
        offset=move.after,
        timestamp=_NONE,
        isForce=True,
    )


def _notify_consumers(broker: BrokerPositions, plan: BrokerPlan) -> tuple[str, ...]:
    """Makes the broker notify running consumers to move to a time; returns the groups."""
    for group, topic in sorted({(move.group, move.topic) for move in plan.moves}):
        fields = {"topic": topic, "group": group, "timestamp": plan.time, "isForce": True}
        answer = broker.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields)
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedError("ignored", f"group {group}, {topic}: {answer.outcome}", broker.address)
    return tuple(_groups(plan))


def _groups(plan: BrokerPlan) -> list[str]:
    return sorted({move.group for move in plan.moves})


def _place(move: Move) -> str:
    return f"group {move.group}, {move.topic}/{move.queue_id}"
