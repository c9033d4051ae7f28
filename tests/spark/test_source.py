"""The data source gives what the broker said, and only what was asked for."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mqtool.errors import UsageError
from mqtool.spark.options import parse
from tests.support import lake
from tests.support.stores import copy_store
from tests.support.tiers import one_in

ORDERS = "orders-5.5.0"


def read(spark: Any, *paths: object, schema: str | None = None, **options: object) -> Any:
    reader = spark.read.format("rocketmq-store").options(**{name: str(value) for name, value in options.items()})
    reader = reader if schema is None else reader.schema(schema)
    return reader.load([str(path) for path in paths])


def rows(frame: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return found


@pytest.mark.long
@pytest.mark.parametrize("name", one_in(3, lake.WHOLE, "night"))
def test_all_rows_are_the_brokers_records(spark, name, tmp_path):
    frame = read(spark, f"b={copy_store(name, tmp_path)}", include="all", splitSize=20_000)
    assert lake.in_log_order(rows(frame)) == lake.expected_rows(name, every_class=True, broker="b")


def test_committed_rows_are_the_default(spark, tmp_path):
    frame = read(spark, f"b={copy_store(ORDERS, tmp_path)}")
    assert lake.in_log_order(rows(frame)) == lake.expected_rows(ORDERS, every_class=False, broker="b")


def test_inner_batches_are_taken_apart(spark, tmp_path):
    frame = read(spark, copy_store("bcq-5.5.0", tmp_path))
    assert Counter(map(lake.as_served, rows(frame))) == lake.served("bcq-5.5.0")


def test_a_schema_chooses_columns(spark, tmp_path):
    frame = read(spark, copy_store(ORDERS, tmp_path), schema="queue_offset long, topic string")
    expected = [(r["queue_offset"], r["topic"]) for r in lake.expected_rows(ORDERS, every_class=False, broker="b")]
    assert Counter(tuple(row) for row in frame.collect()) == Counter(expected)


def test_a_schema_with_another_type_is_refused(spark, tmp_path):
    with pytest.raises(Exception, match="column 'queue_offset' is bigint, not int"):
        read(spark, copy_store(ORDERS, tmp_path), schema="queue_offset int").count()


def test_an_unknown_option_is_refused(spark, tmp_path):
    with pytest.raises(Exception, match=r"unknown option 'topcis'; did you mean topics\?"):
        read(spark, copy_store(ORDERS, tmp_path), topcis="Orders").count()


@pytest.mark.parametrize(
    ("options", "keep"),
    [
        ({"topics": "Orders,Pay*"}, lambda row: row["topic"] in ("Orders", "Payments")),
        ({"startOffset": 100_001, "endOffset": 200_001}, lambda row: 100_001 <= row["physical_offset"] < 200_001),
        ({"topics": "Orders", "queueId": 1}, lambda row: row["topic"] == "Orders" and row["queue_id"] == 1),
    ],
    ids=["topics", "offsets", "queue"],
)
def test_options_choose_rows(spark, tmp_path, options, keep):
    frame = read(spark, f"b={copy_store(ORDERS, tmp_path)}", **options)
    expected = [row for row in lake.expected_rows(ORDERS, every_class=False, broker="b") if keep(row)]
    assert lake.in_log_order(rows(frame)) == expected
    assert expected


def test_times_choose_rows(spark, tmp_path):
    every = lake.expected_rows(ORDERS, every_class=False, broker="b")
    middle = sorted(row["store_timestamp"] for row in every)[len(every) // 2]
    frame = read(spark, f"b={copy_store(ORDERS, tmp_path)}", startTime=middle.isoformat())
    expected = [row for row in every if row["store_timestamp"] >= middle]
    assert lake.in_log_order(rows(frame)) == expected
    assert 0 < len(expected) < len(every)


def test_several_stores_are_distinguished_by_broker(spark, tmp_path):
    for name in (ORDERS, "crash-5.5.0"):
        copy_store(name, tmp_path / name)
    frame = read(spark, f"{tmp_path}/*/store")
    counted = {row["broker"]: row["count"] for row in frame.groupBy("broker").count().collect()}
    expected = (ORDERS, "crash-5.5.0")
    assert counted == {name: len(lake.expected_rows(name, every_class=False, broker="")) for name in expected}


def test_the_same_log_twice_is_refused(spark, tmp_path):
    one, other = (copy_store(ORDERS, tmp_path / name) for name in ("one", "other"))
    with pytest.raises(Exception, match="contain the same log"):
        read(spark, one, other).count()


def test_filters_of_one_frame_do_not_reach_another_query(spark, tmp_path):
    frame = read(spark, copy_store(ORDERS, tmp_path))
    per_topic = Counter(row["topic"] for row in lake.expected_rows(ORDERS, every_class=False, broker=""))
    orders, payments = (frame.where(frame.topic == topic) for topic in ("Orders", "Payments"))
    assert orders.count() == per_topic["Orders"]
    assert frame.count() == per_topic.total()
    both = Counter(row["topic"] for row in orders.union(payments).select("topic").collect())
    assert both == Counter({topic: per_topic[topic] for topic in ("Orders", "Payments")})


def test_sql_reads_a_view(spark, tmp_path):
    store = copy_store(ORDERS, tmp_path)
    spark.sql(f"CREATE TEMPORARY VIEW orders USING `rocketmq-store` OPTIONS (path '{store}', topics 'Orders')")
    found = spark.sql("SELECT properties['KEYS'] AS k, CAST(body AS string) AS b FROM orders WHERE queue_id = 0")
    expected = [
        r
        for r in lake.expected_rows(ORDERS, every_class=False, broker="")
        if r["topic"] == "Orders" and r["queue_id"] == 0
    ]
    assert Counter(row.k for row in found.collect()) == Counter(row["properties"].get("KEYS") for row in expected)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "strict"}, "option 'mode': expected permissive or failfast"),
        ({"splitSize": "0"}, "option 'splitSize': expected bytes"),
        ({"splitSize": "1"}, "of at least"),
        ({"columns": ""}, "no column is selected"),
        ({"startTime": "2030-01-01", "endTime": "2020-01-01"}, "ends before it begins"),
        ({"damageColumn": "topic"}, "expected a name that no column has"),
        ({"damageColumn": "_damage", "table": "damage"}, "applies to the table messages"),
        ({"schema": "topics string"}, "unknown column 'topics'"),
    ],
    ids=["mode", "no size", "tiny tasks", "no column", "times", "damage column", "damage of damage", "schema"],
)
def test_options_that_make_no_sense_are_named(spark, tmp_path, options, words):
    with pytest.raises(Exception, match=words):
        read(spark, copy_store(ORDERS, tmp_path), **options).count()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no path: use load(PATH) or option 'store'"),
        ({"paths": "/data/store"}, "option 'paths': expected a JSON list: "),
        ({"queueId": "one"}, "option 'queueId': expected a whole number, found 'one'"),
        ({"startTime": "yesterday"}, "option 'startTime': expected ms or RFC 3339, found 'yesterday'"),
        ({"endTime": "--5"}, "option 'endTime': expected ms or RFC 3339, found '--5'"),
        ({"splitSize": "64mg"}, "option 'splitSize': expected bytes, e.g. 67108864 or 64m, found '64mg'"),
        ({"maxBytesPerTrigger": "²"}, "option 'maxBytesPerTrigger': expected bytes"),
        ({"where": "topic = 'a'", "table": "damage"}, "option 'where' applies to the table messages, not to damage"),
        ({"where": "keys IS NULL", "redact": "keys"}, "option 'where': column 'keys' is redacted"),
        ({"trust": "queues,me"}, "option 'trust': expected queues or index or clock, found 'me'"),
        ({"damageColumn": "Topic"}, "option 'damageColumn': expected a name that no column has, found 'Topic'"),
        (
            {"damageColumn": "d", "table": "damage"},
            "option 'damageColumn' applies to the table messages, not to damage",
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_options_are_checked_before_anything_is_read(options, words):
    where = {"path": "/data/store"} if options and "paths" not in options else {}
    with pytest.raises(UsageError, match=re.escape(words)):
        parse({**where, **options})


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("1790000000000", 1_790_000_000_000),
        ("-1", -1),
        ("2026-09-21T14:13:20Z", 1_790_000_000_000),
        ("2026-09-21T16:13:20+02:00", 1_790_000_000_000),
        ("2026-09-21 14:13:20", 1_790_000_000_000),
        ("2026-09-21T14:13:20.000001Z", 1_790_000_000_001),  # the first millisecond that is not before it
        ("1969-12-31T23:59:59.999900Z", 0),
    ],
)
def test_bounds_of_time_are_milliseconds_or_moments_in_any_zone(text, millis):
    selection = parse({"path": "/data/store", "startTime": text}).read.selection
    assert selection.begin_time == millis


@pytest.mark.parametrize(("text", "size"), [("3000", 3000), ("64k", 65536), ("8MB", 8 << 20), ("2g", 2 << 30)])
def test_sizes_may_have_a_suffix(text, size):
    assert parse({"path": "/data/store", "splitSize": text}).split_bytes == size


def test_a_permanent_table_is_refused_since_spark_would_lose_its_options(spark, tmp_path):
    store = copy_store(ORDERS, tmp_path)
    with pytest.raises(Exception, match="write CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE orders USING `rocketmq-store` OPTIONS (store '{store}')")
    spark.sql(f"CREATE TABLE named (topic string) USING `rocketmq-store` OPTIONS (store '{store}')")
    try:
        with pytest.raises(Exception, match="a table that CREATE TABLE made has no options"):
            spark.table("named").count()
    finally:
        spark.sql("DROP TABLE named")


def test_a_write_is_refused_with_what_can_be_written(spark):
    with pytest.raises(Exception, match=r"rocketmq-store only reads; .* write CREATE TABLE … USING parquet AS SELECT"):
        spark.sql("SELECT 1 AS a").write.format("rocketmq-store").mode("append").save("/data/store")


def test_a_job_for_kafka_reads_a_store(spark, tmp_path):
    reader = spark.read.format("rocketmq-store").option("columns", "kafka").option("topic", "Orders")
    bounds = json.dumps({"Orders": {"0": 5, "1": -2, "2": -2, "3": 31}})
    frame = reader.option("startingOffsets", bounds).option("minPartitions", 4).load(str(copy_store(ORDERS, tmp_path)))
    found = frame.selectExpr("CAST(key AS STRING)", "value", "partition", "offset", "timestamp").collect()
    begin = {0: 5, 1: 0, 2: 0, 3: 31}
    expected = [
        (" ".join(row["keys"]) or None, row["body"], row["queue_id"], row["queue_offset"])
        for row in lake.expected_rows(ORDERS, every_class=False, broker="")
        if row["topic"] == "Orders" and row["queue_offset"] >= begin[row["queue_id"]]
    ]
    assert Counter(tuple(row)[:4] for row in found) == Counter(expected)
    assert 4 <= frame.rdd.getNumPartitions() <= 8


def test_nothing_selected_is_an_empty_frame(spark, tmp_path):
    assert read(spark, copy_store(ORDERS, tmp_path), startOffset=10**12).count() == 0


def test_a_store_that_is_none_is_named(spark, tmp_path):
    with pytest.raises(Exception, match=r"no such directory; give the store's root"):
        read(spark, tmp_path / "nowhere").count()


def damaged_store(tmp_path: Path) -> Path:
    """One byte of a body in the middle of the log changed."""
    store = copy_store(ORDERS, tmp_path)
    record = next(row for row in lake.expected_rows(ORDERS, every_class=False, broker="") if row["topic"] == "Keyed")
    segment = max(path for path in (store / "commitlog").iterdir() if int(path.name) <= record["physical_offset"])
    data = bytearray(segment.read_bytes())
    data[record["physical_offset"] - int(segment.name) + 88] ^= 0xFF
    segment.write_bytes(data)
    return store


def test_damage_is_a_table_of_its_own(spark, tmp_path):
    store = damaged_store(tmp_path)
    found = rows(read(spark, f"b={store}", table="damage"))
    lake.run_export(f"b={store}", tmp_path / "lake")
    assert found == lake.rows(tmp_path / "lake", "damage")
    assert [row["kind"] for row in found] == ["bad-crc"]


def test_damage_is_a_row_where_a_column_is_asked_for(spark, tmp_path):
    frame = read(spark, damaged_store(tmp_path), damageColumn="_damage")
    marked = rows(frame.where("_damage IS NOT NULL"))
    expected = len(lake.expected_rows(ORDERS, every_class=False, broker="")) - 1
    assert (frame.where("_damage IS NULL").count(), len(marked)) == (expected, 1)
    assert json.loads(marked[0]["_damage"])["start"] == marked[0]["physical_offset"]
    assert marked[0]["topic"] is None


def test_failfast_ends_the_query_and_says_where(spark, tmp_path):
    with pytest.raises(Exception, match=r"physical offset \d+: bad-crc"):
        read(spark, damaged_store(tmp_path), mode="failfast").count()


def test_rejected_values_are_a_table_of_their_own(spark, tmp_path):
    store = copy_store(ORDERS, tmp_path)
    found = rows(read(spark, f"b={store}", table="rejected_values", body="json", topics="Bodies"))
    frame = read(spark, store, body="json", topics="Bodies")
    assert len(found) == frame.where("body IS NULL").count() > 0
    assert frame.where("body IS NOT NULL").count() + len(found) == 11
    assert {row["column"] for row in found} == {"body"}


def test_a_store_that_grew_is_read_to_the_bound_of_its_load(spark, tmp_path):
    name = "rollover-5.5.0"
    store = copy_store(name, tmp_path)
    ends = lake.record_ends(name)
    lake.grow(name, store, ends[70])
    frame = read(spark, store, include="all")
    before = frame.count()
    lake.grow(name, store, ends[-1])
    assert (before, frame.count(), read(spark, store, include="all").count()) == (71, 71, len(ends))


def test_a_segment_that_is_deleted_after_planning_lacks_its_rows_and_nothing_else(spark, tmp_path):
    store = copy_store("rollover-5.5.0", tmp_path)
    planned = read(spark, store, include="all", splitSize=20_000).rdd
    assert planned.getNumPartitions() > 1
    segment = sorted((store / "commitlog").iterdir())[1]
    first = int(segment.name)
    expected = Counter(
        row["physical_offset"]
        for row in lake.expected_rows("rollover-5.5.0", every_class=True, broker="b")
        if not first <= row["physical_offset"] < first + segment.stat().st_size
    )
    segment.unlink()
    assert Counter(row["physical_offset"] for row in planned.collect()) == expected
