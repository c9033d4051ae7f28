"""Queues are bounded, searched and witnessed by their units, whatever state their files are in."""

import os

import numpy as np
import pytest
from msgspec.structs import replace

import mqtool
from mqtool.formats.consume_queue import BATCH_CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT, PRE_BLANK, ConsumeQueueUnit
from mqtool.store.describe import describe
from mqtool.store.log import log_walk
from mqtool.store.log.log_walk import QueueStartIndex
from mqtool.store.queues import consume_queue
from mqtool.store.queues.consume_queue import Queue, UnitCache
from mqtool.store.queues.pull import unit_at, units_from
from tests.support.builder import FIRST_TIME, StoreBuilder
from tests.support.stores import answers, copy_store, store_fixture
from tests.support.tables import in_parts

UNIT = CONSUME_QUEUE_UNIT
PER_FILE = 50


def units(count, first=0, size=100):
    """Units of records of `size` bytes one after the other."""
    return [ConsumeQueueUnit(first + number * size, size, number) for number in range(count)]


def written(directory, *files, per_file=PER_FILE, name="Topic", first_file=0, bounds=(0, 1 << 40), cache=None):
    """A queue with these units in its files, each filled up with zeros."""
    path = directory / name / "0"
    path.mkdir(parents=True)
    for number, content in enumerate(files, first_file):
        data = b"".join(map(UNIT.build, content)).ljust(per_file * UNIT.size, b"\0")
        (path / f"{number * per_file * UNIT.size:020}").write_bytes(data)
    return Queue(name, 0, "SimpleCQ", path, lambda: bounds, cache)


def full(count, **changes):
    """The units of `count` messages as lists of one file each."""
    every = units(count, **changes)
    return [every[at : at + PER_FILE] for at in range(0, count, PER_FILE)]


@pytest.mark.parametrize("count", [1, 49, 50, 51, 120, 150])
def test_bounds_are_those_of_the_units(count, tmp_path):
    queue = written(tmp_path, *full(count))
    assert (queue.min_offset, queue.max_offset, queue.max_physical_offset) == (0, count, count * 100)
    assert queue.units()["tags_code"][:count].tolist() == list(range(count))


@pytest.mark.parametrize("low", [0, 99, 100, 4950, 5000, 5001])
@pytest.mark.parametrize("high", [12_000, 11_950, 11_900, 6000])
def test_units_outside_of_the_log_do_not_count(low, high, tmp_path):
    queue = written(tmp_path, *full(120), bounds=(low, high))
    inside = [number for number in range(120) if low <= number * 100 < high]
    assert (queue.min_offset, queue.max_offset) == (inside[0], inside[-1] + 1)


def test_a_queue_whose_records_are_all_gone_begins_where_it_ends(tmp_path):
    queue = written(tmp_path, *full(120), bounds=(12_000, 13_000))
    assert (queue.min_offset, queue.max_offset) == (120, 120)


def test_a_queue_without_a_unit_begins_and_ends_where_its_first_file_does(tmp_path):
    queue = written(tmp_path, [], first_file=3)
    assert (queue.min_offset, queue.max_offset, queue.max_physical_offset) == (150, 150, 0)
    assert len(queue.units()) == 0


def test_a_queue_without_a_file_is_empty(tmp_path):
    queue = written(tmp_path)
    assert (queue.min_offset, queue.max_offset, queue.file_units) == (0, 0, 0)
    assert queue.last_unit() is None
    assert len(queue.units()) == 0


def test_pre_blank_units_come_before_the_first(tmp_path):
    queue = written(tmp_path, [PRE_BLANK] * 7 + units(5))
    assert (queue.min_offset, queue.max_offset) == (7, 12)


def test_a_hole_of_zeros_does_not_end_a_queue(tmp_path):
    content = full(120)
    content[1][10:15] = [ConsumeQueueUnit(0, 0, 0)] * 5
    queue = written(tmp_path, *content)
    assert (queue.min_offset, queue.max_offset) == (0, 120)
    assert len(queue.units()) == 120


def test_garbage_behind_the_last_unit_is_none(tmp_path):
    broken = [ConsumeQueueUnit(-5, 100, 0), ConsumeQueueUnit(100, -5, 0), ConsumeQueueUnit(1 << 62, 100, 0)]
    queue = written(tmp_path, units(5) + broken)
    assert queue.max_offset == 5


@in_parts("cut", range(121), size=121)
def test_a_file_cut_anywhere_has_its_whole_units(cut, tmp_path):
    queue = written(tmp_path, units(6), per_file=6)
    path = queue.files[0].path
    os.truncate(path, cut)
    queue = Queue("Topic", 0, "SimpleCQ", queue.path, lambda: (0, 1 << 40))
    assert queue.max_offset == cut // 20
    assert len(queue.units_of(0)) == cut // 20


def test_a_file_that_is_cut_behind_our_back_has_fewer_units(tmp_path):
    queue = written(tmp_path, units(50))
    os.truncate(queue.files[0].path, 205)
    assert len(queue.units_of(0)) == 10
    assert queue.max_offset == 10
    assert not queue.names(30, 3000)


def test_bounds_are_found_without_reading_a_sparse_file(tmp_path, monkeypatch):
    queue = written(tmp_path, units(50))
    os.truncate(queue.files[0].path, 2_147_483_640)  # as large as a broker can map
    queue = Queue("Topic", 0, "SimpleCQ", queue.path, lambda: (0, 1 << 40))
    monkeypatch.setattr(consume_queue, "BLOCK", 4000)
    assert (queue.min_offset, queue.max_offset) == (0, 50)
    assert len(queue.units()) == 50


@pytest.mark.parametrize("block", [20, 100, 1000, 1 << 18])
def test_where_blocks_end_changes_nothing(block, tmp_path, monkeypatch):
    monkeypatch.setattr(consume_queue, "BLOCK", block)
    queue = written(tmp_path, *full(120), bounds=(5050, 11_000))
    assert (queue.min_offset, queue.max_offset, queue.max_physical_offset) == (51, 110, 11_000)


def test_a_unit_is_named_at_its_own_place_only(tmp_path):
    queue = written(tmp_path, *full(120))
    assert queue.names(77, 7700)
    assert not any(queue.names(*place) for place in [(76, 7700), (77, 7701), (-1, 0), (120, 0), (1 << 62, 7700)])


def test_only_so_many_units_are_kept(tmp_path):
    cache = UnitCache(limit=2 * PER_FILE * UNIT.size)
    queues = [written(tmp_path, *full(150), name=f"T{number}", cache=cache) for number in range(3)]
    for _ in range(2):
        for queue in queues:
            assert len(queue.units()) == 150
    assert cache._bytes <= 2 * PER_FILE * UNIT.size
    first = queues[0].units_of(0)
    assert queues[0].units_of(0) is first


# --- what queues know about the log ----------------------------------------------------------------------------------


def interleaved(directory, count=90, size=1000, **changes):
    """Three queues that share the records of a log, every tenth of which is in none."""
    named = [number for number in range(count) if number % 10]
    made = []
    for queue in range(3):
        content = [ConsumeQueueUnit(n * size, size, 0) for n in named if n % 3 == queue]
        files = [content[at : at + PER_FILE] for at in range(0, len(content), PER_FILE)]
        made.append(written(directory, *files, name=f"T{queue}", **changes))
    return made


@pytest.mark.parametrize("span", [4096, 10_000, 1 << 28])
def test_queues_know_starts_deny_insides_and_say_nothing_of_the_rest(span, tmp_path, monkeypatch):
    monkeypatch.setattr(log_walk, "RANGE", span)
    monkeypatch.setattr(log_walk, "BEFORE", 1000)
    asked = QueueStartIndex(lambda: made)
    made = interleaved(tmp_path, count=400)
    for number in range(400):
        expected = [None] * 3 if not number % 10 else [True, False, False]
        assert [asked(number * 1000 + at) for at in (0, 1, 999)] == expected
    assert asked(400_000) is None


def test_the_nearest_start_below_is_found(tmp_path):
    made = interleaved(tmp_path)
    asked = QueueStartIndex(lambda: made)
    assert [asked.floor(at) for at in (1000, 1999, 10_500, 89_999)] == [1000, 1000, 9000, 89_000]
    assert asked.floor(999) is None


def test_units_that_lead_nowhere_do_not_count(tmp_path):
    bad = [ConsumeQueueUnit(500, 90, 0), ConsumeQueueUnit(-500, 1000, 0), PRE_BLANK, ConsumeQueueUnit(700, -1, 0)]
    made = [written(tmp_path, bad)]
    asked = QueueStartIndex(lambda: made)
    assert [asked(at) for at in (0, 500, 550, 700)] == [None] * 4


def test_only_files_near_the_range_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(log_walk, "RANGE", 1000)
    monkeypatch.setattr(log_walk, "BEFORE", 100)
    queue = written(tmp_path, *full(PER_FILE * 20))
    read = []
    monkeypatch.setattr(queue, "units_of", lambda number: read.append(number) or np.empty(0, UNIT.dtype))
    assert QueueStartIndex(lambda: [queue])(52_500) is None
    assert read == [10]


def test_a_queue_file_that_cannot_be_read_says_nothing(tmp_path):
    made = interleaved(tmp_path)
    asked = QueueStartIndex(lambda: made)
    path = made[1].files[0].path
    path.unlink()
    path.mkdir()
    assert [asked(number * 1000) for number in (1, 2, 3, 4)] == [None, True, True, None]


# --- by store time -----------------------------------------------------------------------------------------------


def test_a_search_by_time_goes_on_after_a_unit_of_an_expired_record(tmp_path):
    """As ConsumeQueue.binarySearchInQueueByTime (5.5.0): the unit counts as one with an earlier time."""
    builder = StoreBuilder(base=1 << 14)
    for _ in range(3):
        builder.put(step=10)
    path = builder.write(tmp_path / "store")
    with (path / "consumequeue" / "Topic" / "0" / f"{0:020}").open("r+b") as file:
        file.seek(UNIT.size)
        file.write(UNIT.build(ConsumeQueueUnit(100, 100, 0)))
    with mqtool.open(path) as store:
        middle = builder.puts[1].store_timestamp
        assert store.offset_in_queue_by_time("Topic", 0, middle, "UPPER", version="5.5") == 1
        assert store.offset_in_queue_by_time("Topic", 0, middle, "LOWER", version="5.5") == 2


def test_a_batch_queue_without_units_has_no_offset_for_a_time(tmp_path):
    path = StoreBuilder().write(tmp_path / "store")
    (path / "batchconsumequeue" / "Batch" / "0").mkdir(parents=True)
    (path / "batchconsumequeue" / "Batch" / "0" / f"{0:020}").write_bytes(bytes(46 * 10))
    with mqtool.open(path) as store:
        assert store.offset_in_queue_by_time("Batch", 0, FIRST_TIME) == -1


def test_a_get_where_a_file_of_the_queue_is_missing_sends_to_the_next_file(tmp_path):
    builder = StoreBuilder(queue_file_units=10)
    for _ in range(30):
        builder.put()
    path = builder.write(tmp_path / "store")
    (path / "consumequeue" / "Topic" / "0" / f"{10 * UNIT.size:020}").unlink()
    with mqtool.open(path) as store:
        found = store.get_message("Topic", 0, 12)
        assert (found.status.name, found.next_begin_offset, found.messages) == ("OFFSET_FOUND_NULL", 20, [])
        assert len(store.get_message("Topic", 0, 20).messages) == 10


def test_a_batch_queue_gives_the_units_from_an_offset_on_by_their_base_offsets():
    units = [line for line in answers("bcq-5.5.0", "batchqueue") if line["kind"] == "unit"]
    with mqtool.open(store_fixture("bcq-5.5.0").directory) as store:
        queue = store.queue("BatchTopic", 0)
        expected = [(line["baseOffset"], line["phyOffset"]) for line in units if line["queueId"] == 0]
        assert len(expected) > 2
        for start in (0, expected[1][0], expected[1][0] + 1, queue.max_offset):
            offsets, physical = consume_queue.units_from(queue, start)
            found = list(zip(offsets.tolist(), physical.tolist(), strict=True))
            assert found == [unit for unit in expected if unit[0] >= start]


def test_a_pull_past_the_end_of_a_batch_queue_has_no_units():
    with mqtool.open(store_fixture("bcq-5.5.0").directory) as store:
        queue = store.queue("BatchTopic", 0)
        assert list(units_from(queue, queue.max_offset)) == []
        assert unit_at(queue, queue.max_offset) is None
        assert unit_at(queue, queue.max_offset - 1).queue_offset == queue.max_offset - 5


def test_a_queue_file_that_begins_inside_of_a_unit_is_described_without_its_ends(tmp_path):
    builder = StoreBuilder()
    for number in range(6):
        builder.put(queue_id=number % 2)
    root = builder.write(tmp_path / "store")
    (root / "consumequeue/Topic/1" / f"{0:020}").rename(root / "consumequeue/Topic/1" / f"{30:020}")
    with mqtool.open(root) as store:
        topic = described(store, "Topic")
    assert (topic["queues"], topic["first_timestamp"]) == (2, builder.puts[0].store_timestamp)
    assert topic["last_timestamp"] == builder.puts[4].store_timestamp


def described(store, topic):
    return next(row for row in describe(store)["topics"] if row["topic"] == topic)


def test_a_batch_queue_whose_units_all_begin_after_its_last_message_is_described_without_its_ends(tmp_path):
    root = copy_store("bcq-5.5.0", tmp_path)
    with mqtool.open(root) as store:
        before = described(store, "BatchTopic")
        limit = store.queue("BatchTopic", 0).max_physical_offset
    path, unit = root / "batchconsumequeue/BatchTopic/1" / f"{0:020}", BATCH_CONSUME_QUEUE_UNIT
    first = replace(unit.parse(path.read_bytes()), base_queue_offset=1 << 40, physical_offset=-5)
    path.write_bytes(unit.build(first) + path.read_bytes()[unit.size :])
    with mqtool.open(root) as store:
        after, last = described(store, "BatchTopic"), store.commit_log.record(limit)
    assert after["messages"] != before["messages"]
    assert after["last_timestamp"] == last.store_timestamp
