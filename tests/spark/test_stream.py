"""Streams give each record once, through restarts and replays, and say when the log is not what it was."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mqtool.errors import ExportError
from tests.support import lake
from tests.support.stores import copy_store

StreamingQueryException = pytest.importorskip("pyspark.errors").StreamingQueryException

NAME = "rollover-5.5.0"
ENDS = lake.record_ends(NAME)
BUSY_STARTS = 5
EXPECTED = lake.expected_rows(NAME, every_class=True, broker="b")


def to_its_end(query: Any) -> None:
    """Runs a query to the end of what is there.

    Spark gives the Python of a source ten seconds to start (PythonWorkerFactory.createSimpleWorker, 4.3), which a busy
    machine may not keep. The query then ends before it has read anything, and goes on from its checkpoint.
    """
    for left in range(BUSY_STARTS, -1, -1):
        try:
            assert query.trigger(availableNow=True).start().awaitTermination(300)
        except StreamingQueryException as error:
            if not left or "Python worker failed to connect back" not in str(error):
                raise
        else:
            return


class Streaming:
    """A store whose log grows, and a query that writes what is new as Parquet."""

    def __init__(self, spark: Any, tmp_path: Path) -> None:
        self.spark = spark
        self.store = copy_store(NAME, tmp_path)
        self.out = tmp_path / "out"
        self.checkpoint = tmp_path / "checkpoint"

    def grow(self, records: int) -> None:
        lake.grow(NAME, self.store, ENDS[records - 1])

    def run(self, write: Any = None, **options: object) -> None:
        """Runs to the end of what is there, each batch into a directory of its own."""
        given = {"include": "all", **{name: str(value) for name, value in options.items()}}
        frame = self.spark.readStream.format("rocketmq-store").options(**given).load(f"b={self.store}")
        query = frame.writeStream.foreachBatch(write or self.write)
        to_its_end(query.option("checkpointLocation", str(self.checkpoint)))

    def write(self, frame: Any, number: int) -> None:
        frame.write.mode("overwrite").parquet(f"{self.out}/batch={number:08d}")

    def rows(self) -> list[dict[str, Any]]:
        found = [row for path in sorted(self.out.rglob("*.parquet")) for row in pq.read_table(path).to_pylist()]
        return lake.in_log_order([{name: value for name, value in row.items() if name != "batch"} for row in found])


@pytest.fixture
def streaming(spark: Any, tmp_path: Path) -> Streaming:
    return Streaming(spark, tmp_path)


def test_each_run_adds_what_is_new(streaming):
    for records in (30, 31, 100):
        streaming.grow(records)
        streaming.run()
        assert streaming.rows() == EXPECTED[:records]
    streaming.run()
    assert streaming.rows() == EXPECTED[:100]


@pytest.mark.night
def test_a_stream_has_the_messages_that_meet_its_condition(streaming):
    topic = EXPECTED[50]["topic"]
    condition = f"topic = '{topic}' AND queue_offset > 2"
    streaming.run(where=condition)
    expected = [row for row in EXPECTED if row["topic"] == topic and row["queue_offset"] > 2]
    assert 0 < len(expected) < len(EXPECTED)
    assert streaming.rows() == expected


def test_batches_end_at_records_soon_after_the_limit(streaming):
    streaming.run(maxBytesPerTrigger=9000)
    assert streaming.rows() == EXPECTED
    sizes = [
        sum(row["store_size"] for path in one.glob("*.parquet") for row in pq.read_table(path).to_pylist())
        for one in sorted(streaming.out.iterdir())
    ]
    assert len(sizes) > 5
    assert max(sizes) < 30_000


def test_batches_have_no_more_messages_than_their_limit(streaming):
    begin = {}
    for row in EXPECTED:
        begin.setdefault(row["topic"], {})[str(row["queue_id"])] = 2
    streaming.run(maxOffsetsPerTrigger=20, startingOffsets=json.dumps(begin), failOnDataLoss="false")
    assert streaming.rows() == [row for row in EXPECTED if row["queue_offset"] >= 2]
    sizes = [
        sum(pq.read_metadata(path).num_rows for path in each.glob("*.parquet")) for each in streaming.out.iterdir()
    ]
    assert len(sizes) > 5
    assert max(sizes) == 20


def test_a_batch_that_failed_is_replayed_with_its_bounds(streaming):
    streaming.grow(60)

    def fail(frame: Any, number: int) -> None:
        streaming.write(frame, number)
        raise RuntimeError("between the write and the commit")

    with pytest.raises(Exception, match="between the write and the commit"):
        streaming.run(fail)
    streaming.grow(120)
    streaming.run()
    assert streaming.rows() == EXPECTED[:120]
    first = next(path for path in sorted(streaming.out.iterdir()))
    found = [row for path in first.glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert len(found) == 60


def test_offsets_are_physical_offsets_with_fingerprints(streaming):
    streaming.grow(40)
    streaming.run()
    offsets = sorted(path for path in (streaming.checkpoint / "offsets").iterdir() if path.name.isdigit())
    said = json.loads(offsets[-1].read_text().splitlines()[-1])
    assert said["version"] == 1
    assert said["stores"]["b"]["offset"] == ENDS[39]
    assert {"base", "head", "tail"} <= set(said["stores"]["b"])


def test_a_stream_may_begin_at_the_end(streaming):
    streaming.grow(40)
    streaming.run(startingOffsets="latest")
    streaming.grow(50)
    streaming.run(startingOffsets="latest")
    assert streaming.rows() == EXPECTED[40:50]


def test_a_log_that_was_cut_below_the_watermark_ends_the_stream(streaming):
    streaming.grow(60)
    streaming.run()
    streaming.grow(50)
    with pytest.raises(Exception, match="the log is shorter than at the last export"):
        streaming.run()
    assert streaming.rows() == EXPECTED[:60]


def expire(streaming: Streaming) -> tuple[int, int]:
    """Reads 30 records, then removes segments that hold the next ones; returns the lost range."""
    streaming.grow(30)
    streaming.run()
    streaming.grow(len(ENDS))
    segments = sorted((streaming.store / "commitlog").iterdir())
    unread = [path for path in segments if int(path.name) > ENDS[29]]
    for path in segments:
        if path not in unread[1:]:
            path.unlink()
    return ENDS[29], int(unread[1].name)


def test_records_that_expired_unread_end_the_stream(streaming):
    start, end = expire(streaming)
    with pytest.raises(Exception, match=rf"data loss: {end - start} bytes of the log expired unread"):
        streaming.run()
    assert streaming.rows() == EXPECTED[:30]


def test_records_that_expired_unread_are_passed_over_where_that_is_allowed(streaming):
    start, end = expire(streaming)
    streaming.run(failOnDataLoss="false")
    assert streaming.rows() == [r for r in EXPECTED if r["physical_offset"] < start or r["physical_offset"] >= end]


def micro_batch(streaming: Streaming, **options: str) -> tuple[Any, list[Any]]:
    """A reader and the splits of everything, as Spark asks for them."""
    from mqtool.spark.options import parse
    from mqtool.spark.stream import StoreStreamReader

    given = {"path": f"b={streaming.store}", "include": "all", "splitSize": "3000", **options}
    reader = StoreStreamReader(parse(given), ["physical_offset"])
    start = reader.initialOffset()
    return reader, reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_segment_that_goes_away_while_a_batch_is_planned_or_read_is_loss(streaming, when):
    gone = sorted((streaming.store / "commitlog").iterdir())[2]
    if when == "before":
        gone.unlink()
    reader, splits = micro_batch(streaming)
    tolerant, same = micro_batch(streaming, failOnDataLoss="false")
    if when == "after":
        gone.unlink()
    with pytest.raises(ExportError, match=rf"data loss: \d+ bytes of the log from physical offset {int(gone.name)}"):
        [list(reader.read(split)) for split in splits]
    found = [at for split in same for batch in tolerant.read(split) for at in batch["physical_offset"].to_pylist()]
    size = gone.with_name(f"{0:020}").stat().st_size
    kept = [row["physical_offset"] for row in EXPECTED if row["physical_offset"] // size != int(gone.name) // size]
    assert sorted(found) == kept


def test_a_batch_of_less_than_a_byte_for_each_store_has_a_record_of_each(streaming, tmp_path):
    from mqtool.spark.options import parse
    from mqtool.spark.stream import StoreStreamReader

    other = copy_store("orders-5.5.0", tmp_path / "other")
    paths = json.dumps([f"b={streaming.store}", f"o={other}"])
    reader = StoreStreamReader(parse({"paths": paths, "maxBytesPerTrigger": "1"}), ["physical_offset"])
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    first = lake.record_ends("orders-5.5.0")[0]
    assert [end["stores"][name]["offset"] for name in "bo"] == [ENDS[0], first]


def test_a_stream_reads_no_log_twice_whose_store_has_another_name_or_was_left_out(streaming, tmp_path):
    from mqtool.spark.options import parse
    from mqtool.spark.stream import StoreStreamReader

    other = copy_store("orders-5.5.0", tmp_path / "other")

    def reader(*paths: str) -> StoreStreamReader:
        return StoreStreamReader(parse({"paths": json.dumps(paths)}), ["physical_offset"])

    both = reader(f"b={streaming.store}", f"o={other}")
    limit = both.getDefaultReadLimit()
    end = both.latestOffset(both.initialOffset(), limit)
    assert reader(f"o={other}").latestOffset(end, limit) == end
    with pytest.raises(ExportError, match="this log was read before under the name 'b'"):
        reader(f"c={streaming.store}").latestOffset(end, limit)


def test_a_checkpoint_of_another_version_is_refused(streaming):
    reader, _ = micro_batch(streaming)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    with pytest.raises(ExportError, match="checkpoint: expected version 1, found 2"):
        reader.partitions({**end, "version": 2}, end)


def test_a_stream_from_the_start_whose_first_segment_expired_is_loss(streaming):
    reader, _ = micro_batch(streaming)
    start = reader.initialOffset()
    first, second = sorted((streaming.store / "commitlog").iterdir())[:2]
    first.unlink()
    lost = int(second.name) - int(first.name)
    with pytest.raises(ExportError, match=f"data loss: {lost} bytes of the log expired unread, from physical offset 0"):
        reader.latestOffset(start, reader.getDefaultReadLimit())


def test_the_parquet_sink_gets_each_record_once(streaming):
    for records in (50, 100):
        streaming.grow(records)
        reader = streaming.spark.readStream.format("rocketmq-store").option("include", "all")
        frame = reader.load(f"b={streaming.store}")
        query = frame.writeStream.format("parquet").option("path", str(streaming.out))
        to_its_end(query.option("checkpointLocation", str(streaming.checkpoint)))
        assert streaming.spark.read.parquet(str(streaming.out)).count() == records
    assert streaming.rows() == EXPECTED[:100]
