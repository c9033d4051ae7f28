"""A bad sector in a queue chunk of EQueue: everything else is read, and what the sector held is unknown."""

import json

import pyarrow.parquet as pq
import pytest

from mqtool.cli.app import run
from mqtool.cli.exits import ExitCode
from mqtool.errors import UnreadableError
from mqtool.records.damage import Damage
from mqtool.siblings.equeue.explain import explain
from mqtool.siblings.equeue.kind import OpenedEQueue
from mqtool.siblings.equeue.listing import EQueueSettings
from mqtool.siblings.equeue.store import EQueueStore
from mqtool.siblings.equeue.writer import EQueueWriter
from mqtool.verify.findings import Severity
from tests.support.unreadable import unreadable

LOST = range(330, 672)
"""Entries of 12 bytes with a byte in the second page of a file, after a header of 128 bytes."""


def written(root, entries, count):
    """Writes a store of one queue with chunks of so many entries."""
    with EQueueWriter(root, EQueueSettings(message_chunk_size=1 << 20, queue_chunk_entries=entries)) as writer:
        for number in range(count):
            writer.put("Orders", 0, b"%d" % number)
    return root


@pytest.fixture(params=[(700, 800), (1000, 800), (1000, 400)], ids=["completed", "current", "end"])
def bad(request, tmp_path, monkeypatch):
    """A store of one queue with a bad sector in its first chunk, and the number of its messages."""
    entries, count = request.param
    root = written(tmp_path / "store", entries, count)
    with unreadable(monkeypatch, chunk_of(root), from_position=5000, until=5512):
        yield root, count


def chunk_of(root):
    return root / "queue-chunks/Orders/0/queue-chunk-000000000"


def readable(count):
    return [number for number in range(count) if number not in LOST]


def test_entries_around_it_are_dumped_and_exported(bad, capsys, tmp_path):
    root, count = bad
    assert run(["dump", str(root), "--table", "equeue-entry", "--format", "jsonl"]) == ExitCode.NO
    dumped = capsys.readouterr()
    assert [json.loads(line)["queue_offset"] for line in dumped.out.splitlines()] == readable(count)
    assert f"{chunk_of(root)} position {128 + 12 * 330}: unreadable at physical offset {12 * 330}" in dumped.err
    assert dumped.err.count("Input/output error") == 1
    assert run(["export", str(root), "-o", str(tmp_path / "lake"), "--format", "jsonl"]) == ExitCode.NO
    rows = {row["table"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert (rows["equeue-entry"]["damage"], rows["equeue-message"]["damage"]) == (1, 0)
    assert rows["equeue-message"]["rows"] == count
    table = pq.read_table(tmp_path / "lake/equeue-entry.parquet")
    assert table["queue_offset"].to_pylist() == readable(count)


def test_verify_says_unknown_and_no_error(bad):
    root, count = bad
    with OpenedEQueue(root) as opened:
        found = list(opened.verify())
    assert {one.severity for one in found} == {Severity.UNKNOWN}
    places = [(one.file, one.position) for one in found if one.code == "equeue-unreadable"]
    assert (str(chunk_of(root)), 128 + 12 * 330) in places
    (missing,) = (one.evidence for one in found if one.code == "equeue-entry-missing")
    lost = len([number for number in LOST if number < count])
    assert missing == f"{lost} message(s) of Orders/0 have no entry in the part of the queue that can be read"


def test_more_messages_without_an_entry_than_it_held_are_an_error(tmp_path, monkeypatch):
    root = written(tmp_path / "store", 1000, 800)
    with chunk_of(root).open("r+b") as file:
        file.seek(128)
        file.write(file.read(12) * 200)  # those after the first one, too, lead to the first message
    with unreadable(monkeypatch, chunk_of(root), from_position=5000, until=5512), OpenedEQueue(root) as opened:
        (found,) = (one for one in opened.verify() if one.code == "equeue-entry-missing")
    assert (found.severity, found.evidence) == (
        Severity.ERROR,
        "at least 200 message(s) of Orders/0 have no entry: consumers do not get them",
    )


def test_all_messages_are_salvaged(bad, capsys, tmp_path):
    root, count = bad
    assert run(["salvage", str(root), "-o", str(tmp_path / "saved"), "--format", "jsonl"]) == ExitCode.OK
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(row["forwards"] for row in rows) == count
    with EQueueStore(tmp_path / "saved") as store:
        assert [number for number, _ in store.entries(store.queues[0])] == list(range(count))


def test_rebuilt_entries_are_those_of_the_log_and_it_is_said_that_some_were_not_read(bad, capsys, tmp_path):
    root, count = bad
    assert run(["rebuild", "consumequeue", str(root), "-o", str(tmp_path / "new"), "--format", "jsonl"]) == ExitCode.NO
    captured = capsys.readouterr()
    (row,) = map(json.loads, captured.out.splitlines())
    assert (row["kept"], row["placed"], row["filled"]) == (len(readable(count)), count - len(readable(count)), 0)
    assert "Input/output error" in captured.err


def test_an_entry_in_it_is_unknown_and_not_missing(bad):
    root, count = bad
    with OpenedEQueue(root) as opened:
        for offset in readable(count)[::50]:
            assert [row["queue_offset"] for row in opened.get(f"Orders/0@{offset}")] == [offset]
        for offset in (LOST[0], LOST[-1]):
            with pytest.raises(UnreadableError, match="Input/output error"):
                opened.get(f"Orders/0@{offset}")
        assert opened.get("Orders/0@5000") == []


def test_a_bad_sector_after_the_end_of_a_queue_is_of_no_matter(tmp_path, monkeypatch):
    root = written(tmp_path / "store", 1000, 20)
    with unreadable(monkeypatch, chunk_of(root), from_position=5000, until=5512), OpenedEQueue(root) as opened:
        assert [row["queue_offset"] for row in opened.rows("equeue-entry")] == list(range(20))
        assert "equeue-entry-missing" not in {one.code for one in opened.verify()}


def test_messages_of_a_queue_chunk_that_may_not_be_read_are_not_called_without_an_entry(bad, monkeypatch):
    root, _ = bad
    with unreadable(monkeypatch, chunk_of(root)), OpenedEQueue(root) as opened:
        found = [one for one in opened.verify() if one.code == "equeue-entry-missing"]
    assert [one.severity for one in found] == [Severity.UNKNOWN]


def test_a_bad_sector_near_the_end_of_a_full_chunk_is_one_damage(tmp_path, monkeypatch):
    root = written(tmp_path / "store", 1000, 1100)
    with unreadable(monkeypatch, chunk_of(root), from_position=11000, until=11512), OpenedEQueue(root) as opened:
        found = [one for one in opened.rows("equeue-entry") if isinstance(one, Damage)]
    assert [(one.start, one.end) for one in found] == [(672 * 12, 1000 * 12)]


def test_a_message_chunk_with_a_bad_sector_is_salvaged_without_its_header_too(tmp_path, monkeypatch):
    root = written(tmp_path / "store", 1000, 400)
    path = root / "message-chunks/message-chunk-000000000"
    with path.open("r+b") as file:
        file.write(bytes(8))
    with unreadable(monkeypatch, path, from_position=5000, until=5512), OpenedEQueue(root) as opened:
        (row,) = opened.salvage(None)
    assert 300 < row["forwards"] + row["backwards"] + row["between"] < 400
    assert row["damaged_bytes"] >= 4096


def test_an_entry_in_a_queue_chunk_that_may_not_be_read_is_unknown_and_not_missing(tmp_path, monkeypatch):
    root = written(tmp_path / "store", 10, 25)
    path = chunk_of(root).with_name("queue-chunk-000000001")
    with unreadable(monkeypatch, path), OpenedEQueue(root) as opened:
        for offset in (10, 19):
            with pytest.raises(UnreadableError, match="Permission denied"):
                opened.get(f"Orders/0@{offset}")
        assert [len(opened.get(f"Orders/0@{offset}")) for offset in (9, 20, 24, 25, 30)] == [1, 1, 1, 0, 0]


@pytest.mark.parametrize(("position", "starts"), [(5000, None), (128, None), (200_000, True)])
def test_a_start_is_unknown_if_a_bad_sector_hides_where_messages_end(position, starts, tmp_path, monkeypatch, capsys):
    root = written(tmp_path / "store", 1000, 400)
    path = root / "message-chunks/message-chunk-000000000"
    with unreadable(monkeypatch, path, from_position=position, until=position + 512):
        code = run(["explain-start", str(root), "--format", "json"])
    document = json.loads(capsys.readouterr().out)
    assert (document["starts"], document["harmless"]) == (starts, starts is True)
    assert code == (ExitCode.OK if starts else ExitCode.NO)
    if starts is None:
        assert document["unknown"] == [document["verdict"].removeprefix("unknown: ")]
        assert document["verdict"].startswith(f"unknown: {path}: cannot be read at position ")


def test_a_start_is_predicted_and_what_cannot_be_read_of_completed_chunks_is_named(tmp_path, monkeypatch, capsys):
    root = tmp_path / "store"
    with EQueueWriter(root, EQueueSettings(message_chunk_size=1 << 16, queue_chunk_entries=700)) as writer:
        for number in range(800):
            writer.put("Orders", 0, b"%d" % number)
    with EQueueStore(root) as store:
        assert store.tail is None
        end = [*store.messages()][-1].frame.end + store.chunks[-1].start
    path = root / "message-chunks/message-chunk-000000000"
    for bad, words in ((path, "unreadable at physical offset"), (chunk_of(root), "342 entries of queue Orders/0")):
        with unreadable(monkeypatch, bad, from_position=5000, until=5512):
            assert run(["explain-start", str(root), "--format", "json"]) == ExitCode.NO
        document = json.loads(capsys.readouterr().out)
        assert (document["starts"], document["harmless"], document["write_position"]) == (True, False, end)
        assert words in document["unknown"][0]
        assert "nothing is lost" not in document["verdict"]
        assert "Input/output error" in document["verdict"]
        unserved = document["unserved"]
        assert all(one["is_unknown"] for one in unserved)
        assert [one["queue_offset"] for one in unserved] == [
            *range(unserved[0]["queue_offset"], unserved[-1]["queue_offset"] + 1)
        ]


def test_a_start_is_unknown_if_a_bad_sector_hides_where_a_queue_ends(tmp_path, monkeypatch):
    root = written(tmp_path / "store", 1000, 400)
    with unreadable(monkeypatch, chunk_of(root), from_position=5000 - 4096, until=1400):
        found = explain(root)
    assert (found.starts, found.is_harmless) == (None, False)
    assert str(chunk_of(root)) in found.verdict
