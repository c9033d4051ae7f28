"""A real cluster of several processes writes what one machine writes, whatever happens to an executor or the driver."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import mqtool
from mqtool.errors import UnavailableError
from mqtool.rebuild.job import rebuild
from mqtool.rebuild.settings import settings_of
from mqtool.spark.session import require_spark
from mqtool.verify import verify
from tests.support import lake
from tests.support.big_store import write_big_store
from tests.support.engine import tree
from tests.support.spark_cluster import ROOT, said, spark_cluster

MESSAGES, SPLIT = 60_000, 1 << 20
SMALL_INDEX = {"maxHashSlotNum": 1000, "maxIndexNum": 40_000}

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
print(json.dumps([result.taken_over, result.tasks, result.manifest.totals["rows"], *said(checked)]), flush=True)
"""


REBUILD = """
import json, sys
from pathlib import Path
import mqtool
from mqtool.rebuild.settings import settings_of
from mqtool.spark.rebuild import runner
from mqtool.spark.session import build
from tests.support.task_rebuild import rebuild_by_tasks

store, target, master, config = sys.argv[1:]
session = build(master, {"spark.executor.memory": "512m"})

def progress(done, total):
    if done % (total // 2):
        print("half way", flush=True)
        sys.stdin.readline()

with mqtool.open(store, json.loads(config)) as opened:
    result = rebuild_by_tasks(opened, Path(target), settings_of(opened), run=runner(session), on_progress=progress)
session.stop()
print(result.records, result.units, result.keys, flush=True)
"""


def drive(program: str, arguments: list[str], half_way: Callable[[int], object]) -> tuple[int, str]:
    """Runs a driver, which waits each time that it is half way; returns its exit code and last line.

    `half_way` is called meanwhile with the driver's process id.
    """
    ours = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", program, *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    last = ""
    with subprocess.Popen(command, env=os.environ | ours, cwd=ROOT, text=True, **pipes) as driver:
        for line in driver.stdout:
            last = line
            if line == "half way\n":
                half_way(driver.pid)
                with contextlib.suppress(BrokenPipeError):  # it was killed
                    driver.stdin.write("\n")
                    driver.stdin.flush()
        with contextlib.suppress(BrokenPipeError):
            driver.stdin.close()
    return driver.returncode, last


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
    assert refused.returncode == 6, refused.stderr
    assert "/driver: is not on the executor" in refused.stderr
    assert "driver and executors must reach stores and target under the same paths" in refused.stderr
    assert left == ["lock"]
    assert not list(tmp_path.glob("worker-*/**/*.parquet"))


@pytest.mark.night
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_target_that_is_named_from_the_directory_of_the_driver_is_found_by_executors(tmp_path):
    write_big_store(tmp_path / "store", 500, segment=1 << 20)
    with spark_cluster(tmp_path) as cluster:
        relative = mqtool_export(tmp_path, "lake", cluster.master)
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
    killed = []
    with spark_cluster(tmp_path) as cluster:
        arguments = [f"b={store}", str(tmp_path / "cluster"), cluster.master, str(SPLIT)]
        code, last = drive(DRIVER, arguments, lambda _: killed or killed.append(cluster.kill_executor()))
    assert code == 0
    assert killed
    assert killed[0] is not None
    taken_over, _, rows, *checked = json.loads(last)
    assert taken_over == 0
    assert rows == {"messages": MESSAGES, "damage": 0, "rejected_values": 0}
    with mqtool.open(store) as opened:
        assert checked == said(verify(opened))
    require_files_of_one_machine(tmp_path, store)


def require_files_of_one_machine(directory: Path, store: Path) -> None:
    """Compares the export `cluster` with one that this process makes."""
    lake.run_export(f"b={store}", directory / "plain", split_bytes=SPLIT)
    expected = {path.name: path.read_bytes() for path in lake.files(directory / "plain")}
    assert {path.name: path.read_bytes() for path in lake.files(directory / "cluster")} == expected
    assert len(expected) > 40


@pytest.mark.night
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_was_finished_when_the_driver_was_killed_is_taken_over(tmp_path):
    """Its faster sibling on one machine is in tests/unit/export/test_task_result.py."""
    try:
        require_spark()
    except UnavailableError as reason:
        pytest.skip(str(reason))
    store = write_big_store(tmp_path / "store", MESSAGES, segment=32 << 20)
    with spark_cluster(tmp_path) as cluster:
        arguments = [f"b={store}", str(tmp_path / "cluster"), cluster.master, str(SPLIT)]
        code, _ = drive(DRIVER, arguments, lambda driver: os.kill(driver, signal.SIGKILL))
        assert code == -signal.SIGKILL
        finished = len(list(tmp_path.glob("cluster/_mqtool/staging-*/*/task.json")))
        code, last = drive(DRIVER, arguments, lambda _: None)
    taken_over, tasks, rows, *_ = json.loads(last)
    assert code == 0
    assert 0 < finished <= taken_over < tasks
    assert rows == {"messages": MESSAGES, "damage": 0, "rejected_values": 0}
    require_files_of_one_machine(tmp_path, store)


@pytest.mark.night
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds executors through /proc")
def test_a_rebuild_whose_driver_and_executors_are_killed_is_made_by_the_next_run(tmp_path):
    try:
        require_spark()
    except UnavailableError as reason:
        pytest.skip(str(reason))
    store = write_big_store(tmp_path / "store", MESSAGES, segment=4 << 20)
    target, killed = tmp_path / "new", []
    with spark_cluster(tmp_path) as cluster:
        arguments = [str(store), str(target), cluster.master, json.dumps(SMALL_INDEX)]
        code, _ = drive(REBUILD, arguments, lambda driver: os.kill(driver, signal.SIGKILL))
        assert code == -signal.SIGKILL
        assert (target.exists(), target.with_name("new.incomplete").is_dir()) == (False, True)
        code, last = drive(REBUILD, arguments, lambda _: len(killed) > 1 or killed.append(cluster.kill_executor()))
    assert (code, len(killed), None in killed) == (0, 2, False)
    with mqtool.open(store, SMALL_INDEX) as opened:
        expected = rebuild(opened, tmp_path / "plain", settings_of(opened))
    assert last.split() == [str(count) for count in (expected.records, expected.units, expected.keys)]
    assert tree(target) == tree(tmp_path / "plain")
    assert len(expected.index_files) > 2
    assert not target.with_name("new.incomplete").exists()
