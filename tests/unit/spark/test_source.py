"""The data source as Spark asks it, in this process; no Java is needed."""

import re

import pytest

from mqtool.errors import CorruptionError, NothingFoundError, UsageError
from tests.support.builder import StoreBuilder

pytest.importorskip("pyspark")

from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from mqtool.spark.source import RocketMQStore

ASKED = ("u3", "u7", "u21", "u38")
INDEXED = {"where": f"unique_key IN {ASKED}", "trust": "index"}


@pytest.fixture
def builder():
    """Forty messages in eight segments, each with a key; five of them are named by an index file."""
    made = StoreBuilder(entries=6)
    for number in range(40):
        made.put(b"x" * 3000, queue_id=number % 2, unique_key=f"u{number}")
    return made


def places(builder, *keys):
    return [put.physical_offset for put in builder.puts if put.unique_key in keys]


def flat(lists):
    return [one for some in lists for one in some]


def reader_of(path, **options):
    source = RocketMQStore({"path": f"b={path}", "columns": "physical_offset", **options})
    return source.reader(source.schema())


def read(path, **options):
    """The physical offsets of the rows of each task."""
    reader = reader_of(path, **options)
    batches = [list(reader.read(split)) for split in reader.partitions()]
    return [[place for batch in some for place in batch["physical_offset"].to_pylist()] for some in batches]


def test_records_that_a_trusted_index_names_are_read_in_tasks_of_the_split_size(builder, tmp_path):
    path = builder.write(tmp_path / "store")
    assert read(path, **INDEXED)[-1] == places(builder, *ASKED)
    tasks = [task for task in read(path, **INDEXED, splitSize="6500") if task]
    assert flat(tasks) == places(builder, *ASKED)
    assert [len(task) for task in tasks] == [2, 2]


def test_offsets_bound_the_records_that_an_index_names(builder, tmp_path):
    path = builder.write(tmp_path / "store")
    start, end = places(builder, "u7", "u38")
    found = read(path, **INDEXED, startOffset=str(start), endOffset=str(end))
    assert flat(found) == places(builder, "u7", "u21")


@pytest.mark.parametrize("missing", [[0], [3], [7], [3, 7]])
def test_records_without_index_entries_are_read_once(builder, missing, tmp_path):
    """The index ends before the log does, or has a hole, whose bounds need not be records."""
    path = builder.write(tmp_path / "store")
    files = sorted((path / "index").iterdir())
    for number in missing:
        files[number].unlink()
    assert sorted(flat(read(path, **INDEXED))) == places(builder, *ASKED)


def test_offsets_bound_what_the_index_does_not_cover(builder, tmp_path):
    path = builder.write(tmp_path / "store")
    max((path / "index").iterdir()).unlink()
    for last, found in (("u37", ("u7", "u21")), ("u39", ("u7", "u21", "u38"))):
        start, end = places(builder, "u7", last)
        given = read(path, **INDEXED, startOffset=str(start), endOffset=str(end))
        assert sorted(flat(given)) == places(builder, *found)


@pytest.mark.parametrize("where", ["queue_id = 1 AND queue_id = 0", "broker = 'another'"])
def test_a_condition_that_nothing_meets_has_no_task(builder, where, tmp_path):
    path = builder.write(tmp_path / "store")
    assert reader_of(path, where=where).partitions() == []
    assert flat(read(path, where="broker = 'b'")) == [put.physical_offset for put in builder.puts]


def test_a_damaged_record_that_an_index_names_is_reported_or_ends_the_query(builder, tmp_path):
    path = builder.write(tmp_path / "store")
    (place,) = places(builder, "u7")
    base = place // builder.segment_size * builder.segment_size
    with (path / "commitlog" / f"{base:020}").open("r+b") as file:
        file.seek(place - base + 100)
        file.write(b"?")
    assert flat(read(path, **INDEXED)) == places(builder, "u3", "u21", "u38")
    with pytest.raises(CorruptionError, match=f"physical offset {place}: bad-crc"):
        read(path, **INDEXED, mode="failfast")


def test_a_half_message_that_an_index_names_is_no_row(builder, tmp_path):
    builder.put(topic="RMQ_SYS_TRANS_HALF_TOPIC", unique_key="u38")
    for _ in range(6):
        builder.put(unique_key="later")
    path = builder.write(tmp_path / "store")
    assert flat(read(path, **INDEXED)) == places(builder, *ASKED)[:-1]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([("tpoic", StringType())], "unknown column 'tpoic'; known: broker, physical_offset"),
        ([("queue_offset", IntegerType())], "column 'queue_offset' is bigint, not int; cast it after reading"),
    ],
)
def test_a_schema_with_another_column_or_type_is_refused(fields, words, tmp_path):
    with pytest.raises(UsageError, match=re.escape(words)):
        RocketMQStore({"path": str(tmp_path)}).reader(StructType([StructField(*field) for field in fields]))


def test_a_condition_on_offsets_reads_no_further_than_the_log(tmp_path):
    """After the last record, the file has zeros: they are not damage."""
    builder = StoreBuilder(segment_size=8192)
    for _ in range(25):
        builder.put(b"x" * 1000)
    path = builder.write(tmp_path / "store")
    for put in builder.puts:
        at = put.physical_offset
        assert flat(read(path, where=f"physical_offset = {at}", mode="failfast")) == [at]
        assert flat(read(path, where=f"physical_offset = {at + 1}", mode="failfast")) == []
        assert flat(read(path, startOffset=str(at), endOffset=str(at + 1), mode="failfast")) == [at]
    every = [put.physical_offset for put in builder.puts]
    assert flat(read(path, where=f"{every[-1]} >= physical_offset", mode="failfast")) == every


def test_a_topic_that_does_not_exist_is_an_error_or_a_warning(builder, tmp_path, caplog):
    path = builder.write(tmp_path / "store")
    with pytest.raises(NothingFoundError, match=r"store: no topic matches 'Ordres', 'X\*'; correct option 'topics'"):
        read(path, topics="T*,Ordres,X*")
    assert len(flat(read(path, where="topic = 'Topic'"))) == len(builder.puts)
    assert not caplog.messages
    assert read(path, where="topic = 'Ordres'") == [[]]
    assert caplog.messages == [f"option 'where': no queue and no configuration of topic Ordres in {path}"]
