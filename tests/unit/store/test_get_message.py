"""The broker's getMessage over views: one rule, wherever units and records come from."""

import pytest

import mqtool
from mqtool.engine import open_store
from mqtool.formats import java
from mqtool.formats.consume_queue import is_ext_address
from mqtool.records.damage import DamageKind
from mqtool.store.queues.get_message import (
    GetLimits,
    GetStatus,
    TagFilter,
    Unit,
    find_batch_unit,
    get_message,
    next_file,
)
from mqtool.store.queues.pull import QueueOnDisk, _LogOnDisk
from tests.support.builder import StoreBuilder
from tests.support.engine import small_options
from tests.support.unreadable import unreadable

BROKERS = GetLimits()


class Units:
    """A queue of ten messages of 100 bytes each, all in one file."""

    min_offset, max_offset, unit_size = 0, 10, 20
    file_units = 10

    def units_from(self, queue_offset, count, limit):
        return (Unit(at, 1, 100 * at, 100, at) for at in range(queue_offset, 10)[:limit])

    def ext_unit(self, address):
        return None


class Log:
    """Its records, some of them missing; `even` and `odd` is what their properties say."""

    min_offset, max_offset = 0, 1000

    def __init__(self, *missing, skips=0):
        self.missing = missing
        self.skips = skips

    def record(self, physical_offset, size):
        return None if physical_offset // 100 in self.missing else physical_offset // 100

    def after_missing(self, physical_offset):
        return physical_offset + self.skips

    def properties(self, record):
        return {"parity": "odd" if record % 2 else "even"}


class Parity:
    def __init__(self, wanted):
        self.wanted = wanted

    def by_unit(self, tags_code, ext):
        return True

    def by_record(self, properties):
        return properties["parity"] == self.wanted


def got(log, offset, most=32, wanted=None, max_bytes=1 << 20, limits=BROKERS):
    found = get_message(Units(), log, offset, most, wanted, max_bytes, limits)
    return found.status.name, found.next_begin_offset, found.records


def test_limits_end_a_get_and_the_first_message_passes_all_of_them():
    assert got(Log(), 3, most=2) == ("FOUND", 5, [3, 4])
    assert got(Log(), 3, max_bytes=250) == ("FOUND", 5, [3, 4])
    assert got(Log(), 3, max_bytes=1) == ("FOUND", 4, [3])
    assert got(Log(), 3, limits=GetLimits(bytes_in_memory=10)) == ("FOUND", 4, [3])
    assert got(Log(), 3, limits=GetLimits(count_on_disk=3, memory=0)) == ("FOUND", 6, [3, 4, 5])


def test_a_search_ends_after_so_many_bytes_of_the_queue():
    assert got(Log(), 0, most=1, wanted=Parity("odd"), limits=GetLimits(filter_bytes=20)) == (
        "NO_MATCHED_MESSAGE",
        1,
        [],
    )


def test_a_missing_record_has_the_rest_of_its_file_passed_over():
    assert got(Log(3, skips=300), 3) == ("FOUND", 10, [6, 7, 8, 9])
    assert got(Log(3), 3) == ("FOUND", 10, [4, 5, 6, 7, 8, 9])
    assert got(Log(*range(10), skips=1000), 3) == ("MESSAGE_WAS_REMOVING", 10, [])


def test_a_message_that_the_filter_leaves_out_decides_the_status_after_a_missing_one():
    assert got(Log(8), 8, wanted=Parity("even")) == ("NO_MATCHED_MESSAGE", 10, [])
    assert got(Log(9), 8, wanted=Parity("odd")) == ("MESSAGE_WAS_REMOVING", 10, [])


def test_a_queue_without_messages_says_so_whatever_is_asked():
    assert get_message(None, Log(), 7, 1).status is GetStatus.NO_MESSAGE_IN_QUEUE


def test_tags_are_found_through_the_extension_in_an_engine_and_on_disk(tmp_path):
    with open_store(tmp_path, small_options(consume_queue_ext=True), background=False) as store:
        for number in range(6):
            store.put("T", 0, b"x", b"TAGS\x01Tag%d\x02" % (number % 3))
        store.dispatch()
        answer = store.get_message("T", 0, 0, 32, TagFilter("Tag1"))
        live, target = answer.queue_offsets, bytearray(b"before")
        assert answer.copy_to(target, 6) == len(target)
        assert bytes(target) == b"before" + b"".join(bytes(record) for record in answer.records)
        store.flush()
    with mqtool.open(tmp_path) as store:
        assert any(is_ext_address(code) for code in store.queue("T", 0).units()["tags_code"].tolist())
        found = store.get_message("T", 0, 0, tags="Tag1")
    assert live == [message.queue_offset for message in found.messages] == [1, 4]


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ("", {"a", "*", "a\u00a0", ""}),
        ("*", {"a", "*", "a\u00a0", ""}),
        (" || ", set()),
        (" ", set()),
        ("* ", {"*"}),
        ("||a || ", {"a"}),
        ("a\u00a0||*", {"a\u00a0", "*"}),
    ],
)
def test_an_expression_selects_the_tags_that_a_broker_selects(expression, selected):
    """FilterAPI.buildSubscriptionData, ExpressionMessageFilter.isMatchedByConsumeQueue (✔run 5.5.0)."""
    codes = {tag: java.string_hash(tag) for tag in ("a", "*", "a\u00a0", "")}
    found = TagFilter(expression)
    assert {tag for tag, code in codes.items() if found.by_unit(code, None)} == selected


def test_where_the_extension_cannot_be_read_records_decide_and_an_unreadable_one_is_damage(tmp_path, monkeypatch):
    with open_store(tmp_path, small_options(consume_queue_ext=True), background=False) as store:
        places = [store.put("T", 0, b"x", b"TAGS\x01Tag%d\x02" % (number % 3)) for number in range(6)]
        store.dispatch()
    (ext,) = (tmp_path / "consumequeue_ext" / "T" / "0").iterdir()
    with unreadable(monkeypatch, ext, from_position=0), mqtool.open(tmp_path) as store:
        found = store.get_message("T", 0, 0, tags="Tag1")
        assert [message.queue_offset for message in found.messages] == [0, 1, 2, 3, 4, 5]  # the filter is the client's
    at = places[2].physical_offset
    with mqtool.open(tmp_path) as store:
        assert store.commit_log.max_offset > at
        (segment,) = (file.path for file in store.commit_log.segments if file.base <= at < file.end)
        with unreadable(monkeypatch, segment, from_position=at, until=at + 1):
            found = store.get_message("T", 0, 0)
    assert [message.queue_offset for message in found.messages] == [0, 1, 3, 4, 5]
    assert [(one.start, one.kind) for one in found.damage] == [(at, DamageKind.UNREADABLE)]


@pytest.mark.parametrize(("offset", "expected"), [(0, 100), (99, 100), (100, 200), (-1, 100), (-101, 0)])
def test_the_next_file_begins_where_java_finds_it(offset, expected):
    assert next_file(offset, 100) == expected


def test_a_batch_queue_without_a_unit_for_an_offset_sends_a_consumer_to_its_beginning():
    queue = Units()
    queue.file_units = 0
    queue.units_from = lambda *_: ()
    found = get_message(queue, Log(), 5, 32)
    assert (found.status, found.next_begin_offset) == (GetStatus.OFFSET_FOUND_NULL, 0)


@pytest.mark.parametrize(
    ("queue_offset", "expected"),
    [
        (-1, None),  # before the first file
        (0, ("old", 0)),
        (4, ("old", 1)),
        (9, ("old", 2)),  # in the gap between the files
        (10, ("new", 0)),
        (12, ("new", 2)),  # of three units with one offset, where the search meets one
        (19, ("new", 4)),
        (20, None),
    ],
)
def test_a_get_from_a_batch_queue_begins_with_the_unit_that_the_broker_finds(queue_offset, expected):
    files = [("empty", []), ("new", [10, 12, 12, 12, 15]), ("old", [0, 3, 5])]
    assert find_batch_unit(files, 20, queue_offset) == expected


def test_a_get_ends_where_its_bytes_are_full_also_before_a_unit_of_no_bytes():
    """As DefaultMessageStore.getMessage (5.5.0), which compares the bytes found with maxPullSize after isTheBatchFull."""
    queue = Units()
    queue.units_from = lambda *_: [Unit(0, 1, 0, 100, 0), Unit(1, 1, 100, 100, 0), Unit(2, 1, 200, 0, 0)]
    found = get_message(queue, Log(), 0, 32, None, 200)
    assert (found.status, found.next_begin_offset, found.records) == (GetStatus.FOUND, 2, [0, 1])
    found = get_message(queue, Log(), 0, 32, None, 201)
    assert (found.status, found.next_begin_offset, found.records) == (GetStatus.FOUND, 3, [0, 1, 2])


def test_records_on_disk_are_in_memory_by_their_distance_to_the_end_of_the_log(tmp_path):
    builder = StoreBuilder()
    for _ in range(20):
        builder.put(bytes(1000))
    with mqtool.open(builder.write(tmp_path / "store")) as store:
        log, queue = _LogOnDisk(store.commit_log), QueueOnDisk(store.queue("Topic", 0))
        limits = GetLimits(memory=5000, bytes_on_disk=2500, bytes_in_memory=100_000)
        assert len(get_message(queue, log, 0, 32, limits=limits).records) == 2
        assert len(get_message(queue, log, 16, 32, limits=limits).records) == 4
