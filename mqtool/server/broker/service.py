"""Assembles, starts and stops a broker's request handlers and background services; turns refusals into answers."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from mqtool.engine import MessageStore
from mqtool.errors import MqtoolError
from mqtool.formats.service_records import MAX_QUEUES
from mqtool.formats.topics import is_lmq
from mqtool.protocol.codes import ResponseCode
from mqtool.protocol.command import Command
from mqtool.server.broker.answers import RefusalError
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.consume.assignment import Assignments
from mqtool.server.broker.consume.consumers import ClientProcessor, ConsumerProcessor
from mqtool.server.broker.consume.pull import PullProcessor, QueryProcessor
from mqtool.server.broker.delay.schedule import Schedule
from mqtool.server.broker.delay.timer import Timer
from mqtool.server.broker.mqadmin.broker_admin import BrokerAdmin
from mqtool.server.broker.mqadmin.consumer_admin import ConsumerAdmin
from mqtool.server.broker.mqadmin.topic_admin import TopicAdmin
from mqtool.server.broker.pop.lite import Lite, LiteAdmin
from mqtool.server.broker.pop.pop_message import PopProcessor
from mqtool.server.broker.read_only import ReadOnlyMessages
from mqtool.server.broker.send.consumer_sends import ReplyProcessor, SendBackProcessor
from mqtool.server.broker.send.fast_path import SendFastPath
from mqtool.server.broker.send.send_message import SendProcessor
from mqtool.server.broker.send.transactions import Transactions
from mqtool.server.broker.settings import BrokerSettings
from mqtool.server.broker.tasks import Tasks
from mqtool.server.net.peer import Answer, Handler, Peer

_LOG = logging.getLogger(__name__)


class Processor(Protocol):
    """Handles certain request codes."""

    def handlers(self) -> Mapping[int, Handler]:
        """Returns the handler of each request code; a handler may raise any MqtoolError."""


def table(processors: Iterable[Processor], check: Callable[[Command], None] | None = None) -> dict[int, Handler]:
    """Returns the handlers of all processors by request code; errors that they raise become answers.

    The listener answers other codes as not supported.

    Args:
        processors: the processors.
        check: called before each handler; may raise any MqtoolError.
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


_HOUSEKEEPING_S = 10.0
_EARLY_DELETIONS_S = 1.0


class BrokerService:
    """A broker on an open store, with its request handlers and background services.

    Attributes:
        broker: the store and its tables.
        tasks: the background services.
        transactions: handler of transactions.
        fast_sends: the fast path of sends; None if every send uses the ordinary path.
        acks: handler of acknowledgements.
    """

    def __init__(
        self, store: MessageStore | ReadOnlyMessages, settings: BrokerSettings, address: str, *, fast_sends: bool = True
    ) -> None:
        """Loads the tables of a store and builds the request handlers; `start` starts the services.

        Args:
            store: the store, open for writing or read-only.
            settings: settings of the broker.
            address: "host:port" under which clients reach the broker.
            fast_sends: False to handle every send by the ordinary path; answers and stored bytes are the same.

        Raises:
            ConfigFileError: a table's file cannot be parsed.
        """
        self.broker = broker = Broker(store, settings, address)
        self.tasks = Tasks()
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
        _LOG.info("broker serves name=%s address=%s", name, address)

    def _start_writing(self, store: MessageStore) -> None:
        broker = self.broker
        store.add_listener(broker.long_polling.dispatched)
        self._timer.start()
        for name in broker.persister.names():
            broker.persister.mark(name)
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

    def _housekeeping(self) -> None:
        self.broker.stats.sample()
        for peer in self.broker.clients.expire():
            _LOG.info("client is silent address=%s", peer.address)

    def _add_missing_topics(self) -> None:
        """Adds topics that have queues but no configuration, because the broker was killed before it wrote it."""
        topics, queues = self.broker.topics, dict[str, int]()
        for topic, queue_id in self.broker.messages.queues():
            queues[topic] = min(max(queues.get(topic, 0), queue_id + 1), MAX_QUEUES)
        for topic, number in queues.items():
            if topics.get(topic) is None and not is_lmq(topic):
                topics.create_for_send_back(topic, number)
