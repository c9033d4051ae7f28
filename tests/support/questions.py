"""Twelve questions to a store: as a condition of Arrow, in SQL, and as plain Python over messages read one by one."""

import itertools
import operator
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mqtool.engine import StoreOptions
from mqtool.engine import open_store as open_engine
from mqtool.export.schema import RecordClass, class_of
from mqtool.scan.dataset import dataset
from mqtool.store import Store, open_store
from mqtool.store.log.message import Message
from tests.support.damage import damage_case
from tests.support.stores import copy_store

F = pc.field


STORES = (
    "orders-5.5.0",
    "orders-4.9.7",
    "crash-5.5.0",
    "crash-4.9.7",
    "rocksdb-cq-5.5.0",
    "old-flip-body@4.9.7-clean",
    "flip-size@5.5.0-clean",
    "segment-missing-middle@4.9.7-clean",
    "old-zero-segment@5.5.0-crash",
    "cq-hole-old@4.9.7-clean",
    "index-all-unsafe@4.9.7-crash",
)
"""Stores of which every engine is asked the twelve questions: healthy, crashed, damaged (`CASE@BASE`)."""

_DIALECTS = {
    "duckdb": ("make_timestamptz({}000)", "epoch_ms(store_timestamp)"),
    "datafusion": ("arrow_cast({}, 'Timestamp(Millisecond, Some(\"UTC\"))')", "arrow_cast(store_timestamp, 'Int64')"),
    "spark": ("timestamp_millis({})", "unix_millis(store_timestamp)"),
    "polars": ("{}", "CAST(store_timestamp AS BIGINT)"),
    "option": ("{}", "store_timestamp"),
}
"""How each kind of SQL writes a time given in ms, and the column of store times in ms."""


@dataclass(frozen=True)
class Question:
    """A condition.

    Attributes:
        name: of the question.
        where: for a scan; over the columns of the messages table.
        matches: the same in plain Python.
        sql: the same in SQL, in which `moment(MS)` is a time and `millis` the store time in ms.
    """

    name: str
    where: Any
    matches: Callable[[Message], bool]
    sql: str

    def text(self, dialect: str) -> str:
        """Returns the condition as one kind of SQL has it."""
        moment, millis = _DIALECTS[dialect]
        plain = self.sql.replace("millis", millis)
        return re.sub(r"moment\((\d+)\)", lambda found: moment.format(found[1]), plain)

    @property
    def polars(self) -> Any:
        """The condition as an expression of Polars, whose SQL has no times with a zone."""
        import polars as pl

        if "moment(" not in self.sql:
            return pl.sql_expr(self.text("polars"))
        compared = re.findall(r"store_timestamp (>=|<) moment\((\d+)\)", self.sql)
        column, signs = pl.col("store_timestamp"), {">=": operator.ge, "<": operator.lt}
        tests = [signs[sign](column, pl.lit(int(at)).cast(pl.Datetime("ms", "UTC"))) for sign, at in compared]
        assert len(tests) == self.sql.count("moment(")
        return reduce(operator.and_, tests)


def committed(store: Store) -> list[Message]:
    """The messages that a consumer can get, from a full scan without columns."""
    return [
        message
        for message in store.messages()
        if isinstance(message, Message) and class_of(message.topic, message.sys_flag) is RecordClass.COMMITTED
    ]


def expected(asked: list[Question], messages: list[Message]) -> list[list[int]]:
    """The physical offsets of the messages that meet each question."""
    return [[message.physical_offset for message in messages if one.matches(message)] for one in asked]


def store_of(name: str, directory: Path) -> Path:
    """Makes one of STORES in a directory."""
    return damage_case(name, directory) if "@" in name else copy_store(name, directory)


def duckdb_answers(path: Path, asked: list[Question], trust: Iterable[str] = ()) -> list[list[int]]:
    """What `mqtool sql` and DuckDB find."""
    from mqtool.duckdb import Session

    with Session(path, trust=list(trust)) as session:
        statements = [f"SELECT physical_offset FROM messages WHERE {one.text('duckdb')}" for one in asked]
        return [_places(session.ask(statement)[1]) for statement in statements]


def polars_answers(path: Path, asked: list[Question], trust: Iterable[str] = ()) -> list[list[int]]:
    """What Polars finds."""
    from mqtool.polars import scan_store

    frame = scan_store(path, trust=list(trust))
    return [frame.filter(one.polars).select(_PLACE).collect()[_PLACE].to_list() for one in asked]


def arrow_answers(path: Path, asked: list[Question], trust: Iterable[str] = ()) -> list[list[int]]:
    """What `pyarrow.dataset` finds, taken to pandas."""
    table = dataset(path, trust=list(trust))
    return [table.to_table(columns=[_PLACE], filter=one.where).to_pandas()[_PLACE].tolist() for one in asked]


def datafusion_answers(path: Path, asked: list[Question], trust: Iterable[str] = ()) -> list[list[int]]:
    """What DataFusion finds."""
    from datafusion import SessionContext

    context = SessionContext()
    context.register_dataset("messages", dataset(path, trust=list(trust)))
    statements = [f"SELECT physical_offset FROM messages WHERE {one.text('datafusion')}" for one in asked]
    return [sorted(_places(context.sql(statement).to_arrow_table().to_batches())) for statement in statements]


ENGINES = {
    "duckdb": duckdb_answers,
    "polars": polars_answers,
    "pandas": arrow_answers,
    "datafusion": datafusion_answers,
}
"""Engines that answer in this process; the fifth is Spark, in tests/spark/test_asking.py."""

_PLACE = "physical_offset"


def _places(batches: Iterable[Any]) -> list[int]:
    return [place for batch in batches for place in batch[_PLACE].to_pylist()]


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
            f"store_timestamp >= moment({early}) AND store_timestamp < moment({late})",
        ),
        Question(
            "topic and time",
            (F("topic") == topic) & (F("store_timestamp") >= moment(early)),
            lambda m: m.topic == topic and m.store_timestamp >= early,
            f"topic = {named} AND millis >= {early}",
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


@contextmanager
def being_written(path: Path) -> Iterator[list[Message]]:
    """Makes a store with some messages, to which an engine appends more until the block ends; gives the first ones."""
    ends = threading.Event()
    with open_engine(path, StoreOptions(commit_log_file_size=1 << 16, consume_queue_file_size=2000)) as engine:

        def put(number: int) -> None:
            stored = f"KEYS\x01k{number}\x02UNIQ_KEY\x01u{number}\x02TAGS\x01{'ab'[number % 2]}\x02".encode()
            engine.put(f"T{number % 3}", number % 2, b"x" * (number % 700), stored)

        def write() -> None:
            for number in itertools.count(100):
                if ends.is_set():
                    return
                put(number)
                time.sleep(0.005)  # so that there is something to put in all the time, and not too much to read

        for number in range(100):
            put(number)
        with open_store(path) as store:
            messages = committed(store)
        assert len(messages) == 100
        writer = threading.Thread(target=write)
        writer.start()
        try:
            yield messages
        finally:
            ends.set()
            writer.join()


def check_some_moment(path: Path, asked: list[Question], before: list[Message], given: Any) -> None:
    """Holds answers given while a store was written to the rule of docs/sql.md.

    Each has all that was there before it was asked, nothing that was not there after it, and no hole between.
    """
    with open_store(path) as store:
        after = committed(store)
    assert len(after) > len(before)
    for who, answers in given.items():
        for one, found, first, last in zip(
            asked, answers, expected(asked, before), expected(asked, after), strict=True
        ):
            assert found[: len(first)] == first, (who, one.name)
            assert found == last[: len(found)], (who, one.name)
