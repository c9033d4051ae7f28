"""Content of the pages about topics and consumer groups: values in the order of the page, without markup."""

import shutil
import time
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from mqtool import words
from mqtool.formats.config_files import PERM_READ, PERM_WRITE, TopicConfig
from mqtool.server.admin.snapshot import Messages, Online, Snapshot

_SECOND_MS = 1000
_UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


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
    oldest, now = messages.earliest_store_time(), time.time_ns() // 1_000_000
    disk = shutil.disk_usage(messages.path)
    return [
        ("Log", words.size(last - first)),
        ("Oldest message", f"{words.moment(oldest)} UTC" if oldest >= 0 else "none"),
        ("Not on the disk yet", words.size(max(0, last - messages.flushed_offset))),
        ("In no queue yet", words.size(messages.dispatch_behind)),
        ("Disk", f"{words.size(disk.free)} free of {words.size(disk.total)}"),
        ("Up for", _duration((now - snapshot.began_ms) // _SECOND_MS)),
        ("Producers", words.number(snapshot.producers)),
        ("Consumers", words.number(sum(len(online.members) for online in snapshot.online.values()))),
        ("Pull requests held (long polling)", words.number(snapshot.held)),
    ]


def verdict(snapshot: Snapshot) -> tuple[str, str]:
    """Returns the state of the broker as a keyword and a sentence."""
    if snapshot.is_losing:
        sentence = "The disk is so full that unexpired messages are being deleted. Free space, or set"
        return "losing messages", f"{sentence} cleanFileForciblyEnable=false to refuse new messages instead."
    if snapshot.problem is not None:
        return "not ready", f"The broker does not do all its work: {snapshot.problem}."
    if not snapshot.is_writable:
        return "read-only", "Messages are served and none is accepted; damaged ranges are skipped."
    return "ready", "Messages are taken and handed out."


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
    """Returns the topics by name.

    Args:
        snapshot, messages: the broker's tables and its store.
        every: result of `lags`.
        own: include the broker's own topics.
    """
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
