"""Reads that meet the limit of a search, damaged units and records, or bytes that the log does not contain."""

import pytest
from msgspec.structs import replace

import mqtool
from mqtool.engine import GetStatus
from mqtool.engine.disk.files import Files
from mqtool.engine.queues import BatchQueue
from mqtool.engine.read import _LogView
from mqtool.engine.write.messages import BatchMessage
from mqtool.errors import CorruptionError
from mqtool.formats import consume_queue
from mqtool.formats.consume_queue import ext_address
from mqtool.store.queues.get_message import TagFilter


def test_a_filter_that_selects_nothing_ends_where_the_search_is_limited(opened):
    store = opened(max_filter_bytes=100)  # five units of the ten of a file
    for _ in range(8):
        store.put("T", 0, b"x", b"TAGS\x01other\x02")
    store.dispatch()
    found = store.get_message("T", 0, 0, 1, TagFilter("wanted"))
    assert (found.status, found.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 5)


class _Records:
    """Selects by the properties of the record, as an SQL expression does."""

    def __init__(self):
        self.seen = []

    def by_unit(self, _tags_code, _ext):
        return True

    def by_record(self, properties):
        self.seen.append(properties)
        return False


def test_a_filter_finds_no_properties_in_a_unit_of_zeros(opened):
    store = opened()
    store.put("T", 0, b"x", b"k\x01v\x02")
    store.dispatch()
    queue = store._components.queues.get("T", 0)
    unit = queue.files.last.read(0, 20)
    queue.files.last.file.write(0, bytes(20))
    chosen = _Records()
    assert store.get_message("T", 0, 0, 1, chosen).status is GetStatus.NO_MATCHED_MESSAGE
    assert chosen.seen == [{}]
    queue.files.last.file.write(0, unit)


def test_the_unit_of_a_batch_that_names_an_extension_is_selected_by_any_tag(opened):
    """Nothing proves that the tag is another one; such a queue has no extension."""
    store = opened()
    store.add_batch_topic("T")
    store.put("T", 0, b"x", b"TAGS\x01a\x02")
    store.dispatch()
    assert store.get_message("T", 0, 0, 1, TagFilter("b")).status is GetStatus.NO_MATCHED_MESSAGE
    file = store._components.queues.get("T", 0).files.last.file
    unit = consume_queue.BATCH_CONSUME_QUEUE_UNIT.parse(file.read(0, 46))
    file.write(0, consume_queue.BATCH_CONSUME_QUEUE_UNIT.build(replace(unit, tags_code=ext_address(0))))
    assert store.get_message("T", 0, 0, 1, TagFilter("b")).status is GetStatus.FOUND
    file.write(0, consume_queue.BATCH_CONSUME_QUEUE_UNIT.build(unit))


def test_a_batch_is_queued_once_however_often_it_is_dispatched(opened):
    store = opened()
    store.add_batch_topic("T")
    for _ in range(2):
        store.put_batch("T", 0, [BatchMessage(b"x")] * 2)
    store.dispatch()
    queue = store._components.queues.get("T", 0)
    before = queue.files.wrote_offset
    store._components.dispatcher.reput_from_offset = 0
    store.dispatch()
    assert (queue.files.wrote_offset, store.queue_bounds("T", 0)) == (before, (0, 4))


def test_the_first_message_of_a_batch_queue_without_files_stays_unknown(tmp_path):
    queue = BatchQueue("T", 0, Files(), tmp_path, 460)
    queue.correct_min_offset(100)
    assert queue.min_offset == -1


def test_what_the_log_does_not_contain_is_no_record(opened):
    store = opened()
    end = store.put("T", 0, b"x").end
    assert [store.message_at(at) for at in (end - 4, end, end + 5000)] == [None] * 3
    log, searcher = store._log, store._components.searcher
    assert [log.read(0, size) for size in (-1, end + 1)] == [None, None]
    assert bytes(log.read(0, end)) == bytes(store.message_at(0))
    assert [searcher.store_time(*where) for where in ((0, end), (0, 50), (0, end + 1), (-1, end))] == [
        store._components.clock.now(),
        -1,
        -1,
        -1,
    ]


@pytest.mark.parametrize("place", [4, 84], ids=["magic code", "length of the body"])
def test_a_search_by_time_finds_as_much_in_damaged_records_as_one_of_the_files(opened, clock, place):
    store = opened()
    sizes = []
    for _ in range(5):
        sizes.append(store.put("T", 0, b"x").size)
        clock.time += 1000
    store.flush()
    store.dispatch()
    file, damaged = store._log.queue.last.file, sizes[0] * 2 + place
    before = file.read(damaged, 4)
    file.write(damaged, b"\x7f\xff\xff\xff")
    with pytest.raises(CorruptionError, match="commitlog"):
        _LogView(store._log).record(sizes[0] * 2, sizes[0])
    times = range(clock.time - 6000, clock.time + 2000, 500)
    with mqtool.open(store.path) as files:
        found = [files.offset_in_queue_by_time("T", 0, time, "LOWER", version="5.5") for time in times]
    assert [store.offset_in_queue_by_time("T", 0, time) for time in times] == found
    file.write(damaged, before)
