"""Reads, plans and sets consumer offsets on a running broker, over the admin protocol.

    with BrokerPositions("127.0.0.1:10911") as broker:
        committed = broker.committed()
        plan = BrokerPlan(broker.address, broker.name, time, moves)
        done = apply_moves(broker, plan, save_undo=save)

A plan is stored as a file; its undo file is such a plan too. Changes that the broker would ignore are refused: a
running consumer commits its own offset every few seconds and would overwrite the new one. Brokers since 5.0 can reset
offsets of running consumers by queue (useServerSideResetOffset). Brokers of 4.9 notify the clients, which move all
queues of a topic to a time. Docs page: docs/howto/set-a-groups-position.md. Source: ConsumerManageProcessor,
AdminBrokerProcessor.resetOffset, Broker2Client.resetOffset (4.9.7, 5.5.0).
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec import Struct

from mqtool.errors import FormatError, RefusedError, RemoteProtocolError, UsageError
from mqtool.formats import commit_log, config_files, java
from mqtool.formats.commit_log import Record
from mqtool.formats.config_files import ConsumerOffsets
from mqtool.formats.release import Release
from mqtool.protocol.command import Command, RequestCode, ResponseCode
from mqtool.protocol.registration_body import document_in
from mqtool.server.net import loop_factory
from mqtool.server.net.acl import own_signing
from mqtool.server.net.connections import Connection, parse_address
from mqtool.store.groups.offset_moves import Committed, Move, QueueMessage, move_from_json
from mqtool.store.log.message import from_record
from mqtool.store.plan_file import check_version, digest_of, edited, sealed, wrong_field
from mqtool.values import asdict

SCHEMA = "mqtool.broker-offsets"
SCHEMA_VERSION = 1


class BrokerPlan(Struct, frozen=True):
    """New consumer offsets on a broker."""

    broker: str  # "host:port" of the broker
    name: str  # brokerName, checked so that another broker at this address is not changed
    created: str  # time of creation, RFC 3339
    moves: tuple[Move, ...]  # one move for each queue of a group
    # whether consumers of the groups may be running; offsets are then changed by the broker's reset, which notifies
    # them
    online: bool = False
    # for a reset of running consumers of 4.9, whose broker resets only by time: ms since epoch, -1 for the end of the
    # queues; None if the offsets are not given by time
    time: int | None = None
    notes: tuple[str, ...] = ()  # remarks to read before applying the plan

    def _body(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, **asdict(self)}

    @property
    def digest(self) -> str:
        """SHA-256 of all other fields."""
        return digest_of(self._body())

    def to_json(self) -> str:
        """Returns the plan as the content of its file."""
        return sealed(self._body())

    def undo(self) -> "BrokerPlan":
        """Returns the plan that restores the previous offsets."""
        moves = tuple(Move(move.group, move.topic, move.queue_id, move.after, move.before) for move in self.moves)
        notes = ("undoes the plan next to it",)
        return BrokerPlan(self.broker, self.name, self.created, moves, self.online and self.time is None, notes=notes)

    @classmethod
    def from_json(cls, data: bytes, path: Path) -> "BrokerPlan | None":
        """Parses a plan, None for another file; raises RefusedError if it was edited, or is of another release."""
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            return None
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            return None
        check_version(document, SCHEMA_VERSION, path)
        try:
            names = ("broker", "name", "created", "online", "time")
            moves = tuple(move_from_json(move) for move in document["moves"])
            notes = tuple(str(note) for note in document["notes"])
            plan = cls(moves=moves, notes=notes, **{name: document[name] for name in names})
        except (KeyError, TypeError, ValueError, UsageError) as error:
            raise wrong_field(error, path) from error
        if document.get("digest") != plan.digest:
            raise edited(path)
        return plan


ANSWER_SECONDS = 15.0
_GROUP = "TOOLS_CONSUMER"
"""Consumer group of mqadmin, which every broker has."""
_HAS_SUBSCRIPTION = 4
"""Bit of a pull's sysFlag: the request contains its subscription (PullSysFlag)."""
_AT_ONCE = 32
_FIRST_5 = (5, 0)


class BrokerPositions:
    """Queries and changes offsets of the broker at `address` ("host:port"). Not for a thread with an event loop."""

    def __init__(self, address: str) -> None:
        """Creates a client that signs as `own_signing` determines; raises UsageError if the address is invalid."""
        parse_address(address)
        self._sign = own_signing()
        self.address = address
        self._runner = asyncio.Runner(loop_factory=loop_factory())
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._runner.run(self._close())
        self._runner.close()

    async def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def call(self, code: RequestCode, **fields: object) -> Command:
        """Sends a request, returns the answer, whatever its code; raises ConnectionError if there is none."""
        texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}
        return self._runner.run(self._call(Command(code, fields=texts)))

    async def _call(self, command: Command) -> Command:
        try:
            if self._connection is None or self._connection.peer.closed:
                self._connection = await Connection.open(self.address, sign=self._sign)
            return await self._connection.call(command, ANSWER_SECONDS)
        except TimeoutError as error:
            raise ConnectionError(f"broker {self.address}: no answer within {ANSWER_SECONDS:g} s") from error

    def call_ok(self, code: RequestCode, **fields: object) -> Command:
        """Like `call`, but raises RemoteProtocolError if the answer's code is not SUCCESS."""
        answer = self.call(code, **fields)
        if answer.code != ResponseCode.SUCCESS:
            raise RemoteProtocolError(f"broker {self.address}: {code.name}: {answer.outcome}")
        return answer

    @cached_property
    def settings(self) -> dict[str, str]:
        """Configuration of the broker."""
        return dict(self._parsed(self.call_ok(RequestCode.GET_BROKER_CONFIG).body, java.parse_properties))

    @property
    def name(self) -> str:
        """The broker's brokerName."""
        return self.settings.get("brokerName", "")

    @cached_property
    def release(self) -> Release:
        """Release of the broker, from the version that it states."""
        table = document_in(self.call_ok(RequestCode.GET_BROKER_RUNTIME_INFO).body).get("table")
        version = str((table if isinstance(table, dict) else {}).get("brokerVersionDesc", ""))
        numbers = [int(part) for part in version.lstrip("Vv").split("_")[:2] if part.isdigit()]
        return Release(*numbers) if len(numbers) == 2 else Release(4, 0)

    @property
    def resets_by_itself(self) -> bool:
        """Whether the broker itself resets offsets of running consumers by queue (useServerSideResetOffset, 5.0)."""
        return self.release >= _FIRST_5 and self.settings.get("useServerSideResetOffset") == "true"

    def groups(self) -> set[str]:
        """Returns the consumer groups that have a configuration."""
        body = self.call_ok(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body
        return set(self._parsed(body, config_files.parse_groups).subscription_group_table)

    def members(self, group: str) -> list[str]:
        """Returns the client ids of a consumer group's running members."""
        answer = self.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup=group)
        if answer.code != ResponseCode.SUCCESS:  # CONSUMER_NOT_ONLINE
            return []
        members = document_in(answer.body).get("connectionSet")
        return sorted(str(member.get("clientId")) for member in members or () if isinstance(member, dict))

    def _parsed(self, data: Any, parse: Any) -> Any:
        try:
            return parse(bytes(data))
        except FormatError as error:
            raise RemoteProtocolError(f"broker {self.address}: {error}") from error

    def committed(self) -> dict[str, dict[str, dict[int, int]]]:
        """Returns consumer offsets by group, topic and queue id; for the broker, a negative one means none."""
        answer = self.call_ok(RequestCode.GET_ALL_CONSUMER_OFFSET)
        offsets: ConsumerOffsets = self._parsed(answer.body, config_files.parse_consumer_offsets)
        return {
            group: {
                topic: {queue: offset for queue, offset in own.items() if offset >= 0}
                for topic, own in by_topic.items()
            }
            for group, by_topic in offsets.by_group().items()
        }

    def topics(self) -> dict[str, tuple[int, ...]]:
        """Returns the queue ids of each topic that has a configuration."""
        answer = self.call_ok(RequestCode.GET_ALL_TOPIC_CONFIG)
        table = self._parsed(answer.body, config_files.parse_topics).topic_config_table
        return {
            name: tuple(range(max(config.read_queue_nums, config.write_queue_nums))) for name, config in table.items()
        }

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Returns (min offset, max offset) of a queue; None if the queue does not exist."""
        codes = (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
        low, high = (self._number(self.call_ok(code, topic=topic, queueId=queue_id), "offset") for code in codes)
        return max(0, low), max(0, high)

    def at_time(self, topic: str, queue_id: int, time: int) -> int:
        """Returns the queue offset for a store timestamp in ms."""
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        return max(0, self._number(self.call_ok(code, topic=topic, queueId=queue_id, timestamp=time), "offset"))

    def messages(self, topic: str, queue_id: int, start: int, end: int) -> Iterator[QueueMessage]:
        """Yields the messages with queue offsets in [start, end), in order."""
        at = start
        while at < end:
            answer = self._pull(topic, queue_id, at, min(_AT_ONCE, end - at))
            for record in self._records(answer.body):
                if start <= record.queue_offset < end:
                    yield QueueMessage.of(from_record(record))
            following = self._number(answer, "nextBeginOffset")
            if following <= at:
                return
            at = following

    def message(self, topic: str, queue_id: int, queue_offset: int) -> QueueMessage | None:
        """Returns one message; None if the broker does not return it."""
        return next(self.messages(topic, queue_id, queue_offset, queue_offset + 1), None)

    def _pull(self, topic: str, queue_id: int, start: int, count: int) -> Command:
        """Sends a pull that commits no offset and returns the answer."""
        return self.call(
            RequestCode.PULL_MESSAGE,
            consumerGroup=_GROUP,
            topic=topic,
            queueId=queue_id,
            queueOffset=start,
            maxMsgNums=count,
            sysFlag=_HAS_SUBSCRIPTION,
            commitOffset=0,
            suspendTimeoutMillis=0,
            subscription="*",
            subVersion=0,
            expressionType="TAG",
        )

    def _records(self, data: Any) -> Iterator[Record]:
        view, at = memoryview(bytes(data)), 0
        try:
            while at < len(view):
                record = commit_log.parse_record(view, at)
                yield record
                at += record.total_size
        except FormatError as error:
            raise RemoteProtocolError(f"broker {self.address}: answer to a pull: {error}") from error

    def _number(self, answer: Command, name: str) -> int:
        try:
            return java.parse_long(answer.fields[name])
        except (KeyError, FormatError) as error:
            raise RemoteProtocolError(f"broker {self.address}: expected {name} in {answer.outcome}") from error


_NONE = -1
"""Offset that brokers treat as none."""


class AppliedMoves(Struct, frozen=True):
    """Result of applying a plan."""

    moved: int  # number of queues whose offset was set
    already: int  # number of queues that already had the new offset
    # groups whose running consumers were notified; they move within about 15 seconds (4.9)
    notified: tuple[str, ...] = ()


def check_broker(broker: BrokerPositions, plan: BrokerPlan) -> None:
    """Raises RefusedError, with what to do, if the broker would ignore a plan, or its offsets be overwritten."""
    where = broker.address
    if broker.name != plan.name:
        raise RefusedError("broker", f"expected the broker {plan.name}, found {broker.name}", where)
    if broker.settings.get("brokerRole") == "SLAVE":
        raise RefusedError("slave", "a slave replaces its positions with its master's; name the master", where)
    running = {group: ids for group in _groups(plan) if (ids := broker.members(group))}
    for group, ids in running.items():
        _check_online(broker, plan, group, ids)
    if plan.online and not running and not broker.resets_by_itself:
        raise RefusedError("offline", "no consumer of these groups is running; plan without --online", where)


def _check_online(broker: BrokerPositions, plan: BrokerPlan, group: str, ids: list[str]) -> None:
    clients = (
        f"{len(ids)} consumer(s) of group {group} are running, among them {ids[0]}, and would overwrite the new "
        "positions"
    )
    stop = "Stop them and apply again"
    if not plan.online:
        way = "plan with --online, which uses the broker's reset"
        if not broker.resets_by_itself:
            way = "plan --to earliest, latest or @TIME for complete topics with --online, which notifies the consumers"
        raise RefusedError("online", f"{clients}. {stop}, or {way}", broker.address)
    if broker.resets_by_itself:
        return
    if plan.time is None:
        reason = "This broker can notify running consumers of a time only: plan --to earliest, latest or @TIME"
        raise RefusedError("online", f"{clients}. {reason}. Or stop them and plan without --online", broker.address)
    committed = broker.committed().get(group, {})
    for topic in sorted({move.topic for move in plan.moves if move.group == group}):
        queues = set(broker.topics().get(topic, ()))
        if queues - committed.get(topic, {}).keys():
            reason = f"group {group} has no position in each queue of {topic}, and the broker resets all queues or none"
            raise RefusedError("online", f"{reason}. {stop}, with a plan without --online", broker.address)


def apply_moves(broker: BrokerPositions, plan: BrokerPlan, save_undo: Callable[[BrokerPlan], None]) -> AppliedMoves:
    """Sets consumer offsets; if a call was interrupted, repeating it completes the plan.

    `save_undo` is called with the undo plan before the first offset is set. Raises RefusedError if an offset is neither
    the old nor the new one, consumers are running, or the broker ignores an offset; RemoteProtocolError if it refuses a
    request, ConnectionError if it does not answer.
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
            reason = f"{_place(move)}: the broker answers SUCCESS but keeps position {current} instead of {move.after}"
            hint = "an earlier reset is waiting for the group's next pull; plan with --online to replace it"
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
