"""Sends messages to the brokers of a name server, and returns each answer.

    with BrokerSender("127.0.0.1:9876") as sender:
        answers, failure = sender.send(messages)

One message per queue is in flight at a time, so that the order in a queue is preserved; several queues are served
concurrently. Docs page: docs/replay.md. Source: DefaultMQProducerImpl, MQClientAPIImpl.sendMessage, TopicRouteData,
QueueData, MQClientInstance.topicRouteData2TopicPublishInfo (4.9.7, 5.5.0).
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from msgspec import Struct

from mqtool.engine.clock import SystemClock
from mqtool.engine.statuses import PutStatus
from mqtool.engine.write.messages import OutgoingMessage
from mqtool.errors import FormatError, LocalProtocolError, RemoteProtocolError
from mqtool.formats import hosts, java, properties
from mqtool.formats.topics import DEFAULT_TOPIC
from mqtool.ingest.bulk_ingest import Ack
from mqtool.protocol.command import STORED_CODES, Command, RequestCode, ResponseCode
from mqtool.protocol.frames import MAX_FRAME
from mqtool.protocol.registration_body import document_in
from mqtool.server.net import loop_factory
from mqtool.server.net.connections import Connection, parse_address
from mqtool.server.routes import MASTER, PERM_WRITE

_MAX_QUEUES = 1 << 16


class Destination(NamedTuple):
    """A queue on a broker."""

    address: str  # "host:port" of the master
    queue_id: int  # id of the queue


class Route(Struct, frozen=True):
    """The brokers that accept messages of a topic."""

    queues: tuple[tuple[str, int], ...]  # (address of a master, number of its queues), sorted by broker name
    problem: str = ""  # why there are no queues; "" if there are some
    known: bool = True  # whether the name server has the topic

    @property
    def max_queues(self) -> int:
        """The largest number of queues on one broker."""
        return max((count for _, count in self.queues), default=0)

    def destination(self, queue_id: int) -> Destination | None:
        """Returns the queue for the messages of an original queue, always the same one; None if there are no queues.

        The queue id is kept if a broker has it. Other original queues are distributed over the existing ones.
        """
        having = [address for address, count in self.queues if 0 <= queue_id < count]
        if having:
            return Destination(having[queue_id % len(having)], queue_id)
        every = [Destination(address, number) for address, count in self.queues for number in range(count)]
        return every[queue_id % len(every)] if every else None


def route_in(body: bytes | memoryview) -> Route:
    """Parses an answer to GET_ROUTEINFO_BY_TOPIC; raises RemoteProtocolError if the body is not a route."""
    document = document_in(body)
    try:
        masters = {str(item["brokerName"]): _master(item["brokerAddrs"]) for item in document.get("brokerDatas") or []}
        brokers: dict[str, tuple[str, int]] = {}
        seen = []
        for item in sorted(document.get("queueDatas") or [], key=lambda item: str(item["brokerName"])):
            name, perm, count = (
                str(item["brokerName"]),
                java.json_int(item["perm"]),
                java.json_int(item["writeQueueNums"]),
            )
            address = masters.get(name)
            seen.append(f"{name}: {'no master' if address is None else f'perm {perm}, {count} queues to write'}")
            if address is not None and perm & PERM_WRITE and 0 < count <= _MAX_QUEUES:
                brokers[name] = address, count
    except (KeyError, TypeError, AttributeError, FormatError) as error:
        raise RemoteProtocolError(f"route of a topic: {error!r}") from error
    return Route(
        tuple(brokers.values()), "" if brokers else f"no broker accepts messages ({'; '.join(seen) or 'none'})"
    )


def _master(addresses: Mapping[Any, Any]) -> str | None:
    """Returns the address of broker id 0; keys may be numbers or texts."""
    return next((str(address) for number, address in addresses.items() if java.json_long(number) == MASTER), None)


GROUP = "mqtool-replay"
ANSWER_SECONDS = 10.0
QUEUES_AT_ONCE = 64
_BUSY_TRIES = 8
FIRST_PAUSE = 0.05  # seconds; each further pause is twice as long
_HEADER_ROOM = 1 << 10  # bytes of a frame besides body and properties

_BUSY = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL})
_BROKER_FAILED = frozenset({*_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})
"""Response codes caused by the broker, not the message; further messages would get them too."""

_WAITED = (
    properties.DELAY_LEVEL,
    properties.TIMER_DELAY_SEC,
    properties.TIMER_DELAY_MS,
    properties.TIMER_DELIVER_MS,
    properties.TIMER_OUT_MS,
    properties.TIMER_ENQUEUE_MS,
    properties.TIMER_DEQUEUE_MS,
    properties.TIMER_ROLL_TIMES,
)


class _Sent(NamedTuple):
    """A message, its destination, and its index in the call."""

    number: int
    message: OutgoingMessage
    route: Route
    queue: Destination


class BrokerSender:
    """Sends messages; a context manager. Must not be used where an event loop is running."""

    def __init__(self, name_server: str) -> None:
        """Creates a sender for the name server at "host:port"; raises UsageError if the address is invalid."""
        parse_address(name_server)
        self._name_server = name_server
        self._runner = asyncio.Runner(loop_factory=loop_factory())
        self._connections: dict[str, Connection] = {}
        self._opening = asyncio.Lock()  # so that two queues do not open two connections
        self._routes: dict[str, Route] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._runner.run(self._close())
        self._runner.close()

    def send(self, messages: Sequence[OutgoingMessage]) -> tuple[list[Ack], Exception | None]:
        """Sends messages, those of each queue in their order; returns the answers to the first, and the others' error.

        The error is None if all were answered, ConnectionError if a name server or broker failed, RemoteProtocolError
        if its answer was invalid. Messages after the last answer may have been stored nevertheless.
        """
        return self._runner.run(self._send(messages))

    async def _send(self, messages: Sequence[OutgoingMessage]) -> tuple[list[Ack], Exception | None]:
        answers: list[Ack | None] = [None] * len(messages)
        lanes: dict[tuple[str, Destination], list[_Sent]] = defaultdict(list)
        failures: list[Exception] = []
        try:
            for number, message in enumerate(messages):
                route = await self._route(message.topic)
                queue = route.destination(message.queue_id)
                if queue is None:
                    answers[number] = Ack(number, None, route.problem)
                else:
                    lanes[message.topic, queue].append(_Sent(number, message, route, queue))
        except (ConnectionError, RemoteProtocolError) as error:
            return [], error
        gate = asyncio.Semaphore(QUEUES_AT_ONCE)

        async def lane(line: list[_Sent]) -> None:
            async with gate:
                for message in line:
                    if failures:
                        return
                    try:
                        answers[message.number] = await self._answer(message)
                    except (ConnectionError, RemoteProtocolError) as error:
                        failures.append(error)

        await asyncio.gather(*map(lane, lanes.values()))
        known = next((number for number, answer in enumerate(answers) if answer is None), len(answers))
        return [answer for answer in answers[:known] if answer is not None], failures[0] if failures else None

    async def _route(self, topic: str) -> Route:
        """Returns the route of a topic; for an unknown topic, the brokers that create topics automatically."""
        if topic not in self._routes:
            route = await self._ask_route(topic)
            if not route.queues and not route.known:
                pattern = await self._ask_route(DEFAULT_TOPIC)
                route = pattern if pattern.queues else route
            self._routes[topic] = route
        return self._routes[topic]

    async def _ask_route(self, topic: str) -> Route:
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        answer = await self._call(self._name_server, Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields=fields))
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return Route((), answer.outcome, known=False)
        if answer.code != ResponseCode.SUCCESS:
            raise ConnectionError(f"name server {self._name_server}: {answer.outcome}")
        return route_in(answer.body)

    async def _answer(self, sent: _Sent) -> Ack:
        """Sends a message and returns the broker's answer to it."""
        if len(sent.message.body) + len(sent.message.properties) + _HEADER_ROOM > MAX_FRAME:
            size = len(sent.message.body)
            return Ack(sent.number, None, f"body of {size} bytes exceeds the frame limit of {MAX_FRAME}")
        try:
            answer = await self._call_until_free(sent)
        except LocalProtocolError as error:
            return Ack(sent.number, None, str(error))
        if answer.code in _BROKER_FAILED:
            raise ConnectionError(f"broker {sent.queue.address}: {answer.outcome}")
        return _ack(sent, answer) if answer.code in STORED_CODES else Ack(sent.number, None, answer.outcome)

    async def _call_until_free(self, sent: _Sent) -> Command:
        """Sends a message, again after growing pauses while the broker is busy; returns the last answer."""
        for attempt in range(_BUSY_TRIES - 1):
            answer = await self._call(sent.queue.address, _request(sent))
            if answer.code not in _BUSY:
                return answer
            await asyncio.sleep(FIRST_PAUSE * 2**attempt)
        return await self._call(sent.queue.address, _request(sent))

    async def _call(self, address: str, command: Command) -> Command:
        try:
            async with self._opening:
                connection = self._connections.get(address)
                if connection is None or connection.peer.closed:
                    self._connections[address] = connection = await Connection.open(address)
            return await connection.call(command, ANSWER_SECONDS)
        except TimeoutError as error:
            raise ConnectionError(str(error)) from error

    async def _close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def _request(sent: _Sent) -> Command:
    """Returns a SEND_MESSAGE_V2 request, whose fields have one-letter names (SendMessageRequestHeaderV2)."""
    message = sent.message
    born = message.born_timestamp if message.born_timestamp is not None else SystemClock.now()
    fields = {
        "a": GROUP,
        "b": message.topic,
        "c": DEFAULT_TOPIC,
        "d": str(sent.route.max_queues),
        "e": str(sent.queue.queue_id),
        "f": str(message.sys_flag),
        "g": str(born),
        "h": str(message.flag),
        "i": java.decode_utf8(_to_send(message.properties)),
        "j": str(message.reconsume_times),
        "k": "false",
        "m": "false",
    }
    return Command(RequestCode.SEND_MESSAGE_V2, fields=fields, body=message.body)


def _to_send(encoded: bytes) -> bytes:
    """Returns properties without those that would hide the message from consumers again.

    A committed message still has the mark of a half message, and a delivered timer message still has its delay
    (EndTransactionProcessor, ScheduleMessageService, TimerMessageStore).
    """
    values = properties.decode(encoded)
    dropped = {properties.TRANSACTION_PREPARED, *(_WAITED if properties.REAL_TOPIC in values else ())}
    if dropped.isdisjoint(values):
        return encoded
    return properties.encode((name, value) for name, value in values.items() if name not in dropped)


def _ack(sent: _Sent, answer: Command) -> Ack:
    """Parses where a message was stored; raises RemoteProtocolError if the answer does not state it."""
    fields, topic = answer.fields, sent.message.topic
    try:
        place = hosts.parse_offset_id(fields.get("msgId", ""))
        queue_id, queue_offset = java.parse_int(fields.get("queueId", "")), java.parse_long(fields["queueOffset"])
    except (FormatError, KeyError) as error:
        raise RemoteProtocolError(f"broker {sent.queue.address}: answer to a send: {error}") from error
    reason = "" if answer.code == ResponseCode.SUCCESS else answer.outcome
    return Ack(
        sent.number,
        PutStatus.PUT_OK,
        reason,
        topic,
        queue_id,
        queue_offset,
        place.physical_offset,
        fields["msgId"],
        (topic, queue_id),
    )
