"""An export on Spark writes the very files of an export on one machine, or nothing."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mqtool.errors import CorruptionError, UsageError
from mqtool.export import run
from mqtool.export.parquet import WriteOptions
from mqtool.export.plain import ExportRequest, export
from mqtool.export.request import ReadRequest
from mqtool.export.sources import resolve
from tests.support import lake
from tests.support.stores import copy_store
from tests.support.tiers import night

NAME = "orders-5.5.0"
ALL = ReadRequest(every_class=True)


def export_on(spark: Any, store: object, target: Path, **wanted: Any) -> Any:
    from mqtool.spark.export import SparkRunner

    return export(ExportRequest(tuple(resolve([str(store)])), str(target), **wanted), SparkRunner(spark))


def contents(target: Path) -> dict[str, bytes]:
    return {str(path.relative_to(target)): path.read_bytes() for path in sorted(target.rglob("*.parquet"))}


@pytest.mark.long
@pytest.mark.parametrize("name", [NAME, "crash-4.9.7", night("bcq-5.5.0")])
def test_spark_writes_the_files_of_one_machine(spark, tmp_path, name):
    store = f"b={copy_store(name, tmp_path)}"
    wanted = {"read": ALL, "split_bytes": 60_000, "write": WriteOptions(("topic", "date"))}
    export_on(spark, store, tmp_path / "on-spark", **wanted)
    lake.run_export(store, tmp_path / "plain", **wanted)
    assert contents(tmp_path / "on-spark") == contents(tmp_path / "plain")
    assert len(contents(tmp_path / "plain")) > 2


def test_an_incremental_export_may_go_on_with_either(spark, tmp_path):
    name = "rollover-5.5.0"
    store, ends = copy_store(name, tmp_path), lake.record_ends(name)
    wanted = {"read": ALL, "state": str(tmp_path / "state")}
    lake.grow(name, store, ends[49])
    export_on(spark, f"b={store}", tmp_path / "lake", **wanted)
    lake.grow(name, store, ends[99])
    lake.run_export(f"b={store}", tmp_path / "lake", **wanted)
    lake.grow(name, store, ends[-1])
    export_on(spark, f"b={store}", tmp_path / "lake", **wanted)
    found = lake.in_log_order(lake.rows(tmp_path / "lake"))
    assert found == lake.expected_rows(name, every_class=True, broker="b")


def test_failfast_publishes_nothing_and_is_not_tried_again(spark, tmp_path):
    store = copy_store(NAME, tmp_path)
    segment = min((store / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    data[88] ^= 1
    segment.write_bytes(data)
    with pytest.raises(CorruptionError, match="physical offset 0: bad-crc"):
        export_on(spark, store, tmp_path / "lake", read=ReadRequest(fail_fast=True))
    assert [path.name for path in (tmp_path / "lake").rglob("*") if path.is_file()] == ["lock"]


def test_a_task_that_fails_ends_in_its_own_error_and_publishes_nothing(spark, tmp_path, monkeypatch):
    original = run.ExportRun._tasks

    def elsewhere(one, plans):
        return [replace(task, target="/proc/lake") for task in original(one, plans)]  # where nobody may write

    monkeypatch.setattr(run.ExportRun, "_tasks", elsewhere)
    with pytest.raises(FileNotFoundError, match="/proc/lake"):
        export_on(spark, copy_store(NAME, tmp_path), tmp_path / "lake")
    assert [path.name for path in (tmp_path / "lake").rglob("*") if path.is_file()] == ["lock"]


@pytest.mark.parametrize("master", ["nonsense", "local[x]", "localhost", "spark://"])
def test_a_master_that_is_none_is_named_before_anything_starts(master):
    from mqtool.spark.session import build

    with pytest.raises(UsageError, match="expected local"):
        build(master)


@pytest.mark.parametrize("partition_by", [(), ("topic", "date", "hour")], ids=["flat", "directories"])
def test_spark_sql_reads_an_export(spark, tmp_path, partition_by):
    target = lake.exported(NAME, tmp_path, write=WriteOptions(partition_by))
    spark.read.parquet(f"{target}/messages").createOrReplaceTempView("messages")
    found = (
        spark.sql("""
        SELECT topic, queue_id, queue_offset, body, tags, keys, properties, born_timestamp, record_class FROM messages
    """)
        .toArrow()
        .to_pylist()
    )
    expected = lake.expected_rows(NAME, every_class=False, broker="b")

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        said = row["properties"].items() if isinstance(row["properties"], dict) else row["properties"]
        plain = ("topic", "queue_id", "queue_offset", "body", "tags", "born_timestamp", "record_class")
        return (*(row[name] for name in plain), tuple(row["keys"]), tuple(sorted(said)))

    assert Counter(map(key, found)) == Counter(map(key, expected))
