"""Assembles, starts and stops a broker's request handlers and background services; turns refusals into answers.

One background service keeps the registration with name servers up to date: every 30 seconds, and shortly after a topic
has changed. A name server in the same process is called directly; others are sent REGISTER_BROKER. Source:
BrokerOuterAPI.registerBrokerAll, BrokerController.registerBrokerAll (5.5.0).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from msgspec.structs import replace

from mqtool.engine import MessageStore
from mqtool.errors import MqtoolError
from mqtool.formats.codec import crc32
from mqtool.formats.service_records import MAX_QUEUES
from mqtool.formats.topics import is_lmq
from mqtool.protocol import registration_body
from mqtool.protocol.command import Command, RequestCode, ResponseCode
from mqtool.protocol.registration_body import RegisterBody
from mqtool.server.broker.answers import RefusalError
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.broker_admin import BrokerAdmin
from mqtool.server.broker.config import BrokerSettings
from mqtool.server.broker.consumer_admin import ConsumerAdmin
from mqtool.server.broker.consumers import Assignments, ClientProcessor, ConsumerProcessor
from mqtool.server.broker.delay import Schedule, Timer
from mqtool.server.broker.messages import ReadOnlyMessages
from mqtool.server.broker.pop.lite import Lite, LiteAdmin
from mqtool.server.broker.pop.pop_message import PopProcessor
from mqtool.server.broker.pull import PullProcessor, QueryProcessor
from mqtool.server.broker.send.consumer_sends import ReplyProcessor, SendBackProcessor
from mqtool.server.broker.send.fast_path import SendFastPath
from mqtool.server.broker.send.send_message import SendProcessor
from mqtool.server.broker.send.transactions import Transactions
from mqtool.server.broker.topic_admin import TopicAdmin
from mqtool.server.clock import ServerClock
from mqtool.server.net.connections import Connection
from mqtool.server.net.peer import Answer, Handler, Peer

_LOG = logging.getLogger(__name__)

SHORTEST_S = 0.05
AFTER_FAILURE_S = 1.0
_POLL_S = 0.001
_SETTLE_S = 10.0
_SETTLE_ROUNDS = 10

PERIOD_S = 30.0
_TIMEOUT_S = 3.0

_HOUSEKEEPING_S = 10.0
_EARLY_DELETIONS_S = 1.0


class Tasks:
    """The background tasks of one broker. Must be used in the event loop's thread."""

    def __init__(self, clock: ServerClock) -> None:
        self._clock = clock
        self._running: set[asyncio.Task[Any]] = set()
        self._at_work = 0

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Runs a coroutine until it ends or the broker stops; a failure is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _LOG.error("service ended error=%r", task.exception())

    def forever(self, turn: Callable[[], Awaitable[float] | float]) -> None:
        """Runs a service repeatedly until the broker stops; an error is logged, and the next run tries again.

        `turn` is one run; it returns the seconds until the next.
        """
        self._at_work += 1
        self.spawn(self._turns(turn))

    async def _turns(self, turn: Callable[[], Awaitable[float] | float]) -> None:
        failure = ""
        while True:
            try:
                pause = turn()
                seconds = pause if isinstance(pause, int | float) else await pause
                failure = ""
            except Exception as error:  # noqa: BLE001 - the service continues whatever happens
                seconds = AFTER_FAILURE_S
                if repr(error) != failure:  # log a persistent error, such as a full disk, only once
                    failure = repr(error)
                    _LOG.error(
                        "service failed and will retry work=%s error=%s", getattr(turn, "__qualname__", turn), failure
                    )
            await self._rest(seconds)

    def every(self, seconds: Callable[[], float], work: Callable[[], Awaitable[None] | None]) -> None:
        """Runs work at intervals until the broker stops; an exception is logged, and the next run tries again.

        `seconds` returns the interval; it is called before each wait.
        """
        self._at_work += 1
        self.spawn(self._repeat(seconds, work))

    async def _repeat(self, seconds: Callable[[], float], work: Callable[[], Awaitable[None] | None]) -> None:
        while True:
            await self._rest(max(SHORTEST_S, seconds()))
            try:
                awaitable = work()
                if awaitable is not None:
                    await awaitable
            except Exception as error:  # noqa: BLE001 - as above
                _LOG.error("service failed and will retry work=%s error=%r", getattr(work, "__qualname__", work), error)

    async def _rest(self, seconds: float) -> None:
        over = asyncio.Event()

        def end() -> None:
            self._at_work += 1
            over.set()

        timer = self._clock.call_later(seconds, end)
        self._at_work -= 1
        try:
            await over.wait()
        finally:
            timer.cancel()

    async def rested(self) -> None:
        """Waits until no service is at work."""
        while self._at_work:
            await asyncio.sleep(_POLL_S)

    async def stop(self) -> None:
        """Cancels all tasks and waits until they have ended."""
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


class Registration:
    """Keeps the registration of a broker with its name servers up to date."""

    def __init__(
        self,
        broker: Broker,
        register_locally: Callable[[], None] | None,
        name_servers: list[str],
        ha_address: str = "",
        sign: Callable[[Command], Command] | None = None,
    ) -> None:
        """Creates the service; sends nothing yet.

        `register_locally` registers the broker with the name server in this process, if there is one; `ha_address` is
        for slaves, "" without replication; `sign` signs requests to other name servers.
        """
        self._broker = broker
        self._register_locally = register_locally
        self._name_servers = name_servers
        self._ha_address = ha_address
        self._sign = sign
        self._open: dict[str, Connection] = {}
        self._due = asyncio.Event()
        self._round_ended = asyncio.Condition()
        self._begun = self._ended = 0
        self._awaited = 1
        broker.topics.on_change, broker.wait_registered = self.trigger, self.wait_done

    def trigger(self) -> None:
        """Registers with the name server in this process at once, and triggers a registration with the others."""
        if self._register_locally is not None:
            self._register_locally()
        self._awaited = self._begun + 1
        self._due.set()

    async def wait_done(self) -> None:
        """Waits until all name servers have answered or timed out in a round that began after the last change."""
        awaited = self._awaited
        if self._name_servers:
            async with self._round_ended:
                await self._round_ended.wait_for(lambda: self._ended >= awaited)

    async def run(self) -> None:
        """Registers repeatedly until the broker stops."""
        while True:
            self._due.clear()
            self._begun += 1
            if self._register_locally is not None:
                self._register_locally()
            for address in self._name_servers:
                await self._register(address)
            async with self._round_ended:
                self._ended = self._begun
                self._round_ended.notify_all()
            with suppress(TimeoutError):
                async with asyncio.timeout(PERIOD_S):  # wait_for of Python 3.11 loses a cancellation at that moment
                    await self._due.wait()

    async def _register(self, address: str) -> None:
        try:
            data = registration_body.build(registration_of(self._broker))
            answer = await self._call(address, RequestCode.REGISTER_BROKER, data)
        except (MqtoolError, OSError, TimeoutError) as error:
            _LOG.warning("not registered name_server=%s error=%s", address, error)
            self._forget(address)
            return
        if answer.code != ResponseCode.SUCCESS:
            _LOG.warning("not registered name_server=%s remark=%s", address, answer.remark)

    async def close(self) -> None:
        """Unregisters from the other name servers."""
        for address in self._name_servers:
            try:
                await self._call(address, RequestCode.UNREGISTER_BROKER, b"")
            except (MqtoolError, OSError, TimeoutError) as error:
                _LOG.warning("not unregistered name_server=%s error=%s", address, error)
            self._forget(address)

    def _forget(self, address: str) -> None:
        connection = self._open.pop(address, None)
        if connection is not None:
            connection.close()

    async def _call(self, address: str, code: int, data: bytes) -> Command:
        connection = self._open.get(address)
        if connection is None or connection.peer.closed:
            connection = self._open[address] = await Connection.open(address)
        settings = self._broker.settings
        fields = {
            "brokerName": settings.text("brokerName"),
            "brokerAddr": self._broker.address,
            "clusterName": settings.text("brokerClusterName"),
            "haServerAddr": self._ha_address,
            "brokerId": settings.text("brokerId"),
            "compressed": "false",
            "enableActingMaster": "false",
            "bodyCrc32": str(crc32(data)),
        }
        command = Command(code, fields=fields, body=data, version=self._broker.version)
        return await connection.call(self._sign(command) if self._sign else command, timeout=_TIMEOUT_S)


def registration_of(broker: Broker) -> RegisterBody:
    """Returns the body of a registration. Each topic's permissions are limited to those of the broker."""
    limit = broker.permission_limit
    topics = {name: replace(config, perm=config.perm & limit) for name, config in broker.topics.table.items()}
    return RegisterBody(topics, broker.topics.data_version)


class Processor(Protocol):
    """Handles certain request codes."""

    def handlers(self) -> Mapping[int, Handler]:
        """Returns the handler of each request code; a handler may raise any MqtoolError."""


def table(processors: Iterable[Processor], check: Callable[[Command], None] | None = None) -> dict[int, Handler]:
    """Returns the handlers of all processors by request code; errors that they raise become answers.

    `check` is called before each handler. The listener answers other codes as not supported.
    """
    handlers: dict[int, Handler] = {}
    for processor in processors:
        own = processor.handlers()
        assert handlers.keys().isdisjoint(own), "a request code has two handlers"
        handlers |= {code: _answering(handler, check) for code, handler in own.items()}
    return handlers


def _answering(handler: Handler, check: Callable[[Command], None] | None) -> Handler:
    """Wraps a handler so that errors it raises become answers."""

    def handle(command: Command, peer: Peer) -> Awaitable[Answer] | Answer:
        try:
            if check is not None:
                check(command)
            answer = handler(command, peer)
        except MqtoolError as error:
            return _refused(command, error)
        if answer is None or isinstance(answer, Command):
            return answer
        return _later(command, answer)

    return handle


async def _later(command: Command, answer: Awaitable[Answer]) -> Answer:
    try:
        return await answer
    except MqtoolError as error:
        return _refused(command, error)
    except OSError as error:
        return command.reply(ResponseCode.SYSTEM_ERROR, str(error))


def _refused(command: Command, error: MqtoolError) -> Command:
    if isinstance(error, RefusalError):
        return command.reply(error.code, error.remark)
    _LOG.warning("request failed code=%d error=%s", command.code, error)
    return command.reply(ResponseCode.SYSTEM_ERROR, str(error))


class BrokerService:
    """A broker on an open store, with its request handlers and background services."""

    def __init__(
        self,
        store: MessageStore | ReadOnlyMessages,
        settings: BrokerSettings,
        address: str,
        *,
        fast_sends: bool = True,
        clock: ServerClock | None = None,
    ) -> None:
        """Loads the tables of a store and builds the request handlers; `start` starts the services.

        Without `fast_sends` every send is handled by the ordinary path; answers and stored bytes are the same. `clock`
        is as in `Broker`. Raises ConfigFileError if a table's file cannot be parsed.
        """
        self.broker = broker = Broker(store, settings, address, clock)
        self.tasks = Tasks(broker.clock)
        self._schedule, self._timer = Schedule(broker), Timer(broker)
        self.transactions = Transactions(broker)
        assignments = Assignments(broker)
        sends = SendProcessor(broker, self._timer)
        waits = not broker.is_writable or store.options.sync  # the fast path cannot wait for a flush
        self.fast_sends = SendFastPath(broker, sends) if fast_sends and not waits else None
        self._pops = PopProcessor(broker, self._timer)
        self.acks = self._pops.acks
        self._lite = Lite(broker, self._pops)
        self._processors: tuple[Processor, ...] = (
            self.fast_sends or sends,
            SendBackProcessor(broker),
            ReplyProcessor(broker),
            self.transactions,
            self._timer,
            PullProcessor(broker),
            QueryProcessor(broker),
            ClientProcessor(broker),
            ConsumerProcessor(broker),
            assignments,
            self._pops,
            self._lite,
            TopicAdmin(broker),
            ConsumerAdmin(broker),
            BrokerAdmin(broker, self._timer, self._schedule),
            LiteAdmin(broker, self._lite.subscriptions, self._pops.orders),
        )

    def handlers(self) -> Mapping[int, Handler]:
        """Returns the handler of each supported request code; none of them raises an MqtoolError."""
        static = self.broker.static_topics
        return table(self._processors, static.check if static.mappings else None)

    async def start(self) -> None:
        """Starts the services; from now on the broker must be used in the running event loop."""
        self.broker.long_polling.start()
        self._add_missing_topics()
        self.tasks.every(lambda: _HOUSEKEEPING_S, self._housekeeping)
        self.tasks.every(self._interval("liteSubscriptionCheckInterval"), self._lite.clean)
        if isinstance(self.broker.messages, MessageStore):
            self._start_writing(self.broker.messages)
        name, address = self.broker.settings.text("brokerName"), self.broker.address
        _LOG.info("broker started name=%s address=%s", name, address)

    def _start_writing(self, store: MessageStore) -> None:
        broker = self.broker
        store.add_listener(broker.long_polling.dispatched)
        self._timer.start()
        broker.persister.mark_all()
        for turn in (self._schedule.turn, self._timer.turn, self._pops.revive.turns):
            self.tasks.forever(turn)
        self.tasks.every(self._interval("flushConsumerOffsetInterval"), self._pops.orders.persist)
        self.tasks.every(
            lambda: _EARLY_DELETIONS_S, lambda: broker.early_deletions.add(broker.engine.take_early_deletions())
        )
        self.tasks.every(self._interval("transactionCheckInterval"), self.transactions.check)
        self.tasks.every(self._interval("flushConsumerOffsetInterval"), broker.offsets.persist)
        self.tasks.every(self._interval("flushDelayOffsetInterval"), self._schedule.persist)

    def _interval(self, key: str) -> Callable[[], float]:
        return lambda: self.broker.settings.number(key) / 1000

    async def stop(self) -> None:
        """Stops the services and writes all tables; the caller closes the store."""
        self.broker.retire()
        await self.tasks.stop()
        self._timer.close()
        await self.broker.persister.close()

    async def settle(self) -> None:
        """Does what became due when the clock was advanced, and what that makes due.

        What is left after ten seconds, or after many rounds because clients go on sending, the services do soon.
        """
        messages, end = self.broker.messages, -1
        if not isinstance(messages, MessageStore):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_S):
                for _ in range(_SETTLE_ROUNDS):
                    while messages.dispatch_behind:
                        await asyncio.sleep(_POLL_S)
                    if messages.max_physical_offset == end:
                        break
                    end = messages.max_physical_offset
                    await self.tasks.rested()
                    self._schedule.turn()
                    while self._timer.turn() == 0:
                        await asyncio.sleep(0)
                    self._pops.revive.turns()

    def _housekeeping(self) -> None:
        self.broker.stats.sample()
        for peer in self.broker.clients.expire():
            _LOG.info("client sends no heartbeats address=%s", peer.address)

    def _add_missing_topics(self) -> None:
        """Adds topics that have queues but no configuration, because the broker was killed before it wrote it."""
        topics, queues = self.broker.topics, dict[str, int]()
        for topic, queue_id in self.broker.messages.queues():
            queues[topic] = min(max(queues.get(topic, 0), queue_id + 1), MAX_QUEUES)
        for topic, number in queues.items():
            if topics.get(topic) is None and not is_lmq(topic):
                topics.create_for_send_back(topic, number)
