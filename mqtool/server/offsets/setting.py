"""Positions set on a running broker, each proved by asking for it; what the broker would ignore is refused before.

A consumer that runs commits its own position every few seconds and would write over the new one. Brokers since 5.0 can
reset positions of running consumers by queue (useServerSideResetOffset); those of 4.9 tell the clients to move all
queues of a topic to a time. Source: ConsumerManageProcessor.updateConsumerOffset, AdminBrokerProcessor.resetOffset,
Broker2Client.resetOffset (4.9.7, 5.5.0).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from mqtool.errors import RefusedError
from mqtool.protocol.codes import RequestCode, ResponseCode
from mqtool.server.offsets.client import BrokerPositions
from mqtool.server.offsets.plan import BrokerPlan
from mqtool.store.offset_moves import Committed, Move

_NONE = -1
"""What brokers take for no position."""


@dataclass(frozen=True, slots=True)
class AppliedMoves:
    """Result of a plan.

    Attributes:
        moved: queues whose position was set.
        already: queues that had the new position before.
        notified: groups whose running consumers were notified; they move within some 15 seconds (4.9).
    """

    moved: int
    already: int
    notified: tuple[str, ...] = ()


def check_broker(broker: BrokerPositions, plan: BrokerPlan) -> None:
    """Refuses what the broker would ignore or write over.

    Raises:
        RefusedError: with how to do it.
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
        words = "This broker tells running consumers a time only: plan --to earliest, latest or @TIME"
        raise RefusedError("online", f"{clients}. {words}. Or stop them and plan without --online", broker.address)
    committed = broker.committed().get(group, {})
    for topic in sorted({move.topic for move in plan.moves if move.group == group}):
        queues = set(broker.topics().get(topic, ()))
        if queues - committed.get(topic, {}).keys():
            words = f"group {group} has no position in each queue of {topic}, and the broker resets all or none"
            raise RefusedError("online", f"{words}. {stop}, with a plan without --online", broker.address)


def apply_moves(broker: BrokerPositions, plan: BrokerPlan, save_undo: Callable[[BrokerPlan], None]) -> AppliedMoves:
    """Sets positions; a call that was interrupted is finished by the same call.

    Args:
        broker: connected.
        plan: for it.
        save_undo: called with the plan that undoes this one before the first position is set.

    Raises:
        RefusedError: a position is neither the old nor the new one; consumers run; the broker ignores a position.
        RemoteProtocolError: the broker refuses a request.
        ConnectionError: it does not answer.
    """
    check_broker(broker, plan)
    left = list(_left(broker, plan))
    already = len(plan.moves) - len(left)
    if not left:
        return AppliedMoves(0, already)
    save_undo(plan.undo())
    if plan.online and not broker.resets_by_itself:
        return AppliedMoves(len(left), already, _tell(broker, plan))
    for move in left:
        if plan.online and move.after is not None:
            _reset(broker, move)
        else:
            _update(broker, move)
    if not plan.online:
        _prove(broker, left)
    return AppliedMoves(len(left), already)


def _left(broker: BrokerPositions, plan: BrokerPlan) -> Iterator[Move]:
    """Yields the moves that are not made yet."""
    committed = broker.committed()
    for move in plan.moves:
        found = _position(committed, move)
        if found == move.after:
            continue
        if found != move.before and not plan.online:  # running consumers commit other offsets meanwhile
            words = f"{_place(move)}: expected position {move.before}, found {found}; plan again"
            raise RefusedError("plan-stale", words, broker.address)
        yield move


def _position(committed: Committed, move: Move) -> int | None:
    return committed.get(move.group, {}).get(move.topic, {}).get(move.queue_id)


def _update(broker: BrokerPositions, move: Move) -> None:
    """Commits a position, as a consumer does."""
    after = _NONE if move.after is None else move.after
    fields = {"consumerGroup": move.group, "topic": move.topic, "queueId": move.queue_id, "commitOffset": after}
    broker.asked(RequestCode.UPDATE_CONSUMER_OFFSET, **fields)


def _prove(broker: BrokerPositions, moves: Iterable[Move]) -> None:
    """Raises RefusedError if the broker has not taken a position, to whose request it answered SUCCESS.

    The whole table is asked for: brokers of 4.9 answer 0 about a position that is not there.
    """
    committed = broker.committed()
    for move in moves:
        found = _position(committed, move)
        if found != move.after:
            words = f"{_place(move)}: the broker answers SUCCESS and keeps position {found} in place of {move.after}"
            hint = "an earlier reset waits for the group's next pull; plan with --online to replace it"
            raise RefusedError("ignored", f"{words}; {hint}", broker.address)


def _reset(broker: BrokerPositions, move: Move) -> None:
    """Resets a position on the server, which running consumers follow with their next pull."""
    broker.asked(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        topic=move.topic,
        group=move.group,
        queueId=move.queue_id,
        offset=move.after,
        timestamp=_NONE,
        isForce=True,
    )


def _tell(broker: BrokerPositions, plan: BrokerPlan) -> tuple[str, ...]:
    """Lets the broker tell running consumers a time for each topic."""
    for group, topic in sorted({(move.group, move.topic) for move in plan.moves}):
        fields = {"topic": topic, "group": group, "timestamp": plan.time, "isForce": True}
        answer = broker.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields)
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedError("ignored", f"group {group}, {topic}: {answer.outcome}", broker.address)
    return tuple(_groups(plan))


def _groups(plan: BrokerPlan) -> list[str]:
    return sorted({move.group for move in plan.moves})


def _place(move: Move) -> str:
    return f"group {move.group}, {move.topic}/{move.queue_id}"
