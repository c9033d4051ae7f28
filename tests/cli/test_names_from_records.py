"""Names in records, keys and tables that lead elsewhere: no command makes a file outside of what it was given, and none ends with a bug."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from mqtool.engine import open_store
from mqtool.formats.consume_queue import unit_key
from mqtool.server.testing import MqServer
from tests.fuzz.test_sibling_fuzz import small_copy
from tests.support.builder import encode
from tests.support.engine import small_options
from tests.support.stores import copy_store, tree_digest

TOPICS = {
    "upwards": b"../../../evil",
    "absolute": None,  # filled in: an absolute path that the test may write to
    "NUL": b"Evil\0Topic",
    "parent": b"..",
    "same": b".",
    "nested": b"a/b",
    "light queue": b"%LMQ%/../../../../evil",
    "no text": b"\xff\xfe\xfd",
}


@pytest.fixture(params=TOPICS)
def poisoned(request, tmp_path):
    """A store with three messages; the topic of the second leads elsewhere."""
    given = tmp_path / "a" / "b" / "given"
    root = given / "store"
    root.parent.mkdir(parents=True)
    open_store(root, small_options()).close()
    topic = TOPICS[request.param] or f"{tmp_path}/evil".encode()
    segment = root / "commitlog" / ("0" * 20)
    segment.parent.mkdir(exist_ok=True)
    data = b""
    for number, name in enumerate((b"Good", topic, b"Good")):
        data += encode(len(data), b"body", topic=name, queue_offset=number // 2, properties=b"KEYS\1k0\2")
    segment.write_bytes(data.ljust(4096, b"\0"))
    (root / "abort").touch()
    return root


def places(root: Path) -> list[str]:
    """What lies around the store and what was made."""
    top = root.parents[3]
    return sorted(
        path.relative_to(top).as_posix()
        for path in top.rglob("*")
        if not path.is_relative_to(root) and not path.is_relative_to(root.parent / "out")
    )


WRITING = {
    "append": ["append", "STORE", "--from", "OUT/rows.jsonl"],
}
READING = {
    "rebuild": ["rebuild", "all", "STORE", "--output", "OUT/rebuilt"],
    "salvage": ["salvage", "STORE", "-o", "OUT/new"],
    "compact": ["salvage", "STORE", "-o", "OUT/new", "--compact", "--map", "OUT/map"],
    "replay": ["replay", "STORE", "--into", "OUT/new"],
    "export": ["export", "STORE", "--output", "OUT/lake", "--partition-by", "topic"],
    "backup": ["backup", "STORE", "-o", "OUT/backup"],
    "report": ["report", "STORE", "-o", "OUT/report.html"],
    "plan": ["plan", "rebuild", "all", "STORE", "-o", "OUT/plan.json"],
    "recover": ["plan", "recover", "STORE", "-o", "OUT/recover.json"],
    "explain-start": ["explain-start", "STORE", "--release", "5.5"],
    "explain-start 4.9": ["explain-start", "STORE", "--release", "4.9"],
    "verify": ["verify", "STORE"],
    "info": ["info", "STORE"],
    "dump": ["dump", "STORE"],
    "runbook": ["runbook", "run", "RB-03", "STORE"],
    "clean": ["clean", "STORE", "--dry-run"],
}
if importlib.util.find_spec("rocksdict") is not None:
    READING["convert"] = ["convert", "file-queues", "STORE", "-o", "OUT/new"]

NAMES = ("../../../evil", "/tmp/mqtool-evil/x", "..", "a/b", "Evil\0Topic", "x" * 300)
TABLES = {
    "topics.json": {"topicConfigTable": {name: {"topicName": name, "readQueueNums": 1} for name in NAMES}},
    "subscriptionGroup.json": {"subscriptionGroupTable": {name: {"groupName": name} for name in NAMES}},
    "consumerOffset.json": {"offsetTable": {f"{name}@{name}": {"0": 1} for name in NAMES}},
    "delayOffset.json": {"offsetTable": {"-1": 3, "99999": 3}},
    "topicQueueMapping.json": {"topicQueueMappingInfoMap": {name: {"topic": name} for name in NAMES}},
}
"""Tables of `config/` with names that lead elsewhere."""


def run(mqtool, root, words):
    """One run; the directory for what it makes is there."""
    out = root.parent / "out"
    out.mkdir(exist_ok=True)
    (out / "rows.jsonl").write_text('{"topic": "Good", "queue_id": 0, "body": "text"}\n')
    return mqtool(*(word.replace("STORE", str(root)).replace("OUT", str(out)) for word in words))


@pytest.mark.long
@pytest.mark.parametrize("words", WRITING.values(), ids=WRITING)
def test_what_writes_to_a_store_stays_below_its_root(mqtool, poisoned, words):
    before = places(poisoned)
    result = run(mqtool, poisoned, words)
    assert result.code in {0, 1}, result.stderr
    assert places(poisoned) == before
    assert sorted(path.name for path in (poisoned / "consumequeue").iterdir()) in (
        ["Good"],
        ["Good", "\ufffd\ufffd\ufffd"],
    )


@pytest.mark.long
def test_what_reads_a_store_stays_below_its_output(mqtool, poisoned):
    before, digest = places(poisoned), tree_digest(poisoned)
    for name, words in READING.items():
        result = run(mqtool, poisoned, words)
        assert result.code in {0, 1, 4}, (name, result.stderr)
        assert places(poisoned) == before, name
        for made in ("new", "map"):
            shutil.rmtree(poisoned.parent / "out" / made, ignore_errors=True)
            (poisoned.parent / "out" / made).unlink(missing_ok=True)
    assert tree_digest(poisoned) == digest


@pytest.fixture
def tables(tmp_path):
    """A store whose configuration names topics and groups that lead elsewhere."""
    given = tmp_path / "a" / "b" / "given"
    given.mkdir(parents=True)
    root = copy_store("metadata-5.5.0", given)
    for name, document in TABLES.items():
        for suffix in ("", ".bak"):
            (root / "config" / f"{name}{suffix}").write_text(json.dumps(document))
    (root / "abort").touch()
    return root


@pytest.mark.parametrize("words", [*WRITING.values(), *READING.values()], ids=[*WRITING, *READING])
def test_names_in_tables_make_no_path(mqtool, tables, words):
    before = places(tables)
    result = run(mqtool, tables, words)
    assert result.code in {0, 1, 4}, result.stderr
    assert places(tables) == before


def test_serve_with_names_in_tables_stays_below_its_root(tables):
    before = places(tables)
    with MqServer(tables) as server:
        assert server.namesrv
    assert places(tables) == before


def convert(mqtool, root, what):
    """Converts, and returns the result and the topics that have queues then."""
    out = root.parent / "out"
    result = mqtool("convert", what, root, "-o", out / "new")
    queues = out / "new" / "consumequeue"
    return result, sorted(path.name for path in queues.iterdir()) if queues.is_dir() else []


@pytest.mark.parametrize("name", [b"../../", b"/tmp/x", b"\0\0\0\0\0\0"], ids=["upwards", "absolute", "NUL"])
def test_converted_dledger_entries_make_queues_below_the_new_root(mqtool, tmp_path, name):
    given = tmp_path / "a" / "b" / "given"
    root = small_copy("dledger-5.5.0", given / "store")
    for path in (root / "dledger-n0" / "data").iterdir():
        path.write_bytes(path.read_bytes().replace(b"\x06Ledger", b"\x06" + name))
    before = places(root)
    result, topics = convert(mqtool, root, "dledger")
    assert result.code in {0, 1}, result.stderr
    assert places(root) == before
    assert topics == ["LedgerTwo", "SCHEDULE_TOPIC_XXXX"]


@pytest.mark.parametrize("name", [b"../../../evil", b"/tmp/mqtool-evil", b"..", b"a\0b"], ids=repr)
def test_converted_keys_of_rocksdb_make_queues_below_the_new_root(mqtool, tmp_path, name):
    rocksdict = pytest.importorskip("rocksdict")
    given = tmp_path / "a" / "b" / "given"
    given.mkdir(parents=True)
    root = copy_store("rocksdb-cq-5.5.0", given)
    path, options = str(root / "consumequeue"), rocksdict.Options(raw_mode=True)
    families = dict.fromkeys(rocksdict.Rdict.list_cf(path), options)
    database = rocksdict.Rdict(path, options, column_families=families)
    database.get_column_family("default")[unit_key(name, 0, 0)] = bytes(28)
    database.close()
    before = places(root)
    result, topics = convert(mqtool, root, "rocksdb-queues")
    assert result.code == 1, result.stderr
    assert "is not a valid directory name" in result.text + result.stderr
    assert places(root) == before
    assert topics
    assert not [topic for topic in topics if "evil" in topic]


def test_a_node_named_in_the_configuration_leads_nowhere_else(mqtool, tmp_path):
    root = small_copy("dledger-5.5.0", tmp_path / "store")
    (tmp_path / "broker.conf").write_text("enableDLegerCommitLog=true\ndLegerSelfId=/../../../etc\n")
    result = mqtool("explain-start", root, "--config", tmp_path / "broker.conf")
    assert result.code == 2
    assert "dLegerSelfId" in result.stderr


def test_serve_starts_and_stays_below_its_root(poisoned):
    before = places(poisoned)
    with MqServer(poisoned) as server:
        assert server.namesrv
    assert places(poisoned) == before
