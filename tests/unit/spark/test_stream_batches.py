"""Micro-batches of a log, as Spark asks for them; no Java is needed."""

from itertools import pairwise

import pytest

from mqtool.errors import ExportError
from tests.support import lake
from tests.support.stores import copy_store, store_fixture

pytest.importorskip("pyspark")

from mqtool.spark.options import parse
from mqtool.spark.stream import StoreStreamReader


@pytest.mark.parametrize(
    "limit", [{"maxBytesPerTrigger": "1"}, {"maxBytesPerTrigger": "8192"}, {"maxOffsetsPerTrigger": "3"}]
)
@pytest.mark.parametrize("name", ["dledger-5.5.0", "rollover-5.5.0"])
def test_small_batches_contain_each_record_once(name, limit):
    path = str(store_fixture(name).directory)
    reader = StoreStreamReader(parse({"path": path, "include": "all", **limit}), ["physical_offset"])

    def read(start, end):
        batches = [batch for split in reader.partitions(start, end) for batch in reader.read(split)]
        return [offset for batch in batches for offset in batch.column(0).to_pylist()]

    ends = [reader.initialOffset()]
    while len(ends) < 10:
        ends.append(reader.latestOffset(ends[-1], reader.getDefaultReadLimit()))
    found = [read(start, end) for start, end in pairwise(ends)]
    assert all(found)
    assert [offset for offsets in found for offset in offsets] == read(ends[0], ends[-1])


NAME = "rollover-5.5.0"
ENDS = lake.record_ends(NAME)
STARTS = [row["physical_offset"] for row in lake.expected_rows(NAME, every_class=True, broker="b")]


def stream_of(store, **options):
    given = {"path": f"b={store}", "include": "all", **options}
    return StoreStreamReader(parse(given), ["physical_offset"])


def places(reader, start, end):
    batches = [batch for split in reader.partitions(start, end) for batch in reader.read(split)]
    return [place for batch in batches for place in batch["physical_offset"].to_pylist()]


def places_of_all(reader, start=None):
    """What each micro-batch reads, until there is nothing more."""
    start, found = reader.initialOffset() if start is None else start, []
    while True:
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end == start:
            return found
        found.append(places(reader, start, end))
        start = end


def flat(lists):
    return [one for some in lists for one in some]


@pytest.fixture
def growing(tmp_path):
    """A store whose log has 30 of the records, to which more come."""
    store = copy_store(NAME, tmp_path)
    lake.grow(NAME, store, ENDS[29])
    return store


def test_a_stream_may_begin_at_the_end_of_the_log(growing):
    late, early = stream_of(growing, startingOffsets="latest"), stream_of(growing)
    begin = late.initialOffset()
    assert places_of_all(late) == []
    lake.grow(NAME, growing, ENDS[39])
    assert flat(places_of_all(late, begin)) == [at for at in STARTS[:40] if at >= ENDS[29]]
    assert flat(places_of_all(early)) == STARTS[:40]


def test_nothing_new_is_the_same_offset_and_no_task(growing):
    reader = stream_of(growing)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    assert reader.partitions(end, end) == []


def test_a_stream_of_what_is_available_now_ends_where_the_log_ended(growing):
    reader = stream_of(growing, maxBytesPerTrigger="3000")
    reader.prepareForTriggerAvailableNow()
    lake.grow(NAME, growing, ENDS[-1])
    batches = places_of_all(reader)
    assert len(batches) > 1
    assert flat(batches) == STARTS[:30]
    reader.prepareForTriggerAvailableNow()
    assert flat(places_of_all(reader)) == STARTS


@pytest.mark.parametrize("is_tolerant", [False, True])
def test_records_that_expired_unread_are_loss_unless_that_is_allowed(is_tolerant, growing, caplog):
    reader = stream_of(growing, failOnDataLoss=str(not is_tolerant))
    read = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    lake.grow(NAME, growing, ENDS[-1])
    segments = sorted((growing / "commitlog").iterdir())
    first = next(int(path.name) for path in segments if int(path.name) > ENDS[40])
    for path in segments:
        if int(path.name) < first:
            path.unlink()
    lost = f"data loss: {first - ENDS[29]} bytes of the log expired unread, from physical offset {ENDS[29]} to {first}"
    if is_tolerant:
        assert flat(places_of_all(reader, read)) == [at for at in STARTS if at >= first]
        assert f"{lost} path={growing}" in {record.getMessage() for record in caplog.records}
    else:
        with pytest.raises(ExportError, match=lost):
            reader.latestOffset(read, reader.getDefaultReadLimit())


@pytest.mark.parametrize("limit", [1, 20_000])
def test_batches_keep_their_limit_where_a_segment_is_missing(limit, tmp_path):
    store = copy_store(NAME, tmp_path)
    segments = sorted((store / "commitlog").iterdir())
    size = segments[0].stat().st_size
    gone = [segments[1], segments[2]]
    for path in gone:
        path.unlink()
    reader = stream_of(store, failOnDataLoss="false", maxBytesPerTrigger=str(limit))
    batches = places_of_all(reader)
    kept = [at for at in STARTS if at // size not in (1, 2)]
    assert flat(batches) == kept
    assert max(batch[-1] - batch[0] for batch in batches if batch) < 3 * size + limit  # the gap, and some records
    assert len(batches) >= 3


def test_a_store_that_joins_a_stream_is_read_from_its_start(growing):
    assert flat(places_of_all(stream_of(growing), {"version": 1, "stores": {"other": {"offset": 7}}})) == STARTS[:30]


def test_spark_reads_nothing_where_there_is_no_task(growing):
    assert list(stream_of(growing).read(None)) == []
