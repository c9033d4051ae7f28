"""A store has the columns of Spark's Kafka source; their values are what the broker answered."""

import pytest

from tests.support import lake
from tests.support.builder import StoreBuilder
from tests.support.stores import store_fixture

pytest.importorskip("pyspark")

from mqtool.spark.source import RocketMQStore

NAME = "orders-5.5.0"
ROWS = lake.expected_rows(NAME, every_class=False, broker="b")


def read(path, **options):
    source = RocketMQStore({"path": f"b={path}", **options})
    reader = source.reader(source.schema())
    return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]


def test_a_store_has_the_columns_and_types_of_kafka():
    """Of KafkaRecordToRowConverter (Spark 4.3), which the types are copied from."""
    schema = RocketMQStore({"path": "/data/store", "columns": "kafka", "includeHeaders": "true"}).schema()
    assert schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert all(field.nullable for field in schema)
    without = RocketMQStore({"path": "/data/store", "columns": "kafka,broker"}).schema()
    assert without.fieldNames() == [*schema.fieldNames()[:-1], "broker"]


def test_the_values_are_those_of_the_messages():
    found = read(store_fixture(NAME).directory, columns="kafka,physical_offset", includeHeaders="true")
    expected = [
        {
            "key": " ".join(row["keys"]).encode() or None,
            "value": row["body"],
            "topic": row["topic"],
            "partition": row["queue_id"],
            "offset": row["queue_offset"],
            "timestamp": row["store_timestamp"],
            "timestampType": 1,
            "headers": {name: value.encode() for name, value in row["properties"].items()},
            "physical_offset": row["physical_offset"],
        }
        for row in ROWS
    ]
    assert [row | {"headers": {each["key"]: each["value"] for each in row["headers"]}} for row in found] == expected
    assert {row["key"] is None for row in found} == {True, False}


def test_columns_that_are_tested_or_hidden_are_those_of_the_messages():
    found = read(
        store_fixture(NAME).directory, columns="kafka", redact="body,keys", where="topic = 'Keyed' AND queue_id = 1"
    )
    expected = [row for row in ROWS if row["topic"] == "Keyed" and row["queue_id"] == 1]
    assert [row["offset"] for row in found] == [row["queue_offset"] for row in expected]
    for row, original in zip(found, expected, strict=True):
        assert row["value"] != original["body"]
        assert row["key"] != " ".join(original["keys"]).encode()


def test_a_row_about_damage_says_nothing_else(tmp_path):
    builder = StoreBuilder()
    for _ in range(3):
        builder.put(keys="k")
    damaged = builder.puts[1]
    path = builder.write(tmp_path / "store")
    with (path / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(damaged.physical_offset + 90)
        file.write(b"?")
    first, reported, last = read(path, columns="kafka", damageColumn="damage")
    assert (first["offset"], last["offset"]) == (0, 2)
    assert {name for name, value in reported.items() if value is not None} == {"damage"}
