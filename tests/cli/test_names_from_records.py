"""Topics in records that lead elsewhere: no command makes a file outside of what it was given, and none ends with a bug."""

import shutil
from pathlib import Path

import pytest

from mqtool.engine import open_store
from mqtool.server.testing import MqServer
from tests.support.builder import encode
from tests.support.engine import small_options
from tests.support.stores import tree_digest

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
    "recover": ["recover", "STORE"],
    "recover careful": ["recover", "STORE", "--mode", "careful"],
    "append": ["append", "STORE", "--from", "OUT/rows.jsonl"],
}
READING = {
    "rebuild": ["rebuild", "all", "STORE", "--out", "OUT/rebuilt"],
    "salvage": ["salvage", "STORE", "OUT/new"],
    "compact": ["salvage", "STORE", "OUT/new", "--compact", "--map", "OUT/map"],
    "replay": ["replay", "STORE", "--to", "OUT/new"],
    "export": ["export", "STORE", "--to", "OUT/lake", "--partition-by", "topic"],
    "backup": ["backup", "STORE", "OUT/backup"],
    "report": ["report", "STORE", "-o", "OUT/report.html"],
    "plan": ["plan", "rebuild", "all", "STORE", "-o", "OUT/plan.json"],
    "explain-start": ["explain-start", "STORE", "--broker", "5.5"],
    "explain-start 4.9": ["explain-start", "STORE", "--broker", "4.9"],
    "verify": ["verify", "STORE"],
    "info": ["info", "STORE"],
    "dump": ["dump", "STORE"],
}


def run(mqtool, root, words):
    """One run; the directory for what it makes is there."""
    out = root.parent / "out"
    out.mkdir(exist_ok=True)
    (out / "rows.jsonl").write_text('{"topic": "Good", "queue_id": 0, "body": "text"}\n')
    return mqtool(*(word.replace("STORE", str(root)).replace("OUT", str(out)) for word in words))


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


def test_serve_starts_and_stays_below_its_root(poisoned):
    before = places(poisoned)
    with MqServer(poisoned) as server:
        assert server.namesrv
    assert places(poisoned) == before
