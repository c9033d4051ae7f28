"""Salvaged and rebuilt queues of EQueue: a consumer gets every message that is left, once, and nothing else."""

import json
import os
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import replace

from mqtool.cli.app import run
from mqtool.errors import CorruptionError, StoreError
from mqtool.records.damage import Damage
from mqtool.siblings.equeue import chunk, rebuild, salvage, verify_queues
from mqtool.siblings.equeue import writer as appender
from mqtool.siblings.equeue.chunk import ChunkFile
from mqtool.siblings.equeue.listing import EQueueSettings
from mqtool.siblings.equeue.store import EQueueStore
from mqtool.siblings.equeue.verify import verify
from mqtool.siblings.equeue.writer import EQueueWriter
from mqtool.verify.findings import Severity

SETTINGS = EQueueSettings(message_chunk_size=1 << 16, queue_chunk_entries=1000)
SMALL_CHUNKS = EQueueSettings(message_chunk_size=4096, queue_chunk_entries=1000)


def chunk_path(root: Path, number: int = 0) -> Path:
    return root / "message-chunks" / f"message-chunk-{number:09}"


def written(root: Path, count: int, settings: EQueueSettings = SETTINGS, body: bytes = b"") -> list[int]:
    """Writes messages of one queue; returns their global positions."""
    with EQueueWriter(root, settings) as writer:
        return [writer.put("Orders", 0, b"%d " % number + body).position for number in range(count)]


def damage(root: Path, position: int) -> None:
    """Makes the length before a message of the first chunk longer than any record."""
    with chunk_path(root).open("r+b") as file:
        file.seek(128 + position + 3)
        file.write(b"\x7f")


def consumed(root: Path, topic: str = "Orders", batch: int = 32) -> list[int]:
    """Bodies that a consumer gets, as numbers.

    The rules are those of PullMessageRequestHandler.PullMessages and of PullMessageService, which continues after the
    queue offset that the last message states.
    """
    with EQueueStore(root) as store:
        (queue,) = (one for one in store.queues if one.topic == topic)
        entries = dict(store.entries(queue))
        at, bodies = min(entries), []
        while at <= max(entries):
            offset, found = at, []
            while offset <= max(entries) and len(found) < batch:
                with suppress(CorruptionError):  # ChunkReadException: the broker continues with the next entry
                    found.append(store.message_at(entries[offset].message_position).record)
                offset += 1
            if not found or len(bodies) > 10 * len(entries):
                break
            bodies += [int(record.body.split()[0]) for record in found]
            at = found[-1].queue_offset + 1
        return bodies


def findings(root: Path) -> list[tuple[str, Severity]]:
    with EQueueStore(root) as store:
        return [(one.code, one.severity) for one in verify(store)]


def test_a_consumer_of_a_salvaged_store_gets_every_message_but_the_damaged_one(tmp_path):
    positions = written(tmp_path / "store", 100)
    damage(tmp_path / "store", positions[5])
    salvage.salvage(tmp_path / "store", tmp_path / "new", SETTINGS)
    assert consumed(tmp_path / "new") == [number for number in range(100) if number != 5]
    assert findings(tmp_path / "new") == [("equeue-entry-filler", Severity.NOTE)]


def test_a_consumer_of_a_salvaged_store_whose_oldest_chunks_were_deleted_gets_all_that_is_left(tmp_path):
    written(tmp_path / "store", 100, SMALL_CHUNKS)
    for number in range(2):
        chunk_path(tmp_path / "store", number).unlink()
    with EQueueStore(tmp_path / "store") as store:
        left = [int(message.record.body) for message in store.messages()]
    salvage.salvage(tmp_path / "store", tmp_path / "new", SMALL_CHUNKS)
    assert 0 < len(left) < 50
    assert consumed(tmp_path / "new") == left
    assert findings(tmp_path / "new") == [("equeue-entry-filler", Severity.NOTE)]


@pytest.mark.parametrize("broken", [b"", b"{", None])
def test_consumed_offsets_are_copied_so_that_consumers_continue_where_they_were(broken, tmp_path):
    positions = written(tmp_path / "store", 10)
    damage(tmp_path / "store", positions[9])
    offsets = {"slow": {"Orders": {"0": 3, "1": 7}}, "fast": {"Orders": {"0": 9}, "Gone": {"0": 1}}}
    (tmp_path / "store/consume-offsets.json").write_bytes(json.dumps(offsets).encode() if broken is None else broken)
    (tmp_path / "store/consume-offsets-backup.json").write_text(json.dumps(offsets if broken is not None else {}))
    salvage.salvage(tmp_path / "store", tmp_path / "new", SETTINGS)
    for name in ("consume-offsets.json", "consume-offsets-backup.json"):
        found = json.loads((tmp_path / "new" / name).read_text())
        assert found == {"slow": {"Orders": {"0": 3}}, "fast": {"Orders": {"0": 8}, "Gone": {}}}
    assert findings(tmp_path / "new") == []


def test_a_salvaged_store_without_consumed_offsets_gets_none(tmp_path):
    written(tmp_path / "store", 2)
    salvage.salvage(tmp_path / "store", tmp_path / "new", SETTINGS)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["message-chunks", "queue-chunks"]


def test_messages_that_state_the_queue_offset_of_another_one_get_one_of_their_own(tmp_path):
    written(tmp_path / "once", 5)
    with EQueueStore(tmp_path / "once") as store, EQueueWriter(tmp_path / "twice", SETTINGS) as writer:
        for message in [*store.messages(), *store.messages()]:
            writer.append(message.record)
    assert ("equeue-entry-offset", Severity.ERROR) in findings(tmp_path / "twice")
    salvage.salvage(tmp_path / "twice", tmp_path / "new", SETTINGS)
    assert consumed(tmp_path / "new") == [*range(5), *range(5)]
    assert findings(tmp_path / "new") == []


def test_verify_reports_queues_in_which_a_consumer_would_skip_messages_and_a_salvage_repairs_them(tmp_path):
    written(tmp_path / "store", 100)
    with EQueueStore(tmp_path / "store") as store, EQueueWriter(tmp_path / "dense", SETTINGS) as writer:
        for message in store.messages():
            if message.record.queue_offset != 5:
                writer.append(message.record)  # its entry follows that of the message before
    assert len(consumed(tmp_path / "dense")) < 99
    assert findings(tmp_path / "dense") == [("equeue-entry-offset", Severity.ERROR)]
    salvage.salvage(tmp_path / "dense", tmp_path / "new", SETTINGS)
    assert len(consumed(tmp_path / "new")) == 99


@pytest.mark.parametrize("size", [0, 300, 5000])
def test_a_lost_message_is_replaced_by_no_message_of_another_queue(size, tmp_path):
    root = tmp_path / "store"
    with EQueueWriter(root, SETTINGS) as writer:
        writer.put("Orders", 0, b"0 " + bytes(size))
        lost = writer.put("Pay", 0, b"0").position
        writer.put("Pay", 0, b"1")
        writer.put("Orders", 0, b"1")
    damage(root, lost)
    for queue in root.glob("queue-chunks/*/*/queue-chunk-*"):
        queue.unlink()
    with EQueueStore(root) as store:
        rebuild.write_queues(store, tmp_path / "new", SETTINGS)
    chunk_path(tmp_path / "new").parent.mkdir()
    chunk_path(root).rename(chunk_path(tmp_path / "new"))
    assert consumed(tmp_path / "new", "Pay") == [1]
    assert consumed(tmp_path / "new", "Orders") == [0, 1]
    codes = [code for code, _ in findings(tmp_path / "new")]
    assert codes == ["equeue-frames", "equeue-entry-filler"]


@pytest.mark.parametrize("lost", [(2,), (0, 1, 2)], ids=["the last message", "every message"])
def test_a_rebuilt_queue_ends_where_it_ended_although_its_last_messages_are_lost(lost, tmp_path, capsys):
    root, positions = tmp_path / "store", []
    with EQueueWriter(root, SETTINGS) as writer:
        positions = [writer.put("Pay", 0, b"%d" % number).position for number in range(3)]
        writer.put("Orders", 0, b"0")
    for number in lost:
        damage(root, positions[number])
    assert run(["rebuild", "consumequeue", str(root), "-o", str(tmp_path / "new"), "--format", "jsonl"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["queue"]: row["filled"] for row in rows} == {"Orders/0": 0, "Pay/0": len(lost)}
    chunk_path(tmp_path / "new").parent.mkdir()
    chunk_path(root).rename(chunk_path(tmp_path / "new"))
    with EQueueWriter(tmp_path / "new", SETTINGS) as writer:
        assert writer.next_offset("Pay", 0) == 3
    assert consumed(tmp_path / "new", "Pay") == [number for number in range(3) if number not in lost]


def test_a_rebuild_on_a_damaged_log_says_that_messages_may_be_missing(tmp_path, capsys):
    root = tmp_path / "store"
    damage(root, written(root, 3)[1])
    for queue in root.glob("queue-chunks/*/*/queue-chunk-*"):
        queue.unlink()
    assert run(["rebuild", "consumequeue", str(root), "-o", str(tmp_path / "new")]) == 1
    assert "damage: " in capsys.readouterr().err


def test_chunks_are_durable_after_a_flush_also_those_that_were_completed_before(tmp_path, monkeypatch):
    unsynced: set[Path] = set()
    write_all, fsync = appender.write_all, os.fsync

    def opened(descriptor: int) -> Path:
        return Path(f"/proc/self/fd/{descriptor}").readlink()

    def writes(descriptor: int, data: bytes, position: int) -> None:
        unsynced.add(opened(descriptor))
        write_all(descriptor, data, position)

    def syncs(descriptor: int) -> None:
        unsynced.discard(opened(descriptor))
        fsync(descriptor)

    monkeypatch.setattr(appender, "write_all", writes)
    monkeypatch.setattr(appender.os, "fsync", syncs)
    with EQueueWriter(tmp_path / "store", EQueueSettings(message_chunk_size=4096, queue_chunk_entries=8)) as writer:
        for number in range(60):
            writer.put("Orders", 0, b"%100d" % number)
        assert unsynced
        writer.flush()
        assert not unsynced
    assert len(list((tmp_path / "store/message-chunks").iterdir())) > 2


def test_a_queue_offset_for_which_no_chunk_can_exist_is_replaced(tmp_path):
    written(tmp_path / "store", 1)
    with EQueueStore(tmp_path / "store") as store, EQueueWriter(tmp_path / "far", SETTINGS) as writer:
        (message,) = store.messages()
        writer.append(replace(message.record, queue_offset=1 << 60))
    with EQueueStore(tmp_path / "far") as store:
        (queue,) = store.queues
        for path in queue.chunks:
            path.unlink()
    with EQueueStore(tmp_path / "far") as store:
        (plan,) = rebuild.write_queues(store, tmp_path / "rebuilt", SETTINGS)
    assert list(plan.entries) == [0]
    salvage.salvage(tmp_path / "far", tmp_path / "new", SETTINGS)
    assert consumed(tmp_path / "new") == [0]
    assert findings(tmp_path / "new") == []


def salvaged(root: Path, target: Path, capsys) -> tuple[int, dict[str, dict[str, int]]]:
    """Runs the command; returns its exit code, and its rows by file."""
    code = run(["salvage", str(root), "-o", str(target), "--format", "jsonl"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return code, {row["file"]: row for row in rows}


def overwrite(path: Path, start: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(data)


ZEROS, NEGATIVE, NUMBER_OF_ANOTHER = bytes(8), b"\xff" * 8, b"\0\0\0\0\0\x10\0\0"


@pytest.mark.parametrize(
    ("number", "header"),
    [
        *((number, header) for number in range(3) for header in (ZEROS, NEGATIVE)),
        (1, NUMBER_OF_ANOTHER),
        (2, NUMBER_OF_ANOTHER),
    ],
)
def test_a_chunk_with_a_damaged_header_is_read_at_the_place_that_its_records_state(number, header, tmp_path, capsys):
    written(tmp_path / "store", 100, SMALL_CHUNKS)
    overwrite(chunk_path(tmp_path / "store", number), 0, header)
    assert "equeue-entry-nowhere" not in [code for code, _ in findings(tmp_path / "store")]  # no advice to rebuild
    code, rows = salvaged(tmp_path / "store", tmp_path / "new", capsys)
    assert consumed(tmp_path / "new") == list(range(100))
    assert (code, [row["damaged_bytes"] for row in rows.values()]) == (0, [0] * len(rows))
    assert rows[chunk_path(tmp_path, number).name]["forwards"] > 0


def test_the_only_chunk_is_read_although_its_header_is_zeros(tmp_path, capsys):
    written(tmp_path / "store", 10)
    overwrite(chunk_path(tmp_path / "store"), 0, bytes(8))
    assert salvaged(tmp_path / "store", tmp_path / "new", capsys)[0] == 0
    assert consumed(tmp_path / "new") == list(range(10))


@pytest.mark.parametrize("size", [0, 100])
def test_a_chunk_that_is_too_short_for_a_header_counts_as_lost(size, tmp_path, capsys):
    written(tmp_path / "store", 100, SMALL_CHUNKS)
    path = chunk_path(tmp_path / "store", 1)
    path.write_bytes(path.read_bytes()[:size])
    code, rows = salvaged(tmp_path / "store", tmp_path / "new", capsys)
    assert (code, rows[path.name]["damaged_bytes"]) == (1, 4096)
    with EQueueStore(tmp_path / "store") as store:
        left = [int(one.record.body) for one in store.messages() if not isinstance(one, Damage)]
    assert consumed(tmp_path / "new") == left


@pytest.mark.parametrize("number", [0, 1])
def test_of_two_files_with_one_number_the_one_with_the_brokers_name_is_read(number, tmp_path, capsys):
    written(tmp_path / "store", 100, SMALL_CHUNKS)
    path = chunk_path(tmp_path / "store", number)
    copy = path.with_name(path.name + ".bak")
    copy.write_bytes(path.read_bytes())
    code, rows = salvaged(tmp_path / "store", tmp_path / "new", capsys)
    assert consumed(tmp_path / "new") == list(range(100))
    assert (code, rows[copy.name]["damaged_bytes"]) == (0, 0)
    with EQueueStore(tmp_path / "store") as store:
        items = list(store.messages())
        found = [one for one in verify(store) if one.code == "equeue-chunk-number"]
    assert [one.record.queue_offset for one in items if not isinstance(one, Damage)] == list(range(100))
    assert [one.file_name for one in items if isinstance(one, Damage)] == [copy.name]
    assert [Path(one.file).name for one in found] == [copy.name]
    overwrite(copy, 1000, b"changed")
    code, rows = salvaged(tmp_path / "store", tmp_path / "again", capsys)
    assert (code, rows[copy.name]["damaged_bytes"]) == (1, copy.stat().st_size)


def test_entries_of_two_files_with_one_number_are_read_once(tmp_path):
    written(tmp_path / "store", 5)
    (path,) = (tmp_path / "store").glob("queue-chunks/*/*/queue-chunk-*")
    path.with_name(path.name + "-old").write_bytes(path.read_bytes())
    with EQueueStore(tmp_path / "store") as store:
        assert [number for number, _ in store.entries(store.queues[0])] == list(range(5))


def read_damage(root: Path) -> list[tuple[int, int, str]]:
    with EQueueStore(root) as store:
        return [(one.start, one.end, one.kind) for one in store.messages() if isinstance(one, Damage)]


@pytest.mark.parametrize("torn", [0, 1])
def test_what_a_completed_chunk_lost_with_its_footer_is_damage(tmp_path, torn):
    positions = written(tmp_path / "store", 100, SMALL_CHUNKS)
    os.truncate(chunk_path(tmp_path / "store"), 128 + positions[5] + torn)
    assert read_damage(tmp_path / "store") == [(positions[5], 4096, "no-footer")]
    salvaged = salvage.salvage(tmp_path / "store", tmp_path / "new", SMALL_CHUNKS)
    assert [(one.start, one.end) for one in salvaged[0].damage] == [(positions[5], 4096)]
    assert not any(report.damage for report in salvaged[1:])


def test_a_completed_chunk_in_which_only_the_footer_is_damaged_has_lost_no_message(tmp_path):
    written(tmp_path / "store", 100, SMALL_CHUNKS)
    with chunk_path(tmp_path / "store").open("r+b") as file:
        file.seek(-128, 2)
        file.write(bytes(128))
    assert read_damage(tmp_path / "store") == []
    assert not any(report.damage for report in salvage.salvage(tmp_path / "store", tmp_path / "new", SMALL_CHUNKS))


def test_records_after_two_damaged_ones_are_found_though_the_second_states_its_place(tmp_path):
    positions = written(tmp_path / "store", 20)
    damage(tmp_path / "store", positions[5])
    damage(tmp_path / "store", positions[6])
    with EQueueStore(tmp_path / "store") as store:
        items = list(store.messages())
    assert [one.record.queue_offset for one in items if not isinstance(one, Damage)] == [*range(5), *range(7, 20)]


@pytest.mark.parametrize("stated", [None, 4096 + 7], ids=["no record", "inside of a chunk"])
def test_a_chunk_without_a_header_and_a_place_has_that_of_its_name(stated, tmp_path):
    written(tmp_path / "store", 100, SMALL_CHUNKS)
    path = chunk_path(tmp_path / "store", 1)
    overwrite(path, 0, ZEROS)
    if stated is None:
        overwrite(path, 128, bytes(4))
    else:
        overwrite(path, 128 + ChunkFile.position_field, stated.to_bytes(8, "little"))
    with EQueueStore(tmp_path / "store") as store:
        reports = salvage.scan(store)
        rows = {report.chunk.path.name: report for report in reports}
        assert rows[path.name].chunk.header.chunk_number == 1
        assert rows[path.name].records
        assert bool(rows[path.name].damage) == (stated is None)


def test_a_queue_chunk_without_a_header_is_not_scanned_for_messages(tmp_path):
    written(tmp_path / "store", 10)
    (path,) = (tmp_path / "store").glob("queue-chunks/*/*/queue-chunk-*")
    overwrite(path, 0, ZEROS)
    with EQueueStore(tmp_path / "store") as store:
        assert dict(store.entries(store.queues[0])) == {}
        assert path in store.unread
        assert [report.chunk.path for report in salvage.scan(store)] == [chunk_path(tmp_path / "store")]


def test_a_message_that_cannot_be_read_a_second_time_is_left_out(tmp_path, monkeypatch):
    """A failing disk gave it once; the damage is then larger."""
    positions = written(tmp_path / "store", 20)
    damage(tmp_path / "store", positions[3])
    overwrite(chunk_path(tmp_path / "store"), positions[-1] + 128 - 4, b"\x7f\x7f\x7f\x7f")
    real, asked = EQueueStore.read, []

    def once(self, chunk, at):
        asked.append(at)
        return real(self, chunk, positions[3] if at == positions[10] and asked.count(at) > 1 else at)

    with EQueueStore(tmp_path / "store") as store:
        (whole,) = salvage.scan(store)
        asked.clear()
        monkeypatch.setattr(EQueueStore, "read", once)
        (found,) = salvage.scan(store)
    lost = {one.frame.start for one in whole.records} - {one.frame.start for one in found.records}
    assert lost <= {positions[10]}


def test_queues_of_a_topic_that_can_be_no_folder_are_not_written(tmp_path):
    written(tmp_path / "store", 3)
    path = chunk_path(tmp_path / "store")
    path.write_bytes(path.read_bytes().replace(b"Orders", b"../../"))
    words = r"a message states topic '../../', which is not a valid directory name"
    with EQueueStore(tmp_path / "store") as store, pytest.raises(StoreError, match=words):
        rebuild.write_queues(store, tmp_path / "new", SETTINGS)
    assert not (tmp_path / "new").exists()


def test_a_queue_without_messages_is_not_written(tmp_path):
    written(tmp_path / "store", 3)
    (tmp_path / "store/queue-chunks/Empty/0").mkdir(parents=True)
    with EQueueStore(tmp_path / "store") as store:
        plans = rebuild.write_queues(store, tmp_path / "new", SETTINGS)
    assert {plan.topic: len(plan.entries) for plan in plans} == {"Empty": 0, "Orders": 3}
    assert [path.name for path in (tmp_path / "new/queue-chunks").iterdir()] == ["Orders"]


def test_an_entry_far_from_all_others_is_not_kept(tmp_path):
    positions = written(tmp_path / "store", 3)
    with EQueueStore(tmp_path / "store") as store:
        (queue,) = store.queues
        entries = dict(store.entries(queue))
    logged = [
        rebuild._LoggedMessage(position, entries[number].tag_code, number) for number, position in enumerate(positions)
    ]
    far = {**entries, 1 << 40: entries[1]}
    plan = rebuild._plan(("Orders", 0), logged, far, 0, rebuild.offset_limit(SETTINGS))
    assert (sorted(plan.entries), plan.kept, plan.placed) == ([0, 1, 2], 3, 0)


def test_entries_that_lead_to_the_same_nothing_are_not_reported_as_a_message_with_several(tmp_path):
    written(tmp_path / "store", 10)
    (path,) = (tmp_path / "store").glob("queue-chunks/*/*/queue-chunk-*")
    data = path.read_bytes()
    for number in (4, 5):
        overwrite(path, 128 + 12 * number, (77).to_bytes(8, "little"))
    codes = [code for code, _ in findings(tmp_path / "store")]
    assert (codes.count("equeue-entry-nowhere"), "equeue-entry-twice" in codes) == (2, False)
    path.write_bytes(data)
    overwrite(path, 128 + 12 * 4, data[128 + 12 * 5 : 128 + 12 * 5 + 8])
    assert "equeue-entry-twice" in [code for code, _ in findings(tmp_path / "store")]


def test_an_entry_that_no_chunk_holds_is_reported_for_its_folder(tmp_path):
    written(tmp_path / "store", 3)
    with EQueueStore(tmp_path / "store") as store:
        (queue,) = store.queues
        assert verify_queues._file_of(store, queue, 2)[1] == 128 + 24
        assert verify_queues._file_of(store, queue, 1 << 40) == (queue.directory, None)


def test_message_ids_are_compared_where_there_are_any():
    none = np.empty(0, np.int64)
    run = SimpleNamespace(data=np.zeros(3, np.uint8))
    fields = SimpleNamespace(starts={"message_id": none}, lengths={"message_id": none})
    assert chunk.stated_in_ids(SimpleNamespace(fields=fields, run=run)).tolist() == []
    assert not chunk.begins_an_id(b"no address")
    assert chunk.begins_an_id(b"7F0000010000138800000000"[:16])
