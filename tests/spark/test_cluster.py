"""A real cluster of several processes exports what one machine exports, whatever happens to an executor."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mqtool
from mqtool.errors import UnavailableError
from mqtool.spark.session import require_spark
from mqtool.verify import verify
from tests.support import lake
from tests.support.big_store import write_big_store
from tests.support.spark_cluster import ROOT, said, spark_cluster

MESSAGES, SPLIT = 60_000, 1 << 20

DRIVER = """
import json, sys
import mqtool
from mqtool.export.plain import export
from mqtool.export.run import ExportRequest
from mqtool.export.sources import resolve
from mqtool.spark.job import SparkRunner
from mqtool.spark.session import build
from mqtool.spark.verify import verify_on
from tests.support.spark_cluster import said

store, target, master, split = sys.argv[1:]
session = build(master, {"spark.executor.memory": "512m", "spark.task.maxFailures": "4"})
reports = []

def progress(done, total):
    reports.append(done)
    if 0 < done < total and len(reports) > 1:
        print("half way", flush=True)
        sys.stdin.readline()

request = ExportRequest(tuple(resolve([store])), target, split_bytes=int(split))
result = export(request, SparkRunner(session, progress))
with mqtool.open(store.partition("=")[2]) as opened:
    checked = verify_on(session, opened)
session.stop()
print(json.dumps([result.manifest.totals["rows"], *said(checked)]), flush=True)
"""


def mqtool_export(directory: Path, target: str, master: str) -> "subprocess.CompletedProcess[str]":
    """Exports `store` in a directory, to a target that is named from there, by a cluster."""
    command = [sys.executable, "-m", "mqtool", "export", "b=store", "--output", target, "--state", f"{target}.state"]
    command += ["--spark", "--master", master, "--conf", "spark.executor.memory=512m", "--format", "json"]
    ours = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "NO_COLOR": "1"}
    return subprocess.run(command, env=os.environ | ours, cwd=directory, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="names the working directory through /proc")
def test_an_export_to_a_target_that_executors_do_not_share_is_an_error_and_advances_nothing(tmp_path):
    """`/proc/self/cwd` is another directory for each process, as a path is on machines without a shared disk."""
    try:
        require_spark()
    except UnavailableError as reason:
        pytest.skip(str(reason))
    write_big_store(tmp_path / "store", 500, segment=1 << 20)
    with spark_cluster(tmp_path) as cluster:
        refused = mqtool_export(tmp_path, "/proc/self/cwd/lake", cluster.master)
        left = [path.name for path in (tmp_path / "lake").rglob("*") if path.is_file()]
        relative = mqtool_export(tmp_path, "lake", cluster.master)
    assert refused.returncode == 6, refused.stderr
    assert "/driver: is not on the executor" in refused.stderr
    assert "driver and executors must reach stores and target under the same paths" in refused.stderr
    assert left == ["lock"]
    assert not list(tmp_path.glob("worker-*/**/*.parquet"))
    assert relative.returncode == 0, relative.stderr
    assert lake.table(tmp_path / "lake").num_rows == 500


@pytest.mark.night
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds executors through /proc")
def test_an_executor_killed_in_the_middle_changes_nothing_in_the_result(tmp_path):
    try:
        require_spark()
    except UnavailableError as reason:
        pytest.skip(str(reason))
    store = write_big_store(tmp_path / "store", MESSAGES, segment=32 << 20)
    ours = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with spark_cluster(tmp_path) as cluster:
        arguments = [f"b={store}", str(tmp_path / "cluster"), cluster.master, str(SPLIT)]
        with subprocess.Popen(
            [sys.executable, "-c", DRIVER, *arguments],
            env=os.environ | ours,
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as driver:
            assert driver.stdin is not None
            assert driver.stdout is not None
            killed = []
            last = ""
            for line in driver.stdout:
                last = line
                if line == "half way\n":
                    if not killed:
                        killed.append(cluster.kill_executor())
                    driver.stdin.write("\n")
                    driver.stdin.flush()
    assert driver.returncode == 0
    assert killed
    assert killed[0] is not None
    rows, *checked = json.loads(last)
    assert rows == {"messages": MESSAGES, "damage": 0, "rejected_values": 0}
    with mqtool.open(store) as opened:
        assert checked == said(verify(opened))
    lake.run_export(f"b={store}", tmp_path / "plain", split_bytes=SPLIT)
    expected = {path.name: path.read_bytes() for path in lake.files(tmp_path / "plain")}
    assert {path.name: path.read_bytes() for path in lake.files(tmp_path / "cluster")} == expected
    assert len(expected) > 40
