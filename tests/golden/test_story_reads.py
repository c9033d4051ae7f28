"""What `histories_of` and a search by key read of a large store: the index and the records of one message, however long the log is."""

import pytest

import mqtool
from mqtool.store.files import ReadFile
from mqtool.store.find import find_messages
from mqtool.story import histories_of
from tests.support.big_store import add_empty_segments, write_big_store

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    root = tmp_path_factory.mktemp("big")
    return [write_big_store(root / str(count), count, segment=4 << 20, index=True) for count in (8_000, 40_000)]


def bytes_read(root, monkeypatch):
    """Bytes that are read but for the last segment, of which every command reads where the log ends."""
    total = [0]
    last = max((root / "commitlog").iterdir())
    original = ReadFile.read

    def read(self, position, length):
        found = original(self, position, length)
        total[0] += len(found) if self.path != last else 0
        return found

    with mqtool.open(root) as store:
        key = store.message_at(store.commit_log.min_offset).unique_key
        with monkeypatch.context() as patch:
            patch.setattr(ReadFile, "read", read)
            lives, notes = histories_of(store, key)
    assert [life.unique_key for life in lives] == [key]
    assert notes == []
    return total[0]


def test_a_story_reads_little_of_the_log_and_no_more_of_a_longer_one(stores, monkeypatch):
    short, long = (bytes_read(root, monkeypatch) for root in stores)
    size = sum(path.stat().st_size for path in (stores[1] / "commitlog").iterdir())
    assert size > 2 * sum(path.stat().st_size for path in (stores[0] / "commitlog").iterdir())
    assert long < size / 20
    assert long < short + (1 << 20)


def test_one_message_in_a_log_of_100_gib_is_found_by_reading_a_few_mib(tmp_path, monkeypatch):
    root = write_big_store(tmp_path / "store", 4_000, segment=1 << 30, index=True)
    add_empty_segments(root, 100)
    assert sum(path.stat().st_size for path in (root / "commitlog").iterdir()) == 100 << 30
    read = []
    original = ReadFile.read
    with mqtool.open(root) as store:
        first = store.message_at(store.commit_log.min_offset)
    monkeypatch.setattr(ReadFile, "read", lambda *arguments: read.append(found := original(*arguments)) or found)
    with mqtool.open(root) as store:
        lives, _ = histories_of(store, first.unique_key)
    story = sum(map(len, read))
    read.clear()
    with mqtool.open(root) as store:
        found = list(find_messages(store, keys=[first.keys[0]]).items)
    assert [life.unique_key for life in lives] == [first.unique_key]
    assert [message.physical_offset for message in found] == [first.physical_offset]
    assert 0 < story < 16 << 20
    assert 0 < sum(map(len, read)) < 16 << 20
