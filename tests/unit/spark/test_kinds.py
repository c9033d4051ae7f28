"""Stores of other systems as Spark asks for them, in this process; no Java is needed."""

import shutil

import pytest

from mqtool.errors import UsageError
from mqtool.siblings.arrow import batches
from mqtool.siblings.registry import recognise
from tests.support.chunks import damaged, equeue_store, tfchunk_store

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StringType, StructType, TimestampNTZType

from mqtool.spark.kinds import KindReader, source_of
from mqtool.spark.source import RocketMQStore


def plain(root, table=None):
    with recognise(root).open(root) as opened:
        return [row for batch in batches(opened, table) for row in batch.to_pylist()]


def reader_of(root, **options):
    source = RocketMQStore({"path": str(root), **options})
    return source.reader(source.schema())


def rows_of(reader):
    read = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in read for row in batch.to_pylist()]


@pytest.mark.parametrize("root", [equeue_store("equeue-small"), tfchunk_store("plain")], ids=["equeue", "tfchunk"])
def test_every_table_has_the_rows_of_the_plain_export(root):
    for table in recognise(root).tables:
        assert rows_of(reader_of(root, table=table.name)) == plain(root, table.name)


def test_damage_is_logged_and_does_not_end_the_reading(tmp_path, caplog):
    root = damaged("done-record-suffix", tmp_path / "store")
    assert rows_of(reader_of(root)) == plain(root)
    assert all(record.getMessage().startswith("skipped damage ") for record in caplog.records)
    assert caplog.records


def test_chosen_columns_have_the_types_and_comments_of_the_table():
    root = equeue_store("equeue-small")
    source = RocketMQStore({"path": str(root), "columns": "queue_offset, topic, created_time"})
    schema = source.schema()
    assert [(field.name, field.dataType) for field in schema] == [
        ("queue_offset", LongType()),
        ("topic", StringType()),
        ("created_time", TimestampNTZType()),
    ]
    assert all(field.metadata["comment"] for field in schema)
    found = rows_of(source.reader(StructType([schema["topic"]])))
    assert found == [{"topic": row["topic"]} for row in plain(root)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topics": "a"}, "option 'topics' does not apply to a store of kind equeue; known: path, paths"),
        ({"table": "messages"}, "option 'table': expected equeue-message.* found 'messages'"),
        ({"columns": "topic,nothing"}, "unknown column 'nothing'; known: "),
    ],
)
def test_what_such_a_store_has_not_is_refused_by_name(options, words):
    with pytest.raises(UsageError, match=words):
        RocketMQStore({"path": str(equeue_store("equeue-small")), **options}).schema()


def test_a_store_that_is_gone_when_a_task_reads_it_is_named(tmp_path):
    root = shutil.copytree(equeue_store("equeue-small"), tmp_path / "store")
    reader = reader_of(root)
    (part, *_) = reader.partitions()
    shutil.rmtree(root)
    with pytest.raises(UsageError, match=f"{root}: is no longer a store of a known kind"):
        list(reader.read(part))


def test_spark_reads_nothing_where_there_is_no_part():
    reader = reader_of(equeue_store("equeue-small"))
    assert isinstance(reader, KindReader)
    assert list(reader.read(None)) == []


@pytest.mark.parametrize("options", [{}, {"path": "s3://bucket/store"}, {"store": "gs://bucket/store"}])
def test_urls_are_stores_of_brokers(options):
    assert source_of(options) is None
