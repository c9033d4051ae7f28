"""DuckDB, Polars, Arrow, pandas and DataFusion give the answers of a full scan in plain Python."""

import json
import os
import re
import sys
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mqtool.duckdb
from mqtool.commands import with_extra
from mqtool.duckdb import Session
from mqtool.engine import StoreOptions
from mqtool.engine import open_store as open_engine
from mqtool.errors import StoreError, UnavailableError, UsageError
from mqtool.export.sources import resolve
from mqtool.polars import facts_of, scan_store
from mqtool.scan import tables
from mqtool.scan.bounds import NO_FACTS, Bounds
from mqtool.scan.conditions import parsed
from mqtool.scan.dataset import Stores, dataset
from mqtool.store import open_store
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.queues.consume_queue import has_record
from tests.support.builder import FIRST_TIME, StoreBuilder
from tests.support.damage import damage_case
from tests.support.questions import (
    ENGINES,
    STORES,
    being_written,
    check_some_moment,
    committed,
    expected,
    questions,
    store_of,
)
from tests.support.stores import answers as recorded_answers
from tests.support.stores import copy_store
from tests.support.tiers import one_in

F = pc.field
EVERYTHING = ("queues", "index", "clock")


@pytest.mark.parametrize("name", one_in(len(STORES), STORES))
def test_twelve_questions_have_the_answers_of_a_full_scan_in_every_engine(name, tmp_path):
    path = store_of(name, tmp_path)
    with open_store(path) as store:
        messages = committed(store)
    asked = questions(messages)
    found = expected(asked, messages)
    assert sum(map(bool, found)) >= 9
    table = dataset(path)
    as_option = [parsed(one.text("option"), table.schema).expression for one in asked]
    assert [offsets(table, where) for where in as_option] == found
    for engine, answers in ENGINES.items():
        assert answers(path, asked) == found, engine
        if "@" not in name:  # of a damaged store, trust makes rows disappear
            assert answers(path, asked, EVERYTHING) == found, engine


def offsets(table, where):
    return table.to_table(columns=["physical_offset"], filter=where)["physical_offset"].to_pylist()


@pytest.mark.slow
def test_answers_while_the_engine_appends_are_those_of_some_moment(tmp_path):
    """Each has what was there before it was asked, nothing that was not there after it, and no hole between."""
    with being_written(tmp_path / "store") as messages:
        asked = questions(messages)
        given = {
            (engine, trust): answers(tmp_path / "store", asked, trust)
            for engine, answers in ENGINES.items()
            for trust in ((), EVERYTHING)
        }
    check_some_moment(tmp_path / "store", asked, messages, given)


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


@pytest.mark.parametrize(
    "condition",
    [
        pl.col("queue_id") != 1,
        pl.col("queue_id") == pl.col("store_size"),
        pl.col("queue_id") + 1 == 2,
        pl.col("body_decoded"),
        (pl.col("queue_id") + 1).is_in([2]),
        pl.col("queue_id").is_in([1, None], nulls_equal=True),
        pl.col("queue_id").is_in([1, None]),
        pl.col("queue_id").is_in([1.5]),
        pl.col("queue_id") == 1.5,
        pl.col("queue_id").is_close(1.0),
        pl.col("topic").is_in(pl.Series(["a"]).implode()),
    ],
    ids=str,
)
def test_a_condition_of_polars_that_is_not_understood_bounds_nothing(condition):
    assert facts_of(condition) == NO_FACTS


def is_in(*lists):
    """The form in which Polars writes `topic IN (…)`, with one column for each list of values."""
    table = pa.table({str(number): values for number, values in enumerate(lists)})
    with pa.ipc.new_stream(stream := pa.BufferOutputStream(), table.schema) as writer:
        writer.write_table(table)
    column, values = {"Column": "topic"}, {"Literal": {"Scalar": {"List": list(stream.getvalue().to_pybytes())}}}
    return {"Function": {"function": {"Boolean": {"IsIn": {"nulls_equal": False}}}, "input": [column, values]}}


@pytest.mark.parametrize(
    ("form", "bounds"),
    [
        (json.dumps(is_in(["a", "b"])), Bounds.of(["a", "b"])),
        (json.dumps(is_in(["a"], ["b"])), Bounds()),
        ("{", Bounds()),
        ("[]", Bounds()),
        ('{"BinaryExpr": {"left": {}}}', Bounds()),
        ('{"Function": {"function": {"Boolean": {"IsIn": {"nulls_equal": false}}}, "input": []}}', Bounds()),
    ],
)
def test_a_condition_that_polars_writes_in_another_form_bounds_nothing(form, bounds):
    predicate = SimpleNamespace(meta=SimpleNamespace(serialize=lambda **_: form))
    assert facts_of(predicate)["topic"] == bounds


@pytest.fixture
def polars_source(tmp_path, monkeypatch):
    """What Polars calls in a thread of its own, to be called in this one."""
    made = []
    monkeypatch.setattr("polars.io.plugins.register_io_source", lambda batches, schema: made.append((batches, schema)))
    scan_store(copy_store("orders-5.5.0", tmp_path))
    return made[0]


def test_polars_gets_the_columns_rows_and_batches_that_it_asks_for(polars_source):
    batches, schema = polars_source
    whole = pl.concat(batches(None, None, None, None))
    assert whole.schema == schema
    some = list(batches(["topic", "physical_offset"], None, 250, 100))
    assert [one.height for one in some] == [100, 100, 50]
    assert pl.concat(some).equals(whole.head(250).select("physical_offset", "topic"))
    for condition in (pl.col("topic") == "Orders", pl.col("tags") == "TagA", pl.col("tags") != "TagA"):
        found = pl.concat(batches(["physical_offset"], condition, None, None))  # without rows for which it is null
        assert found.equals(whole.filter(condition).select("physical_offset")), condition
        assert 0 < found.height < whole.height


@pytest.mark.parametrize(
    ("ask", "module", "words"),
    [
        (scan_store, "polars", f"lazy frames need polars: {with_extra('polars')}"),
        (Session, "duckdb", f"SQL needs duckdb: {with_extra('sql')}"),
    ],
)
def test_an_engine_that_is_not_installed_is_named_with_its_extra(ask, module, words, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UnavailableError, match=re.escape(words)):
        ask(tmp_path)


@pytest.mark.parametrize(("unit", "low"), [("ms", 1_790_000_000_000), ("us", 1_790_000_000_000), ("ns", None)])
def test_polars_hands_over_times_of_milliseconds_and_microseconds(unit, low):
    moment = pl.lit(datetime.fromtimestamp(1_790_000_000, UTC), pl.Datetime(unit, "UTC"))
    assert facts_of(pl.col("store_timestamp") >= moment)["store_timestamp"] == Bounds(low=low)


def test_units_of_batch_queues_have_the_offset_of_their_first_message(tmp_path):
    path = copy_store("bcq-5.5.0", tmp_path)
    words = "SELECT queue_id, queue_offset, physical_offset, size FROM queue_units WHERE topic = 'BatchTopic'"
    with Session(path) as session:
        found = [tuple(row.values()) for batch in session.ask(words)[1] for row in batch.to_pylist()]
    recorded = [line for line in recorded_answers("bcq-5.5.0", "batchqueue") if line["kind"] == "unit"]
    assert sorted(found) == sorted(
        (line["queueId"], line["baseOffset"], line["phyOffset"], line["size"]) for line in recorded
    )


def test_polars_stops_at_a_row_limit(tmp_path):
    path = copy_store("orders-5.5.0", tmp_path)
    assert scan_store(path).head(7).collect().height == 7
    assert scan_store(path, keyed=True).filter(pl.col("key") == "k0").select(pl.len()).collect().item() == 1


def test_a_condition_of_polars_after_a_row_limit_counts_no_further_rows(tmp_path):
    path = copy_store("orders-5.5.0", tmp_path)
    expected = scan_store(path).collect().head(10).filter(pl.col("queue_id") == 1).select("physical_offset")
    found = scan_store(path).head(10).filter(pl.col("queue_id") == 1).select("physical_offset").collect()
    assert found.equals(expected)
    assert 0 < found.height < 10


@pytest.mark.parametrize("condition", ["queue_id = 1", "tags = 'TagA'", "topic = 'Orders'", "true"])
def test_a_question_about_keys_may_test_any_column(condition, tmp_path):
    path = copy_store("orders-5.5.0", tmp_path)
    with Session(path) as session:
        count = f"SELECT count(*) AS n FROM {{}} WHERE {condition}"
        found, expected = (
            [row for batch in session.ask(count.format(table))[1] for row in batch.to_pylist()]
            for table in ("message_keys", "(SELECT unnest(keys) AS key, * FROM messages)")
        )
    assert found == expected
    assert found[0]["n"] > 0


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
    expected = sorted(Counter(put.topic for put in builder.puts).items())  # each segment begins with another topic
    for counted in ("queue_id", "unique_key"):
        with Session(path) as session:
            assert len(session.connection.sql("SELECT * FROM segments").fetchall()) > 5
            found = session.connection.sql(
                f"SELECT topic, broker, count({counted}) FROM messages GROUP BY ALL ORDER BY 1"
            )
            assert [(topic, count) for topic, _, count in found.fetchall()] == expected


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


MISSING_LOG = "expected a CommitLog, found no segment"


def rows_of(sql, *stores, **options):
    with Session(*stores, **options) as session:
        return [tuple(row.values()) for batch in session.ask(sql)[1] for row in batch.to_pylist()]


@pytest.mark.parametrize("table", ["messages", "message_keys", "pending", "segments", "damage"])
def test_a_question_that_needs_a_missing_log_is_refused_and_not_answered_with_no_row(table, tmp_path):
    path = copy_store("orders-5.5.0", tmp_path)
    (path / "commitlog").rename(tmp_path / "log")
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathCommitLog={tmp_path / 'log'}\n")
    with pytest.raises(StoreError, match=MISSING_LOG):
        rows_of(f"SELECT count(*) FROM {table}", path)
    expected = rows_of(f"SELECT count(*) FROM {table}", copy_store("orders-5.5.0", tmp_path / "complete"))
    assert rows_of(f"SELECT count(*) FROM {table}", path, config=config) == expected
    with pytest.raises(StoreError, match=MISSING_LOG):
        scan_store(path).collect()


def test_questions_about_other_files_are_answered_without_the_log(tmp_path):
    path = copy_store("orders-5.5.0", tmp_path)
    tables_of_files = ("queue_units", "index_entries", "offsets", "topics")
    before = [rows_of(f"SELECT count(*) FROM {table}", path) for table in tables_of_files]
    (path / "commitlog").rename(tmp_path / "log")
    assert [rows_of(f"SELECT count(*) FROM {table}", path) for table in tables_of_files] == before
    assert ("log-missing",) in rows_of("SELECT code FROM findings", path)


def test_a_store_that_never_had_a_message_has_no_rows(tmp_path):
    open_engine(tmp_path / "store", StoreOptions()).close()
    assert rows_of("SELECT count(*) FROM messages", tmp_path / "store") == [(0,)]
    assert rows_of("SELECT count(*) FROM damage", tmp_path / "store") == [(0,)]


def one_by_one(queue):
    """The units of a queue with their queue offsets."""
    for number, file in enumerate(queue.files):
        for at, unit in enumerate(queue.units_of(number)):
            if has_record(queue.units_of(number)[at : at + 1])[0]:
                place = unit["base_queue_offset"] if queue.is_batch else file.base // queue.unit_size + at
                yield int(place), unit


@pytest.mark.parametrize("name", ["orders-5.5.0", "bcq-5.5.0"])
def test_units_and_entries_are_those_of_the_library_one_by_one(name, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BATCH_ROWS", 10)
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


def table_of(name, *stores):
    """The rows of a table, read in this process without an engine."""
    made = tables.tables_of(Stores(tuple(resolve(stores))))[name]
    rows = made.to_table().to_pylist()
    assert made.count_rows() == len(rows)
    return rows


def test_the_table_offsets_has_a_row_for_each_queue_that_a_group_consumes(tmp_path):
    builder = StoreBuilder()
    for number in range(10):
        builder.put(queue_id=number % 2)
    for name in ("a", "b"):
        config = builder.write(tmp_path / name / "store") / "config"
        config.mkdir()
        consumed = {"Topic@g": {"0": 2, "1": 5}, "Gone@g": {"3": 9}}
        (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": consumed}))
    found = table_of("offsets", tmp_path / "a" / "store", f"other={tmp_path}/b/store")
    of_queue = {"broker": "a", "consumer_group": "g", "topic": "Topic", "min_offset": 0, "max_offset": 5}
    expected = [
        {**of_queue, "queue_id": 0, "consumer_offset": 2, "lag": 3},
        {**of_queue, "queue_id": 1, "consumer_offset": 5, "lag": 0},
        {**of_queue, "topic": "Gone", "queue_id": 3, "consumer_offset": 9, "min_offset": None, "max_offset": None}
        | {"lag": None},
    ]
    rows = sorted(found, key=lambda row: (row["broker"], row["topic"] == "Gone", row["queue_id"]))
    assert rows == expected + [row | {"broker": "other"} for row in expected]


def test_the_table_pending_tells_each_message(tmp_path):
    found = table_of("pending", f"b={copy_store('lives-5.5.0', tmp_path)}")
    assert Counter(row["kind"] for row in found) == {"dead-letter": 10, "delay": 10, "popped": 3, "timer": 10}
    assert {row["broker"] for row in found} == {"b"}
    popped = [row for row in found if row["kind"] == "popped"]
    assert {(row["topic"], row["consumer_group"], row["unknown"]) for row in popped} == {
        ("LivesHang", "LivesHanging", "")
    }
    assert all(row["due"] > row["since"] for row in popped)


def test_the_tables_damage_and_findings_name_the_damaged_record(tmp_path):
    path = damage_case("old-flip-body@4.9.7-clean", tmp_path)
    (damage,) = table_of("damage", f"b={path}")
    assert (damage["broker"], damage["kind"]) == ("b", "bad-crc")
    errors = [row for row in table_of("findings", f"b={path}") if row["severity"] == "error"]
    assert {row["broker"] for row in errors} == {"b"}
    named = [row for row in errors if row["physical_offset"] == damage["start"]]
    assert [row["code"] for row in named] == ["log-bad-body"]
    healthy = copy_store("orders-5.5.0", tmp_path / "healthy")
    assert table_of("damage", healthy) == []
    assert [row for row in table_of("findings", healthy) if row["severity"] == "error"] == []


def test_damage_and_findings_are_tables(tmp_path):
    path = damage_case("old-flip-body@4.9.7-clean", tmp_path)
    with Session(path) as session:
        _, batches = session.ask("SELECT kind FROM damage")
        assert [row["kind"] for batch in batches for row in batch.to_pylist()] == ["bad-crc"]
        assert sum(map(len, session.ask("SELECT * FROM findings WHERE severity = 'error'")[1])) >= 1
        list(session.ask("SELECT count(*) FROM messages")[1])
        assert [one.kind for report in session.reports for one in report.damage] == ["bad-crc"]


def test_the_table_pending_counts_the_scripted_lives_that_nobody_got(tmp_path):
    words = "SELECT kind, topic, consumer_group, count(*), min(origin) FROM pending GROUP BY ALL ORDER BY ALL"
    with Session(copy_store("lives-5.5.0", tmp_path)) as session:
        found = [tuple(row.values()) for batch in session.ask(words)[1] for row in batch.to_pylist()]
    assert found == [
        ("dead-letter", "%DLQ%LivesGroup", "LivesGroup", 10, "LivesRetry"),
        ("delay", "LivesDelay", None, 10, None),
        ("popped", "LivesHang", "LivesHanging", 3, None),
        ("timer", "LivesTimer", None, 10, None),
    ]


def test_segments_have_the_time_of_their_first_record(tmp_path):
    """In a DLedger log it follows the header of an entry; where it is damaged, the time is unknown."""
    builder = StoreBuilder()
    for _ in range(300):
        builder.put(b"x" * 100)
    path = builder.write(tmp_path / "store")
    firsts = [next(put for put in builder.puts if put.physical_offset == base) for base in builder.segments]
    times = [put.store_timestamp for put in firsts]
    with (path / "commitlog" / f"{builder.segment_size:020}").open("r+b") as file:
        file.write(bytes(8))
    sql = "SELECT epoch_ms(first_time) AS first FROM segments ORDER BY physical_offset"
    assert [row["first"] for row in in_duckdb(path, sql)] == [times[0], None, *times[2:]]
    lines = recorded_answers("dledger-5.5.0", "messages")
    stored = {line["phyOffset"]: line["storeTimestamp"] for line in lines if line["kind"] == "message"}
    (first, *_) = in_duckdb(copy_store("dledger-5.5.0", tmp_path / "dledger"), sql)
    assert first["first"] == stored[min(stored)]


def test_an_index_file_without_entries_has_no_rows(tmp_path):
    builder = StoreBuilder()
    builder.put(keys="a b")
    path = builder.write(tmp_path / "store")
    (file,) = (path / "index").iterdir()
    (path / "index" / "20990101000000000").write_bytes(bytes(file.stat().st_size))
    assert in_duckdb(path, "SELECT file, count(*) AS n FROM index_entries GROUP BY ALL") == [
        {"file": file.name, "n": 2}
    ]


def in_duckdb(path, sql):
    with Session(path) as session:
        return [row for batch in session.ask(sql)[1] for row in batch.to_pylist()]


def in_polars(path, sql):
    return pl.SQLContext(messages=scan_store(path)).execute(sql).collect().to_dicts()


def in_datafusion(path, sql):
    context = datafusion.SessionContext()
    context.register_dataset("messages", dataset(path))
    return context.sql(sql).to_pylist()


SQL = {"duckdb": in_duckdb, "polars": in_polars, "datafusion": in_datafusion}


@pytest.mark.parametrize("engine", SQL)
@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELEC 1", "SELEC"),
        ("SELECT tpoic FROM messages", "tpoic"),
        ("SELECT * FROM mesages", "mesages"),
        ("SELECT count(*) FROM messages WHERE tpoic = 'a'", "tpoic"),
    ],
)
def test_bad_sql_is_named_in_the_first_line(engine, sql, words, tmp_path):
    with pytest.raises(Exception, match=words) as failure:
        SQL[engine](copy_store("orders-4.9.7", tmp_path), sql)
    first = str(failure.value).splitlines()[0]
    assert words in first
    if engine == "duckdb":
        assert isinstance(failure.value, UsageError)
        assert first == str(failure.value)


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"columns": ["tpoic"]}, "unknown column 'tpoic'; known: broker, physical_offset"),
        ({"filter": F("tpoic") == "a"}, "unknown column 'tpoic'; known: broker, physical_offset"),
        ({"filter": F("topic") == 3}, "condition (topic == 3): "),
        ({"columns": {"double": F("queue_id") * 2}}, "select columns of a store by name"),
    ],
)
def test_a_bad_question_to_a_dataset_is_one_line(question, words, tmp_path):
    table = dataset(copy_store("orders-4.9.7", tmp_path))
    with pytest.raises(UsageError, match=re.escape(words)) as failure:
        table.to_table(**question)
    assert "\n" not in str(failure.value)


@pytest.fixture
def shrinking(tmp_path, monkeypatch):
    """A store, and what happens to its segment 40 when a walk comes to it."""
    builder = StoreBuilder()
    for _ in range(3000):
        builder.put(b"x" * 300)
    path = builder.write(tmp_path / "store")
    walk_segment, happens = CommitLog.walk_segment, {}

    def walk(log, index, **options):
        if index == 40:
            happens["then"](log.segments[index].path)
        return walk_segment(log, index, **options)

    monkeypatch.setattr(CommitLog, "walk_segment", walk)
    return path, happens


COUNT = "SELECT count(topic) AS n FROM messages"


@pytest.mark.parametrize("engine", one_in(3, SQL))
def test_a_segment_that_is_deleted_meanwhile_is_one_line(engine, shrinking):
    path, happens = shrinking
    happens["then"] = Path.unlink
    with pytest.raises(Exception, match="00000000000000655360: cannot be opened") as failure:
        SQL[engine](path, COUNT)
    assert "\n" not in str(failure.value)
    if engine != "datafusion":  # which gives our words in an exception of its own
        assert isinstance(failure.value, StoreError)


def test_datafusion_still_needs_the_condition_that_the_page_names(tmp_path):
    """If the first assertion fails, DataFusion is repaired: remove the note in docs/sql.md."""
    path = copy_store("orders-4.9.7", tmp_path)
    sql = "SELECT tags FROM messages WHERE tags NOT IN ('paid', 'b', 'c', 'd')"
    assert None in [row["tags"] for row in in_datafusion(path, sql)]
    counts = [Counter(row["tags"] for row in of(path, f"{sql} AND tags IS NOT NULL")) for of in SQL.values()]
    assert counts[0] == counts[1] == counts[2] != Counter()


@pytest.mark.parametrize("engine", one_in(3, SQL))
def test_a_segment_that_is_cut_meanwhile_is_damage_that_is_logged(engine, shrinking, caplog):
    path, happens = shrinking
    happens["then"] = partial(os.truncate, length=100)
    (row,) = SQL[engine](path, COUNT)
    assert 2900 < row["n"] < 3000
    (line,) = {record.getMessage() for record in caplog.records}
    assert "skipped 2 damaged ranges broker=" in line
    assert "00000000000000655360 position 0: missing at physical offset 655360" in line


def test_an_error_in_the_middle_of_a_result_is_named(tmp_path):
    with Session(copy_store("orders-5.5.0", tmp_path)) as session:
        _, batches = session.ask(
            "SELECT CAST(CASE i WHEN 9000 THEN 'no number' ELSE '1' END AS INT) FROM range(10000) t(i)"
        )
        with pytest.raises(UsageError, match=r"^DuckDB: .*no number") as failure:
            list(batches)
        assert "\n" not in str(failure.value)


def test_a_dataset_counts_rows_and_returns_the_first(tmp_path):
    table = dataset(copy_store("orders-5.5.0", tmp_path))
    where = F("topic") == "Orders"
    assert table.count_rows(filter=where) == 96
    every = table.to_table(columns=["topic", "physical_offset"], filter=where)
    for count in (0, 5, 95, 96, 1000):
        assert table.head(count, columns=["topic", "physical_offset"], filter=where).equals(every.slice(0, count))
    with pytest.raises(StoreError, match="no-store"):
        dataset(f"b={tmp_path}/no-store").to_table()


def test_duckdb_takes_the_dataset_of_python(tmp_path):
    messages = dataset(str(copy_store("orders-5.5.0", tmp_path)))
    connection = duckdb.connect()
    connection.register("m", messages)
    assert connection.sql("SELECT count(*) FROM m WHERE topic = 'Orders'").fetchall() == [(96,)]
    assert messages.to_table(filter=pc.field("topic") == "Orders").num_rows == 96
