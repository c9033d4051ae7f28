"""Which files of a directory are read: those that an export published, whatever else is there."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mqtool.choices import TableFormat
from mqtool.errors import ExportError, StoreError, UsageError
from mqtool.export.parquet import WriteOptions
from mqtool.export.published import holds_tables, message_files
from mqtool.export.table_logs import NEVER, IcebergTable, delta_files, local_table
from mqtool.export.target import LocalTarget
from mqtool.replay.originals import is_store
from tests.support import lake
from tests.support.stores import copy_store

NAME = "rollover-5.5.0"
ENDS = lake.record_ends(NAME)


def two_runs(tmp_path: Path, **wanted: object) -> Path:
    store, target = copy_store(NAME, tmp_path), tmp_path / "lake"
    for records in (40, 90):
        lake.grow(NAME, store, ENDS[records - 1])
        lake.run_export(f"b={store}", target, state=str(tmp_path / "state"), **wanted)
    return target


def write_table(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"topic": ["T"]}), path)
    return path


def last_manifest(target: Path) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = json.loads(max((target / "_mqtool").glob("commit-*")).read_bytes())
    return found


def test_the_files_of_an_export_are_those_of_its_manifests(tmp_path, monkeypatch):
    target = two_runs(tmp_path, write=WriteOptions(("topic",)))
    files = lake.files(target)
    assert message_files(target) == message_files(target / "messages") == files
    write_table(target / "messages/_changes/x.parquet")
    directory = files[0].parent
    monkeypatch.chdir(directory)
    assert message_files(Path()) == [Path(file.name) for file in files if file.parent == directory]


def test_an_unfinished_publication_is_refused(tmp_path):
    target = two_runs(tmp_path)
    for entry in last_manifest(target)["files"]:
        (target / entry["staged"]).parent.mkdir(parents=True, exist_ok=True)
        (target / entry["path"]).rename(target / entry["staged"])
    with pytest.raises(ExportError, match="the last run of this export has not been completed; run the same"):
        message_files(target)
    assert not is_store(target)


def test_a_directory_without_a_completed_run_is_refused(tmp_path):
    write_table(tmp_path / "lake/_mqtool/staging-00000001-0a/messages/x.parquet")
    assert not is_store(tmp_path / "lake")
    with pytest.raises(ExportError, match="has not been completed"):
        message_files(tmp_path / "lake")


def test_files_of_another_program_and_missing_ones_are_refused(tmp_path):
    target = two_runs(tmp_path)
    other = write_table(target / "messages/data/other.parquet")
    with pytest.raises(ExportError, match=r"other\.parquet: was not written by the export: .*export the store again"):
        message_files(target)
    other.unlink()
    lake.files(target)[0].unlink()
    with pytest.raises(ExportError, match="is missing, although the export published it"):
        message_files(target)


def test_files_that_a_rewind_undid_are_not_read(tmp_path):
    store, target = copy_store(NAME, tmp_path), tmp_path / "lake"
    for records in (40, 90, 60):
        lake.grow(NAME, store, ENDS[records - 1])
        lake.run_export(f"b={store}", target, state=str(tmp_path / "state"), rewind=True)
    undone = last_manifest(target)["removed"]
    assert undone
    assert message_files(target) == lake.files(target)
    write_table(target / str(undone[0]))
    with pytest.raises(ExportError, match="has not been completed"):
        message_files(target)


def test_elsewhere_all_files_count_but_hidden_ones(tmp_path):
    shown = [write_table(tmp_path / name) for name in ("_a=1/x.parquet", "b/y.parquet", "z.parquet")]
    for name in ("_temporary/x.parquet", ".a/x.parquet", "b/_x.parquet", ".x.parquet"):
        write_table(tmp_path / name)
    assert message_files(tmp_path) == sorted(shown)
    assert holds_tables(tmp_path)
    assert not holds_tables(tmp_path / ".a/nothing")
    assert message_files(tmp_path / "z.parquet") == [tmp_path / "z.parquet"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match="contains no Parquet file"):
        message_files(tmp_path / "empty")


@pytest.mark.parametrize("partition_by", [(), ("topic", "date")], ids=["flat", "directories"])
def test_a_delta_table_is_read_until_its_files_are_replaced(tmp_path, partition_by):
    delta = pytest.importorskip("deltalake")
    target = two_runs(tmp_path, write=WriteOptions(partition_by), table=TableFormat.DELTA)
    files = lake.files(target)
    assert message_files(target) == files
    table = delta.DeltaTable(str(target / "messages"))
    table.create_checkpoint()
    assert message_files(target) == files
    paths = {one.relative_to(target / "messages").as_posix() for one in files}
    for version in sorted((target / "messages/_delta_log").glob("*.json"))[:-1]:
        version.unlink()  # as retention of the log does
    contents = delta_files(LocalTarget(str(target / "messages")))
    assert (set(contents.files), contents.sequence) == (paths, 2)
    assert message_files(target) == files
    shutil.copytree(target / "messages", tmp_path / "copy")
    assert message_files(tmp_path / "copy") == [
        tmp_path / "copy" / one.relative_to(target / "messages") for one in files
    ]
    table.optimize.compact()
    with pytest.raises(ExportError, match="was not written by the export"):
        message_files(target)
    shutil.rmtree(tmp_path / "copy")
    shutil.copytree(target / "messages", tmp_path / "copy")
    with pytest.raises(ExportError, match="is not, or not with all rows, in the Delta table any more"):
        message_files(tmp_path / "copy")


def test_files_that_a_delta_table_does_not_have_are_read_only_if_it_never_had_them(tmp_path):
    delta = pytest.importorskip("deltalake")
    target = two_runs(tmp_path, table=TableFormat.DELTA)
    lake.grow(NAME, tmp_path / "store", ENDS[-1])
    lake.run_export(f"b={tmp_path / 'store'}", target, state=str(tmp_path / "state"))
    assert message_files(target) == lake.files(target)
    delta.DeltaTable(str(target / "messages")).delete()
    with pytest.raises(ExportError, match="in the Delta table any more"):
        message_files(target)


def log(directory: Path, *versions: list[dict[str, object]]) -> Path:
    (directory / "_delta_log").mkdir(parents=True)
    for number, actions in enumerate(versions):
        lines = "".join(json.dumps(action) + "\n" for action in actions)
        (directory / f"_delta_log/{number:020d}.json").write_text(lines)
    return directory


def test_actions_of_a_delta_log(tmp_path):
    vector = {"path": "v.parquet", "deletionVector": {"storageType": "u"}}
    first = [
        {"add": {"path": name, "size": 1, "partitionValues": {}}}
        for name in ("a%20b.parquet", "gone.parquet", "v.parquet")
    ]
    second = [{"add": vector}, {"remove": {"path": "v.parquet"}}, {"txn": {"appId": "mqtool", "version": 7}}]
    third = [{"remove": {"path": "gone.parquet"}}, {"txn": {"appId": "other", "version": 9}}]
    found = delta_files(LocalTarget(str(log(tmp_path, first, second, third))))
    assert (set(found.files), found.sequence) == ({"a b.parquet"}, 7)


def test_a_delta_log_that_cannot_be_read_or_has_gaps_is_refused(tmp_path):
    with pytest.raises(ExportError, match=r"expected all versions from 0 on, found \[\]"):
        delta_files(LocalTarget(str(log(tmp_path / "empty"))))
    table = log(tmp_path / "gap", [], [], [])
    (table / "_delta_log/00000000000000000001.json").unlink()
    with pytest.raises(ExportError, match=r"expected all versions from 0 on, found \[0, 2\]"):
        delta_files(LocalTarget(str(table)))
    (table / "_delta_log/00000000000000000001.json").write_text("[]")
    with pytest.raises(ExportError, match="the log of the Delta table cannot be read"):
        delta_files(LocalTarget(str(table)))
    (table / "_delta_log/00000000000000000002.checkpoint.parquet").write_text("PAR1")
    with pytest.raises(ExportError, match="the log of the Delta table cannot be read"):
        delta_files(LocalTarget(str(table)))


def iceberg_export(tmp_path: Path) -> tuple[Path, Any]:
    """Returns an export of two runs as an Iceberg table, and its catalogue."""
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    target = two_runs(tmp_path, write=WriteOptions(("topic",)), table=TableFormat.ICEBERG)
    return target, sql.SqlCatalog("mqtool", uri=f"sqlite:///{target}/iceberg.db", warehouse=f"file://{target}")


@pytest.mark.filterwarnings("ignore")
def test_an_iceberg_table_is_read_until_a_file_is_deleted_from_it(tmp_path):
    target, catalogue = iceberg_export(tmp_path)
    files = lake.files(target)
    assert message_files(target) == files
    lake.grow(NAME, tmp_path / "store", ENDS[-1])
    lake.run_export(
        f"b={tmp_path / 'store'}", target, state=str(tmp_path / "state"), write=WriteOptions(("topic",))
    )  # which the table does not have yet
    assert message_files(target) == lake.files(target)
    shutil.copytree(target, tmp_path / "copy")
    assert len(message_files(tmp_path / "copy")) == len(lake.files(target))
    topic = files[0].parent.name.partition("=")[2]
    catalogue.load_table("rocketmq.messages").delete(f"topic = '{topic}'")
    catalogue.close()
    with pytest.raises(
        ExportError, match=r"expected 90 rows in \d files in the Iceberg table, found .* after delete: "
    ):
        message_files(target)
    shutil.copytree(target / "messages", tmp_path / "bare")
    with pytest.raises(ExportError, match="is an Iceberg table without its catalogue"):
        message_files(tmp_path / "bare")


@pytest.mark.filterwarnings("ignore")
def test_an_iceberg_table_whose_catalogue_is_missing_is_unknown(tmp_path, monkeypatch):
    target, catalogue = iceberg_export(tmp_path)
    catalogue.close()
    (target / "iceberg.db").rename(tmp_path / "elsewhere.db")
    with pytest.raises(ExportError, match="its catalogue is neither in the export nor in pyiceberg's configuration"):
        message_files(target)
    for name, value in (("TYPE", "sql"), ("URI", f"sqlite:///{tmp_path}/elsewhere.db")):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__MQTOOL__{name}", value)
    assert message_files(target) == lake.files(target)
    shutil.copytree(target, tmp_path / "copy")
    with pytest.raises(UsageError, match="has the files of another directory"):
        message_files(tmp_path / "copy")


def test_a_catalogue_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "iceberg.db").write_bytes(b"no database, and long enough to be read as the header of one" * 9)
    with pytest.raises(ExportError, match="the catalogue of the Iceberg table cannot be read"):
        local_table(tmp_path)


def snapshot(number: int, operation: str, **summary: object) -> dict[str, Any]:
    totals = {f"total-{name}": "3" for name in ("records", "data-files", "delete-files")}
    return {
        "snapshot-id": number,
        "parent-snapshot-id": number - 1,
        "summary": {"operation": operation} | totals | summary,
    }


def test_the_metadata_of_an_iceberg_table(tmp_path):
    of = IcebergTable.of
    assert of({}) == IcebergTable(NEVER, True, 0, 0, 0, frozenset())
    kept = [snapshot(7, "append", **{"mqtool.sequence": "4"}), snapshot(8, "replace"), snapshot(9, "delete")]
    assert of({"snapshots": kept, "current-snapshot-id": 8}) == IcebergTable(4, False, 3, 3, 3, frozenset())
    assert of({"snapshots": kept, "current-snapshot-id": 9}).changes == {"delete"}
    expired = {"snapshots": kept[1:], "current-snapshot-id": 8}
    assert (of(expired).sequence, of(expired).is_empty) == (NEVER, False)
    assert of(expired | {"properties": {"mqtool.sequence": "5"}}).sequence == 5
    without = {"snapshots": [{"snapshot-id": 1}], "current-snapshot-id": 1}
    assert of(without) == IcebergTable(NEVER, False, -1, -1, -1, frozenset({"unknown"}))
