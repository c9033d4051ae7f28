"""Popping in order: unacknowledged messages of a group block their queue until their invisible duration ends.

Messages are not redelivered through a retry topic, which would break the order: the consumer offset stays at the first
unacknowledged message. The state is saved in consumerOrderInfo.json. Source: QueueLevelConsumerManager, OrderInfo
(5.5.0).
"""

import time
from typing import Any

from msgspec import Struct, field

from mqtool.errors import FormatError
from mqtool.formats import config_json, file_names, java
from mqtool.formats.codec import Buffer
from mqtool.formats.config_files import split_topic_group
from mqtool.formats.service_records import GroupQueue
from mqtool.server.broker.tables.config_persister import ConfigPersister
from mqtool.server.broker.tables.offsets import key_of

_DAY_MS = 86_400_000
_LEVEL = "QUEUE"
_NO_COMMIT = -2


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

    Raises:
        FormatError: the file is not such a table.
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

    def __init__(self, persister: ConfigPersister, *, is_stored: bool) -> None:
        """Loads consumerOrderInfo.json.

        Args:
            persister: persister of the configuration files.
            is_stored: whether the table is stored; False for release 4.9, which has no such file.

        Raises:
            ConfigFileError: the file cannot be parsed.
        """
        self._table: dict[str, dict[int, OrderInfo]] = {}
        self._persister = persister
        self._changed = False
        if is_stored:
            self._table = persister.configs.load(file_names.CONSUMER_ORDER_INFO, parse_order_infos) or {}
            persister.register(file_names.CONSUMER_ORDER_INFO, self._build)

    def _build(self) -> bytes:
        old = time.time_ns() // 1_000_000 - _DAY_MS
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
        """Whether unacknowledged messages block a queue for a request.

        A request with the attempt id of the last pop is not blocked.
        """
        info = self.find(key)
        if info is None or (attempt_id is not None and info.attempt_id == attempt_id):
            return False
        return info.free_at > time.time_ns() // 1_000_000

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
        """Records that a message was consumed.

        Returns:
            The new consumer offset; -2 if it does not change, -1 if the message was not in the last pop.
        """
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
