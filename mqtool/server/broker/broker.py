"""Broker: tables, services and processors, put together; one handler per request code.

Everything runs in one event loop. Docs page: docs/serve.md.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

from mqtool.engine import MessageStore
from mqtool.errors import FormatError, MqtoolError
from mqtool.formats import hosts
from mqtool.formats.config_files import PERM_READ, PERM_WRITE, TopicConfig
from mqtool.formats.hosts import Host
from mqtool.formats.service_records import MAX_QUEUES
from mqtool.protocol.codes import ResponseCode
from mqtool.protocol.command import FLAG_ONEWAY, Command
from mqtool.server.broker import handlers
from mqtool.server.broker.answers import RefusalError
from mqtool.server.broker.consume.assignment import Assignments
from mqtool.server.broker.consume.client_manage import ClientProcessor
from mqtool.server.broker.consume.consumer_manage import ConsumerProcessor
from mqtool.server.broker.consume.long_polling import HeldRequests
from mqtool.server.broker.consume.pull import PullProcessor, readable
from mqtool.server.broker.consume.query import QueryProcessor
from mqtool.server.broker.delay.schedule import Schedule
from mqtool.server.broker.delay.timer import Timer
from mqtool.server.broker.mqadmin.broker_admin import BrokerAdmin
from mqtool.server.broker.mqadmin.consumer_admin import ConsumerAdmin
from mqtool.server.broker.mqadmin.topic_admin import TopicAdmin
from mqtool.server.broker.pop.pop_message import PopProcessor
from mqtool.server.broker.read_only import ReadOnlyMessages
from mqtool.server.broker.send.reply import ReplyProcessor
from mqtool.server.broker.send.send_back import SendBackProcessor
from mqtool.server.broker.send.send_message import SendProcessor
from mqtool.server.broker.send.transactions import Transactions
from mqtool.server.broker.settings import Settings
from mqtool.server.broker.tables.clients import Clients
from mqtool.server.broker.tables.config_persister import Keeper, configs_of
from mqtool.server.broker.tables.early_deletions import EarlyDeletions
from mqtool.server.broker.tables.groups import GroupTable
from mqtool.server.broker.tables.offsets import OffsetTable
from mqtool.server.broker.tables.queue_locks import QueueLocks
from mqtool.server.broker.tables.skipped import SkippedRecords
from mqtool.server.broker.tables.stats import Stats
from mqtool.server.broker.tables.topics import TopicTable
from mqtool.server.broker.tasks import Tasks
from mqtool.server.broker.writer import Writer
from mqtool.server.net.peer import Handler, Peer

_LOG = logging.getLogger(__name__)

_HOUSEKEEPING_S = 10.0
_WATCH_S = 1.0


class Broker:
    """One broker on an open store.

    Attributes:
        settings, topics, groups, offsets, clients, locks, stats, skipped: its tables.
        tasks: what runs beside requests.
        early_deletions: unexpired messages that were deleted because the disk was full.
        messages: the store.
        held: requests that wait for messages.
        address: "host:port" under which clients reach it.
        store_host: the same as records hold it.
        on_topics_changed: called when what name servers know is not true any more.
        until_known: returns when they know again.
    """

    def __init__(self, store: MessageStore | ReadOnlyMessages, settings: Settings, address: str) -> None:
        """Loads the tables of a store and puts the processors together; `start` sets it going.

        Args:
            store: open for writing, or a copy that is only read.
            settings: of the broker.
            address: "host:port" under which clients reach it.

        Raises:
            ConfigFileError: a table cannot be understood.
        """
        self.messages, self.settings, self.address = store, settings, address
        self.root: Path = store.path
        self.store_host = _host_of(address)
        self.is_v4 = store.options.v4
        self.is_writable = isinstance(store, MessageStore)
        self.is_stopping = False
        self.began, self.began_ms = time.monotonic(), time.time_ns() // 1_000_000
        self.on_topics_changed: Callable[[], None] = lambda: None
        self.until_known: Callable[[], Awaitable[None]] = self._known
        configs = configs_of(store.path, v4=self.is_v4, writable=self.is_writable)
        self.keeper = Keeper(configs, durable=store.options.sync)
        self.topics = TopicTable(self.keeper, settings)
        self.groups = GroupTable(self.keeper, settings)
        self.offsets = OffsetTable(self.keeper, lmq=store.options.lmq)
        self.locks, self.stats, self.skipped = QueueLocks(), Stats(), SkippedRecords()
        self.early_deletions = EarlyDeletions(self.offsets)
        self.held = HeldRequests(lambda topic, queue_id: store.queue_bounds(topic, queue_id)[1])
        self._writer = Writer(store, self.held.touch, self.held.flushed) if isinstance(store, MessageStore) else None
        self.schedule, self.timer = Schedule(self), Timer(self)
        self.transactions, self.assignments = Transactions(self), Assignments(self)
        self.sends, self.pulls = SendProcessor(self), PullProcessor(self)
        self.send_backs, self.replies = SendBackProcessor(self), ReplyProcessor(self)
        self.queries = QueryProcessor(self)
        self.client_requests, self.consumer_requests = ClientProcessor(self), ConsumerProcessor(self)
        self.topic_admin, self.consumer_admin, self.admin = TopicAdmin(self), ConsumerAdmin(self), BrokerAdmin(self)
        self.pops = PopProcessor(self)
        self.clients = Clients(self.client_requests.notify)
        self.topics.on_change.append(self.register_soon)
        if isinstance(store, MessageStore):
            self.topics.on_batch_topic = store.add_batch_topic
        self._opaque = 0
        self.tasks = Tasks()

    # -- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Starts the services; the running loop is the broker's from now on."""
        self.held.start()
        self._heal_topics()
        self.tasks.every(lambda: _HOUSEKEEPING_S, self._housekeeping)
        if self.is_writable:
            self._start_writing()
        _LOG.info("broker serves name=%s address=%s", self.settings.text("brokerName"), self.address)

    def _start_writing(self) -> None:
        self.writer.start()
        self.messages.add_listener(self.held.dispatched)
        self.timer.start()
        for name in self.keeper.names():
            self.keeper.mark(name)
        for turn in (self.schedule.turn, self.timer.turn, self.pops.revive.turns):
            self.tasks.forever(turn)
        self.tasks.every(self._interval("flushConsumerOffsetInterval"), self.pops.orders.persist)
        self.tasks.every(lambda: _WATCH_S, lambda: self.early_deletions.add(self._engine.take_early_deletions()))
        self.tasks.every(self._interval("transactionCheckInterval"), self.transactions.check)
        self.tasks.every(self._interval("flushConsumerOffsetInterval"), self.offsets.persist)
        self.tasks.every(self._interval("flushDelayOffsetInterval"), self.schedule.persist)

    def _interval(self, key: str) -> Callable[[], float]:
        return lambda: self.settings.number(key) / 1000

    @property
    def writer(self) -> Writer:
        """What puts messages into the store; raises RefusalError if it is only read."""
        if self._writer is None:
            raise RefusalError(ResponseCode.NO_PERMISSION, f"the broker[{self.address}] serves its store read-only")
        return self._writer

    @property
    def _engine(self) -> MessageStore:
        self.check_writable(None)
        assert isinstance(self.messages, MessageStore)
        return self.messages

    def retire(self) -> None:
        """Lets go of requests that wait; from now on none does."""
        self.is_stopping = True
        self.held.wake_all()

    async def stop(self) -> None:
        """Ends the services and writes every table; the store is the caller's to close."""
        self.retire()
        await self.tasks.stop()
        await self.pops.close()
        self.timer.close()
        await self.keeper.close()
        if self._writer is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._writer.stop)

    def _housekeeping(self) -> None:
        self.stats.sample()
        for peer in self.clients.expire():
            _LOG.info("client is silent address=%s", peer.address)

    def _heal_topics(self) -> None:
        """Adds topics that have queues but no entry: a kill came between a first message and the table's file."""
        queues: dict[str, int] = {}
        for topic, queue_id in self.messages.queues():
            queues[topic] = min(max(queues.get(topic, 0), queue_id + 1), MAX_QUEUES)
        for topic, number in queues.items():
            if self.topics.get(topic) is None and not topic.startswith("%LMQ%"):
                self.topics.create_for_send_back(topic, number)

    # -- requests ------------------------------------------------------------------------------------------------

    def handlers(self) -> Mapping[int, Handler]:
        """Returns what to call for each request code; answers are whole, refusals included."""
        return handlers.table(self)

    def closed(self, peer: Peer) -> None:
        """Takes note that a connection is gone."""
        self.clients.forget(peer)

    def check_writable(self, topic: TopicConfig | None) -> None:
        """Raises RefusalError if the broker does not take messages."""
        if not self.is_writable or not self.settings.number("brokerPermission") & PERM_WRITE:
            what = "" if topic is None else f"the topic[{topic.topic_name}] "
            remark = f"the broker[{self.address}] {what}sending message is forbidden"
            raise RefusalError(ResponseCode.NO_PERMISSION, remark)
        if self.is_stopping:
            raise RefusalError(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker is shutting down")

    def check_readable(self, what: str) -> None:
        """Raises RefusalError if the broker does not hand out messages."""
        if not self.settings.number("brokerPermission") & PERM_READ:
            raise RefusalError(ResponseCode.NO_PERMISSION, f"the broker[{self.address}] {what} is forbidden")

    @property
    def problem(self) -> str | None:
        """Why the broker cannot do all its work, None if it can."""
        if self.is_stopping:
            return "stopping"
        if isinstance(self.messages, MessageStore) and not self.messages.writable:
            return "the store takes no messages"
        return None

    def readable_topic(self, topic: str) -> TopicConfig:
        """Returns a topic that may be read; raises RefusalError otherwise."""
        return readable(self, topic)

    def host_of(self, peer: Peer) -> bytes:
        """Returns the address of a peer as records hold it; those that are none of the network are the broker's."""
        host = peer.attributes.get("host_bytes")
        if host is None:
            try:
                host = hosts.build(hosts.parse_text(peer.address))
            except FormatError:
                host = self.store_host
            peer.attributes["host_bytes"] = host
        return bytes(host)

    # -- what the broker says by itself --------------------------------------------------------------------------

    def tell(self, peer: Peer, code: int, fields: dict[str, str], data: bytes = b"") -> None:
        """Sends a request that wants no answer; a peer that is gone is passed over."""
        if not self.is_stopping:
            self._opaque += 1
            peer.send(Command(code, FLAG_ONEWAY, self._opaque & 0x7FFFFFFF, fields=fields, body=data))

    async def ask(self, peer: Peer, code: int, fields: dict[str, str], data: bytes, seconds: float) -> Command | None:
        """Sends a request and returns the answer, None if there is none in time."""
        try:
            return await peer.request(Command(code, fields=fields, body=data), seconds)
        except (MqtoolError, OSError, TimeoutError) as error:
            _LOG.warning("no answer address=%s code=%d error=%r", peer.address, code, error)
            return None

    # -- changes -------------------------------------------------------------------------------------------------

    @staticmethod
    async def _known() -> None:
        """Nobody is told, so nobody is waited for."""

    def register_soon(self) -> None:
        """Has name servers told what is there now."""
        self.on_topics_changed()

    def delete_topic(self, topic: str) -> None:
        """Removes a topic, its queues and what groups committed in it."""
        self.topics.delete(topic)
        self.offsets.forget_topic(topic)
        self._engine.delete_topic(topic)

    def change_reading(self, live: dict[str, int]) -> None:
        """Changes how much a pull returns."""
        self._engine.change_reading(replace(self.messages.options, **live))  # type: ignore[arg-type]

    def clean_soon(self) -> None:
        """Has retention look for what is too old."""
        self._engine.clean_soon()


def _host_of(address: str) -> bytes:
    try:
        return hosts.build(hosts.parse_text(address))
    except FormatError:  # a name: records hold addresses only
        return hosts.build(Host("127.0.0.1", int(address.rpartition(":")[2])))
