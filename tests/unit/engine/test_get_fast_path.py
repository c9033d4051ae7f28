"""The fast path of a get and the slow one give the same answer, whatever limit is met first."""

import sys

import pytest

from mqtool.engine import MessageStore, read
from mqtool.engine.queues import UNIT
from mqtool.store.queues.get_message import get_message
from tests.support.native import form, needs_native

pytestmark = needs_native

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
    store.get_message("T", 0, 0, 1)  # maps the files; the fast path reads mapped files only
    return store


def answers(store: MessageStore, most: int, most_bytes: int) -> list[tuple]:
    """Every get of a queue, records as bytes."""
    found = [store.get_message("T", 0, offset, most, None, most_bytes) for offset in range(-1, len(SIZES) // 2 + 2)]
    return [
        result._replace(records=[*map(bytes, result.records)], queue_offsets=[*result.queue_offsets])
        for result in found
    ]


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 7, 32, 1000])
@pytest.mark.parametrize("most_bytes", [1, 2500, 1 << 20], ids=["one", "few", "all"])
@pytest.mark.parametrize("limits", LIMITS)
def test_both_paths_give_the_same_answer(opened, most, most_bytes, limits):
    store = filled(opened, **LIMITS[limits])
    fast = answers(store, most, most_bytes)
    assert store._components.reader._getter is not None
    store._components.reader._getter = None
    assert fast == answers(store, most, most_bytes)


def fast(store, most, offset=0, topic="T"):
    """The fast path alone, of one queue."""
    return store._components.reader._getter.get(topic, 0, offset, most, 1 << 20)


@pytest.mark.parametrize("most_on_disk", [3, 1000])
def test_what_lies_partly_on_disk_is_answered_as_the_slow_path_does(opened, most_on_disk):
    store = filled(opened, max_get_count_on_disk=most_on_disk, max_get_count_in_memory=12)
    reader = store._components.reader
    for memory in range(0, store.max_physical_offset, 1500):
        reader.limits = reader.limits._replace(memory=memory)
        found = fast(store, 32)
        assert found is not None
        view = read._Units(store._components.queues.get("T", 0))
        expected = get_message(view, reader, 0, 32, None, 1 << 20, reader.limits)
        assert found._replace(queue_offsets=[*found.queue_offsets]) == expected


def test_records_in_two_files_of_the_log_take_the_slow_path(opened):
    store = opened(commit_log_file_size=4096)
    for _ in range(8):
        store.put("T", 0, b"x" * 1000)
    store.dispatch()
    assert len(store.get_message("T", 0, 0, 8).records) == 8
    assert fast(store, 8) is None
    assert fast(store, 3) is not None


@pytest.mark.parametrize("unit", [(-1, 150), (0, 0), (0, -5), (1 << 40, 150)])
def test_a_unit_that_leads_to_no_record_takes_the_slow_path(opened, unit):
    store = filled(opened)
    file = store._components.queues.get("T", 0).files.files[0].file
    before = file.read(20, 20)
    file.write(20, UNIT.pack(*unit, 7))
    assert fast(store, 32) is None
    assert fast(store, 1) is not None
    file.write(20, before)


def test_records_are_a_list_made_when_it_is_asked_for(opened):
    store = filled(opened)
    found = store.get_message("T", 0, 0, 5)
    assert found.joined() == b"".join(bytes(record) for record in found.records)
    assert found.size == len(found.joined())
    target = bytearray(b"-" * (found.size + 9))
    assert found.copy_to(target, 4) == found.size + 4
    assert target == b"----" + found.joined() + b"-----"
    short = bytearray(b"-")
    assert found.copy_to(short) == found.size
    assert short == found.joined()
    assert len(found.records) == 5
    assert found.records[:2] == list(found.records)[:2]
    assert found.records == store.get_message("T", 0, 0, 5).records
    assert found.records != store.get_message("T", 0, 1, 5).records
    assert repr(found.records) == repr(list(found.records))


def test_records_are_joined_in_python_too(opened):
    found = filled(opened).get_message("T", 0, 0, 5)
    joined = found.joined()
    target = bytearray()
    with form(compiled=False):
        assert found.copy_to(target) == found.size
        assert found.joined() == target == joined


def test_records_stay_after_their_segment_is_closed(opened):
    store = filled(opened)
    found = store.get_message("T", 0, 0, 5)
    before = bytes(store.get_message("T", 0, 0, 1).records[0])
    store.flush()
    store._components.log.queue.files[0].file.close()
    assert found.records[0] == before
    assert found.joined().startswith(before)


def test_more_messages_than_the_fast_path_takes_come_by_the_slow_one(opened):
    store = opened(commit_log_file_size=1 << 17, consume_queue_file_size=20_000, max_get_count_in_memory=1000)
    for _ in range(300):
        store.put("T", 0, b"x")
    store.dispatch()
    assert list(store.get_message("T", 0, 0, 1000).queue_offsets) == list(range(300))
    assert list(store.get_message("T", 0, 0, 200).queue_offsets) == list(range(200))


@pytest.mark.parametrize(
    ("topic", "offset", "most"),
    [
        ("unknown", 0, 1),
        (7, 0, 1),
        ("T", -1, 1),
        ("T", 20, 1),
        ("T", 1 << 70, 1),
        ("T", 0, 0),
        ("T", 0, -3),
        ("T", "0", 1),
    ],
)
def test_what_is_not_plain_takes_the_slow_path(opened, topic, offset, most):
    store = filled(opened)
    assert fast(store, 1) is not None
    assert fast(store, most, offset, topic) is None


def test_batch_queues_and_segments_under_deletion_take_the_slow_path(opened):
    store = filled(opened)
    queues = store._components.queues.by_key
    queues["B", 0] = object()
    assert fast(store, 1, topic="B") is None
    del queues["B", 0]
    store._components.log.queue.files[0].available = False
    assert fast(store, 1) is None
    store._components.log.queue.files[0].available = True


def test_no_object_is_kept_longer_than_the_result(opened):
    store = filled(opened)
    pin = store._components.log.queue.files[0].file.pin
    kept = [pin, "T", store._components.reader.limits]
    assert fast(store, 5) is not None
    before = [sys.getrefcount(one) for one in kept]
    for _ in range(100):
        fast(store, 5)
        fast(store, 5, 1 << 40)
        fast(store, 5, topic="unknown")
    assert [sys.getrefcount(one) for one in kept] == before
