"""Message chunks that are missing: every command that reads the messages says so, and ends with 1."""

import json
import shutil

import pytest

from mqtool.cli.app import run
from mqtool.siblings.base import Severity
from mqtool.siblings.equeue.store import EQueueStore
from mqtool.siblings.equeue.verify import verify
from tests.support.chunks import equeue_store

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
    assert (found.code, found.severity, found.path.name) == ("equeue-chunk-missing", Severity.ERROR, name)
    assert f"{count} queue entries" in found.detail


@pytest.mark.parametrize("command", [["verify", "--format", "json"], ["dump", "--format", "jsonl"]])
def test_the_exit_code_is_1(command, lost, capsys):
    root, name, _ = lost
    assert run([command[0], str(root), *command[1:]]) == 1
    printed = capsys.readouterr()
    assert name in printed.out + printed.err


def test_salvage_reports_the_chunk_as_damage(lost, tmp_path, capsys):
    root, name, _ = lost
    assert run(["salvage", str(root), str(tmp_path / "saved"), "--format", "jsonl"]) == 1
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
