"""An export may be a Delta or Iceberg table too, and holds the broker's messages as such."""

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqtool.errors import UsageError
from mqtool.export import tables
from mqtool.export.parquet import WriteOptions
from mqtool.export.request import ReadRequest
from mqtool.export.schema import ALL_COLUMNS
from mqtool.export.tables import TableFormat
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


def read(kind: TableFormat, target: Path) -> list[dict[str, Any]]:
    if kind is TableFormat.DELTA:
        found = pytest.importorskip("deltalake").DeltaTable(str(target / "messages")).to_pyarrow_table()
    else:
        sql = pytest.importorskip("pyiceberg.catalog.sql")
        catalog = sql.SqlCatalog("mqtool", uri=f"sqlite:///{target}/iceberg.db", warehouse=f"file://{target}")
        found = catalog.load_table("rocketmq.messages").scan().to_arrow()
        catalog.close()
    names = EXPECTED[0]
    return lake.in_log_order([{name: row[name] for name in names} for row in found.to_pylist()])


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


@pytest.mark.parametrize("kind", list(TableFormat))
def test_a_rewind_does_not_take_files_from_a_table(tmp_path, kind):
    pytest.importorskip(tables._LIBRARIES[kind])
    store, target = copy_store(NAME, tmp_path), tmp_path / "lake"
    wanted = {"read": ALL, "state": str(tmp_path / "state")}
    for records in (40, 90):
        lake.grow(NAME, store, ENDS[records - 1])
        lake.run_export(f"b={store}", target, table=kind, **wanted)
    lake.grow(NAME, store, ENDS[59])
    with pytest.raises(UsageError, match="a Delta or Iceberg table refers to these files and cannot be rewound"):
        lake.run_export(f"b={store}", target, rewind=True, **wanted)
    assert read(kind, target) == EXPECTED[:90]


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


def test_a_table_in_object_storage_is_refused(tmp_path):
    pytest.importorskip("s3fs")
    with pytest.raises(UsageError, match="tables are made in local directories"):
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
    with pytest.raises(UsageError, match=r"unknown: no snapshot states it any more\. Set its property"):
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
    with pytest.raises(UsageError, match="must stay where it is: move it back, or export into a new directory"):
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
