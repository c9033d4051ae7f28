"""The short way of a get and the long one give the same answer, whatever limit is met first."""

import pytest

from mqtool.engine import MessageStore
from mqtool.engine.read import reader as read
from mqtool.engine.read.get_fast_path import fast_get

SIZES = [10, 2000, 300, 30, 1000, 1, 500, 0, 900, 40] * 4
LIMITS = {
    "none": {},
    "count in memory": {"max_get_count_in_memory": 3},
    "bytes in memory": {"max_get_bytes_in_memory": 1500},
    "count on disk": {"max_get_count_on_disk": 2, "memory_ratio": 0},
    "bytes on disk": {"max_get_bytes_on_disk": 900, "memory_ratio": 0},
}


def filled(opened, **more) -> MessageStore:
    store = opened(commit_log_file_size=1 << 15, consume_queue_file_size=400, **more)
    for number, size in enumerate(SIZES):
        store.put("T", number % 2, b"x" * size)
    store.dispatch()
    return store


def answers(store: MessageStore, most: int, most_bytes: int) -> list[tuple]:
    """Every get of a queue, records as bytes."""
    found = [store.get_message("T", 0, offset, most, None, most_bytes) for offset in range(len(SIZES) // 2 + 2)]
    return [result._replace(records=[bytes(record) for record in result.records]) for result in found]


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 7, 32, 1000])
@pytest.mark.parametrize("most_bytes", [1, 2500, 1 << 20], ids=["one", "few", "all"])
@pytest.mark.parametrize("limits", LIMITS)
def test_both_ways_give_the_same_answer(opened, monkeypatch, most, most_bytes, limits):
    store = filled(opened, **LIMITS[limits])
    short = answers(store, most, most_bytes)
    monkeypatch.setattr(read, "fast_get", lambda *_: None)
    assert short == answers(store, most, most_bytes)


def test_what_lies_partly_on_disk_takes_the_long_way(opened):
    store = filled(opened)
    components = store._components
    queue, half = components.queues.get("T", 0), store.max_physical_offset // 2
    assert fast_get(components.options, components.log, queue, 0, 32, 1 << 20, half) is None
    assert fast_get(components.options, components.log, queue, 0, 32, 1 << 20, 2 * half) is not None


def test_records_in_two_files_of_the_log_take_the_long_way(opened):
    store = opened(commit_log_file_size=4096)
    for _ in range(8):
        store.put("T", 0, b"x" * 1000)
    store.dispatch()
    components = store._components
    queue = components.queues.get("T", 0)
    assert fast_get(components.options, components.log, queue, 0, 8, 1 << 20, components.reader.memory) is None
    assert len(store.get_message("T", 0, 0, 8).records) == 8
    assert fast_get(components.options, components.log, queue, 0, 3, 1 << 20, components.reader.memory) is not None


def test_more_messages_than_the_short_way_takes_come_by_the_long_one(opened):
    store = opened(commit_log_file_size=1 << 17, consume_queue_file_size=20_000, max_get_count_in_memory=1000)
    for _ in range(300):
        store.put("T", 0, b"x")
    store.dispatch()
    assert store.get_message("T", 0, 0, 1000).queue_offsets == list(range(300))
    assert store.get_message("T", 0, 0, 200).queue_offsets == list(range(200))
