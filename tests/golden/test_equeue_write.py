"""The engine writes what the real broker wrote; queues are made anew; damaged chunks are salvaged."""

import hashlib
import shutil

import pytest
from msgspec.structs import replace

from mqtool.errors import MessageRejectedError, StoreError
from mqtool.formats import equeue
from mqtool.siblings.equeue import explain, rebuild, salvage
from mqtool.siblings.equeue.listing import settings_of
from mqtool.siblings.equeue.start import start
from mqtool.siblings.equeue.store import EQueueStore, StoredMessage
from mqtool.siblings.equeue.writer import EQueueWriter
from tests.golden.test_equeue_start import settings_for, shape_of
from tests.support.chunks import EQUEUE_CASES, EQUEUE_STORES, answer, case, damaged, equeue_store, lines
from tests.support.stores import copy_tree, fixture, tree_digest

OPENED = [case_id for case_id in EQUEUE_CASES if answer(case_id)["open"] == "ok" and answer(case_id)["append"]]
IN_LOG_ORDER = [name for name in EQUEUE_STORES if name not in ("equeue-deleted", "equeue-mixed-batch", "equeue-torn")]
OFFSETS = ("consume-offsets.json", "consume-offsets-backup.json")
SAMPLE = next(EQueueStore(equeue_store("equeue-small")).messages())


def messages(root):
    with EQueueStore(root) as store:
        return [item for item in store.messages() if isinstance(item, StoredMessage)]


def chunk_files(root, below=""):
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in (root / below).rglob("*-chunk-*")}


def without_queues(root):
    """Opens a store after its queues were deleted."""
    shutil.rmtree(root / "queue-chunks")
    return EQueueStore(root)


def replay(name, target):
    """Writes a store again: its records as they are, then its entries in the order that the broker's threads chose."""
    root = equeue_store(name)
    with EQueueWriter(target, settings_of(root), shape_of(name)) as writer:
        numbers = [path.name[-9:] for path in (root / "message-chunks").iterdir()]
        if int(min(numbers)):
            writer._messages.begin(int(min(numbers)))  # as retention leaves it
        for message in messages(root):
            writer.append(message.record, entry=False)
        for queue in (root / "queue-chunks").glob("*/*"):
            first = int(min(path.name[-9:] for path in queue.glob("queue-chunk-*")))
            if first:
                writer._queue(queue.parent.name, int(queue.name)).begin(first)
        for line in lines(name, "queue-entries"):
            writer.append_entry(line["topic"], line["queueId"], line["messagePosition"], line["tagCode"])


@pytest.mark.parametrize("name", EQUEUE_STORES)
def test_replaying_a_store_with_its_own_clock_gives_its_files_byte_for_byte(name, tmp_path):
    replay(name, tmp_path / "new")
    written, real = chunk_files(tmp_path / "new"), chunk_files(equeue_store(name))
    if name == "equeue-torn":  # the first bytes of a record that was never finished lie behind its data end
        torn = real["message-chunks/message-chunk-000000001"]
        real["message-chunks/message-chunk-000000001"] = torn[: 128 + 1957] + bytes(len(torn) - 128 - 1957)
    assert written == real


@pytest.mark.parametrize("name", IN_LOG_ORDER)
def test_entries_written_with_their_messages_are_the_brokers_where_no_sends_overtook_each_other(name, tmp_path):
    with EQueueWriter(tmp_path / "new", settings_of(equeue_store(name)), shape_of(name)) as writer:
        for message in messages(equeue_store(name)):
            appended = writer.append(message.record)
            assert (appended.position, appended.message_id.encode()) == (message.position, message.record.message_id)
    assert chunk_files(tmp_path / "new") == chunk_files(equeue_store(name))


@pytest.mark.parametrize("case_id", OPENED)
def test_the_engine_goes_on_in_a_damaged_store_where_the_broker_went_on(case_id, tmp_path):
    root, expected, base = damaged(case_id, tmp_path / "store"), answer(case_id), case(case_id)["base"]
    chosen = settings_for(base, case(case_id).get("config"))
    first = expected["append"][0]
    end = expected["messageChunksAfterAppend"][-1]["globalDataEnd"]
    size = end - expected["append"][-1]["position"]
    pattern = replace(
        SAMPLE.record, topic=first["topic"].encode(), queue_id=first["queueId"], tag=b"", body=b"", producer_address=b""
    )
    overhead = len(equeue.CURRENT.build(equeue.moved(pattern, 0))) + 8
    with EQueueWriter(root, chosen) as writer:
        for line in expected["append"]:
            assert writer.next_offset(line["topic"], line["queueId"]) == line["queueOffset"]
            record = replace(pattern, queue_offset=line["queueOffset"], body=bytes(size - overhead))
            assert writer.append(record).position == line["position"]
    check_reopened(root, expected, chosen)


def check_reopened(root, expected, chosen):
    """Compares files, and what the next start sees, with the answers."""
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    after = {name: file for name, file in expected["filesAfter"].items() if name not in OFFSETS}
    assert {name: path.stat().st_size for name, path in files.items() if name not in OFFSETS} == {
        name: file["size"] for name, file in after.items()
    }
    appended = {line["topic"] for line in expected["append"]}
    quiet = [name for name in after if name.startswith("queue-chunks/") and name.split("/")[1] not in appended]
    for name in quiet:
        assert hashlib.sha256(files[name].read_bytes()).hexdigest() == after[name]["sha256"]
    found = start(root, chosen, equeue.CURRENT)
    walked = sorted((w.number, w.records, w.end) for w in (explain.walk(c, chosen) for c in found.messages.values()))
    reopened = expected["reopen"]
    assert walked == sorted((w["chunkNumber"], w["records"], w["end"]) for w in reopened["walk"])
    for line in reopened["queues"]:
        queue = found.queues[line["topic"], line["queueId"]]
        unserved = list(explain.unserved_entries(found, queue, chosen, equeue.CURRENT))
        assert queue.next_offset == line["nextOffset"]
        assert [one.queue_offset for one in unserved] == [bad["queueOffset"] for bad in line["bad"]]
    found.close()


def test_most_damaged_stores_are_written_on():
    assert len(OPENED) == 69


@pytest.mark.parametrize("case_id", ["done-footer-zero", "tail-header-zero", "messages-all-deleted"])
def test_a_store_that_the_broker_refuses_or_deletes_is_not_touched(case_id, tmp_path):
    root = damaged(case_id, tmp_path / "store")
    before = tree_digest(root)
    with pytest.raises(StoreError):
        EQueueWriter(root, settings_for("equeue-small"))
    assert tree_digest(root) == before


@pytest.mark.parametrize("name", EQUEUE_STORES)
def test_queues_made_anew_beside_their_old_entries_are_byte_for_byte_the_same(name, tmp_path):
    with EQueueStore(equeue_store(name)) as store:
        rebuild.write_queues(store, tmp_path / "new", settings_of(equeue_store(name)))
    real = chunk_files(equeue_store(name), "queue-chunks")
    if name != "equeue-torn":
        assert chunk_files(tmp_path / "new") == real
        return
    for file, data in chunk_files(tmp_path / "new").items():  # entries of messages that were never written are gone
        kept = data.rstrip(b"\0")
        assert real[file].startswith(kept[:-4])


@pytest.mark.parametrize("name", IN_LOG_ORDER)
def test_queues_made_from_messages_alone_are_byte_for_byte_the_same(name, tmp_path):
    root = copy_tree(fixture(f"{name}/store"), tmp_path / "store")
    with without_queues(root) as store:
        rebuild.write_queues(store, tmp_path / "new", settings_of(equeue_store(name)))
    assert chunk_files(tmp_path / "new") == chunk_files(equeue_store(name), "queue-chunks")


def test_queues_whose_sends_overtook_each_other_get_every_message_once_in_the_logs_order(tmp_path):
    with without_queues(copy_tree(fixture("equeue-mixed-batch/store"), tmp_path / "store")) as store:
        plans = rebuild.plan_queues(store)
        whole = {(m.record.queue_id, m.position) for m in store.messages()}
    for plan in plans:
        positions = [plan.entries[offset].message_position for offset in range(plan.next_offset)]
        assert positions == sorted(positions)
        assert set(positions) == {position for queue, position in whole if queue == plan.queue_id}


def test_the_place_of_a_lost_message_leads_to_no_message(tmp_path):
    root = damaged("tail-middle-zeroed", tmp_path / "store")
    settings = settings_of(root)
    with without_queues(root) as store:
        plans = rebuild.write_queues(store, tmp_path / "new", settings)
    assert sum(plan.filled for plan in plans) == 1
    (tmp_path / "new" / "message-chunks").symlink_to(root / "message-chunks")
    with EQueueStore(tmp_path / "new") as store:
        places = {message.position for message in store.messages() if isinstance(message, StoredMessage)}
        entries = [entry.message_position for queue in store.queues for _, entry in store.entries(queue)]
    assert len([position for position in entries if position not in places]) == 1
    assert places < set(entries)


def test_a_queue_offset_that_no_loss_explains_does_not_stretch_the_queue(tmp_path):
    root = copy_tree(fixture("equeue-small/store"), tmp_path / "store")
    path = root / "message-chunks" / "message-chunk-000000000"
    data = path.read_bytes()
    record = messages(root)[0].record
    place = data.index(b"\0\0\0\0" + record.created_time.to_bytes(8, "little"), 128) - 4
    path.write_bytes(data[:place] + (1 << 60).to_bytes(8, "little") + data[place + 8 :])
    settings = settings_of(root)
    with without_queues(root) as store:
        plans = rebuild.write_queues(store, tmp_path / "new", settings)
    assert [plan.next_offset for plan in plans] == [18, 20, 10, 15]
    assert sum(len(plan.entries) for plan in plans) == 62


@pytest.mark.parametrize("case_id", ["done-record-suffix", "done-record-prefix", "done-record-prefix-long"])
def test_records_behind_a_damaged_one_are_saved_backwards(case_id, tmp_path):
    root = damaged(case_id, tmp_path / "store")
    with EQueueStore(root) as store:
        found = salvage.salvage_chunk(store, store.chunks[1])
    assert (len(found.forwards), len(found.between), len(found.backwards)) == (5, 0, 17)
    assert [(one.start, one.position) for one in found.damage] == [(4096 + 853, 128 + 853)]


def test_records_between_two_damaged_ones_are_found_by_the_positions_they_state(tmp_path):
    root = damaged("done-record-suffix", tmp_path / "store")
    whole = [m for m in messages(equeue_store("equeue-small")) if m.chunk.header.chunk_number == 1]
    path = root / "message-chunks" / "message-chunk-000000001"
    data = bytearray(path.read_bytes())
    data[128 + whole[12].frame.start : 128 + whole[12].frame.start + 4] = bytes(4)
    path.write_bytes(data)
    with EQueueStore(root) as store:
        found = salvage.salvage_chunk(store, store.chunks[1])
    assert (len(found.forwards), len(found.between), len(found.backwards)) == (5, 6, 10)
    assert [m.position for m in found.records] == [m.position for n, m in enumerate(whole) if n not in (5, 12)]


def test_a_salvaged_store_is_one_that_the_broker_would_serve_whole(tmp_path):
    root = damaged("tail-middle-suffix", tmp_path / "store")
    before = tree_digest(root)
    chosen = settings_for("equeue-small")
    reports = salvage.salvage(root, tmp_path / "new", chosen)
    assert tree_digest(root) == before
    assert sum(len(report.records) for report in reports) == 61
    found = start(tmp_path / "new", chosen, equeue.CURRENT)
    assert found.refusal is None
    assert sum(explain.walk(chunk, chosen).records for chunk in found.messages.values()) == 61
    astray = [
        one for queue in found.queues.values() for one in explain.unserved_entries(found, queue, chosen, equeue.CURRENT)
    ]
    assert len(astray) == 1  # the entry in the place of the lost message
    assert not astray[0].message.startswith("another message")
    found.close()


def test_a_new_store_gets_queue_offsets_positions_and_ids(tmp_path):
    chosen = replace(settings_for("equeue-small"), broker_name="B1")
    with EQueueWriter(tmp_path / "new", chosen, clock=lambda: 637_269_120_010_000_000) as writer:
        puts = [writer.put("T", 2, b"hi", tag="A", code=100, created_time=637_269_120_000_000_000) for _ in range(60)]
        with pytest.raises(MessageRejectedError):
            writer.put("T", 2, bytes(8000))
        with pytest.raises(MessageRejectedError):
            writer.put("../T", 2, b"")
        writer.flush()
    assert [put.queue_offset for put in puts] == list(range(60))
    found = start(tmp_path / "new", chosen, equeue.CURRENT)
    assert list(explain.unserved_entries(found, found.queues["T", 2], chosen, equeue.CURRENT)) == []
    assert [found.messages[n].completed for n in sorted(found.messages)] == [True, False]
    found.close()


def test_a_directory_that_holds_something_else_is_not_written_to(tmp_path):
    (tmp_path / "letter").write_text("dear")
    with pytest.raises(StoreError):
        EQueueWriter(tmp_path, settings_for("equeue-small"))
    with EQueueStore(equeue_store("equeue-small")) as store, pytest.raises(StoreError, match="empty or absent"):
        rebuild.write_queues(store, tmp_path, settings_for("equeue-small"))
