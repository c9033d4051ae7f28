"""Reads begin and end where options say, queue by queue, in the words of Spark's Kafka source; no Java is needed.

Which messages there are is what the broker answered.
"""

import json
import re
import shutil

import pytest

from mqtool.errors import UsageError
from tests.support import lake
from tests.support.builder import StoreBuilder
from tests.support.stores import copy_store, store_fixture

pytest.importorskip("pyspark")

from mqtool.spark.options import parse
from mqtool.spark.source import RocketMQStore
from mqtool.spark.stream import StoreStreamReader

NAME = "orders-5.5.0"
STORE = str(store_fixture(NAME).directory)
ORDERS = [row for row in lake.expected_rows(NAME, every_class=False, broker="b") if row["topic"] == "Orders"]
COLUMNS = "broker,topic,queue_id,queue_offset,physical_offset"


def tasks_of(*paths, **options):
    """The rows of each task."""
    given = {"paths": json.dumps([str(path) for path in paths]), "columns": COLUMNS, **options}
    source = RocketMQStore(
        {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
    )
    reader = source.reader(source.schema())
    return [[row for batch in reader.read(task) for row in batch.to_pylist()] for task in reader.partitions()]


def rows_of(*paths, **options):
    rows = [row for task in tasks_of(*paths, **options) for row in task]
    return sorted(rows, key=lambda row: (row["broker"], row["physical_offset"]))


def chosen(rows, keep):
    found = [{name: row[name] for name in COLUMNS.split(",")} for row in rows if keep(row)]
    assert 0 < len(found) < len(rows)
    return found


@pytest.mark.parametrize("trust", ["", "queues"])
def test_queues_are_read_from_their_first_to_before_their_last_offset(trust):
    begin, end = {"0": 5, "1": -2, "2": 12, "3": 31}, {"0": 12, "1": 7, "2": -1, "3": -1}
    found = rows_of(
        f"b={STORE}", topic="Orders", trust=trust, startingOffsets={"Orders": begin}, endingOffsets={"Orders": end}
    )
    ranges = {0: range(5, 12), 1: range(7), 2: range(0), 3: range(31, 32)}
    assert found == chosen(ORDERS, lambda row: row["queue_offset"] in ranges[row["queue_id"]])


def test_queues_are_read_from_and_to_times():
    times = sorted(row["store_timestamp"] for row in ORDERS if row["queue_id"] == 3)
    begin, end = times[5], times[25]
    bounds = [{"Orders": {"3": round(time.timestamp() * 1000)}} for time in (begin, end)]
    found = rows_of(
        f"b={STORE}",
        topic="Orders",
        queueId="3",
        startingOffsetsByTimestamp=bounds[0],
        endingOffsetsByTimestamp=bounds[1],
    )
    assert found == chosen(ORDERS, lambda row: row["queue_id"] == 3 and begin <= row["store_timestamp"] < end)


def test_starting_and_ending_timestamps_are_bounds_of_store_times():
    times = sorted(row["store_timestamp"] for row in ORDERS)
    begin, end = times[10], times[-10]
    given = {"startingTimestamp": str(round(begin.timestamp() * 1000)), "endingTimestamp": end.isoformat()}
    assert rows_of(f"b={STORE}", topic="Orders", **given) == chosen(
        ORDERS, lambda row: begin <= row["store_timestamp"] < end
    )


def test_queues_of_several_stores_have_bounds_of_their_own(tmp_path):
    for name in "ab":
        builder = StoreBuilder(base=0 if name == "a" else 1 << 20)
        for _ in range(9):
            builder.put(topic="it's")
        builder.write(tmp_path / name)
    paths = [f"{name}={tmp_path / name}" for name in "ab"]
    bounds = {"a": {"it's": {"0": 7}}, "b": {"it's": {"0": 3}}}
    found = [(row["broker"], row["queue_offset"]) for row in rows_of(*paths, startingOffsets=bounds)]
    assert found == [("a", 7), ("a", 8), *(("b", number) for number in range(3, 9))]
    with pytest.raises(UsageError, match=r'such as \{"BROKER": \{"TOPIC": \{"QUEUE": VALUE\}\}\}, found '):
        rows_of(*paths, startingOffsets=bounds["a"])
    with pytest.raises(UsageError, match="option 'startingOffsets': no store of broker 'c'; known: a, b"):
        rows_of(*paths, startingOffsets={"c": {}})


def test_hundreds_of_queues_may_have_bounds(tmp_path):
    builder = StoreBuilder(segment_size=1 << 20)
    for number in range(600):
        builder.put(queue_id=number)
        builder.put(queue_id=number)
    path = builder.write(tmp_path / "store")
    bounds = {"Topic": {str(number): number % 3 for number in range(600)}}
    found = rows_of(f"b={path}", startingOffsets=bounds)
    assert [row["queue_offset"] for row in found] == [at for number in range(600) for at in range(number % 3, 2)]


FOUR = {"Orders": {str(queue): 0 for queue in range(4)}}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": {"Orders": {"1": 7}}}, "option 'startingOffsets' lacks queue 0 of topic Orders of"),
        ({"startingOffsets": {**FOUR, "Payments": {"0": 0}}}, "has no queue 0 of topic Payments among what is read"),
        (
            {"startingOffsets": {"Orders": {"1": 41}}, "queueId": 1},
            f"option 'startingOffsets': expected 0 to 40 for queue 1 of topic Orders of {STORE}, found 41; set failOn",
        ),
        (
            {"endingOffsets": {"Orders": {"1": 41}}, "queueId": 1},
            "option 'endingOffsets': expected 0 to 40 for queue 1",
        ),
        ({"startingOffsets": {"Orders": {"1": -1}}}, "-1 for queue 1 of topic Orders, but only a stream can begin at"),
        ({"endingOffsets": {"Orders": {"1": -2}}}, "-2 for queue 1 of topic Orders, but nothing ends before it begins"),
        (
            {"startingOffsets": {"Orders": {"1": -3}}},
            "expected a queue offset, -1 or -2 for queue 1 of topic Orders, found -3",
        ),
        (
            {"endingOffsetsByTimestamp": {"Orders": {"1": -1}}},
            "expected ms since the epoch for queue 1 of topic Orders",
        ),
        ({"startingOffsets": "latest"}, "option 'startingOffsets': a batch query cannot begin at latest"),
        ({"endingOffsets": "earliest"}, "option 'endingOffsets': expected latest, JSON such as {\"TOPIC\""),
        ({"startingOffsets": {"Orders": 5}}, "found '{\"Orders\": 5}' (Expected `object`, got `int` - at `$[...]`)"),
        (
            {"startingOffsets": FOUR, "startTime": "5"},
            "options 'startTime' and 'startingOffsets' both say where to begin",
        ),
        (
            {"startingTimestamp": "5", "startOffset": "5"},
            "options 'startOffset' and 'startingTimestamp' both say where",
        ),
        (
            {"endingOffsets": FOUR, "endingTimestamp": "5"},
            "options 'endingTimestamp' and 'endingOffsets' both say where to end",
        ),
        ({"startingOffsets": FOUR, "table": "damage"}, "bounds of queues apply to the table messages, not to damage"),
    ],
)
def test_bounds_that_contradict_the_store_or_each_other_are_refused(options, words):
    with pytest.raises(UsageError, match=re.escape(words)) as refused:
        rows_of(f"b={STORE}", topic="Orders", **options)
    assert "\n" not in str(refused.value)


def test_offsets_that_a_queue_no_longer_has_may_be_tolerated():
    options = {"topic": "Orders", "queueId": "1", "failOnDataLoss": "false"}
    assert rows_of(f"b={STORE}", startingOffsets={"Orders": {"1": 41}}, **options) == []


def test_of_a_log_without_queues_the_latest_is_unknown_and_the_rest_is_read(tmp_path):
    store = copy_store(NAME, tmp_path)
    shutil.rmtree(store / "consumequeue")
    found = rows_of(f"b={store}", topic="Orders", startingOffsets={"Orders": {"1": 38, "2": -2}})
    assert found == chosen(ORDERS, lambda row: row["queue_offset"] >= {1: 38, 2: 0}.get(row["queue_id"], 99))
    with pytest.raises(
        UsageError, match=r"option 'endingOffsets': -1 for queue 1 of topic Orders, but .* has no queues"
    ):
        rows_of(f"b={store}", topic="Orders", endingOffsets={"Orders": {"1": -1}})


def test_words_for_everything_bound_nothing():
    words = {"startingOffsets": "Earliest", "endingOffsets": "LATEST"}
    assert len(rows_of(f"b={STORE}", topic="Orders", **words)) == len(ORDERS)
    with pytest.raises(UsageError, match="'startTime' and 'startingOffsets' both say where to begin"):
        rows_of(f"b={STORE}", topic="Orders", startTime="5", **words)


@pytest.mark.parametrize("options", [{}, {"where": "topic = 'Orders'", "trust": "queues"}])
def test_there_are_about_as_many_tasks_as_are_wanted(options):
    tasks = tasks_of(f"b={STORE}", minPartitions="8", **options)
    assert 8 <= len(tasks) <= 16
    assert all(tasks)
    assert sorted(row["physical_offset"] for task in tasks for row in task) == [
        row["physical_offset"] for row in rows_of(f"b={STORE}", **options)
    ]


ROLLOVER = "rollover-5.5.0"
EXPECTED = lake.expected_rows(ROLLOVER, every_class=True, broker="b")
ENDS = lake.record_ends(ROLLOVER)


def stream_of(store, **options):
    given = {"path": f"b={store}", "include": "all", **options}
    given = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
    return StoreStreamReader(parse(given).for_stream(), ["physical_offset"])


def batches_of(reader, start=None):
    """What each micro-batch reads until there is nothing more, and where it ended, by way of a checkpoint."""
    start, found = reader.initialOffset() if start is None else start, []
    while True:
        end = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
        if end == start:
            return found, end
        read = [batch for task in reader.partitions(start, end) for batch in reader.read(task)]
        found.append([place for batch in read for place in batch["physical_offset"].to_pylist()])
        start = end


def grow(store, records):
    """Makes the log end after some records; the queues are complete, and what they name beyond it does not count."""
    lake.grow(ROLLOVER, store, ENDS[records - 1])
    shutil.copytree(store_fixture(ROLLOVER).directory / "consumequeue", store / "consumequeue")


@pytest.fixture
def growing(tmp_path):
    """A store with 60 of the records, to which more come; and the queue offset that each of its queues has next."""
    store = copy_store(ROLLOVER, tmp_path)
    grow(store, 60)
    following: dict[str, dict[str, int]] = {}
    for row in EXPECTED[:60]:
        following.setdefault(row["topic"], {})[str(row["queue_id"])] = row["queue_offset"] + 1
    return store, following


@pytest.mark.parametrize("trust", ["", "queues"])
def test_a_stream_begins_in_the_midst_of_queues_and_goes_on_from_its_checkpoint(growing, trust):
    store, following = growing
    begin = {
        topic: {queue: last - 2 for queue, last in queues.items() if last > 1} for topic, queues in following.items()
    }
    begin = {topic: {**dict.fromkeys(following[topic], -2), **queues} for topic, queues in begin.items()}

    def is_read(row):
        return row["queue_offset"] >= begin.get(row["topic"], {}).get(str(row["queue_id"]), 0)

    first, end = batches_of(stream_of(store, startingOffsets=begin, trust=trust))
    assert [at for batch in first for at in batch] == [row["physical_offset"] for row in EXPECTED[:60] if is_read(row)]
    grow(store, len(ENDS))
    more, _ = batches_of(stream_of(store, startingOffsets="latest"), end)  # a checkpoint goes before options
    assert [at for batch in more for at in batch] == [row["physical_offset"] for row in EXPECTED[60:]]


def test_a_stream_begins_at_the_latest_of_some_queues(growing):
    store, following = growing
    topic = min(following)
    begin = {name: dict.fromkeys(queues, -1 if name == topic else -2) for name, queues in following.items()}
    reader = stream_of(store, startingOffsets=begin)
    start = reader.initialOffset()
    grow(store, len(ENDS))
    found, _ = batches_of(reader, start)
    expected = [row["physical_offset"] for row in EXPECTED[:60] if row["topic"] != topic]
    assert found == [expected + [row["physical_offset"] for row in EXPECTED[60:]]]


@pytest.mark.parametrize("words", ["latest", "json"])
def test_the_first_batch_of_a_stream_is_repeated_from_where_it_began(growing, words):
    """Spark asks for the initial offset again, which is another by then."""
    store, following = growing
    latest = {topic: dict.fromkeys(queues, -1) for topic, queues in following.items()}
    reader = stream_of(store, trust="queues", startingOffsets=words if words == "latest" else latest)
    start = reader.initialOffset()
    grow(store, 80)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    grow(store, len(ENDS))
    again = reader.initialOffset() if words == "latest" else start
    assert (again == start) == (words == "json")
    read = [batch for task in reader.partitions(again, end) for batch in reader.read(task)]
    found = [place for batch in read for place in batch["physical_offset"].to_pylist()]
    assert found == [row["physical_offset"] for row in EXPECTED[60:80]]


@pytest.mark.parametrize(("name", "limit"), [(ROLLOVER, 7), (NAME, 50)])
def test_micro_batches_have_no_more_messages_than_their_limit(name, limit):
    path = store_fixture(name).directory
    found, _ = batches_of(stream_of(path, maxOffsetsPerTrigger=str(limit), include="committed"))
    places = [row["physical_offset"] for row in lake.expected_rows(name, every_class=False, broker="b")]
    assert [at for batch in found for at in batch] == places
    assert all(len(batch) <= limit or len(set(batch)) == 1 for batch in found)
    assert len(found) <= 2 + 2 * len(places) // limit


def test_a_limit_of_messages_counts_those_that_are_selected(growing):
    store, following = growing
    topic = min(following)
    found, _ = batches_of(stream_of(store, topic=topic, maxOffsetsPerTrigger="2", maxBytesPerTrigger="1g"))
    expected = [row["physical_offset"] for row in EXPECTED[:60] if row["topic"] == topic]
    assert [batch for batch in found if batch] == [expected[at : at + 2] for at in range(0, len(expected), 2)]


def test_a_stream_has_no_end():
    for name in ("endOffset", "endTime", "endingTimestamp"):
        with pytest.raises(UsageError, match=f"'{name}'.*: a stream has no end"):
            stream_of(STORE, **{name: "5"})
    with pytest.raises(UsageError, match="option 'endingOffsets': a stream has no end; leave it out"):
        parse({"path": STORE, "endingOffsets": json.dumps(FOUR)}).for_stream()
