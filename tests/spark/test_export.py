"""An export on Spark writes the very files of an export on one machine, or nothing."""

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mqtool.errors import CorruptionError, UnavailableError, UsageError
from mqtool.export import run
from mqtool.export.limits import Limits
from mqtool.export.parquet import WriteOptions
from mqtool.export.plain import export
from mqtool.export.run import ExportRequest
from mqtool.export.schema import ReadRequest
from mqtool.export.sources import resolve
from tests.support import lake
from tests.support.stores import copy_store
from tests.support.tiers import night

NAME = "orders-5.5.0"
ALL = ReadRequest(every_class=True)


def export_on(spark: Any, store: object, target: Path, **wanted: Any) -> Any:
    from mqtool.spark.job import SparkRunner

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
    limited = export_on(spark, f"b={store}", tmp_path / "lake", limits=Limits(max_messages=20), **wanted)
    assert (limited.manifest.totals["rows"]["messages"], limited.left) == (20, ends[49] - ends[19])
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


def test_yarn_without_a_configuration_is_named_before_anything_starts(monkeypatch):
    from mqtool.spark.session import build

    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    with pytest.raises(UsageError, match="neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set"):
        build("yarn")


@pytest.mark.parametrize(
    ("java", "found"),
    [
        (None, "found none"),
        ("not a program", "found none"),
        ("#!/bin/sh\necho 'no version here' >&2", "found none"),
        ("#!/bin/sh\necho 'java version \"1.8.0_402\"' >&2", "found 8"),
        ("#!/bin/sh\necho 'openjdk version \"11.0.22\" 2024-01-16' >&2", "found 11"),
    ],
    ids=["none", "no program", "no version", "8", "11"],
)
def test_a_java_that_is_missing_or_too_old_is_named(java, found, tmp_path, monkeypatch):
    from mqtool.spark.session import build

    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    if java is not None:
        program.write_text(java)
        program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UnavailableError, match=f"needs Java 17 or newer but {found} \\(JAVA_HOME is {tmp_path}\\)"):
        build("local[2]")


def refuse(_items):
    raise ValueError("not of ours")
    yield


def crash(_items):
    os._exit(3)
    yield


def wait(items):
    for item in items:
        time.sleep(0.5)
        yield item


@pytest.mark.parametrize(
    ("work", "words"), [(refuse, "ValueError: not of ours"), (crash, "Python worker exited unexpectedly (crashed)")]
)
def test_a_job_that_fails_for_another_reason_is_one_line_with_that_reason(spark, work, words):
    from mqtool.spark.job import SparkJob, SparkJobError

    job = SparkJob(spark, "refused", work, lambda _: 1)
    with pytest.raises(SparkJobError) as failure:
        job.run([1, 2], "a job of a test")
    (line,) = str(failure.value).splitlines()
    assert line.startswith("the Spark job failed: ")
    assert line.endswith(words)


def test_an_interrupt_cancels_the_job(spark):
    from mqtool.spark.job import SparkJob

    def interrupt(done, total):
        raise KeyboardInterrupt

    job = SparkJob(spark, "interrupted", wait, lambda _: 1, interrupt)
    with pytest.raises(KeyboardInterrupt):
        job.run(list(range(40)), "a job of a test")
    tracker = spark.sparkContext.statusTracker()
    deadline = time.monotonic() + 30
    while tracker.getActiveJobsIds() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(tracker.getActiveJobsIds()) == []
    (number,) = tracker.getJobIdsForGroup("interrupted")
    assert tracker.getJobInfo(number).status == "FAILED"


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
