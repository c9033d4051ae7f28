"""Message chunks that are missing: every command that reads the messages says so, and ends with 1."""

import json
import shutil
from pathlib import Path

import pytest

from mqtool.cli.app import run
from mqtool.siblings.arrow import batches
from mqtool.siblings.equeue.store import EQueueStore
from mqtool.siblings.equeue.verify import verify
from mqtool.siblings.registry import recognise
from mqtool.siblings.tfchunk.store import TFChunkDb
from mqtool.siblings.tfchunk.verify import verify as verify_tfchunk
from mqtool.verify.findings import Severity
from tests.support.chunks import equeue_store, tfchunk_store

NEWEST = {"equeue-small": 2, "equeue-broker": 3}
CASES = [(name, number) for name, newest in NEWEST.items() for number in (1, newest)]


def chunk_of(root, number):
    return root / "message-chunks" / f"message-chunk-{number:09d}"


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def lost(request, tmp_path):
    """A store without one chunk, the chunk's name, and how many messages were in it."""
    name, number = request.param
    root = tmp_path / "store"
    shutil.copytree(equeue_store(name), root)
    with EQueueStore(root) as store:
        count = sum(1 for _ in store.messages(chunk_of(root, number).name))
    chunk_of(root, number).unlink()
    return root, chunk_of(root, number).name, count


def test_verify_has_one_error_that_counts_the_entries(lost):
    root, name, count = lost
    with EQueueStore(root) as store:
        (found,) = verify(store)
    assert (found.code, found.severity, Path(found.file).name) == ("equeue-chunk-missing", Severity.ERROR, name)
    assert f"{count} queue entries" in found.evidence


@pytest.mark.parametrize("command", [["verify", "--format", "json"], ["dump", "--format", "jsonl"]])
def test_the_exit_code_is_1(command, lost, capsys):
    root, name, _ = lost
    assert run([command[0], str(root), *command[1:]]) == 1
    printed = capsys.readouterr()
    assert name in printed.out + printed.err


def test_salvage_reports_the_chunk_as_damage(lost, tmp_path, capsys):
    root, name, _ = lost
    assert run(["salvage", str(root), "-o", str(tmp_path / "saved"), "--format", "jsonl"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["file"] for row in rows if row["damaged_bytes"]] == [name]


def test_the_oldest_chunks_may_be_deleted_and_a_garbled_entry_proves_no_chunk(tmp_path):
    root = tmp_path / "store"
    shutil.copytree(equeue_store("equeue-small"), root)
    chunk_of(root, 0).unlink()
    queue = root / "queue-chunks/orders/0/queue-chunk-000000002"
    with queue.open("r+b") as file:
        file.seek(128)
        file.write((1 << 50).to_bytes(8, "little"))
    with EQueueStore(root) as store:
        assert store.missing_chunks() == []
        assert "equeue-entry-ahead" in {one.code for one in verify(store)}


def test_a_start_does_not_count_as_harmless(lost, capsys):
    root, name, count = lost
    assert run(["explain-start", str(root), "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["starts"], found["harmless"], found["missing"]) == (True, False, [name])
    assert f"the messages of {name} are lost" in found["verdict"]
    assert len(found["unserved"]) == count


def test_a_reading_of_each_chunk_by_itself_has_the_damage_too(lost):
    check_parts(lost[0], "message", lost[1])


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_database_of_eventstore_is_read_with_the_damage(number, tmp_path, capsys):
    root = tmp_path / "store"
    shutil.copytree(tfchunk_store("plain"), root)
    name = f"chunk-{number:06d}.000000"
    (root / name).unlink()
    check_parts(root, "record", name)
    assert run(["dump", str(root), "--format", "jsonl"]) == 1
    assert name in capsys.readouterr().err
    assert run(["explain-start", str(root)]) == 4
    with TFChunkDb(root) as database:
        found = [one for one in verify_tfchunk(database) if one.code == "tfchunk-chunk-missing"]
    assert [(one.severity, Path(one.file).name) for one in found] == [(Severity.ERROR, name)]


def check_parts(root, table, name):
    whole, parts = [], []
    with recognise(root).open(root) as opened:
        chosen = next(one.name for one in opened.tables if table in one.name)
        rows = sum(batch.num_rows for batch in batches(opened, chosen, whole.append))
        each = [
            sum(batch.num_rows for batch in batches(opened, chosen, parts.append, part=part))
            for part in opened.parts(chosen)
        ]
    assert sum(each) == rows > 0
    assert parts == whole
    assert [(one.kind, one.path.name) for one in whole] == [("missing-chunk", name)]
