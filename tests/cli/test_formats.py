"""`mqtool help formats` claims nothing: every command that it names for a kind of store or part takes a real one."""

import importlib.util
import json

import pytest

from tests.support.stores import copy_store, fixture

SOURCES = {
    "rocketmq": "orders-5.5.0/store",
    "dledger": "dledger-5.5.0/store",
    "equeue": "equeue-small/store",
    "rocksdb-queues": "rocksdb-cq-5.5.0/store",
    "compaction": "compaction-5.5.0/store",
    "timer": "timer-5.5.0/store",
    "controller": "controller-5.5.0/store-x",
    "tfchunk": "tfchunk/plain/store",
    "tiered": "tieredstore-5.5.0/store/tiered",
}
PARTS = {"compaction": "compaction/compactionLog/Compact/0", "timer": "timerlog", "controller": "epochFileCheckpoint"}
ADDRESSES = {"equeue": "0", "tfchunk": "0", "tiered": "Tier/0@0", "dledger": "48"}
WHAT = {"dledger": "dledger", "rocksdb-queues": "rocksdb-queues"}


def arguments(command, name, path, out):
    """What a command is given to take a store."""
    if command == "dump" and name in PARTS:
        path = path / PARTS[name]
    if command == "rebuild":
        return [command, "timer" if name == "timer" else "consumequeue", path, "--output", out]
    if command == "convert":
        return [command, WHAT[name], path, "-o", out]
    more = {
        "get": [ADDRESSES.get(name, "0")],
        "find": ["--limit", "1", "--tag", "TagA"],
        "export": ["--output", out],
        "salvage": ["-o", out],
        "dump": ["--limit", "1"],
        "explain-start": ["--release", "5.5"] if name == "dledger" else [],
    }
    return [command, path, *more.get(command, [])]


@pytest.mark.parametrize("name", list(SOURCES))
def test_every_command_that_is_claimed_takes_a_real_store(mqtool, tmp_path, name):
    if name == "rocksdb-queues" and importlib.util.find_spec("rocksdict") is None:
        pytest.skip("rocksdict is not installed: the extra rocksdb has it")
    rows = {row["name"]: row for row in json.loads(mqtool("help", "formats", "--format", "json").stdout)["rows"]}
    path = copy_store(name + "-5.5.0", tmp_path) if name == "dledger" else fixture(SOURCES[name])
    known = ("info", "dump", "get", "find", "verify", "rebuild", "export", "convert", "salvage", "explain-start")
    claimed = [command for command in rows[name]["commands"] if command in known]
    if name == "rocketmq":
        claimed = ["info", "dump", "get", "find", "verify", "rebuild", "export"]
    assert claimed
    for command in claimed:
        result = mqtool(*arguments(command, name, path, tmp_path / f"out-{command}"))
        assert result.code in (0, 1), (command, result.stderr)


def test_what_is_not_claimed_for_dledger_is_refused_by_name(mqtool, tmp_path):
    rows = {row["name"]: row for row in json.loads(mqtool("help", "formats", "--format", "json").stdout)["rows"]}
    assert "plan" not in rows["dledger"]["commands"]
    result = mqtool("plan", "recover", copy_store("dledger-5.5.0", tmp_path), "-o", tmp_path / "plan.json")
    assert "DLedger" in result.stderr
