"""Spark gives the answers of a full scan when conditions and columns reach the source."""

import json
import os
import subprocess
import sys
from collections import Counter
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader

from mqtool.errors import UsageError
from mqtool.spark import ask, where
from mqtool.spark.asking import FORMAT
from mqtool.spark.session import require_spark
from mqtool.store import open_store
from tests.support.builder import StoreBuilder
from tests.support.damage import damage_case
from tests.support.questions import committed, questions
from tests.support.stores import copy_store

ROOT = Path(__file__).resolve().parents[2]
ORDERS = "orders-5.5.0"
EVERYTHING = ("queues", "index", "clock")


def reader(spark: Any) -> Any:
    return spark.read.format(FORMAT)


def places(frame: Any) -> list[int]:
    return sorted(row.physical_offset for row in frame.select("physical_offset").collect())


def numbered(frames: list[Any]) -> Counter[tuple[int, int]]:
    """The physical offsets of several frames by their number, in one job."""
    parts = [frame.selectExpr(f"{number} AS number", "physical_offset") for number, frame in enumerate(frames)]
    return Counter(tuple(row) for row in reduce(lambda one, other: one.union(other), parts).collect())


@pytest.mark.night
@pytest.mark.parametrize(
    "case",
    [
        ORDERS,
        "orders-4.9.7",
        "rocksdb-cq-5.5.0",
        "old-flip-body@4.9.7-clean",
        "flip-size@5.5.0-clean",
        "cq-hole-old@4.9.7-clean",
    ],
)
def test_twelve_questions_have_the_answers_of_a_full_scan(spark, case, tmp_path):
    path = damage_case(case, tmp_path) if "@" in case else copy_store(case, tmp_path)
    with open_store(path) as store:
        messages = committed(store)
    asked = questions(messages)
    expected = Counter((n, m.physical_offset) for n, one in enumerate(asked) for m in messages if one.matches(m))
    for trust in ((), EVERYTHING):
        frames = [where(reader(spark), one.text, columns=["physical_offset"], trust=trust) for one in asked]
        assert numbered([frame.load(str(path)) for frame in frames]) == expected, trust
    planned = reader(spark).option("trust", ",".join(EVERYTHING))
    assert numbered([ask(planned, str(path), lambda m, one=one: m.where(one.spark)) for one in asked]) == expected


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
        ({"where": "topic = 'a'", "table": "damage"}, "is for the table messages"),
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


@pytest.mark.night
def test_the_example_joins_the_streams_of_two_stores(tmp_path):
    require_spark()
    write_keyed(tmp_path / "a" / "store", "Orders", ["k1", "k2", "k3"])
    write_keyed(tmp_path / "b" / "store", "Payments", ["k3", "k1", "k9", "k1"])
    command = [
        sys.executable,
        "docs/stream_join.py",
        tmp_path / "a" / "store",
        tmp_path / "b" / "store",
        tmp_path / "out",
    ]
    for _ in range(2):  # the second run finds nothing new, and nothing twice
        ran = subprocess.run(
            command, check=False, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout.splitlines()[-1]) == {"pairs": 3}


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
