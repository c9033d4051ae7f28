"""Consumer offsets by topic, group and queue, and the messages that groups which pop in order have not acknowledged.

Unacknowledged messages of a group that pops in order block their queue until their invisible duration ends. They are
not redelivered through a retry topic, which would break the order: the consumer offset stays at the first of them.
Source: ConsumerOffsetManager, QueueLevelConsumerManager, OrderInfo (5.5.0).
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.errors import FormatError
from mqtool.formats import config_files, config_json, file_names, java
from mqtool.formats.codec import Buffer
from mqtool.formats.config_files import TOPIC_GROUP_SEPARATOR, ConsumerOffsets, split_topic_group
from mqtool.formats.release import V5_5
from mqtool.formats.service_records import GroupQueue
from mqtool.formats.topics import is_lmq
from mqtool.server.broker.config import ConfigPersister, next_version

_DAY_MS = 86_400_000
_LEVEL = "QUEUE"
_NO_COMMIT = -2


def key_of(topic: str, group: str) -> str:
    """Returns the table's key for a topic and a group: "topic@group"."""
    return f"{topic}{TOPIC_GROUP_SEPARATOR}{group}"


def _is_light(key: str) -> bool:
    return is_lmq(split_topic_group(key)[1])


class OffsetTable:
    """Consumer offsets of all groups. `persist`, called at intervals, schedules writing the file."""

    def __init__(self, persister: ConfigPersister, name: str = file_names.CONSUMER_OFFSETS) -> None:
        """Loads the file that `offset_file` decides; raises ConfigFileError if it cannot be parsed.

        lmqConsumerOffset.json has a separate table for LMQ groups (LmqConsumerOffsetManager).
        """
        self._name = name
        self._lmq = name == file_names.LMQ_CONSUMER_OFFSETS
        loaded = persister.configs.load(self._name, config_files.parse_consumer_offsets)
        self._loaded = loaded or ConsumerOffsets({}, pull_offset_table={})
        self._table = {key: dict(offsets) for key, offsets in self._loaded.offset_table.items()}
        if self._lmq:
            self._table |= {key: {0: offset} for key, offset in (self._loaded.lmq_offset_table or {}).items()}
        self._pulled: dict[str, dict[int, int]] = {}
        self._resets: dict[str, dict[int, int]] = {}
        self._version = self._loaded.data_version
        self._changed = False
        self._persister = persister
        persister.register(self._name, self.encoded)

    def encoded(self) -> bytes:
        """Returns the current content of the file."""
        table = {key: dict(sorted(offsets.items())) for key, offsets in self._table.items()}
        light = None
        if self._lmq:
            light = {key: table.pop(key)[0] for key in list(table) if _is_light(key) and 0 in table[key]}
        configs = self._persister.configs
        offsets = replace(
            self._loaded,
            offset_table=table,
            lmq_offset_table=light,
            pull_offset_table=self._loaded.pull_offset_table if configs.release == V5_5 else None,
            data_version=self._version,
        )
        return config_files.build_consumer_offsets(offsets, configs.style)

    def persist(self) -> None:
        """Schedules writing the file if an offset has changed."""
        if self._changed:
            self._changed = False
            release = self._persister.configs.release
            if release >= (5, 0):  # the file has no data version before
                self._version = next_version(self._version, release)
            self._persister.mark(self._name)

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Returns a consumer offset; None if there is none. A pending reset counts as committed."""
        key, queue_id = key_of(topic, group), self._place(group, queue_id)
        reset = self._resets.get(key)
        if reset is not None and queue_id in reset:
            return reset[queue_id]
        offsets = self._table.get(key)
        return None if offsets is None else offsets.get(queue_id)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Sets a consumer offset, forward or backward."""
        key, queue_id = key_of(topic, group), self._place(group, queue_id)
        offsets = self._table.get(key)
        if offsets is None:
            offsets = self._table[key] = {}
        offsets[queue_id] = offset
        self._changed = True

    def forget(self, group: str, topic: str, queue_id: int) -> None:
        """Removes the consumer offset in one queue."""
        key = key_of(topic, group)
        offsets = self._table.get(key, {})
        if offsets.pop(self._place(group, queue_id), None) is not None:
            self._changed = True
        if not offsets:
            self._table.pop(key, None)

    def _place(self, group: str, queue_id: int) -> int:
        """Returns the queue id under which an offset is stored: always 0 for an LMQ group."""
        return 0 if self._lmq and is_lmq(group) else queue_id

    def of(self, group: str, topic: str) -> dict[int, int]:
        """Returns a group's consumer offsets in a topic, by queue id."""
        return dict(self._table.get(key_of(topic, group), {}))

    def note_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Records the queue offset up to which a consumer has pulled."""
        self._pulled.setdefault(key_of(topic, group), {})[queue_id] = offset

    def pulled(self, group: str, topic: str, queue_id: int) -> int:
        """Returns the queue offset up to which a consumer has pulled; -1 if it has not pulled."""
        return self._pulled.get(key_of(topic, group), {}).get(queue_id, -1)

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Sets a consumer offset at which the next pull continues (ConsumerOffsetManager.assignResetOffset)."""
        self.commit(group, topic, queue_id, offset)
        self._resets.setdefault(key_of(topic, group), {})[queue_id] = offset

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset is pending, which moves the next pull of a queue to another offset."""
        return queue_id in self._resets.get(key_of(topic, group), ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Removes a pending reset and returns its offset; None if there is none."""
        key = key_of(topic, group)
        resets = self._resets.get(key)
        if resets is None:
            return None
        offset = resets.pop(queue_id, None)
        if not resets:
            del self._resets[key]
        return offset

    def groups_of(self, topic: str) -> set[str]:
        """Returns the groups that have consumer offsets in a topic."""
        return {group for name, group in map(split_topic_group, self._table) if name == topic}

    def topics_of(self, group: str) -> set[str]:
        """Returns the topics in which a group has consumer offsets."""
        return {name for name, owner in map(split_topic_group, self._table) if owner == group}

    def pairs(self) -> list[tuple[str, str]]:
        """Returns all (topic, group) pairs with consumer offsets."""
        return list(map(split_topic_group, self._table))

    def clone(self, source: str, target: str, topic: str) -> None:
        """Copies the consumer offsets of a group in a topic to another group."""
        offsets = self._table.get(key_of(topic, source))
        if offsets is not None:
            self._table[key_of(topic, target)] = dict(offsets)
            self._changed = True

    def forget_group(self, group: str) -> None:
        """Removes all consumer offsets of a group."""
        self._forget({key for key in self._table if split_topic_group(key)[1] == group})

    def forget_topic(self, topic: str) -> None:
        """Removes all consumer offsets in a topic."""
        self._forget({key for key in self._table if split_topic_group(key)[0] == topic})

    def _forget(self, keys: set[str]) -> None:
        for key in keys:
            for table in (self._table, self._pulled, self._resets):
                table.pop(key, None)
            self._changed = True


class OrderInfo(Struct):
    """The messages that a group popped last from a queue."""

    # pop_time, invisible_ms: time of the pop, ms since epoch, and invisible duration in ms
    pop_time: int
    invisible_ms: int
    offsets: list[int]  # queue offsets of the messages
    attempt_id: str | None = None  # attempt id of the request; a request with the same id may pop the messages again
    # ms since epoch at which a message becomes visible, by queue offset, where that was changed
    visible: dict[int, int] = field(default_factory=dict)
    # how often a message had been popped before, by queue offset
    consumed: dict[int, int] = field(default_factory=dict)
    done: int = 0  # bit set of acknowledged messages, by their index in `offsets`
    last_ms: int = 0  # when the group last popped from the queue; ms since epoch

    @property
    def free_at(self) -> int:
        """When the last unacknowledged message becomes visible, in ms since epoch; 0 if all are acknowledged."""
        return max(
            (
                self.visible.get(offset, self.pop_time + self.invisible_ms)
                for place, offset in enumerate(self.offsets)
                if not self.done >> place & 1
            ),
            default=0,
        )

    @property
    def next_offset(self) -> int:
        """Queue offset of the first unacknowledged message; after the last message if all are acknowledged."""
        left = [offset for place, offset in enumerate(self.offsets) if not self.done >> place & 1]
        return left[0] if left else self.offsets[-1] + 1

    def document(self) -> config_json.Document:
        """Returns the entry as in the file, where all queue offsets but the first are relative to it."""
        first = self.offsets[0]
        document: config_json.Document = {} if self.attempt_id is None else {"a": self.attempt_id}
        document |= {"cm": self.done, "i": self.invisible_ms, "l": self.last_ms}
        document["o"] = [first, *(offset - first for offset in self.offsets[1:])]
        if self.consumed:
            document["oc"] = self.consumed
        if self.visible:
            document["ot"] = self.visible
        return {**document, "popTime": self.pop_time}


def _info_of(document: Any) -> OrderInfo | None:
    try:
        first, *rest = document["o"]
        return OrderInfo(
            java.json_long(document["popTime"]),
            java.json_long(document.get("i") or 0),
            [java.json_long(first), *(first + java.json_long(number) for number in rest)],
            document.get("a"),
            {java.json_long(number): java.json_long(at) for number, at in (document.get("ot") or {}).items()},
            {java.json_long(number): java.json_int(times) for number, times in (document.get("oc") or {}).items()},
            java.json_long(document.get("cm") or 0),
            java.json_long(document.get("l") or 0),
        )
    except (KeyError, TypeError, ValueError, AttributeError, FormatError):
        return None


def parse_order_infos(data: Buffer) -> dict[str, dict[int, OrderInfo]]:
    """Parses consumerOrderInfo.json: entries by "topic@group" and queue id; invalid entries are skipped.

    Raises FormatError if the file is not such a table.
    """
    tables = config_json.parse(data).get("table") or {}
    if not isinstance(tables, dict) or not all(isinstance(entry, dict) for entry in tables.values()):
        raise FormatError("expected a table of tables", layout="configuration")
    table = {
        str(key): {java.json_int(entry): _info_of(info) for entry, info in queues.items()}
        for key, queues in tables.items()
    }
    return {key: {entry: info for entry, info in queues.items() if info} for key, queues in table.items()}


class OrderTable:
    """The unacknowledged messages of all groups that pop in order."""

    def __init__(self, persister: ConfigPersister, now: Callable[[], int], *, is_stored: bool) -> None:
        """Loads consumerOrderInfo.json, which release 4.9 does not have (`is_stored`).

        `now` is a clock in ms since epoch. Raises ConfigFileError if the file cannot be parsed.
        """
        self._now = now
        self._table: dict[str, dict[int, OrderInfo]] = {}
        self._persister = persister
        self._changed = False
        if is_stored:
            self._table = persister.configs.load(file_names.CONSUMER_ORDER_INFO, parse_order_infos) or {}
            persister.register(file_names.CONSUMER_ORDER_INFO, self._build)

    def _build(self) -> bytes:
        old = self._now() - _DAY_MS
        table = {
            key: {queue_id: info.document() for queue_id, info in sorted(queues.items()) if info.last_ms >= old}
            for key, queues in sorted(self._table.items())
        }
        table = {key: queues for key, queues in table.items() if queues}
        document = {"orderInfoCount": len(table), "orderedConsumptionLevel": _LEVEL, "table": table}
        return config_json.build(document, self._persister.configs.style)

    def persist(self) -> None:
        """Schedules writing the file if the table has changed."""
        if self._changed:
            self._changed = False
            self._persister.mark(file_names.CONSUMER_ORDER_INFO)

    def topics(self) -> list[str]:
        """Returns the topics of all entries, one for each topic and group."""
        return [split_topic_group(key)[0] for key in self._table]

    def find(self, key: GroupQueue) -> OrderInfo | None:
        """Returns the entry of a queue and group; None if the group has not popped from the queue in order."""
        return self._table.get(key_of(key.topic, key.group), {}).get(key.queue_id)

    def is_blocked(self, key: GroupQueue, attempt_id: str | None) -> bool:
        """Whether unacknowledged messages block a queue for a request; not for one with the last pop's attempt id."""
        info = self.find(key)
        if info is None or (attempt_id is not None and info.attempt_id == attempt_id):
            return False
        return info.free_at > self._now()

    def clear(self, key: GroupQueue) -> None:
        """Removes the entry of a queue and group, because the consumer offset was reset."""
        if self._table.get(key_of(key.topic, key.group), {}).pop(key.queue_id, None) is not None:
            self._changed = True

    def take(self, key: GroupQueue, info: OrderInfo) -> None:
        """Records popped messages, and how often each was popped before."""
        before = self.find(key)
        if before is not None and before.attempt_id is not None and before.attempt_id == info.attempt_id:
            info.consumed = before.consumed
        elif before is not None:
            repeated = set(before.offsets) & set(info.offsets)
            info.consumed = {offset: before.consumed.get(offset, 0) + 1 for offset in sorted(repeated)}
        self._table.setdefault(key_of(key.topic, key.group), {})[key.queue_id] = info
        self._changed = True

    def acknowledge(self, key: GroupQueue, offset: int, pop_time: int) -> int:
        """Records a consumption; returns the new offset, -2 if unchanged, -1 if the last pop had no such message."""
        info = self.find(key)
        if info is None:
            return offset + 1
        if info.pop_time != pop_time:
            return _NO_COMMIT
        if offset not in info.offsets:
            return -1
        info.done |= 1 << info.offsets.index(offset)
        self._changed = True
        return info.next_offset

    def prolong(self, key: GroupQueue, offset: int, pop_time: int, until: int) -> None:
        """Changes when a message becomes visible again; `until` is in ms since epoch."""
        info = self.find(key)
        if info is not None and info.pop_time == pop_time:
            info.visible[offset] = until
            self._changed = True
