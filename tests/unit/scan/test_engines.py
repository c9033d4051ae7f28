"""DuckDB, Polars, Arrow and pandas give the answers of a full scan in plain Python."""

import threading
import time

import duckdb
import polars as pl
import pyarrow.compute as pc
import pytest

import mqtool.duckdb
from mqtool.duckdb import Session
from mqtool.engine import StoreOptions
from mqtool.engine import open_store as open_engine
from mqtool.errors import StoreError, UsageError
from mqtool.polars import facts_of, scan_store
from mqtool.scan import tables
from mqtool.scan.bounds import Bounds
from mqtool.scan.conditions import expression_of
from mqtool.scan.dataset import dataset
from mqtool.scan.messages import scan
from mqtool.store import open_store
from mqtool.store.commit_log import CommitLog
from mqtool.store.consume_queue import has_record
from tests.support.builder import FIRST_TIME, StoreBuilder
from tests.support.damage import damage_case
from tests.support.questions import committed, questions
from tests.support.stores import copy_store


def polars_questions(messages):
    """The same twelve as Polars takes them: its own SQL."""
    for question in questions(messages):
        if "epoch_ms" in question.sql or "make_timestamptz" in question.sql:
            continue
        yield question, pl.sql_expr(question.sql)


@pytest.fixture(
    params=["orders-5.5.0", "orders-4.9.7", "rocksdb-cq-5.5.0", "old-flip-body@4.9.7-clean", "flip-size@5.5.0-clean"]
)
def asked(request, tmp_path):
    case = request.param
    path = damage_case(case, tmp_path) if "@" in case else copy_store(case, tmp_path)
    with open_store(path) as store:
        yield path, committed(store)


def test_twelve_questions_in_sql(asked):
    path, messages = asked
    for trust in ([], ["queues", "index", "clock"]):
        with Session(path, trust=trust) as session:
            for question in questions(messages):
                _, batches = session.ask(f"SELECT physical_offset FROM messages WHERE {question.sql} ORDER BY ALL")
                found = [row["physical_offset"] for batch in batches for row in batch.to_pylist()]
                assert found == [m.physical_offset for m in messages if question.matches(m)], (question.name, trust)


def test_the_questions_in_polars(asked):
    path, messages = asked
    frame = scan_store(path)
    for question, expression in polars_questions(messages):
        found = frame.filter(expression).select("physical_offset").collect()["physical_offset"].to_list()
        assert found == [m.physical_offset for m in messages if question.matches(m)], question.name
    middle = messages[len(messages) // 2].store_timestamp
    later = frame.filter(pl.col("store_timestamp") >= pl.lit(middle).cast(pl.Datetime("ms", "UTC")))
    assert later.select(pl.len()).collect().item() == sum(m.store_timestamp >= middle for m in messages)


def test_the_questions_in_arrow_and_pandas(asked):
    path, messages = asked
    table = dataset(str(path))
    for question in questions(messages):
        found = table.to_table(columns=["physical_offset"], filter=question.where).to_pandas()
        assert found["physical_offset"].tolist() == [m.physical_offset for m in messages if question.matches(m)]
    assert table.head(3, columns=["topic"]).num_rows == 3
    assert table.count_rows() == len(messages)


def test_the_questions_as_text(asked):
    path, messages = asked
    table = dataset(str(path))
    for question in questions(messages):
        where = expression_of(question.text, table.schema)
        found = table.to_table(columns=["physical_offset"], filter=where)["physical_offset"].to_pylist()
        assert found == [m.physical_offset for m in messages if question.matches(m)], question.name


def answers_of(path, question):
    """The physical offsets that each engine finds."""
    with open_store(path) as store:
        yield "scan", [place for batch in scan(store, ["physical_offset"], question.where) for place in places(batch)]
    with Session(path, trust=["queues", "index", "clock"]) as session:
        sql = f"SELECT physical_offset FROM messages WHERE {question.sql}"
        yield "duckdb", [place for batch in session.ask(sql)[1] for place in places(batch)]
    if "store_timestamp" not in question.sql:
        frame = scan_store(path).filter(pl.sql_expr(question.sql)).select("physical_offset")
        yield "polars", frame.collect()["physical_offset"].to_list()
    table = dataset(str(path)).to_table(columns=["physical_offset"], filter=question.where)
    yield "pandas", table.to_pandas()["physical_offset"].tolist()


def places(batch):
    return batch["physical_offset"].to_pylist()


def test_answers_while_the_engine_appends_are_those_of_some_moment(tmp_path):
    """Each has what was there before it was asked, nothing that was not there after it, and no hole between."""
    path, ends = tmp_path / "store", threading.Event()
    with open_engine(path, StoreOptions(commit_log_file_size=1 << 16, consume_queue_file_size=2000)) as engine:

        def put(number):
            stored = f"KEYS\x01k{number}\x02UNIQ_KEY\x01u{number}\x02TAGS\x01{'ab'[number % 2]}\x02".encode()
            engine.put(f"T{number % 3}", number % 2, b"x" * (number % 700), stored)

        def write():
            number = 100
            while not ends.is_set():
                put(number)
                number += 1
                time.sleep(0.005)  # so that there is something to put in all the time, and not too much to read

        for number in range(100):
            put(number)
        with open_store(path) as store:
            messages = committed(store)
        assert len(messages) == 100
        writer = threading.Thread(target=write)
        writer.start()
        try:
            given = [
                (question, name, found)
                for question in questions(messages)
                for name, found in answers_of(path, question)
            ]
        finally:
            ends.set()
            writer.join()
    with open_store(path) as store:
        after = committed(store)
    assert len(after) > 100
    last = messages[-1].physical_offset
    for question, name, found in given:
        whole = [m.physical_offset for m in after if question.matches(m)]
        assert found == whole[: len(found)], (question.name, name)
        assert len(found) >= sum(place <= last for place in whole), (question.name, name)


def test_polars_hands_over_columns_conditions_and_limits():
    both = (pl.col("topic") == "a") & (pl.lit(5) > pl.col("queue_id"))
    assert facts_of(both)["topic"] == Bounds.of(["a"])
    assert facts_of(both)["queue_id"] == Bounds(high=4)
    assert facts_of(pl.col("topic").is_in(["a", "b"]))["topic"].values == {"a", "b"}
    between = facts_of(pl.col("queue_offset").is_between(3, 9))["queue_offset"]
    assert (between.low, between.high) == (3, 9)
    assert facts_of(pl.col("topic").str.starts_with("a"))["topic"] == Bounds()
    either = facts_of((pl.col("topic") == "a") | (pl.col("queue_id") == 1))
    assert either["topic"] == either["queue_id"] == Bounds()


def test_polars_stops_at_a_row_limit(tmp_path):
    path = copy_store("orders-5.5.0", tmp_path)
    assert scan_store(path).head(7).collect().height == 7
    assert scan_store(path, keyed=True).filter(pl.col("key") == "k0").select(pl.len()).collect().item() == 1


def test_several_stores_are_one_table(tmp_path):
    builder = StoreBuilder()
    for number in range(20):
        builder.put(topic=f"T{number % 2}")
    builder.write(tmp_path / "a" / "store")
    builder.put(topic="T1")
    builder.write(tmp_path / "b" / "store")
    connection = mqtool.duckdb.connect(tmp_path / "a" / "store", f"other={tmp_path}/b/store")
    sql = "SELECT broker, count(*) FROM messages WHERE topic = 'T1' GROUP BY ALL ORDER BY ALL"
    assert connection.sql(sql).fetchall() == [("a", 10), ("other", 11)]
    with Session(tmp_path / "a" / "store", f"other={tmp_path}/b/store") as session:
        list(session.ask("SELECT count(*) FROM messages WHERE broker = 'a'")[1])
        assert [(report.broker, report.path) for report in session.reports] == [("a", "walk"), ("other", "nothing")]


def test_conditions_of_sql_reach_the_scan(tmp_path):
    builder = StoreBuilder()
    for number in range(600):
        builder.put(b"x" * 300, topic=f"T{number % 7}", queue_id=number % 3, unique_key=f"u{number}", keys=f"k{number}")
    path = builder.write(tmp_path / "store")
    late = (builder.puts[-20].store_timestamp - FIRST_TIME) * 1000
    time = f"make_timestamptz({FIRST_TIME * 1000 + late})"
    for condition, table, path_name, rows in (
        ("topic = 'T1' AND queue_id IN (1, 7) AND queue_offset < 4", "messages", "queues", 4),
        ("unique_key = 'u300'", "messages", "index", 1),
        ("key = 'k300'", "message_keys", "index", 1),
        (f"store_timestamp >= {time}", "messages", "walk", 20),
        ("physical_offset BETWEEN 0 AND 1000", "messages", "walk", 3),
    ):
        with Session(path, trust=["queues", "index", "clock"]) as session:
            _, batches = session.ask(f"SELECT * FROM {table} WHERE {condition}")
            assert sum(map(len, batches)) == rows
            (report,) = session.reports
            assert (report.path, report.segments_skipped > 0) == (path_name, True), (condition, report)


def test_the_other_tables_say_what_the_library_says(tmp_path):
    path = copy_store("orders-5.5.0", tmp_path)
    with open_store(path) as store, Session(path) as session:
        lags, queues = store.lags(), store.queues()
        entries = sum(file.entry_count for file in store.index_files())

        def one(sql):
            return [tuple(row.values()) for batch in session.ask(sql)[1] for row in batch.to_pylist()]

        assert one("SELECT count(*), sum(lag)::BIGINT FROM offsets") == [(len(lags), sum(x.lag or 0 for x in lags))]
        assert one("SELECT count(DISTINCT (topic, queue_id)) FROM queue_units") == [(len(queues),)]
        assert one("SELECT count(*) FROM index_entries") == [(entries,)]
        assert one("SELECT file, size FROM segments ORDER BY 1") == [
            (segment.path.name, segment.size) for segment in store.commit_log.segments
        ]
        assert one("SELECT messages FROM topics WHERE topic = 'Orders'") == [(96,)]
        joined = "SELECT count(*) FROM messages m JOIN queue_units u USING (broker, physical_offset) WHERE m.topic = 'Orders'"
        assert one(joined) == [(96,)]


def one_by_one(queue):
    """The units of a queue with their queue offsets."""
    for number, file in enumerate(queue.files):
        for at, unit in enumerate(queue.units_of(number)):
            if has_record(queue.units_of(number)[at : at + 1])[0]:
                place = unit["base_queue_offset"] if queue.is_batch else file.base // queue.unit_size + at
                yield int(place), unit


@pytest.mark.parametrize("name", ["orders-5.5.0", "bcq-5.5.0"])
def test_units_and_entries_are_those_of_the_library_one_by_one(name, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_BATCH_ROWS", 10)
    path = copy_store(name, tmp_path)
    with open_store(path) as store, Session(f"b={path}") as session:
        units = [row for batch in session.ask("SELECT * FROM queue_units")[1] for row in batch.to_pylist()]
        assert units == [
            {
                "broker": "b",
                "topic": queue.topic,
                "queue_id": queue.queue_id,
                "queue_offset": place,
                **{name: int(unit[name]) for name in ("physical_offset", "size", "tags_code")},
            }
            for queue in store.queues()
            for place, unit in one_by_one(queue)
        ]
        entries = [row for batch in session.ask("SELECT * FROM index_entries")[1] for row in batch.to_pylist()]
        numbered = [
            (file, number, entry) for file in store.index_files() for number, entry in enumerate(file.entries, 1)
        ]
        assert len(entries) == len(numbered) > 0
        for row, (file, number, entry) in zip(entries, numbered, strict=True):
            assert (row["file"], row["number"]) == (file.path.name, number)
            assert [row[name] for name in ("key_hash", "physical_offset", "previous")] == [
                entry[name] for name in ("key_hash", "physical_offset", "previous")
            ]
            millis = row["store_timestamp"].timestamp() * 1000
            assert round(millis) == file.header.begin_timestamp + int(entry["time_diff"]) * 1000


def test_damage_and_findings_are_tables(tmp_path):
    path = damage_case("old-flip-body@4.9.7-clean", tmp_path)
    with Session(path) as session:
        _, batches = session.ask("SELECT kind FROM damage")
        assert [row["kind"] for batch in batches for row in batch.to_pylist()] == ["bad-crc"]
        assert sum(map(len, session.ask("SELECT * FROM findings WHERE severity = 'error'")[1])) >= 1
        list(session.ask("SELECT count(*) FROM messages")[1])
        assert [one.kind for report in session.reports for one in report.damage] == ["bad-crc"]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELEC 1", 'syntax error at or near "SELEC"'),
        ("SELECT tpoic FROM messages", 'column "tpoic" not found'),
        ("SELECT * FROM mesages", 'Did you mean "message'),
    ],
)
def test_bad_sql_is_one_line(sql, words, tmp_path):
    with Session(copy_store("orders-4.9.7", tmp_path)) as session, pytest.raises(UsageError, match=words) as failure:
        session.ask(sql)
    assert "\n" not in str(failure.value)


def test_a_segment_that_goes_away_meanwhile_is_one_line(tmp_path, monkeypatch):
    builder = StoreBuilder()
    for _ in range(3000):
        builder.put(b"x" * 300)
    path = builder.write(tmp_path / "store")
    walk_segment = CommitLog.walk_segment

    def walk(log, index, **options):
        if index == 40:
            log.segments[index].path.unlink()
        return walk_segment(log, index, **options)

    with Session(path) as session:
        monkeypatch.setattr(CommitLog, "walk_segment", walk)
        with pytest.raises(StoreError, match="00000000000000655360") as failure:
            list(session.ask("SELECT count(*) FROM messages WHERE body IS NOT NULL")[1])
    assert "\n" not in str(failure.value)


def test_duckdb_takes_the_dataset_of_python(tmp_path):
    messages = dataset(str(copy_store("orders-5.5.0", tmp_path)))
    connection = duckdb.connect()
    connection.register("m", messages)
    assert connection.sql("SELECT count(*) FROM m WHERE topic = 'Orders'").fetchall() == [(96,)]
    assert messages.to_table(filter=pc.field("topic") == "Orders").num_rows == 96
