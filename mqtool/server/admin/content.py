"""Content of the pages about topics and consumer groups: values in the order of the page, without markup.

It is computed from a copy of the broker's tables (`Snapshot`), and from the store, which the thread for pages reads.
"""

import shutil
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from mqtool import words
from mqtool.engine import MessageStore
from mqtool.formats.config_files import PERM_READ, PERM_WRITE, TopicConfig, split_topic_group
from mqtool.formats.topics import is_system_topic
from mqtool.server.broker import attributes
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.clients import Client
from mqtool.server.broker.messages import ReadOnlyMessages
from mqtool.server.broker.stats import GROUP_GET_NUMS, TOPIC_PUT_NUMS, SkippedMessage
from mqtool.store.store import Store, open_store

Messages = MessageStore | ReadOnlyMessages
"""An open store from which messages are read."""

_PUTS, _GETS = 1, 2

_SECOND_MS = 1000
_UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


class MessageAccess:
    """Opens the store for the pages on first use. Must be used in the thread for pages."""

    def __init__(self, broker: Broker, config: Mapping[str, str]) -> None:
        """Opens nothing yet; `config` contains the keys of the broker's configuration."""
        self.broker = broker
        self._config = config
        self._store: Store | None = None

    def messages(self) -> Messages:
        """Returns the open store; opens it on the first call, and raises StoreError if it cannot be opened."""
        served = self.broker.messages
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
    # began_ms, now: when the broker started, and the time, ms since epoch
    began_ms: int
    now: int
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
        broker.clock.now(),
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


class Lag(NamedTuple):
    """A consumer group's lag in a topic, its members, and its messages per second."""

    group: str
    topic: str
    lag: int
    members: int
    rate: float


class TopicRow(NamedTuple):
    """A topic: its queues, number of messages stored, messages per second, number of consumer groups, largest lag."""

    name: str
    queues: str
    permissions: str
    messages: int
    rate: float
    groups: int
    lag: int | None


class QueueRow(NamedTuple):
    """A queue of a topic."""

    queue_id: int
    min_offset: int
    max_offset: int


class OffsetRow(NamedTuple):
    """The consumer offset of a group in a queue."""

    topic: str
    queue_id: int
    max_offset: int
    consumer_offset: int
    lag: int


class Topic(Struct, frozen=True):
    """Content of the page about a topic."""

    name: str
    row: TopicRow
    kind: str
    queues: list[QueueRow]
    lags: list[Lag]


class Group(Struct, frozen=True):
    """Content of the page about a consumer group."""

    name: str
    lags: list[Lag]
    offsets: list[OffsetRow]
    online: Online | None


def health(snapshot: Snapshot, messages: Messages) -> list[tuple[str, str]]:
    """Returns the state of the store as (name, value) pairs."""
    first, last = max(0, messages.min_physical_offset), max(0, messages.max_physical_offset)
    oldest, now = messages.earliest_store_time(), snapshot.now
    disk = shutil.disk_usage(messages.path)
    return [
        ("Log", words.size(last - first)),
        ("Oldest message", f"{words.moment(oldest)} UTC" if oldest >= 0 else "none"),
        ("Not yet on disk", words.size(max(0, last - messages.flushed_offset))),
        ("Not yet in a queue", words.size(messages.dispatch_behind)),
        ("Disk", f"{words.size(disk.free)} free of {words.size(disk.total)}"),
        ("Uptime", _duration((now - snapshot.began_ms) // _SECOND_MS)),
        ("Producers", words.number(snapshot.producers)),
        ("Consumers", words.number(sum(len(online.members) for online in snapshot.online.values()))),
        ("Waiting pull requests (long polling)", words.number(snapshot.held)),
    ]


def verdict(snapshot: Snapshot) -> tuple[str, str]:
    """Returns the state of the broker as a keyword and a sentence."""
    if snapshot.is_losing:
        sentence = "The disk is so full that unexpired messages are being deleted. Free space, or set"
        return "losing messages", f"{sentence} cleanFileForciblyEnable=false to refuse new messages instead."
    if snapshot.problem is not None:
        return "not ready", f"Some services of the broker do not work: {snapshot.problem}."
    if not snapshot.is_writable:
        return "read-only", "Consumers get messages; producers cannot send. Damaged ranges are skipped."
    return "ready", "Messages are accepted and delivered."


def lags(snapshot: Snapshot, messages: Messages) -> list[Lag]:
    """Returns the lag of each consumer group in each topic in which it has committed an offset, largest first."""
    entries = []
    for (topic, group), committed in snapshot.committed.items():
        if topic in snapshot.topics:
            lag = sum(max(0, messages.queue_bounds(topic, queue)[1] - at) for queue, at in committed.items())
            online = snapshot.online.get(group)
            members = len(online.members) if online else 0
            entries.append(Lag(group, topic, lag, members, snapshot.gets.get((topic, group), 0.0)))
    return sorted(entries, key=lambda item: (-item.lag, item.group, item.topic))


def topics(snapshot: Snapshot, messages: Messages, every: Iterable[Lag], *, own: bool) -> list[TopicRow]:
    """Returns the topics by name, `own` with those of the broker itself; `every` is the result of `lags`."""
    counts: dict[str, int] = {}
    for topic, queue_id in messages.queues():
        low, high = messages.queue_bounds(topic, queue_id)
        counts[topic] = counts.get(topic, 0) + high - low
    topic_lags: dict[str, list[int]] = {}
    for lag in every:
        topic_lags.setdefault(lag.topic, []).append(lag.lag)
    return [
        _topic_row(config, counts.get(name, 0), snapshot.puts.get(name, 0.0), topic_lags.get(name, []))
        for name, config in sorted(snapshot.topics.items())
        if own or name not in snapshot.own_topics
    ]


def _topic_row(config: TopicConfig, count: int, rate: float, lags: list[int]) -> TopicRow:
    reads, writes = config.read_queue_nums, config.write_queue_nums
    queues = str(reads) if reads == writes else f"{reads} to read, {writes} to write"
    allowed = [word for bit, word in ((PERM_READ, "read"), (PERM_WRITE, "write")) if config.perm & bit]
    largest = max(lags, default=None)
    return TopicRow(config.topic_name, queues, ", ".join(allowed) or "none", count, rate, len(lags), largest)


def topic(name: str, snapshot: Snapshot, messages: Messages) -> Topic | None:
    """Returns the page content of a topic; None if the topic does not exist."""
    config = snapshot.topics.get(name)
    if config is None:
        return None
    queues = [QueueRow(queue, *messages.queue_bounds(name, queue)) for item, queue in messages.queues() if item == name]
    queue_ids = {row.queue_id for row in queues}
    expected = range(max(config.read_queue_nums, config.write_queue_nums))
    queues += [QueueRow(queue, 0, 0) for queue in expected if queue not in queue_ids]
    topic_lags = [item for item in lags(snapshot, messages) if item.topic == name]
    count = sum(row.max_offset - row.min_offset for row in queues)
    row = _topic_row(config, count, snapshot.puts.get(name, 0.0), [item.lag for item in topic_lags])
    kind = str((config.attributes or {}).get("message.type", "any"))
    return Topic(name, row, kind, sorted(queues), topic_lags)


def group(name: str, snapshot: Snapshot, messages: Messages) -> Group | None:
    """Returns the page content of a consumer group; None if the group does not exist."""
    if name not in snapshot.groups:
        return None
    offsets = []
    for (topic_name, owner), committed in sorted(snapshot.committed.items()):
        if owner == name and topic_name in snapshot.topics:
            for queue, at in sorted(committed.items()):
                high = messages.queue_bounds(topic_name, queue)[1]
                offsets.append(OffsetRow(topic_name, queue, high, at, max(0, high - at)))
    group_lags = [lag for lag in lags(snapshot, messages) if lag.group == name]
    return Group(name, group_lags, offsets, snapshot.online.get(name))


def _duration(seconds: int) -> str:
    """Formats a duration with its two largest units: `3 hours 5 minutes`."""
    parts: list[str] = []
    left = max(0, seconds)
    for length, word in _UNITS:
        count, left = divmod(left, length)
        if count or (length == 1 and not parts):
            parts.append(words.counted(count, word))
    return " ".join(parts[:2])
