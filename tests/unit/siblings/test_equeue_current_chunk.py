"""EQueue's broker continues in the chunk whose file is the last in the list, whatever number its header states."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from mqtool.errors import StoreError
from mqtool.formats import equeue
from mqtool.siblings.equeue import explain as serve
from mqtool.siblings.equeue.explain import explain
from mqtool.siblings.equeue.listing import EQueueSettings
from mqtool.siblings.equeue.start import LoadedChunk, start
from mqtool.siblings.equeue.store import EQueueStore
from mqtool.siblings.equeue.verify import verify
from mqtool.siblings.equeue.writer import ChunkAppender, EQueueWriter
from mqtool.verify.findings import Severity
from tests.support.stores import tree_digest

SETTINGS = EQueueSettings(message_chunk_size=2048, queue_chunk_entries=10)


def misnumbered(folder: Path) -> None:
    """Deletes the first chunk of a folder, and makes the last one state its number."""
    paths = sorted(path for path in folder.iterdir() if "-chunk-" in path.name)
    paths[0].unlink()
    data = bytearray(paths[-1].read_bytes())
    data[:4] = bytes(4)
    paths[-1].write_bytes(data)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with EQueueWriter(tmp_path / "store", SETTINGS) as writer:
        for number in range(50):
            writer.put("Orders", 0, b"order %d" % number)
    return tmp_path / "store"


def test_the_broker_continues_in_the_last_file_and_serves_nothing_after_its_end(root):
    misnumbered(root / "message-chunks")
    found = explain(root)
    assert found.write_position is not None
    assert found.write_position < 2048
    assert found.overwritten
    assert min(found.overwritten) >= 2048
    assert not found.is_harmless
    assert f"{len(found.overwritten)} valid message(s) after it are lost" in found.verdict
    assert "message-chunk-000000001 is deleted" in found.silent[0]
    unserved = {one.message_position for one in found.unserved["Orders", 0]}
    assert set(found.overwritten) <= unserved


def test_a_queue_ends_where_its_last_file_ends(root):
    misnumbered(root / "queue-chunks/Orders/0")
    found = start(root, SETTINGS, equeue.CURRENT)
    queue = found.queues["Orders", 0]
    found.close()
    assert (queue.next_offset, queue.current.number, max(queue.chunks)) == (10, 0, 3)


def test_the_writer_deletes_no_chunk_whose_number_comes_next(root):
    misnumbered(root / "message-chunks")
    path = root / "message-chunks/message-chunk-000000001"
    before = path.read_bytes()
    with EQueueWriter(root, SETTINGS) as writer:
        end = writer.put("Orders", 1, b"small").position
        assert end < 2048
        with pytest.raises(StoreError, match="exists already"):
            writer.put("Orders", 1, bytes(1800))
    assert path.read_bytes() == before


def test_a_store_in_which_the_last_file_has_the_highest_number_is_continued_there(root):
    before = tree_digest(root)
    found = explain(root)
    assert (found.overwritten, found.silent, found.is_harmless) == ([], [], True)
    assert tree_digest(root) == before


def test_written_entries_after_an_unwritten_one_are_lost(root):
    last = root / "queue-chunks/Orders/0/queue-chunk-000000004"
    data = bytearray(last.read_bytes())
    data[128 + 7 * 12 : 128 + 8 * 12] = bytes(12)
    last.write_bytes(data)
    found = explain(root)
    assert found.cut == {("Orders", 0): [48, 49]}
    assert not found.is_harmless
    assert "queue Orders/0 ends before 2 written entries, from queue offset 48 on" in found.verdict
    with EQueueWriter(root, SETTINGS) as writer:
        assert writer.next_offset("Orders", 0) == 47


def test_a_queue_whose_chunks_are_all_lost_starts_again_at_0(root):
    for path in (root / "queue-chunks/Orders/0").glob("queue-chunk-*"):
        path.unlink()
    found = explain(root)
    assert found.cut == {("Orders", 0): list(range(50))}
    assert not found.is_harmless
    assert "queue Orders/0 has no chunk and restarts at 0: its 50 message(s) are not served" in found.verdict
    assert missing_entries(root) == [Severity.ERROR]


def test_a_queue_without_a_folder_was_deleted_or_is_lost(root):
    add_queue(root)
    shutil.rmtree(root / "queue-chunks/Orders/0")
    found = explain(root)
    assert found.is_harmless
    assert "50 message(s) of Orders/0 are not served: the queue has no folder" in found.silent[-1]
    assert missing_entries(root) == [Severity.WARNING]


def test_a_queue_marked_as_deleted_needs_no_entries(root):
    for path in (root / "queue-chunks/Orders/0").glob("queue-chunk-*"):
        path.unlink()
    add_queue(root)
    (root / "queue-chunks/Orders/0/queue.setting").write_text('{"IsDeleted": true}')
    assert explain(root).is_harmless
    assert missing_entries(root) == []


def add_queue(root: Path) -> None:
    """Adds another queue: a broker clears a store without any."""
    with EQueueWriter(root, SETTINGS) as writer:
        writer.put("Orders", 1, b"order")


def missing_entries(root: Path) -> list[Severity]:
    with EQueueStore(root) as store:
        return [one.severity for one in verify(store) if one.code == "equeue-entry-missing"]


def test_a_last_file_whose_next_number_no_file_has_deletes_none(root):
    (root / "message-chunks/message-chunk-000000001").unlink()
    misnumbered(root / "message-chunks")
    found = explain(root)
    assert "the broker continues there" in found.silent[0]
    assert "is deleted" not in found.silent[0]


# --- what is served ----------------------------------------------------------------------------------------------


@pytest.fixture
def served(root):
    found = start(root, SETTINGS, equeue.CURRENT)
    yield found
    found.close()


def unserved(found):
    queue = found.queues["Orders", 0]
    return list(serve.unserved_entries(found, queue, SETTINGS, equeue.CURRENT))


def test_every_entry_of_a_healthy_queue_is_served(served):
    assert unserved(served) == []


def test_entries_of_a_queue_file_that_is_cut_meanwhile_are_none(served):
    queue = served.queues["Orders", 0]
    assert not queue.current.completed
    os.truncate(queue.current.file.path, 128 + 12)
    first = queue.current.number * SETTINGS.queue_chunk_entries
    found = [(one.queue_offset, one.exception, one.message) for one in unserved(served)]
    assert found == [(offset, None, "no entry") for offset in range(first + 1, queue.next_offset)]


def test_entries_after_the_end_of_a_queue_or_of_its_chunk_are_none(served):
    queue = served.queues["Orders", 0]
    assert serve._entry(queue, queue.next_offset, SETTINGS) is None
    queue.chunks[0].data_end = 5 * 12
    assert [one.queue_offset for one in unserved(served)] == list(range(5, 10))
    assert {(one.step, one.message) for one in unserved(served)} == {("queue", "no entry")}


def test_a_position_right_before_the_end_of_a_full_chunk_has_no_room_for_a_record(served):
    """Chunk.TryReadForwardInternal of ECommon 2.6.5 throws there."""
    chunk = served.messages[0]
    assert chunk.completed
    with pytest.raises(serve.ServeError, match="No enough space even for length prefix and suffix") as caught:
        serve.message(served, chunk.data_end - 3, SETTINGS, equeue.CURRENT)
    assert (caught.value.name, f"data position: {chunk.data_end - 3}" in str(caught.value)) == (
        "ChunkReadException",
        True,
    )


def test_a_record_whose_lengths_lead_out_of_it_cannot_be_decoded(root):
    path = root / "message-chunks/message-chunk-000000000"
    with path.open("r+b") as file:
        file.seek(128 + 4 + 8)  # after the length and the position: the length of the message id
        file.write(b"\xff\xff\xff\x7f")
    found = start(root, SETTINGS, equeue.CURRENT)
    try:
        assert [(one.queue_offset, one.exception) for one in unserved(found)] == [(0, "ArgumentException")]
    finally:
        found.close()


# --- the writer --------------------------------------------------------------------------------------------------


def test_a_writer_begins_the_next_chunk_after_a_last_one_that_is_full(tmp_path):
    made = ChunkAppender(tmp_path / "chunks", "message-chunk-", 100)
    made.flush(sync=True)  # nothing is written yet
    made.resume(LoadedChunk(SimpleNamespace(path=tmp_path / "absent"), 6, 100, True, 90))
    assert list(tmp_path.iterdir()) == []
    assert made.append(lambda position: position.to_bytes(8, "little")) == 700
    made.flush()
    made.flush(sync=True)
    made.close()
    (path,) = (tmp_path / "chunks").iterdir()
    assert (path.name, path.read_bytes()[128:136]) == ("message-chunk-000000007", (700).to_bytes(8, "little"))
