"""The broker's tables as the page shows them, copied in the event loop's thread for use in another one."""

from dataclasses import dataclass
from typing import NamedTuple

from mqtool.formats.config_files import TopicConfig
from mqtool.server.broker import names
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.tables.clients import Client
from mqtool.server.broker.tables.skipped import Skipped
from mqtool.server.broker.tables.stats import GROUP_GET_NUMS, TOPIC_PUT_NUMS

_PUTS, _GETS = 1, 2


class Member(NamedTuple):
    """A consumer that is connected."""

    client_id: str
    address: str
    language: str


class Online(NamedTuple):
    """A consumer group that has members."""

    consume_type: str
    message_model: str
    members: list[Member]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A broker at one moment.

    Attributes:
        name, cluster, address: of the broker.
        began_ms: when it started, ms since epoch.
        problem: why it cannot do all its work, None if it can.
        is_writable: whether it takes messages at all.
        put_rates, get_rates: messages a second over ten seconds, a minute and ten minutes.
        puts, gets: messages a second over the last minute, by topic and by topic and group.
        topics: by name.
        groups: all that are known: configured, connected, or with offsets.
        committed: consumer offsets by queue, by topic and group.
        online: groups with members.
        producers: how many are connected.
        held: pulls that wait for messages.
        own_topics: the broker's own.
        is_losing: whether unexpired messages were deleted lately, because the disk was full.
        early_messages: how many since the start.
        unread: messages among them that a group had not read, by topic and group.
        skipped: the newest messages that services could not use.
        skipped_total: how many there were since the start.
    """

    name: str
    cluster: str
    address: str
    began_ms: int
    problem: str | None
    is_writable: bool
    put_rates: list[str]
    get_rates: list[str]
    puts: dict[str, float]
    gets: dict[tuple[str, str], float]
    topics: dict[str, TopicConfig]
    groups: set[str]
    committed: dict[tuple[str, str], dict[int, int]]
    online: dict[str, Online]
    producers: int
    held: int
    own_topics: set[str]
    is_losing: bool
    early_messages: int
    unread: dict[tuple[str, str], int]
    skipped: list[Skipped]
    skipped_total: int


def take(broker: Broker) -> Snapshot:
    """Returns the state of a broker now. For the event loop's thread."""
    cluster, name = broker.settings.text("brokerClusterName"), broker.settings.text("brokerName")
    committed = {pair: broker.offsets.of(pair[1], pair[0]) for pair in broker.offsets.pairs()}
    online = {
        group.name: _online(group.consume_type, group.message_model, list(group.members.values()))
        for group in broker.clients.consumers.values()
    }
    made = {cluster, name, f"{cluster}_{names.REPLY_TOPIC_SUFFIX}"}
    known = {group for _, group in committed} | online.keys()
    known |= {group for group in broker.groups.table if not names.is_system_group(group)}
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
        {_pair(key): stats.per_second(item, key) for item, key in keys if item == GROUP_GET_NUMS},
        dict(broker.topics.table),
        known,
        committed,
        online,
        sum(map(len, broker.clients.producers.values())),
        broker.long_polling.count,
        {topic for topic in broker.topics.table if names.is_system_topic(topic) or topic in made},
        broker.early_deletions.is_recent,
        broker.early_deletions.messages,
        dict(broker.early_deletions.unread),
        broker.skipped.newest,
        broker.skipped.counts.total(),
    )


def _pair(key: str) -> tuple[str, str]:
    topic, _, group = key.partition("@")
    return topic, group


def _online(consume_type: str, message_model: str, clients: list[Client]) -> Online:
    members = [Member(one.client_id, one.peer.address, one.language) for one in clients]
    return Online(consume_type, message_model, sorted(members))
