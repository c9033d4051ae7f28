"""What the admin pages read: a copy of the broker's tables, and the store.

Tables are copied in the event loop's thread, for use in the thread for pages. An open engine can be read from any
thread. The caches of a read-only store belong to one thread, so such a store is opened a second time.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from mqtool.engine import MessageStore
from mqtool.formats.config_files import TopicConfig, split_topic_group
from mqtool.formats.topics import is_system_topic
from mqtool.server.broker import attributes
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.read_only import ReadOnlyMessages
from mqtool.server.broker.tables.clients import Client
from mqtool.server.broker.tables.losses import SkippedMessage
from mqtool.server.broker.tables.stats import GROUP_GET_NUMS, TOPIC_PUT_NUMS
from mqtool.store.store import Store, open_store

Messages = MessageStore | ReadOnlyMessages
"""An open store from which messages are read."""


class MessageAccess:
    """Opens the store for the pages on first use. Must be used in the thread for pages."""

    def __init__(self, broker: Broker, config: Mapping[str, str]) -> None:
        """Opens nothing yet; `config` contains the keys of the broker's configuration."""
        self._broker = broker
        self._config = config
        self._store: Store | None = None

    def messages(self) -> Messages:
        """Returns the open store; opens it on the first call.

        Raises:
            StoreError: the store cannot be opened.
        """
        served = self._broker.messages
        if isinstance(served, MessageStore):
            return served
        if self._store is None:
            self._store = open_store(served.path, dict(self._config))
        return ReadOnlyMessages(self._store, served.options)

    def close(self) -> None:
        """Closes the store if it was opened here."""
        if self._store is not None:
            self._store.close()
            self._store = None


_PUTS, _GETS = 1, 2


class Member(NamedTuple):
    """A connected consumer."""

    client_id: str
    address: str
    language: str


class Online(NamedTuple):
    """A consumer group with connected members."""

    consume_type: str
    message_model: str
    members: list[Member]


class Snapshot(Struct, frozen=True):
    """The state of a broker at one moment."""

    # name, cluster, address: of the broker
    name: str
    cluster: str
    address: str
    began_ms: int  # when the broker started, ms since epoch
    problem: str | None  # why the broker cannot work fully; None if it can
    is_writable: bool  # whether the broker accepts messages
    # put_rates, get_rates: messages per second over 10 seconds, 1 minute and 10 minutes
    put_rates: list[str]
    get_rates: list[str]
    # puts, gets: messages per second over the last minute, by topic and by (topic, group)
    puts: dict[str, float]
    gets: dict[tuple[str, str], float]
    topics: dict[str, TopicConfig]  # topic configurations by name
    groups: set[str]  # all known consumer groups: configured, connected, or with offsets
    committed: dict[tuple[str, str], dict[int, int]]  # consumer offsets by queue id, by (topic, group)
    online: dict[str, Online]  # consumer groups with connected members
    producers: int  # number of connected producers
    held: int  # number of pull requests waiting for messages
    own_topics: set[str]  # the broker's own topics
    is_losing: bool  # whether unexpired messages were deleted recently because the disk was full
    early_messages: int  # number of unexpired messages deleted since the start
    unread: dict[tuple[str, str], int]  # number of these that a group had not consumed, by (topic, group)
    skipped: list[SkippedMessage]  # the most recent messages that background services could not process
    skipped_total: int  # number of such messages since the start


def take(broker: Broker) -> Snapshot:
    """Copies the current state of a broker. Must be called in the event loop's thread."""
    cluster, name = broker.settings.text("brokerClusterName"), broker.settings.text("brokerName")
    committed = {pair: broker.offsets.of(pair[1], pair[0]) for pair in broker.offsets.pairs()}
    online = {
        group.name: _online(group.consume_type, group.message_model, list(group.members.values()))
        for group in broker.clients.consumers.values()
    }
    own_topics = {cluster, name, f"{cluster}_{attributes.REPLY_TOPIC_SUFFIX}"}
    known = {group for _, group in committed} | online.keys()
    known |= {group for group in broker.groups.table if not attributes.is_system_group(group)}
    stats, keys = broker.stats, broker.stats.items()
    return Snapshot(
        name,
        cluster,
        broker.address,
        broker.began_ms,
        broker.problem,
        broker.is_writable,
        stats.rates(_PUTS).split(),
        stats.rates(_GETS).split(),
        {key: stats.per_second(item, key) for item, key in keys if item == TOPIC_PUT_NUMS},
        {split_topic_group(key): stats.per_second(item, key) for item, key in keys if item == GROUP_GET_NUMS},
        dict(broker.topics.table),
        known,
        committed,
        online,
        sum(map(len, broker.clients.producers.values())),
        broker.long_polling.count,
        {topic for topic in broker.topics.table if is_system_topic(topic) or topic in own_topics},
        broker.early_deletions.is_recent,
        broker.early_deletions.messages,
        dict(broker.early_deletions.unread),
        broker.skipped.newest,
        broker.skipped.counts.total(),
    )


def _online(consume_type: str, message_model: str, clients: list[Client]) -> Online:
    members = [Member(client.client_id, client.peer.address, client.language) for client in clients]
    return Online(consume_type, message_model, sorted(members))
