"""Questions to a store, each as a condition of Arrow and as plain Python over messages read one by one."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mqtool.export.schema import RecordClass, class_of
from mqtool.store import Store
from mqtool.store.message import Message

F = pc.field


@dataclass(frozen=True)
class Question:
    """A condition.

    Attributes:
        name: of the question.
        where: for a scan; over the columns of the messages table.
        matches: the same in plain Python.
        sql: the same as DuckDB takes it.
    """

    name: str
    where: Any
    matches: Callable[[Message], bool]
    sql: str

    @property
    def text(self) -> str:
        """The same as an option takes it."""
        plain = self.sql.replace("epoch_ms(store_timestamp)", "store_timestamp")
        return re.sub(r"make_timestamptz\((\d+)000\)", r"\1", plain)

    @property
    def spark(self) -> str:
        """The same as Spark takes it."""
        plain = self.sql.replace("epoch_ms(store_timestamp)", "unix_millis(store_timestamp)")
        return plain.replace("make_timestamptz(", "timestamp_micros(")


def committed(store: Store) -> list[Message]:
    """The messages that a consumer can get, from a full scan without columns."""
    return [
        message
        for message in store.messages()
        if isinstance(message, Message) and class_of(message.topic, message.sys_flag) is RecordClass.COMMITTED
    ]


def moment(millis: int) -> Any:
    return pa.scalar(millis, pa.timestamp("ms", "UTC"))


def questions(messages: list[Message]) -> list[Question]:
    """Twelve questions about a store that has at least one message; most have an answer."""
    one = messages[len(messages) // 2]
    other = messages[len(messages) // 3]
    keyed = next((m for m in messages if m.unique_key), one)
    topic, number, place = one.topic, one.queue_id, one.physical_offset
    early, late = sorted((other.store_timestamp, one.store_timestamp))
    tag = one.tags or "none"
    unique = keyed.unique_key or "none"
    quoted = "'" + unique.replace("'", "''") + "'"
    named = "'" + topic.replace("'", "''") + "'"
    time = "epoch_ms(store_timestamp)"
    return [
        Question("topic", F("topic") == topic, lambda m: m.topic == topic, f"topic = {named}"),
        Question(
            "queue",
            (F("topic") == topic) & (F("queue_id") == number),
            lambda m: m.topic == topic and m.queue_id == number,
            f"topic = {named} AND queue_id = {number}",
        ),
        Question(
            "queue offsets",
            (F("topic") == topic) & (F("queue_id") == number) & (F("queue_offset") < 3),
            lambda m: m.topic == topic and m.queue_id == number and m.queue_offset < 3,
            f"topic = {named} AND queue_id = {number} AND queue_offset < 3",
        ),
        Question("unique key", F("unique_key") == unique, lambda m: m.unique_key == unique, f"unique_key = {quoted}"),
        Question(
            "time",
            (F("store_timestamp") >= moment(early)) & (F("store_timestamp") < moment(late)),
            lambda m: early <= m.store_timestamp < late,
            f"store_timestamp >= make_timestamptz({early * 1000}) AND store_timestamp < make_timestamptz({late * 1000})",
        ),
        Question(
            "topic and time",
            (F("topic") == topic) & (F("store_timestamp") >= moment(early)),
            lambda m: m.topic == topic and m.store_timestamp >= early,
            f"topic = {named} AND {time} >= {early}",
        ),
        Question(
            "place", F("physical_offset") >= place, lambda m: m.physical_offset >= place, f"physical_offset >= {place}"
        ),
        Question(
            "either topic",
            F("topic").isin([topic, other.topic, "missing"]),
            lambda m: m.topic in (topic, other.topic, "missing"),
            f"topic IN ({named}, '" + other.topic.replace("'", "''") + "', 'missing')",
        ),
        Question(
            "topic or key",
            (F("topic") == topic) | (F("unique_key") == unique),
            lambda m: m.topic == topic or m.unique_key == unique,
            f"topic = {named} OR unique_key = {quoted}",
        ),
        Question("tag", F("tags") == tag, lambda m: m.tags == tag, f"tags = '{tag}'"),
        Question(
            "not the topic",
            ~(F("topic") == topic) & (F("queue_offset") > 1),
            lambda m: m.topic != topic and m.queue_offset > 1,
            f"NOT topic = {named} AND queue_offset > 1",
        ),
        Question(
            "nothing",
            (F("topic") == topic) & (F("topic") == "another"),
            lambda m: False,
            f"topic = {named} AND topic = 'another'",
        ),
    ]
