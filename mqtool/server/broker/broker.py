"""The broker: a store and its tables, with the permission checks that apply to every request.

Request handlers and background services use it; `service` assembles them. Everything here must be used in the thread of
one event loop. Docs page: docs/serve.md.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from mqtool.engine import MessageStore
from mqtool.engine.options import LIMIT_KEYS, with_limits
from mqtool.engine.retention import rules as retention_rules
from mqtool.errors import FormatError, MqtoolError
from mqtool.formats import file_names, hosts, java
from mqtool.formats.config_files import PERM_READ, PERM_WRITE, GroupConfig, TopicConfig
from mqtool.formats.hosts import Host
from mqtool.formats.release import ON_THE_WIRE
from mqtool.protocol.command import FAQ, FLAG_ONEWAY, Command, RequestCode, ResponseCode
from mqtool.server.broker.answers import RefusalError
from mqtool.server.broker.clients import Clients, ConsumerGroup, QueueLocks
from mqtool.server.broker.config import BrokerSettings, ConfigPersister, configs_of
from mqtool.server.broker.long_polling import LongPolling
from mqtool.server.broker.messages import ReadOnlyMessages, Writer
from mqtool.server.broker.offsets import OffsetTable
from mqtool.server.broker.stats import EarlyDeletions, SkippedRecords, Stats
from mqtool.server.broker.topics import GroupTable, StaticTopics, TopicTable
from mqtool.server.clock import ServerClock
from mqtool.server.net.peer import Handler, Peer
from mqtool.store.config.metadata import offset_file

_LOG = logging.getLogger(__name__)


class Broker:
    """A store with the tables of a broker.

    `messages` is the store. Clients reach the broker at `address` ("host:port"); `store_host` is the same in the form
    of records, 8 or 20 bytes. The broker behaves as `release`. Once it `is_stopping`, it accepts no
    messages. `began` and `began_ms` are on the monotonic clock in seconds, and in ms since epoch. `wait_registered`
    returns when the name servers have been notified of changed topics.
    """

    def __init__(
        self,
        store: MessageStore | ReadOnlyMessages,
        settings: BrokerSettings,
        address: str,
        clock: ServerClock | None = None,
    ) -> None:
        """Loads the tables; raises ConfigFileError if one cannot be parsed. `address` is for clients.

        `clock` is the one with which the store was opened; None for the machine's.
        """
        self.messages, self.settings, self.address = store, settings, address
        self.clock = clock or ServerClock()
        self.root: Path = store.path
        self.store_host = host_of(address, store.options.store_host)
        self.release = store.options.release
        self.version = ON_THE_WIRE[self.release]
        self.is_writable = isinstance(store, MessageStore)
        self.is_stopping = False
        self.began, self.began_ms = self.clock.monotonic(), self.clock.now()
        self.wait_registered: Callable[[], Awaitable[None]] = self._no_registration
        configs = configs_of(store.path, release=self.release, writable=self.is_writable)
        self.persister = ConfigPersister(configs, durable=store.options.sync)
        self.topics = TopicTable(self.persister, settings)
        self.static_topics = StaticTopics(configs)
        self.groups = GroupTable(self.persister, settings)
        self.offsets = OffsetTable(self.persister, offset_file(store.path / file_names.CONFIG, settings.store_config()))
        self.clients = Clients(self._notify_members)
        self.locks, self.stats, self.skipped = QueueLocks(), Stats(), SkippedRecords()
        self.early_deletions = EarlyDeletions(self.offsets)
        self.long_polling = LongPolling(lambda topic, queue_id: store.queue_bounds(topic, queue_id)[1], self.clock)
        self._writer = (
            Writer(store, self.long_polling.touch, self.long_polling.flushed)
            if isinstance(store, MessageStore)
            else None
        )
        if isinstance(store, MessageStore):
            self.topics.on_batch_topic = store.add_batch_topic
        self._opaque = 0

    @property
    def writer(self) -> Writer:
        """Puts messages into the store; raises RefusalError if the store is read-only."""
        if self._writer is None:
            raise self._read_only()
        return self._writer

    def _read_only(self) -> RefusalError:
        return RefusalError(ResponseCode.NO_PERMISSION, f"the broker[{self.address}] serves its store read-only")

    @property
    def engine(self) -> MessageStore:
        """The store, for changes other than messages; raises RefusalError as `check_open`."""
        self.check_open()
        assert isinstance(self.messages, MessageStore)
        return self.messages

    def retire(self) -> None:
        """Answers all requests that wait for messages; later requests do not wait."""
        self.is_stopping = True
        self.long_polling.wake_all()

    # -- permissions ---------------------------------------------------------------------------------------------

    @property
    def permission_limit(self) -> int:
        """Bits of a topic's permissions that a route to this broker keeps: all if it may be read and written.

        Source: BrokerController.registerBrokerAll (4.9.7, 5.5.0).
        """
        allowed = self.settings.number("brokerPermission")
        return -1 if allowed & PERM_READ and allowed & PERM_WRITE else allowed

    @property
    def host(self) -> str:
        """Host of the address, as errors name the broker."""
        return self.address.rpartition(":")[0]

    @property
    def port(self) -> int:
        """Port of the address."""
        return int(self.address.rpartition(":")[2])

    @property
    def may_write(self) -> bool:
        """Whether the store is open for writing and brokerPermission allows it."""
        return self.is_writable and bool(self.settings.number("brokerPermission") & PERM_WRITE)

    def check_open(self) -> None:
        """Raises RefusalError if the store is read-only or the broker shuts down.

        Only some requests also depend on brokerPermission; see `check_writable`.
        """
        if not self.is_writable:
            raise self._read_only()
        if self.is_stopping:
            raise RefusalError(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker is shutting down")

    def check_writable(self) -> None:
        """Raises RefusalError as `check_open`, or if brokerPermission does not allow writing.

        A broker is drained by brokerPermission=4: name servers then show its topics as not writable. The broker itself
        refuses only messages of ordered topics and messages that a consumer sends back. It accepts other sends, ends of
        transactions and changes of topics. Source: AbstractSendMessageProcessor (4.9.7, 5.5.0).
        """
        self.check_open()
        if not self.may_write:
            remark = f"the broker[{self.host}] sending message is forbidden"
            raise RefusalError(ResponseCode.NO_PERMISSION, remark)

    def check_release_5(self, command: Command) -> None:
        """Raises RefusalError if the broker behaves as release 4.9, which does not support the request."""
        if self.release < (5, 0) and self.is_writable:
            remark = f" request type {command.code} not supported"
            raise RefusalError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)

    def check_readable(self, what: str) -> None:
        """Raises RefusalError if brokerPermission does not allow reading."""
        if not self.settings.number("brokerPermission") & PERM_READ:
            raise RefusalError(ResponseCode.NO_PERMISSION, f"the broker[{self.host}] {what} is forbidden")

    @property
    def problem(self) -> str | None:
        """Why the broker cannot work fully; None if it can."""
        if self.is_stopping:
            return "stopping"
        if isinstance(self.messages, MessageStore) and not self.messages.writable:
            is_full = self.messages.disk_is_full
            return "the disk is too full; new messages are refused" if is_full else "the store accepts no messages"
        return None

    def existing_topic(self, topic: str, missing: str) -> TopicConfig:
        """Returns a topic; raises RefusalError with the remark `missing` if it does not exist."""
        config = self.topics.get(topic)
        if config is None:
            raise RefusalError(ResponseCode.TOPIC_NOT_EXIST, missing)
        return config

    def existing_group(self, group: str, missing: str) -> GroupConfig:
        """Returns a consumer group, created if allowed; raises RefusalError as `existing_topic`."""
        config = self.groups.find(group)
        if config is None:
            raise RefusalError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, missing)
        return config

    def readable_topic(self, topic: str, what: str = "pulling message") -> TopicConfig:
        """Returns a topic; raises RefusalError if it does not exist or is not readable."""
        config = self.topics.get(topic)
        if config is None:
            raise RefusalError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please! {FAQ}")
        if not config.perm & PERM_READ:
            raise RefusalError(ResponseCode.NO_PERMISSION, f"the topic[{topic}] {what} is forbidden")
        return config

    def consuming_group(self, group: str, missing: str) -> GroupConfig:
        """Returns a consumer group; raises RefusalError if it does not exist or may not consume.

        `missing` ends the remark for a group that does not exist; the real broker words it by the kind of request.
        """
        config = self.groups.find(group)
        if config is None:
            remark = f"subscription group [{group}] {missing}"
            raise RefusalError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not config.consume_enable:
            raise RefusalError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}")
        return config

    def host_of(self, peer: Peer) -> bytes:
        """Returns the address of a peer in the form of records; the broker's own for a peer without an IP address."""
        host = peer.attributes.get("host_bytes")
        if host is None:
            try:
                host = hosts.build(hosts.parse_text(peer.address))
            except FormatError:
                host = self.store_host
            peer.attributes["host_bytes"] = host
        return bytes(host)

    # -- requests to clients -------------------------------------------------------------------------------------

    def notify(self, peer: Peer, code: int, fields: dict[str, str], data: bytes = b"") -> None:
        """Sends a one-way request to a client; does nothing if the connection is closed or the broker shuts down."""
        if not self.is_stopping:
            self._opaque += 1
            peer.send(Command(code, FLAG_ONEWAY, self._opaque & java.INT_MAX, fields=fields, body=data))

    async def request(
        self, peer: Peer, code: int, fields: dict[str, str], data: bytes, seconds: float
    ) -> Command | None:
        """Sends a request to a client; returns the answer, or None if it fails or takes longer than `seconds`."""
        try:
            return await peer.request(Command(code, fields=fields, body=data), seconds)
        except (MqtoolError, OSError, TimeoutError) as error:
            _LOG.warning("no answer address=%s code=%d error=%r", peer.address, code, error)
            return None

    def _notify_members(self, group: ConsumerGroup) -> None:
        """Makes the members of a consumer group rebalance (NOTIFY_CONSUMER_IDS_CHANGED)."""
        for peer in list(group.members):
            self.notify(peer, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group.name})

    # -- changes -------------------------------------------------------------------------------------------------

    @staticmethod
    async def _no_registration() -> None:
        """Returns immediately, because no name server has to be notified."""

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic, its queues and the consumer offsets in it."""
        self.topics.delete(topic)
        self.offsets.forget_topic(topic)
        self.engine.delete_topic(topic)

    def change_settings(self, changes: Mapping[str, str]) -> None:
        """Changes settings; the open store obeys its limits and its retention from now on.

        Raises UsageError, and changes nothing, if a key cannot change while the broker runs, or a value is invalid;
        RefusalError if a change concerns the open store, which is read-only or about to be closed.
        """
        known = self.settings.checked(changes)
        if not (LIMIT_KEYS | retention_rules.KEYS).isdisjoint(known):
            config, engine = self.settings.store_config(known), self.engine
            options, policy = with_limits(engine.options, config), retention_rules.policy_from_config(config)
            engine.change_limits(options)
            engine.change_retention(policy)
        self.settings.update(changes)
        if "brokerPermission" in known:
            self.topics.announce()


H = TypeVar("H", bound=Callable[..., Any])


def handles(*codes: RequestCode) -> Callable[[H], H]:
    """Marks a method `(command, peer)` of a `RequestProcessor` as the handler of request codes."""

    def mark(method: H) -> H:
        method.codes = codes  # type: ignore[attr-defined]
        return method

    return mark


class RequestProcessor:
    """Handles requests to a broker by its methods that are marked with `handles`; these may raise any MqtoolError."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        """Returns the handler of each request code."""
        marked = ((name, getattr(method, "codes", ())) for name, method in vars(type(self)).items())
        return {code: getattr(self, name) for name, codes in marked for code in codes}


def host_of(address: str, resolved: Host) -> bytes:
    """Returns an address in the form of records; `resolved` has the IP address of a host name."""
    try:
        return hosts.build(hosts.parse_text(address))
    except FormatError:  # a host name; records contain only addresses
        return hosts.build(Host(resolved.address, int(address.rpartition(":")[2])))
