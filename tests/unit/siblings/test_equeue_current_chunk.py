"""EQueue's broker continues in the chunk whose file is the last in the list, whatever number its header states."""

from pathlib import Path

import pytest

from mqtool.errors import StoreError
from mqtool.formats import equeue_message
from mqtool.siblings.equeue.explain import explain
from mqtool.siblings.equeue.settings import EQueueSettings
from mqtool.siblings.equeue.start import start
from mqtool.siblings.equeue.writer import EQueueWriter
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
    found = start(root, SETTINGS, equeue_message.CURRENT)
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
