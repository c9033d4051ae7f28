"""The short way of a get and the long one give the same answer, whatever limit is met first."""

import pytest

from mqtool import kernels
from mqtool.engine import MessageStore
from mqtool.engine.queue.consume_queue import UNIT
from mqtool.engine.read import reader as read
from mqtool.engine.read.get_fast_path import fast_get
from mqtool.store.get_message import get_message

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


FORMS = ["arrays", "compiled"]


@pytest.fixture(params=FORMS)
def form(request):
    """Runs without and with compiled loops."""
    if request.param == "compiled" and kernels.load() is None:
        pytest.skip("needs numba")
    with kernels.use(0 if request.param == "arrays" else kernels.LARGE):
        yield request.param


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 7, 32, 1000])
@pytest.mark.parametrize("most_bytes", [1, 2500, 1 << 20], ids=["one", "few", "all"])
@pytest.mark.parametrize("limits", LIMITS)
def test_both_ways_give_the_same_answer(opened, monkeypatch, form, most, most_bytes, limits):
    store = filled(opened, **LIMITS[limits])
    short = answers(store, most, most_bytes)
    monkeypatch.setattr(read, "fast_get", lambda *_: None)
    assert short == answers(store, most, most_bytes)


def fast(store, most, *, memory=None):
    """The short way alone, from the beginning of a queue."""
    parts = store._components
    queue, limits = parts.queues.get("T", 0), parts.reader.limits
    if memory is not None:
        limits = limits._replace(memory=memory)
    return fast_get(limits, parts.log, queue, 0, queue.max_offset, most, 1 << 20)


@pytest.mark.parametrize("most_on_disk", [3, 1000])
def test_what_lies_partly_on_disk_is_answered_as_the_long_way_does(opened, form, most_on_disk):
    store = filled(opened, max_get_count_on_disk=most_on_disk, max_get_count_in_memory=12)
    reader = store._components.reader
    for memory in range(0, store.max_physical_offset, 1500):
        reader.limits = reader.limits._replace(memory=memory)
        found = fast(store, 32)
        assert found is not None or form == "arrays"
        view = read._Units(store._components.queues.get("T", 0))
        assert found in (None, get_message(view, reader, 0, 32, None, 1 << 20, reader.limits))


def test_records_in_two_files_of_the_log_take_the_long_way(opened, form):
    store = opened(commit_log_file_size=4096)
    for _ in range(8):
        store.put("T", 0, b"x" * 1000)
    store.dispatch()
    assert fast(store, 8) is None
    assert len(store.get_message("T", 0, 0, 8).records) == 8
    assert fast(store, 3) is not None


@pytest.mark.parametrize("unit", [(-1, 150), (0, 0), (0, -5), (1 << 40, 150)])
def test_a_unit_that_leads_to_no_record_takes_the_long_way(opened, form, unit):
    store = filled(opened)
    file = store._components.queues.get("T", 0).files.files[0].file
    before = file.read(20, 20)
    file.write(20, UNIT.pack(*unit, 7))
    assert fast(store, 32) is None
    assert fast(store, 1) is not None
    file.write(20, before)


def test_records_are_a_list_made_when_it_is_asked_for(opened, form):
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


def test_records_stay_after_their_segment_is_closed(opened, form):
    store = filled(opened)
    found = store.get_message("T", 0, 0, 5)
    before = bytes(store.get_message("T", 0, 0, 1).records[0])
    store._components.log.queue.files[0].file.close()
    assert found.records[0] == before
    assert found.joined().startswith(before)


def test_more_messages_than_the_short_way_takes_come_by_the_long_one(opened):
    store = opened(commit_log_file_size=1 << 17, consume_queue_file_size=20_000, max_get_count_in_memory=1000)
    for _ in range(300):
        store.put("T", 0, b"x")
    store.dispatch()
    assert store.get_message("T", 0, 0, 1000).queue_offsets == list(range(300))
    assert store.get_message("T", 0, 0, 200).queue_offsets == list(range(200))
