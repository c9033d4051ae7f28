"""Reading EQueue's stores: every message and entry as the real broker answers, and what damage leaves of them."""

import hashlib

import pytest

from mqtool.errors import CorruptionError, NotAStoreError, UnsupportedFormatError
from mqtool.records.damage import Damage
from mqtool.siblings.equeue.chunk import ChunkFile
from mqtool.siblings.equeue.store import EQueueStore, StoredMessage
from mqtool.siblings.frames import Frame, InvalidFrame
from tests.support.chunks import EQUEUE_CASES, EQUEUE_STORES, case, damaged, equeue_store, lines
from tests.support.stores import copy_tree, fixture, tree_digest

LIMIT = 5 << 20
LOST = {  # messages of the base that no reading can give back: gone, cut off, or changed
    "tail-torn-record": 1,
    "tail-torn-suffix": 1,
    "tail-bad-suffix": 1,
    "tail-prefix-huge": 1,
    "tail-prefix-negative": 1,
    "tail-prefix-longer": 1,
    "tail-middle-suffix": 1,
    "tail-middle-zeroed": 1,
    "tail-topic-length": 1,
    "tail-bad-ticks": 1,
    "tail-body-length-negative": 1,
    "tail-cut-in-record": 1,
    "done-record-suffix": 1,
    "done-record-prefix": 1,
    "done-record-prefix-long": 1,
}


def read(root):
    with EQueueStore(root) as store:
        return list(store.messages()), store.tail


@pytest.mark.parametrize("name", EQUEUE_STORES)
def test_every_message_is_read_as_the_broker_answers(name):
    items, _ = read(equeue_store(name))
    answers = lines(name, "messages")
    assert [
        (
            m.position,
            m.chunk.header.chunk_number,
            m.frame.start,
            m.length,
            m.record.topic.decode(),
            hashlib.sha256(m.record.body).hexdigest(),
            m.record.queue_id,
            m.record.queue_offset,
        )
        for m in items
    ] == [
        (
            a["position"],
            a["chunkNumber"],
            a["localPosition"],
            a["length"],
            a["topic"],
            a["bodySha256"],
            a["queueId"],
            a["queueOffset"],
        )
        for a in answers
    ]


@pytest.mark.parametrize("name", EQUEUE_STORES)
def test_every_queue_entry_is_read_as_the_broker_answers(name):
    with EQueueStore(equeue_store(name)) as store:
        found = [
            (q.topic, q.queue_id, offset, e.message_position, e.tag_code)
            for q in store.queues
            for offset, e in store.entries(q)
        ]
    assert sorted(found) == sorted(
        (line["topic"], line["queueId"], line["queueOffset"], line["messagePosition"], line["tagCode"])
        for line in lines(name, "queue-entries")
    )


@pytest.mark.parametrize("name", EQUEUE_STORES)
def test_frames_read_backwards_from_the_data_end_are_those_read_forwards(name):
    for path in (equeue_store(name) / "message-chunks").iterdir():
        chunk = ChunkFile(path)
        forwards, at = [], 0
        while isinstance(frame := chunk.frame_at(at, chunk.room, LIMIT), Frame):
            forwards.append(frame)
            at = frame.end
        backwards, end = [], at
        while isinstance(frame := chunk.frame_before(end, 0, LIMIT), Frame):
            backwards.append(frame)
            end = frame.start
        assert backwards[::-1] == forwards
        assert end == 0
        chunk.close()


@pytest.mark.parametrize("case_id", EQUEUE_CASES)
def test_reading_a_damaged_store_loses_only_what_the_damage_touches_and_writes_nothing(case_id, tmp_path):
    base = case(case_id)["base"]
    root = damaged(case_id, tmp_path / "store")
    before = tree_digest(root)
    if not (root / "message-chunks").is_dir():
        assert read(root)[0] == []
        return
    items, _ = read(root)
    assert tree_digest(root) == before
    found = {(m.position, m.frame.record) for m in items if isinstance(m, StoredMessage)}
    whole = {(m.position, m.frame.record) for m in read(equeue_store(base))[0]}
    if case_id in LOST:
        assert len(whole - found) == LOST[case_id]
    elif "header" not in case_id and "deleted" not in case_id and "cut" not in case_id and "empty" not in case_id:
        assert {position for position, _ in whole} <= {position for position, _ in found}


@pytest.mark.parametrize("case_id", ["done-record-suffix", "tail-middle-zeroed", "tail-topic-length"])
def test_damage_ends_where_the_next_sound_record_begins(case_id, tmp_path):
    items, _ = read(damaged(case_id, tmp_path / "store"))
    damage = [item for item in items if isinstance(item, Damage)]
    whole = [message.position for message in read(equeue_store("equeue-small"))[0]]
    assert len(damage) == 1
    assert damage[0].start in whole
    assert damage[0].end == whole[whole.index(damage[0].start) + 1]
    assert damage[0].position == damage[0].start % 4096 + 128


@pytest.mark.parametrize(("name", "kind", "length"), [("equeue-torn", "leftover", 143), ("equeue-killed", "clean", 0)])
def test_what_follows_the_last_record_is_reported(name, kind, length):
    _, tail = read(equeue_store(name))
    assert (tail.kind, tail.length) == (kind, length)


@pytest.mark.parametrize("name", EQUEUE_STORES)
def test_a_message_is_found_by_its_position_and_nothing_beside_it(name):
    with EQueueStore(equeue_store(name)) as store:
        for line in lines(name, "messages")[::7]:
            assert store.message_at(line["position"]).record.message_id.decode() == line["messageId"]
            with pytest.raises(CorruptionError):
                store.message_at(line["position"] + 1)
        with pytest.raises(CorruptionError, match="no chunk holds this position"):
            store.message_at(1 << 50)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 131, 255, 256, 300])
def test_a_chunk_cut_anywhere_gives_no_frame_beyond_its_end(size, tmp_path):
    data = (equeue_store("equeue-small") / "message-chunks" / "message-chunk-000000001").read_bytes()
    root = copy_tree(fixture("equeue-small/store"), tmp_path / "store")
    (root / "message-chunks" / "message-chunk-000000002").write_bytes(data[:size])
    items, _ = read(root)
    assert all(isinstance(item, Damage) or item.frame.end + 128 <= item.chunk.size for item in items)


def test_a_frame_is_refused_at_a_length_above_the_limit():
    chunk = ChunkFile(equeue_store("equeue-small") / "message-chunks" / "message-chunk-000000000")
    found = chunk.frame_at(0, chunk.room, 163)
    assert isinstance(found, InvalidFrame)
    assert (found.kind, found.length) == ("too-long", 164)
    chunk.close()


def test_an_index_chunk_of_the_later_line_is_refused_by_name(tmp_path):
    root = copy_tree(fixture("equeue-small/store"), tmp_path / "store")
    path = root / "message-chunks" / "message-chunk-000000001"
    data = bytearray(path.read_bytes())
    data[8:12] = b"\1\0\0\0"
    path.write_bytes(data)
    with pytest.raises(UnsupportedFormatError, match="index chunk of ECommon's later line"):
        EQueueStore(root)


def test_a_directory_without_chunks_is_no_store(tmp_path):
    with pytest.raises(NotAStoreError, match="holds neither message-chunks nor queue-chunks"):
        EQueueStore(tmp_path)
