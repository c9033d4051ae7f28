"""Spark gives the answers of a full scan when conditions and columns reach the source."""

import json
import runpy
import sys
from collections import Counter
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader

from mqtool.errors import UsageError
from mqtool.scan.conditions import parsed
from mqtool.scan.messages import schema_of
from mqtool.spark import ask, explain, session, where
from mqtool.spark.options import FORMAT
from mqtool.store import open_store
from tests.support.builder import StoreBuilder
from tests.support.questions import (
    STORES,
    Question,
    being_written,
    check_some_moment,
    committed,
    expected,
    questions,
    store_of,
)
from tests.support.stores import copy_store
from tests.support.tiers import NIGHT

ROOT = Path(__file__).resolve().parents[2]
ORDERS = "orders-5.5.0"
EVERYTHING = ("queues", "index", "clock")
PLACE = "physical_offset"


def reader(spark: Any) -> Any:
    return spark.read.format(FORMAT)


def messages_of(path: str) -> list[Any]:
    with open_store(path) as store:
        return committed(store)


def in_one_job(frames: list[Any]) -> Counter[tuple[int, str, int]]:
    """Number of the frame, store and physical offset of each row of several frames."""
    parts = [frame.selectExpr(f"{number} AS number", "broker", PLACE) for number, frame in enumerate(frames)]
    return Counter(tuple(row) for row in reduce(lambda one, other: one.union(other), parts).collect())


def full_scan(paths: dict[str, str], asked: list[Question]) -> Counter[tuple[int, str, int]]:
    """The same from plain Python."""
    found: Counter[tuple[int, str, int]] = Counter()
    for broker, path in paths.items():
        with open_store(path) as store:
            answers = expected(asked, committed(store))
        found.update((number, broker, place) for number, places in enumerate(answers) for place in places)
    return found


def different_logs(names: tuple[str, ...], directory: Path) -> list[dict[str, str]]:
    """Stores in groups that one `load` takes: it refuses two copies of one log."""
    groups: list[dict[str, str]] = []
    for name in names:
        log = name.partition("@")[2] or name
        group = next((group for group in groups if log not in group), None)
        if group is None:
            groups.append(group := {})
        group[log] = str(store_of(name, directory / str(len(groups)) / log))
    return groups


@pytest.mark.long
def test_twelve_questions_have_the_answers_of_a_full_scan(spark, tmp_path):
    """Of stores that the other engines are asked of, at night of all; conditions are options."""
    frames, expected_rows = [], Counter()
    for paths in different_logs(STORES if NIGHT else STORES[1:3] + STORES[5:8], tmp_path):
        messages = [message for path in paths.values() for message in messages_of(path)]
        asked = questions(messages)
        roots = [f"{broker}={path}" for broker, path in paths.items()]
        for (number, broker, place), count in full_scan(paths, asked).items():
            expected_rows[number + len(frames), broker, place] += count
        for one in asked:
            frames.append(where(reader(spark), one.text("option"), columns=["broker", PLACE]).load(roots))
    assert in_one_job(frames) == expected_rows


@pytest.mark.long
def test_trust_and_plans_change_no_answer(spark, tmp_path):
    paths = {name: str(store_of(name, tmp_path / name)) for name in ("crash-5.5.0", "orders-4.9.7")}
    asked = questions([message for path in paths.values() for message in messages_of(path)])
    roots = [f"{broker}={path}" for broker, path in paths.items()]
    planned = reader(spark).option("trust", ",".join(EVERYTHING))
    frames = [ask(planned, roots, lambda m, one=one: m.where(one.text("spark"))) for one in asked]
    assert in_one_job(frames) == full_scan(paths, asked)


@pytest.mark.long
def test_answers_while_the_engine_appends_are_those_of_some_moment(spark, tmp_path):
    path = tmp_path / "store"
    with being_written(path) as messages:
        asked = questions(messages)
        frames = [where(reader(spark), one.text("option"), columns=["broker", PLACE]).load(str(path)) for one in asked]
        found = in_one_job(frames)
    answers = [sorted(place for number, _, place in found.elements() if number == at) for at in range(len(asked))]
    check_some_moment(path, asked, messages, {"spark": answers})


def test_a_question_reads_the_columns_and_records_that_its_plan_names(spark, tmp_path):
    path = str(copy_store(ORDERS, tmp_path))
    answer = ask(
        reader(spark), path, lambda m: m.where("topic = 'Orders' AND queue_id IN (0, 1)").groupBy("queue_id").count()
    )
    assert {row.queue_id: row["count"] for row in answer.collect()} == {0: 12, 1: 40}
    trusting = where(reader(spark), "topic = 'Orders' AND queue_id = 1", columns=["queue_offset"], trust=["queues"])
    assert trusting.load(path).count() == 40
    plan = answer._jdf.queryExecution().optimizedPlan().toString()
    assert "RelationV2[topic#" in plan
    assert "body#" not in plan
    leaf = answer._jdf.queryExecution().optimizedPlan().collectLeaves().apply(0)
    assert leaf.relation().options().get("where") == "((((topic = 'Orders')) AND (queue_id IN (0, 1))))"


@pytest.mark.parametrize(
    ("condition", "pushed"),
    [
        ("1 < queue_id", "queue_id > 1"),
        ("queue_id IN (0, 1) AND topic LIKE 'O%'", "(topic LIKE 'O%')"),
        ("topic LIKE '%\\\\_s%'", r"topic LIKE '%\_s%'"),
        ("topic LIKE 'O_d%' OR topic LIKE '%x'", "(topic LIKE 'O_d%') OR (topic LIKE '%x')"),
        ("topic LIKE 'O!_%' ESCAPE '!'", None),
        ("queue_id IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)", "queue_id IN ("),
        ("tags IN ('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'it''s')", "'it''s'"),
        ("properties['TAGS'] = 'it''s' AND element_at(properties, 'x') LIKE 'a%'", "(properties['TAGS'] = 'it''s')"),
        ("properties.UNIQ_KEY IN ('a', 'b')", "properties['UNIQ_KEY'] IN ('a', 'b')"),
        ("array_contains(keys, 'k0')", "array_contains(keys, 'k0')"),
        ("keys[0] = 'k0' AND cardinality(properties) > 1", None),
        ("topic = 'Orders' OR length(tags) > 0", None),
        ("body_decoded = false", None),
        ("queue_id + 1 = 2", None),
        ("store_timestamp >= timestamp_millis(1790000000500)", "store_timestamp >= '2026-09-21T14:13:20.500000Z'"),
        ("store_timestamp >= timestamp '0001-02-03 04:05:06Z'", "store_timestamp >= '0001-02-03T04:05:06.000000Z'"),
        ("store_timestamp < timestamp_micros(253402300800000000)", None),  # 10000-01-01
        ("topic IN ('Orders', NULL)", None),
        ("body = X'00'", None),
    ],
)
def test_only_what_a_condition_implies_reaches_the_source(spark, condition, pushed, tmp_path):
    path = str(copy_store(ORDERS, tmp_path))
    frame = ask(reader(spark), path, lambda m: m.where(condition).select("topic"))
    leaf = frame._jdf.queryExecution().optimizedPlan().collectLeaves().apply(0)
    found = leaf.relation().options().get("where")
    assert (found is None) if pushed is None else (pushed in found)
    if pushed is not None:
        parsed(found, schema_of())
        assert f"where={found!r}" in explain(frame)


def test_what_is_pushed_of_keys_properties_and_patterns_changes_no_answer(spark, tmp_path):
    path = str(copy_store(ORDERS, tmp_path))
    messages = messages_of(path)
    asked = {
        "topic LIKE 'Ord%s' AND body IS NOT NULL": lambda m: m.topic.startswith("Ord") and m.topic.endswith("s"),
        "properties['TAGS'] = 'TagA' AND topic LIKE 'Pay%'": lambda m: m.tags == "TagA" and m.topic == "Payments",
        "array_contains(keys, 'k0') OR array_contains(keys, 'k1')": lambda m: {"k0", "k1"} & set(m.keys),
        "array_contains(keys, 'k0') AND topic <> 'Keyed'": lambda m: "k0" in m.keys and m.topic != "Keyed",
        f"queue_id IN {tuple(range(1, 13))}": lambda m: m.queue_id in range(1, 13),
    }
    planned = reader(spark).option("trust", ",".join(EVERYTHING))
    frames = [ask(planned, f"b={path}", lambda m, text=text: m.where(text)) for text in asked]
    expected = [(at, "b", m.physical_offset) for at, test in enumerate(asked.values()) for m in messages if test(m)]
    assert in_one_job(frames) == Counter(expected)
    assert {at for at, _, _ in expected} == set(range(len(asked)))
    kafka = ask(
        reader(spark).option("columns", "kafka"),
        f"b={path}",
        lambda m: m.where("topic = 'Orders' AND partition = 1 AND offset >= 38").select("key", "offset"),
    )
    assert sorted(row.offset for row in kafka.collect()) == [38, 39]
    assert "where=" in explain(kafka)
    assert "queue_offset >= 38" in explain(kafka)


def test_spark_connect_shows_no_plans_and_is_refused():
    class Connected:
        def load(self, _paths):
            return object()

    with pytest.raises(UsageError, match=r"Spark Connect does not expose plans; .* where\(reader, condition\)"):
        ask(Connected(), "/data/store", lambda messages: messages)


@pytest.mark.night
def test_a_condition_of_one_part_of_a_question_takes_no_row_from_another(spark, tmp_path):
    path = str(copy_store(ORDERS, tmp_path))

    def question(messages: Any) -> Any:
        orders = messages.where("topic = 'Orders'").select("topic")
        return orders.union(messages.where("topic = 'Keyed' AND length(tags) >= 0").select("topic"))

    def with_all(messages: Any) -> Any:
        return question(messages).union(messages.select("topic"))

    whole = reader(spark).load(path)
    for one in (question, with_all):
        assert Counter(ask(reader(spark), path, one).collect()) == Counter(one(whole).collect())
    both = spark.createDataFrame([("Orders", 1)], "topic string, mine int").where("mine = 1")
    joined = ask(reader(spark), path, lambda m: m.join(both, "topic").select("topic", "mine"))
    assert joined.count() == 96


def test_conditions_that_make_no_sense_are_named(spark, tmp_path):
    with pytest.raises(UsageError, match="unknown column 'tpoic'"):
        where(reader(spark), "tpoic = 'a'")
    store = str(copy_store(ORDERS, tmp_path))
    for options, words in (
        ({"where": "topic = 5"}, "expected a value for topic"),
        ({"where": "topic = 'a'", "table": "damage"}, "applies to the table messages"),
        ({"where": "keys IS NULL", "redact": "keys"}, "column 'keys' is redacted"),
        ({"trust": "me"}, "option 'trust': expected queues or index or clock"),
    ):
        with pytest.raises(Exception, match=words):
            reader(spark).options(**options).load(store).schema  # noqa: B018


def write_keyed(path: Path, topic: str, keys: list[str]) -> None:
    builder = StoreBuilder()
    for key in keys:
        builder.put(topic=topic, keys=key)
        builder.put(topic="Other", keys=key)
    builder.write(path)


@pytest.mark.long
def test_the_example_joins_the_streams_of_two_stores(spark, tmp_path, monkeypatch, capsys):
    """Run here and not in a process of its own, because a session of Spark takes long to start."""
    write_keyed(tmp_path / "a" / "store", "Orders", ["k1", "k2", "k3"])
    write_keyed(tmp_path / "b" / "store", "Payments", ["k3", "k1", "k9", "k1"])
    stores = [str(tmp_path / name / "store") for name in "ab"]
    monkeypatch.setattr(sys, "argv", ["stream_join.py", *stores, str(tmp_path / "out")])
    monkeypatch.setattr(session, "build", lambda *_: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    for _ in range(2 if NIGHT else 1):  # the second run finds nothing new, and nothing twice
        runpy.run_path(str(ROOT / "docs" / "stream_join.py"))
        assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"pairs": 3}


class Numbers(DataSource):
    """The numbers 0 to 9; handles a filter that is pushed to it."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "number int"

    def reader(self, schema: Any) -> DataSourceReader:
        return NumbersReader()


class NumbersReader(DataSourceReader):
    def __init__(self) -> None:
        self.only: list[int] = []

    def pushFilters(self, filters: Any) -> Any:
        self.only = [one.value for one in filters if type(one).__name__ == "EqualTo"]
        return [one for one in filters if type(one).__name__ != "EqualTo"]

    def read(self, _partition: Any) -> Any:
        return ((number,) for number in self.only or range(10))


@pytest.mark.night
def test_spark_keeps_a_pushed_filter_for_later_queries_of_a_frame(spark):
    """Why the source has no pushFilters: docs/decisions/0012. If this fails, Spark has become better."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        spark.dataSource.register(Numbers)
        frame = spark.read.format("numbers").load()
        assert frame.where("number = 3").count() == 1
        assert frame.count() == 1  # of ten
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
