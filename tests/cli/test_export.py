"""`mqtool export` from the command line: reports, exit codes, refusals."""

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from mqtool.cli.reference import schemas
from mqtool.export import plain
from tests.support import lake
from tests.support.builder import StoreBuilder
from tests.support.environment import without_coverage
from tests.support.stores import copy_store, fixture, store_fixture, tree_digest

NAME = "orders-5.5.0"
STORE = store_fixture(NAME).directory
EQUEUE = fixture("equeue-small/store")
COMMITTED = lake.expected_rows(NAME, every_class=False, broker="orders-5.5.0")
ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads(schemas()["export"])


def test_the_report_counts_what_was_written(mqtool, tmp_path):
    result = mqtool("export", STORE, "--output", tmp_path / "lake", "--jobs", 1, "--format", "json")
    found = result.document
    assert result.code == 0
    counts = {"messages": len(COMMITTED), "damage": 0, "rejected_values": 0}
    assert found["outcome"] == "exported"
    assert {name: found[name] for name in counts} == counts
    assert found["size"] == sum(path.stat().st_size for path in (tmp_path / "lake").rglob("*.parquet"))
    assert sum(topic["messages"] for topic in found["topics"]) == len(COMMITTED)
    assert lake.in_log_order(lake.rows(tmp_path / "lake")) == COMMITTED
    Draft202012Validator(SCHEMA).validate(found)


def test_options_reach_the_export(mqtool, tmp_path):
    result = mqtool(
        "export",
        f"b={STORE}",
        "--output",
        tmp_path / "lake",
        "--include",
        "all",
        "--columns",
        "topic,record_class,body",
        "--body-type",
        "text",
        "--topic",
        "RMQ_SYS*",
        "--partition-by",
        "topic",
        "--jobs",
        1,
        "--split",
        "50K",
        "--file-size",
        "1K",
        "--level",
        1,
    )
    assert result.code == 0
    every = lake.expected_rows(NAME, every_class=True, broker="b")
    expected = [row for row in every if row["topic"].startswith("RMQ_SYS")]
    found = lake.table(tmp_path / "lake").to_pylist()
    assert sorted(row["record_class"] for row in found) == sorted(row["record_class"] for row in expected)
    assert set(found[0]) == {"topic", "record_class", "body"}
    assert {type(row["body"]) for row in found} <= {str, type(None)}


def test_a_range_of_offsets_and_times(mqtool, tmp_path):
    mqtool("export", STORE, "--output", tmp_path / "a", "--offset", "100001:200001", "--jobs", 1)
    expected = [row for row in COMMITTED if 100_001 <= row["physical_offset"] < 200_001]
    assert lake.in_log_order(lake.rows(tmp_path / "a")) == expected
    middle = sorted(row["store_timestamp"] for row in COMMITTED)[400]
    mqtool("export", STORE, "--output", tmp_path / "b", "--time", f"{middle.isoformat()}..", "--jobs", 1)
    assert lake.in_log_order(lake.rows(tmp_path / "b")) == [r for r in COMMITTED if r["store_timestamp"] >= middle]


def test_a_second_run_with_state_adds_nothing(mqtool, tmp_path):
    arguments = ("export", STORE, "--output", tmp_path / "lake", "--state", tmp_path / "state", "--jobs", 1)
    assert mqtool(*arguments).code == 0
    again = mqtool(*arguments, "--format", "json")
    assert (again.code, again.document["outcome"], again.document["messages"]) == (0, "nothing-new", 0)
    assert lake.in_log_order(lake.rows(tmp_path / "lake")) == COMMITTED


def test_the_command_that_goes_on_is_printed_until_nothing_is_left(mqtool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    middle = sorted(row["store_timestamp"] for row in COMMITTED)[400].isoformat()
    words = ["export", STORE, "--output", "a lake", "--state", "state", "--jobs", 1, "--format", "json"]
    result = mqtool(*words, "--max-messages", 250, "--until", middle)
    commands, rows = [], []
    while True:
        rows.append(result.document["messages"])
        assert (result.document["left"] > 0) == (result.document["next_step"] is not None)
        if result.document["next_step"] is None:
            break
        commands.append(shlex.split(result.document["next_step"]))
        result = mqtool(*commands[-1][1:])
    assert [("--until" in words, "--max-messages" in words) for words in commands] == [
        (True, True),
        (False, True),
        (False, True),
    ]
    assert rows[0] == 250
    assert lake.in_log_order(lake.rows(tmp_path / "a lake")) == COMMITTED


def test_finished_tasks_of_a_run_that_failed_are_kept_and_taken_over(mqtool, tmp_path, monkeypatch):
    words = ("export", STORE, "--output", tmp_path / "lake", "--split", "100K", "--jobs", 1)
    original = plain.run_task

    def fails(task, *arguments):
        if task.partition.number == 3:
            raise OSError(28, "No space left on device", "lake")
        return original(task, *arguments)

    monkeypatch.setattr(plain, "run_task", fails)
    failed = mqtool(*words)
    assert (failed.code, "3 of 5 tasks are kept; run the same command again" in failed.stderr) == (74, True)
    assert not (tmp_path / "lake" / "messages").exists()
    monkeypatch.undo()
    result = mqtool(*words)
    assert (result.code, result.stderr) == (0, "mqtool: 3 of 5 tasks had been finished by a run that ended early\n")
    assert lake.in_log_order(lake.rows(tmp_path / "lake")) == COMMITTED


@pytest.mark.parametrize(("grows", "own_damage"), [(False, 0), (True, 0), (True, 1)])
def test_a_run_that_completes_an_interrupted_one_reports_its_damage(mqtool, tmp_path, grows, own_damage):
    name, lost = "rollover-5.5.0", 3
    store, ends = copy_store(name, tmp_path), lake.record_ends(name)
    segments = sorted((store / "commitlog").iterdir())
    lake.grow(name, store, ends[-20])
    segments[lost].unlink()
    arguments = (
        "export",
        store,
        "--output",
        tmp_path / "lake",
        "--state",
        tmp_path / "state",
        "--jobs",
        1,
        "-f",
        "json",
    )
    first = mqtool(*arguments)
    assert (first.code, first.document["damage"]) == (1, 1)
    (manifest,) = (tmp_path / "lake/_mqtool").glob("commit-*")
    for entry in json.loads(manifest.read_text("utf-8"))["files"]:  # as after a kill between manifest and moves
        staged = tmp_path / "lake" / entry["staged"]
        staged.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "lake" / entry["path"]).rename(staged)
    if grows:
        lake.grow(name, store, ends[-1])
        segments[lost].unlink()
    if own_damage:
        at = ends[-3] + 88  # a byte of the body of the last record but one
        segment = max(path for path in (store / "commitlog").iterdir() if int(path.name) <= at)
        data = bytearray(segment.read_bytes())
        data[at - int(segment.name)] ^= 1
        segment.write_bytes(data)
    again = mqtool(*arguments)
    assert again.code == 1
    if grows:
        assert (again.document["outcome"], again.document["damage"]) == ("exported", own_damage)
        assert f"an interrupted run was completed: {first.document['messages']} messages, 1 damaged" in again.stderr
    else:
        assert again.document == first.document | {"outcome": "completed"}


def test_damage_is_exit_code_1_and_named(mqtool, tmp_path):
    store = copy_store(NAME, tmp_path)
    segment = min((store / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    data[COMMITTED[3]["physical_offset"] + 88] ^= 1
    segment.write_bytes(data)
    result = mqtool("export", store, "--output", tmp_path / "lake", "--jobs", 1, "--format", "json")
    assert (result.code, result.document["ok"], result.document["damage"]) == (1, False, 1)
    assert f"1 damaged range(s), {COMMITTED[3]['store_size']} bytes" in result.stderr
    result = mqtool("export", store, "--output", tmp_path / "other", "--jobs", 1, "--on-damage", "failfast")
    assert (result.code, "bad-crc" in result.stderr) == (1, True)
    assert not (tmp_path / "other" / "messages").exists()


def test_an_output_that_exists_is_refused(mqtool, tmp_path):
    arguments = ("export", STORE, "--output", tmp_path / "lake", "--jobs", 1)
    mqtool(*arguments)
    before = tree_digest(tmp_path / "lake" / "messages")
    result = mqtool(*arguments)
    assert (result.code, "contains an export already" in result.stderr) == (4, True)
    assert tree_digest(tmp_path / "lake" / "messages") == before


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nowhere"], 4, "no such directory"),
        ([STORE, "--columns", "topics"], 2, "unknown column 'topics'"),
        ([STORE, "--partition-by", "tag"], 2, "expected a partition column, found 'tag'"),
        ([STORE, "--redact-columns", "topic"], 2, "cannot be redacted"),
        ([STORE, "--file-size", "0"], 2, "file size of at least 1 byte"),
        ([STORE, "--level", "99"], 2, "level from 1 to 22"),
        ([STORE, f"x={STORE}"], 2, "are the same store"),
        (["s3x://bucket/store"], 2, "s3x://bucket/store"),
        ([STORE, "--columns", ","], 2, "no column is selected"),
        ([STORE, "--split", "1"], 2, "of at least"),
        ([STORE, "--rewind"], 2, "needs the state of the export"),
        ([STORE, "--max-bytes", "1M"], 2, "add --state"),
        ([STORE, "--min-bytes", "1M"], 2, "add --follow"),
        ([STORE, "--every", "1"], 2, "add --follow"),
        ([STORE, "--follow", "--until", "2026-11-21"], 2, "leave one out"),
        ([STORE, "--until", "soon"], 2, "time 'soon': expected RFC 3339"),
        ([STORE, "--conf", "a=b"], 2, "need --spark"),
        ([STORE, "--master", "local"], 2, "need --spark"),
        ([STORE, "--spark", "--conf", "a"], 2, "expected NAME=VALUE"),
        ([EQUEUE], 2, "is exported completely, table by table"),
        ([EQUEUE, STORE], 4, "a store of kind equeue"),
    ],
    ids=[
        "no store",
        "column",
        "partition",
        "redact",
        "file size",
        "level",
        "twice",
        "url",
        "no column",
        "tiny tasks",
        "rewind",
        "limit",
        "patience",
        "pause",
        "until and follow",
        "until",
        "conf",
        "master",
        "bad conf",
        "other kind",
        "two kinds",
    ],
)
def test_what_makes_no_sense_is_said_in_one_line_and_writes_nothing(mqtool, tmp_path, arguments, code, words):
    result = mqtool("export", *arguments, "--output", tmp_path / "lake", "--jobs", 1)
    assert (result.code, words in result.stderr, result.stderr.count("\n")) == (code, True, 1)
    assert not (tmp_path / "lake").exists()


def test_a_target_that_is_a_file_is_refused(mqtool, tmp_path):
    (tmp_path / "lake").write_text("mine")
    result = mqtool("export", STORE, "--output", tmp_path / "lake")
    assert (result.code, "is a file" in result.stderr) == (2, True)
    assert (tmp_path / "lake").read_text() == "mine"


def test_a_target_that_cannot_be_written_to_is_an_io_error(mqtool, tmp_path):
    (tmp_path / "file").touch()
    result = mqtool("export", STORE, "--output", tmp_path / "file" / "lake", "--jobs", 1)
    assert (result.code, result.stderr.count("\n")) == (74, 1)


def test_a_full_disk_is_named_with_its_file_and_leaves_nothing_that_looks_whole(tmp_path):
    limited = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000));"
        "from mqtool.cli.app import run; sys.exit(run(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", limited, "export", str(STORE), "--output", str(tmp_path / "lake"), "--jobs", "1"]
    ran = subprocess.run(command, cwd=ROOT, env=without_coverage(), capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.count("\n")) == (74, 1)
    assert f"{tmp_path}/lake/_mqtool/staging" in ran.stderr
    assert [path.name for path in (tmp_path / "lake").rglob("*") if path.is_file()] == ["lock"]


def test_spark_without_java_is_said_in_one_line(mqtool, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    result = mqtool("export", STORE, "--output", tmp_path / "lake", "--spark")
    assert result.code == 4
    assert "Spark needs" in result.stderr
    assert result.stderr.count("\n") == 1


def test_spark_with_an_old_java_is_said_in_one_line(mqtool, tmp_path, monkeypatch):
    pytest.importorskip("pyspark")
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    result = mqtool("export", STORE, "--output", tmp_path / "lake", "--spark")
    assert (result.code, "Java 17 or newer but found 8" in result.stderr) == (4, True)


def test_several_stores_are_distinguished(mqtool, tmp_path):
    for name in (NAME, "ipv6"):
        copy_store(name, tmp_path / name)
    result = mqtool("export", f"{tmp_path}/*/store", "--output", tmp_path / "lake", "--jobs", 1)
    assert result.code == 0
    brokers = lake.table(tmp_path / "lake")["broker"].to_pylist()
    assert {name: brokers.count(name) for name in set(brokers)} == {
        name: len(lake.expected_rows(name, every_class=False, broker="")) for name in (NAME, "ipv6")
    }


def test_an_export_that_follows_has_what_is_appended_soon_after(tmp_path):
    name = "rollover-5.5.0"
    store, target = copy_store(name, tmp_path), tmp_path / "lake"
    ends = lake.record_ends(name)
    lake.grow(name, store, ends[39])
    command = [sys.executable, "-m", "mqtool", "export", str(store), "--output", str(target), "--include", "all"]
    command += ["--state", str(tmp_path / "state"), "--follow", "--every", "0.2", "--format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            for records in (40, 90, len(ends)):
                lake.grow(name, store, ends[records - 1])
                until = time.monotonic() + 60
                while not (target / "messages").exists() or len(lake.rows(target)) < records:
                    assert time.monotonic() < until
                    assert running.poll() is None
                    time.sleep(0.1)
        finally:
            running.terminate()
        out, said = running.communicate(timeout=60)
    assert running.returncode == 0, said
    assert json.loads(out)["sequence"] == 3
    assert said.count("messages; Ctrl-C ends") == 3
    assert len(lake.rows(target)) == len(ends)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e400", "700000"])
def test_a_pause_that_no_clock_can_wait_for_is_refused(mqtool, tmp_path, seconds):
    words = ("--state", tmp_path / "state", "--follow", "--every", seconds)
    result = mqtool("export", STORE, "--output", tmp_path / "lake", *words)
    assert result.code == 2
    assert "'--every'" in result.stderr
    assert not (tmp_path / "lake").exists()


def test_following_needs_a_state(mqtool, tmp_path):
    result = mqtool("export", STORE, "--output", tmp_path / "lake", "--follow")
    assert result.code == 2
    assert "--follow needs a state file" in result.stderr


def test_an_empty_topic_has_the_directory_of_null(mqtool, tmp_path):
    """As in Hive."""
    builder = StoreBuilder()
    builder.put(b"a", topic="")
    builder.put(b"b", topic="T")
    root = builder.write(tmp_path / "store", queues=False)
    assert mqtool("export", root, "-o", tmp_path / "lake", "--partition-by", "topic").code == 0
    found = {path.parent.name for path in (tmp_path / "lake" / "messages").rglob("*.parquet")}
    assert found == {"topic=__HIVE_DEFAULT_PARTITION__", "topic=T"}


@pytest.mark.slow
def test_damage_outside_of_the_range_is_not_of_the_export(mqtool, tmp_path):
    store = copy_store(NAME, tmp_path)
    segment = min((store / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    at = COMMITTED[3]["physical_offset"]
    data[at + 4 : at + 8] = bytes(4)
    segment.write_bytes(data)
    before, inside = (("--offset", f"{first}:{first + 5000}") for first in (at + COMMITTED[3]["store_size"], at))
    found = [
        mqtool("export", store, "-o", tmp_path / name, *words, "--jobs", 1, "--format", "json").document["damage"]
        for name, words in (("a", before), ("b", inside))
    ]
    assert found == [0, 1]
