"""An export may be a Delta or Iceberg table too, and holds the broker's messages as such."""

import json
import shutil
import warnings
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from mqtool.choices import TableFormat
from mqtool.errors import ExportError, UsageError
from mqtool.export import tables
from mqtool.export.limits import Limits
from mqtool.export.parquet import WriteOptions
from mqtool.export.published import message_files
from mqtool.export.schema import ALL_COLUMNS, ReadRequest
from tests.support import lake
from tests.support.builder import StoreBuilder
from tests.support.stores import copy_store

NAME = "rollover-5.5.0"
ALL = ReadRequest(every_class=True)
EXPECTED = lake.expected_rows(NAME, every_class=True, broker="b")
ENDS = lake.record_ends(NAME)


@pytest.fixture(autouse=True)
def quiet_libraries() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def read(kind: TableFormat, target: Path, names: Iterable[str] | None = None) -> list[dict[str, Any]]:
    if kind is TableFormat.DELTA:
        found = pytest.importorskip("deltalake").DeltaTable(str(target / "messages")).to_pyarrow_table()
    else:
        sql = pytest.importorskip("pyiceberg.catalog.sql")
        catalog = sql.SqlCatalog("mqtool", uri=f"sqlite:///{target}/iceberg.db", warehouse=f"file://{target}")
        found = catalog.load_table("rocketmq.messages").scan().to_arrow()
        catalog.close()
    if names is not None:
        return [{name: row[name] for name in names} for row in found.to_pylist()]
    return lake.in_log_order([{name: row[name] for name in EXPECTED[0]} for row in found.to_pylist()])


@pytest.mark.parametrize("kind", list(TableFormat))
@pytest.mark.parametrize("partition_by", [(), ("topic", "date")], ids=["flat", "directories"])
def test_each_run_becomes_one_commit_of_the_table(tmp_path, kind, partition_by):
    pytest.importorskip(tables._LIBRARIES[kind])
    store, target = copy_store(NAME, tmp_path), tmp_path / "lake"
    wanted = {"read": ALL, "state": str(tmp_path / "state"), "write": WriteOptions(partition_by), "table": kind}
    for records in (40, 40, 90, len(ENDS)):
        lake.grow(NAME, store, ENDS[records - 1])
        lake.run_export(f"b={store}", target, **wanted)
        assert read(kind, target) == EXPECTED[:records]


@pytest.mark.parametrize("kind", list(TableFormat))
def test_each_run_with_a_limit_becomes_one_commit_of_the_table(tmp_path, kind):
    pytest.importorskip(tables._LIBRARIES[kind])
    store, target = copy_store(NAME, tmp_path), tmp_path / "lake"
    wanted = {"read": ALL, "state": str(tmp_path / "state"), "table": kind, "limits": Limits(max_messages=50)}
    for records in range(50, len(ENDS) + 50, 50):
        assert bool(lake.run_export(f"b={store}", target, **wanted).left) == (records < len(ENDS))
        assert read(kind, target) == EXPECTED[:records]


@pytest.mark.parametrize("kind", list(TableFormat))
def test_a_column_that_is_added_is_added_to_the_table(tmp_path, kind):
    pytest.importorskip(tables._LIBRARIES[kind])
    store, target = copy_store(NAME, tmp_path), tmp_path / "lake"
    older = ReadRequest(every_class=True, columns=tuple(name for name in ALL_COLUMNS if name != "body_crc"))
    for records, request in ((40, older), (90, ALL), (len(ENDS), ALL)):
        lake.grow(NAME, store, ENDS[records - 1])
        lake.run_export(f"b={store}", target, read=request, state=str(tmp_path / "state"), table=kind)
    assert all(any(row["body_crc"] for row in part) for part in (EXPECTED[:40], EXPECTED[40:]))
    assert read(kind, target) == [row | {"body_crc": None} for row in EXPECTED[:40]] + EXPECTED[40:]


@pytest.mark.parametrize("kind", list(TableFormat))
def test_a_run_that_ended_before_the_table_knew_is_made_up_for_once(tmp_path, kind):
    pytest.importorskip(tables._LIBRARIES[kind])
    store, target = copy_store(NAME, tmp_path), tmp_path / "lake"
    wanted = {"read": ALL, "state": str(tmp_path / "state")}
    for records in (40, 90):
        lake.grow(NAME, store, ENDS[records - 1])
        lake.run_export(f"b={store}", target, **wanted)
    for _ in range(2):
        result = lake.run_export(f"b={store}", target, table=kind, **wanted)
        assert not result.committed
        assert read(kind, target) == EXPECTED[:90]
    assert not result.finished_earlier


@pytest.mark.parametrize("kind", list(TableFormat))
def test_an_export_that_stands_for_itself_is_made_up_for_too(tmp_path, kind):
    pytest.importorskip(tables._LIBRARIES[kind])
    store, target = copy_store(NAME, tmp_path), tmp_path / "lake"
    lake.run_export(f"b={store}", target, read=ALL)
    assert lake.run_export(f"b={store}", target, read=ALL, table=kind).finished_earlier
    assert read(kind, target) == EXPECTED


def changes(kind: TableFormat, target: Path) -> int:
    """How many commits the table has."""
    if kind is TableFormat.DELTA:
        return len(list((target / "messages/_delta_log").glob("*.json")))
    return len(list((target / "messages/metadata").glob("*.metadata.json")))


def merge(kind: TableFormat, target: Path) -> None:
    """Merges the files of a table, as OPTIMIZE and rewrite_data_files do."""
    if kind is TableFormat.DELTA:
        merged = pytest.importorskip("deltalake").DeltaTable(str(target / "messages")).optimize.compact()
        assert merged["numFilesRemoved"] > 1
        return
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    with closing(sql.SqlCatalog("mqtool", uri=f"sqlite:///{target}/iceberg.db")) as catalog:
        table = catalog.load_table("rocketmq.messages")
        table.overwrite(table.scan().to_arrow())


@pytest.mark.parametrize("kind", list(TableFormat))
@pytest.mark.parametrize("partition_by", [(), ("topic", "date")], ids=["flat", "directories"])
def test_a_table_of_a_log_that_was_cut_back_is_rewound_in_one_commit(tmp_path, kind, partition_by):
    pytest.importorskip(tables._LIBRARIES[kind])
    store, target = copy_store(NAME, tmp_path), tmp_path / "lake"
    wanted = {"read": ALL, "state": str(tmp_path / "state"), "write": WriteOptions(partition_by)}
    for records in (40, 90):
        lake.grow(NAME, store, ENDS[records - 1])
        lake.run_export(f"b={store}", target, table=kind, **wanted)
    lake.grow(NAME, store, ENDS[59])
    with pytest.raises(ExportError, match="the log is shorter than at the last export"):
        lake.run_export(f"b={store}", target, table=kind, **wanted)
    with pytest.raises(UsageError, match=f"{kind} table refers to files that this run removes; add --table-format"):
        lake.run_export(f"b={store}", target, rewind=True, **wanted)
    before = changes(kind, target)
    assert read(kind, target) == EXPECTED[:90]
    assert lake.run_export(f"b={store}", target, rewind=True, table=kind, **wanted).committed
    assert read(kind, target) == EXPECTED[:60]
    assert changes(kind, target) == before + 1
    assert len(message_files(target)) == len(lake.files(target)) > 1
    lake.grow(NAME, store, ENDS[-1])
    lake.run_export(f"b={store}", target, table=kind, **wanted)
    assert read(kind, target) == EXPECTED
    assert len(message_files(target)) == len(lake.files(target))


@pytest.mark.parametrize("kind", list(TableFormat))
@pytest.mark.parametrize("partition_by", [(), ("topic", "date")], ids=["flat", "directories"])
@pytest.mark.parametrize("is_merged", [False, True], ids=["as exported", "merged"])
def test_rows_of_segments_that_retention_deleted_stay_when_a_table_is_rewound(tmp_path, kind, partition_by, is_merged):
    pytest.importorskip(tables._LIBRARIES[kind])
    store, target = copy_store(NAME, tmp_path), tmp_path / "lake"
    wanted = {"read": ALL, "state": str(tmp_path / "state"), "write": WriteOptions(partition_by), "table": kind}
    for records in (2, 3, 90):
        lake.grow(NAME, store, ENDS[records - 1])
        lake.run_export(f"b={store}", target, **wanted)
    if is_merged:
        merge(kind, target)
    assert read(kind, target) == EXPECTED[:90]
    lake.grow(NAME, store, ENDS[69])
    min((store / "commitlog").iterdir()).unlink()
    result = lake.run_export(f"b={store}", target, rewind=True, **wanted)
    assert read(kind, target) == EXPECTED[:70]
    first = min(int(segment.name) for segment in (store / "commitlog").iterdir())
    again = [row for row in EXPECTED[:70] if row["physical_offset"] >= first]
    assert result.manifest.totals["rows"]["messages"] == len(again) < 67
    lake.grow(NAME, store, ENDS[99])
    min((store / "commitlog").iterdir()).unlink()
    lake.run_export(f"b={store}", target, **wanted)
    assert read(kind, target) == EXPECTED[:100]


@pytest.mark.parametrize("kind", list(TableFormat))
def test_merged_files_lose_only_the_rows_of_the_store_that_was_cut_back(tmp_path, kind):
    pytest.importorskip(tables._LIBRARIES[kind])
    store, other, target = copy_store(NAME, tmp_path), copy_store("orders-5.5.0", tmp_path / "c"), tmp_path / "lake"
    wanted = {"read": ALL, "state": str(tmp_path / "state"), "table": kind}
    others = lake.expected_rows("orders-5.5.0", every_class=True, broker="c")
    for records in (40, 90):
        lake.grow(NAME, store, ENDS[records - 1])
        lake.run_export([f"b={store}", f"c={other}"], target, **wanted)
    merge(kind, target)
    if kind is TableFormat.DELTA:
        table = pytest.importorskip("deltalake").DeltaTable(str(target / "messages"))
        assert table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    lake.grow(NAME, store, ENDS[59])
    lake.run_export([f"b={store}", f"c={other}"], target, rewind=True, **wanted)
    assert read(kind, target) == EXPECTED[:60] + others


@pytest.mark.parametrize("kind", list(TableFormat))
@pytest.mark.parametrize("step", ["before", "after"])
def test_a_rewind_that_ends_around_the_commit_of_the_table_is_completed(tmp_path, kind, step, monkeypatch):
    pytest.importorskip(tables._LIBRARIES[kind])
    store, target = copy_store(NAME, tmp_path), tmp_path / "lake"
    wanted = {"read": ALL, "state": str(tmp_path / "state")}
    for records in (40, 90):
        lake.grow(NAME, store, ENDS[records - 1])
        lake.run_export(f"b={store}", target, table=kind, **wanted)
    lake.grow(NAME, store, ENDS[59])
    known = tables.publish

    def dies(*arguments: Any) -> bool:
        if step == "after":
            known(*arguments)
        if len(list((target / "_mqtool").glob("commit-*"))) == 3:
            raise KeyboardInterrupt
        return False

    with monkeypatch.context() as patch:
        patch.setattr(tables, "publish", dies)
        with pytest.raises(KeyboardInterrupt):
            lake.run_export(f"b={store}", target, rewind=True, table=kind, **wanted)
    assert read(kind, target) == EXPECTED[: 90 if step == "before" else 60]
    with pytest.raises(UsageError, match="add --table-format"):
        lake.run_export(f"b={store}", target, **wanted)
    lake.run_export(f"b={store}", target, table=kind, **wanted)
    assert read(kind, target) == EXPECTED[:60]
    assert len(message_files(target)) == len(lake.files(target)) == 2


def test_files_that_another_program_deleted_are_named(tmp_path):
    delta = pytest.importorskip("deltalake")
    store, target = copy_store(NAME, tmp_path), tmp_path / "lake"
    wanted = {"read": ALL, "state": str(tmp_path / "state"), "table": TableFormat.DELTA}
    for records in (2, 60):
        lake.grow(NAME, store, ENDS[records - 1])
        lake.run_export(f"b={store}", target, **wanted)
    merge(TableFormat.DELTA, target)
    table = delta.DeltaTable(str(target / "messages"))
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    lake.grow(NAME, store, ENDS[49])
    min((store / "commitlog").iterdir()).unlink()
    with pytest.raises(ExportError, match=r"part-0.*parquet: is missing, although the export published it"):
        lake.run_export(f"b={store}", target, rewind=True, **wanted)
    assert read(TableFormat.DELTA, target) == EXPECTED[:60]


def test_a_table_that_forbids_removals_is_refused_before_anything_changes(tmp_path):
    delta = pytest.importorskip("deltalake")
    store, target = copy_store(NAME, tmp_path), tmp_path / "lake"
    wanted = {"read": ALL, "state": str(tmp_path / "state"), "table": TableFormat.DELTA}
    lake.run_export(f"b={store}", target, **wanted)
    table = delta.DeltaTable(str(target / "messages"))
    table.alter.set_table_properties({"delta.appendOnly": "true"})
    lake.grow(NAME, store, ENDS[59])
    with pytest.raises(ExportError, match=r"delta\.appendOnly forbids removing rows"):
        lake.run_export(f"b={store}", target, rewind=True, **wanted)
    assert read(TableFormat.DELTA, target) == EXPECTED
    assert not list((target / "_mqtool").glob("staging-*"))


@pytest.mark.parametrize("kind", list(TableFormat))
def test_a_table_of_an_export_that_was_rewound_before_has_the_rows_that_are_left(tmp_path, kind):
    pytest.importorskip(tables._LIBRARIES[kind])
    store, target = copy_store(NAME, tmp_path), tmp_path / "lake"
    wanted = {"read": ALL, "state": str(tmp_path / "state")}
    for records in (40, 90, 60):
        lake.grow(NAME, store, ENDS[records - 1])
        lake.run_export(f"b={store}", target, rewind=True, **wanted)
    lake.run_export(f"b={store}", target, table=kind, **wanted)
    assert read(kind, target) == EXPECTED[:60]


def planned(kind: TableFormat, target: Path, column: str, low: Any, high: Any) -> int:
    """How many files the format's own reader opens for the rows with a column from low to high."""
    if kind is TableFormat.DELTA:
        table = pytest.importorskip("deltalake").DeltaTable(str(target / "messages"))
        condition = (pc.field(column) >= low) & (pc.field(column) <= high)
        return len(list(table.to_pyarrow_dataset().get_fragments(filter=condition)))
    sql, where = pytest.importorskip("pyiceberg.catalog.sql"), pytest.importorskip("pyiceberg.expressions")
    with closing(sql.SqlCatalog("mqtool", uri=f"sqlite:///{target}/iceberg.db")) as catalog:
        low, high = (value.isoformat() if isinstance(value, date | datetime) else value for value in (low, high))
        condition = where.And(where.GreaterThanOrEqual(column, low), where.LessThanOrEqual(column, high))
        return len(list(catalog.load_table("rocketmq.messages").scan(row_filter=condition).plan_files()))


@pytest.mark.parametrize("kind", list(TableFormat))
@pytest.mark.parametrize("partition_by", [(), ("topic", "date")], ids=["flat", "directories"])
def test_readers_open_only_files_with_the_topic_time_or_offset(tmp_path, kind, partition_by):
    target = lake.exported(NAME, tmp_path, read=ALL, write=WriteOptions(partition_by), split_bytes=20_000, table=kind)
    files = [pq.read_table(path).to_pylist() for path in lake.files(target)]
    assert len(files) > 4
    skipped = {}
    for column in ("topic", "store_timestamp", "physical_offset", "queue_offset", "tags", "sys_flag"):
        held = [{row[column] for row in rows} - {None} for rows in files]
        value = max(max(values) for values in held if values)
        expected = sum(bool(values) and min(values) <= value <= max(values) for values in held)
        assert planned(kind, target, column, value, value) == expected, column
        skipped[column] = len(files) - expected
    assert min(skipped[name] for name in ("topic", "store_timestamp", "physical_offset")) > 0


def test_statistics_of_a_delta_table_are_those_of_its_rows(tmp_path):
    """Other readers than that of the test above see the same: the text in the log is what counts."""
    pytest.importorskip("deltalake")
    builder = StoreBuilder()
    builder.put(topic="Z" * 20, tags="a")
    builder.put(topic="A", tags="ü", step=1 << 62)
    builder.put(topic="A")
    lake.run_export(builder.write(tmp_path / "store"), tmp_path / "lake", table=TableFormat.DELTA)
    lines = (tmp_path / "lake/messages/_delta_log" / f"{1:020d}.json").read_text().splitlines()
    (added,) = (json.loads(line)["add"] for line in lines if "add" in json.loads(line))
    found = json.loads(added["stats"])
    assert found["numRecords"] == 3
    expected = {"topic": ("A", "Z" * 20, 0), "tags": ("a", "ü", 1), "sharding_key": (None, None, 3)}
    first = moment_text(builder.puts[0].store_timestamp)
    expected |= {"store_timestamp": (first, first, 2), "queue_offset": (0, 1, 0)}
    expected["physical_offset"] = (0, builder.puts[2].physical_offset, 0)
    for column, values in expected.items():
        assert tuple(found[part].get(column) for part in ("minValues", "maxValues", "nullCount")) == values, column
    assert not {"properties", "keys", "body", "body_decoded"} & {*found["minValues"]}


def moment_text(millis: int) -> str:
    return f"{lake.moment(millis):%Y-%m-%dT%H:%M:%S}.{millis % 1000:03d}Z"


@pytest.mark.parametrize("kind", list(TableFormat))
def test_a_date_is_a_date_and_chooses_files(tmp_path, kind):
    pytest.importorskip(tables._LIBRARIES[kind])
    builder = StoreBuilder()
    for _ in range(3):
        builder.put(step=86_400_000)
    lake.run_export(
        builder.write(tmp_path / "store"), tmp_path / "lake", write=WriteOptions(("date", "hour", "topic")), table=kind
    )
    rows = read(kind, tmp_path / "lake", ("date", "hour", "topic", "store_timestamp"))
    assert len({row["date"] for row in rows}) == 3
    for row in rows:
        assert (row["date"], row["topic"]) == (row["store_timestamp"].date(), "Topic")
        assert row["hour"] == f"{row['store_timestamp'].hour:02d}"
        assert planned(kind, tmp_path / "lake", "date", row["date"], row["date"]) == 1
    assert planned(kind, tmp_path / "lake", "topic", "Z", "Z") == 0


def test_a_table_of_iceberg_states_its_partitions_and_its_order(tmp_path):
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    target = lake.exported(NAME, tmp_path, write=WriteOptions(("topic", "date")), table=TableFormat.ICEBERG)
    with closing(sql.SqlCatalog("mqtool", uri=f"sqlite:///{target}/iceberg.db")) as catalog:
        table = catalog.load_table("rocketmq.messages")
        assert [(field.name, str(field.transform)) for field in table.spec().fields] == [
            ("topic", "identity"),
            ("date", "identity"),
        ]
        order = [(table.schema().find_column_name(field.source_id), str(field)) for field in table.sort_order().fields]
        assert [name for name, _ in order] == ["topic", "queue_id", "queue_offset"]
        assert all(text.endswith("ASC NULLS LAST") for _, text in order)
        files = table.inspect.files().to_pylist()
    assert {file["sort_order_id"] for file in files} == {table.sort_order().order_id}
    assert {(file["partition"]["topic"], file["partition"]["date"]) for file in files} == {
        (row["topic"], row["store_timestamp"].date()) for row in EXPECTED if row["record_class"] == "committed"
    }


def test_partition_columns_of_a_delta_table_are_those_of_the_messages(tmp_path):
    delta = pytest.importorskip("deltalake")
    target = lake.exported("v2-long-topic", tmp_path, write=WriteOptions(("topic",)), table=TableFormat.DELTA)
    found = delta.DeltaTable(str(target / "messages")).to_pyarrow_table(columns=["topic"]).column("topic").to_pylist()
    assert set(found) == {row["topic"] for row in lake.expected_rows("v2-long-topic", every_class=False, broker="b")}


def test_a_date_that_is_null_is_null_in_a_delta_table(tmp_path):
    delta = pytest.importorskip("deltalake")
    builder = StoreBuilder()
    builder.put(step=1 << 62)
    store = builder.write(tmp_path / "store")
    lake.run_export(store, tmp_path / "lake", write=WriteOptions(("date", "hour")), table=TableFormat.DELTA)
    found = delta.DeltaTable(str(tmp_path / "lake/messages")).to_pyarrow_table(columns=["date", "hour"])
    assert found.to_pylist() == [{"date": None, "hour": None}]


@pytest.mark.parametrize("kind", list(TableFormat))
def test_nothing_to_export_is_an_empty_table(tmp_path, kind):
    pytest.importorskip(tables._LIBRARIES[kind])
    store, target = copy_store(NAME, tmp_path), tmp_path / "lake"
    for directory in ("commitlog", "consumequeue", "index"):
        shutil.rmtree(store / directory)
    (store / "checkpoint").unlink()
    (store / "commitlog").mkdir()
    lake.run_export(f"b={store}", target, read=ALL, table=kind, write=WriteOptions(("topic",)))
    assert read(kind, target) == []


def test_a_table_in_storage_that_its_library_does_not_know_is_refused(tmp_path):
    pytest.importorskip("s3fs")
    with pytest.raises(UsageError, match="tables can only be written to local directories and s3://"):
        lake.run_export(copy_store(NAME, tmp_path), "memory://lake", table=TableFormat.DELTA)  # type: ignore[arg-type]


def test_the_catalogue_of_pyicebergs_configuration_is_used(tmp_path, monkeypatch):
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    place = f"sqlite:///{tmp_path}/elsewhere.db"
    for name, value in (("TYPE", "sql"), ("URI", place), ("WAREHOUSE", f"file://{tmp_path}/warehouse")):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__MQTOOL__{name}", value)
    store, target = copy_store(NAME, tmp_path), tmp_path / "lake"
    wanted = {"read": ALL, "state": str(tmp_path / "state"), "table": TableFormat.ICEBERG}
    for records in (40, len(ENDS)):
        lake.grow(NAME, store, ENDS[records - 1])
        lake.run_export(f"b={store}", target, **wanted)
    assert not (target / "iceberg.db").exists()
    catalog = sql.SqlCatalog("mqtool", uri=place)
    assert catalog.load_table("rocketmq.messages").scan().to_arrow().num_rows == len(ENDS)
    catalog.close()


def test_a_catalogue_that_cannot_be_reached_is_one_line(tmp_path, monkeypatch):
    pytest.importorskip("pyiceberg.catalog.rest")
    monkeypatch.setenv("PYICEBERG_CATALOG__MQTOOL__TYPE", "rest")
    monkeypatch.setenv("PYICEBERG_CATALOG__MQTOOL__URI", "http://127.0.0.1:1/catalog")
    with pytest.raises(UsageError, match="the catalogue 'mqtool' of pyiceberg's configuration") as failure:
        lake.run_export(str(copy_store(NAME, tmp_path)), tmp_path / "lake", table=TableFormat.ICEBERG)
    assert "\n" not in str(failure.value)


def test_a_table_of_iceberg_whose_snapshots_have_expired_gets_each_commit_once(tmp_path):
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    store, target = copy_store(NAME, tmp_path), tmp_path / "lake"
    wanted = {"read": ALL, "state": str(tmp_path / "state"), "table": TableFormat.ICEBERG}
    lake.grow(NAME, store, ENDS[39])
    lake.run_export(f"b={store}", target, **wanted)
    catalog = sql.SqlCatalog("mqtool", uri=f"sqlite:///{target}/iceberg.db", warehouse=f"file://{target}")
    table = catalog.load_table("rocketmq.messages")
    table.overwrite(table.scan().to_arrow())  # as rewrite_data_files does
    table.maintenance.expire_snapshots().by_ids([one.snapshot_id for one in table.metadata.snapshots[:-1]]).commit()
    lake.run_export(f"b={store}", target, **wanted)
    assert read(TableFormat.ICEBERG, target) == EXPECTED[:40]
    lake.grow(NAME, store, ENDS[-1])
    lake.run_export(f"b={store}", target, **wanted)
    assert read(TableFormat.ICEBERG, target) == EXPECTED
    with table.refresh().transaction() as transaction:
        transaction.remove_properties("mqtool.sequence")  # as in a table of an earlier release
    table.maintenance.expire_snapshots().by_ids([one.snapshot_id for one in table.metadata.snapshots[:-1]]).commit()
    lake.run_export(f"b={store}", target, **wanted)
    assert read(TableFormat.ICEBERG, target) == EXPECTED


def test_commits_that_a_table_of_iceberg_does_not_name_are_not_added_again(tmp_path):
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    store, target = copy_store(NAME, tmp_path), tmp_path / "lake"
    wanted = {"read": ALL, "state": str(tmp_path / "state"), "table": TableFormat.ICEBERG}
    lake.run_export(f"b={store}", target, **wanted)
    catalog = sql.SqlCatalog("mqtool", uri=f"sqlite:///{target}/iceberg.db", warehouse=f"file://{target}")
    table = catalog.load_table("rocketmq.messages")
    with table.transaction() as transaction:
        transaction.remove_properties("mqtool.sequence")
    table.overwrite(table.scan().to_arrow())
    table.maintenance.expire_snapshots().by_ids([one.snapshot_id for one in table.metadata.snapshots[:-1]]).commit()
    with pytest.raises(UsageError, match=r"has: no snapshot states it any more\. Set its property"):
        lake.run_export(f"b={store}", target, **wanted)
    with table.transaction() as transaction:
        transaction.set_properties({"mqtool.sequence": "1"})
    lake.run_export(f"b={store}", target, **wanted)
    assert read(TableFormat.ICEBERG, target) == EXPECTED


def test_two_exports_do_not_share_a_table_of_a_configured_catalogue(tmp_path, monkeypatch):
    pytest.importorskip("pyiceberg.catalog.sql")
    for name, value in (("TYPE", "sql"), ("URI", f"sqlite:///{tmp_path}/c.db"), ("WAREHOUSE", f"file://{tmp_path}/w")):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__MQTOOL__{name}", value)
    store = copy_store(NAME, tmp_path)
    lake.run_export(f"b={store}", tmp_path / "one", table=TableFormat.ICEBERG)
    with pytest.raises(
        UsageError, match=r"messages of the catalogue has the files of another directory, file://.*/one/"
    ):
        lake.run_export(f"b={store}", tmp_path / "two", table=TableFormat.ICEBERG)
    assert not (tmp_path / "two").exists()


def test_an_export_with_a_table_of_iceberg_stays_where_it_is(tmp_path):
    pytest.importorskip("pyiceberg.catalog.sql")
    store, target = copy_store(NAME, tmp_path), tmp_path / "lake"
    wanted = {"state": str(tmp_path / "state"), "table": TableFormat.ICEBERG}
    lake.run_export(f"b={store}", target, **wanted)
    target.rename(tmp_path / "moved")
    with pytest.raises(UsageError, match="cannot be moved: move it back, or export into a new directory"):
        lake.run_export(f"b={store}", tmp_path / "moved", **wanted)
    (tmp_path / "moved/iceberg.db").write_text("no database")
    with pytest.raises(UsageError, match=r"iceberg\.db: cannot be used as a catalogue: .*not a database") as failure:
        lake.run_export(f"b={store}", tmp_path / "moved", **wanted)
    assert "\n" not in str(failure.value)


def test_a_catalogue_that_fails_later_is_one_line(tmp_path, monkeypatch):
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    for name, value in (("TYPE", "sql"), ("URI", f"sqlite:///{tmp_path}/c.db"), ("WAREHOUSE", f"file://{tmp_path}/w")):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__MQTOOL__{name}", value)

    def fails(*_: object) -> bool:
        raise RuntimeError("the connection\nis closed")

    monkeypatch.setattr(sql.SqlCatalog, "table_exists", fails)
    with pytest.raises(UsageError, match="pyiceberg's configuration cannot be used: the connection is closed"):
        lake.run_export(str(copy_store(NAME, tmp_path)), tmp_path / "lake", table=TableFormat.ICEBERG)
    assert not (tmp_path / "lake").exists()
