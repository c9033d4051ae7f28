"""Queues with an extension (ConsumeQueueExt), closed and opened again: no unit is lost, and none is written twice."""

import os
import shutil
from datetime import UTC

import pytest

import mqtool
from mqtool.engine import GetStatus, open_store
from mqtool.engine.retention.forecast import derived_files_before
from mqtool.engine.retention.rules import RetentionPolicy
from mqtool.engine.start.detect import options_for
from mqtool.errors import LayoutError
from mqtool.formats.consume_queue import is_ext_address
from mqtool.store.queues.get_message import TagFilter
from tests.support.engine import HeldClock, small_options, tree
from tests.support.engine_faults import kill

MESSAGES = 60
UNIT = 22
"""Bytes of a unit with a bit map of 2 bytes: 45 units are 990 of the 1000 bytes of a file."""


def put(store, numbers):
    for number in numbers:
        assert store.put("T", 0, b"x", b"TAGS\x01Tag%d\x02" % (number % 3)).ok
    store.dispatch()


def files_of(store, *names):
    return {
        path.relative_to(store.path): path.read_bytes()
        for name in names
        for path in (store.path / name).rglob("*")
        if path.is_file()
    }


@pytest.fixture
def extended(opened):
    """Opens stores whose extensions take several files."""
    return lambda name: opened(name, consume_queue_ext=True, consume_queue_ext_file_size=1000, bit_map_of=bits)


def bits(request):
    return bytes([request.queue_offset % 251, 7])


def test_a_store_that_was_closed_meanwhile_has_the_same_files(extended):
    at_once = extended("at-once")
    put(at_once, range(MESSAGES))
    for first in range(0, MESSAGES, 20):
        in_parts = extended("in-parts")
        put(in_parts, range(first, first + 20))
        in_parts.close()
    at_once.close()
    kept = files_of(at_once, "consumequeue", "consumequeue_ext")
    assert len([path for path in kept if path.parts[0] == "consumequeue_ext"]) > 1
    assert files_of(in_parts, "consumequeue", "consumequeue_ext") == kept


def reopened(root, **more):
    options = small_options(**{"consume_queue_ext": True, "consume_queue_ext_file_size": 1000, **more})
    return open_store(root, options, clock=HeldClock(), background=False, bit_map_of=bits)


def tagged(store, tag):
    """Queue offsets of the messages that a consumer of a tag gets."""
    found, at = [], 0
    while at < store.queue_bounds("T", 0)[1]:
        answer = store.get_message("T", 0, at, 32, TagFilter(tag))
        found += answer.queue_offsets
        at = answer.next_begin_offset
    return found


@pytest.fixture
def filled(in_memory):
    """A store of 60 messages with the tags Tag0, Tag1, Tag2 in turn; its extension has 45 units and 15."""
    with reopened(in_memory / "store") as store:
        put(store, range(MESSAGES))
    return store.path


@pytest.mark.parametrize("size", [b"\0\0", b"\0\5", b"\x7f\xff"], ids=["zeros", "below the head", "beyond the file"])
def test_a_damaged_newest_unit_costs_no_other_and_its_address_is_not_given_again(filled, size):
    file = filled / "consumequeue_ext/T/0" / f"{1000:020d}"
    data = bytearray(file.read_bytes())
    data[14 * UNIT : 14 * UNIT + 2] = size
    file.write_bytes(data)
    with reopened(filled) as store:
        put(store, range(61, 61 + MESSAGES))  # the tags are those of the message before
        # where the unit is damaged, every consumer gets the message and compares the tag itself
        assert tagged(store, "Tag0") == [*range(0, 60, 3), 59, *range(62, 120, 3)]
        assert tagged(store, "Tag2") == [*range(2, 60, 3), *range(61, 120, 3)]
    assert file.read_bytes() == bytes(data)


def test_after_the_extension_was_deleted_no_message_is_withheld_from_a_consumer_of_its_tag(filled):
    shutil.rmtree(filled / "consumequeue_ext")
    with reopened(filled) as store:
        put(store, range(61, 61 + MESSAGES))
        assert tagged(store, "Tag0") == [*range(60), *range(62, 120, 3)]
    assert min(path.name for path in (filled / "consumequeue_ext/T/0").iterdir()) == f"{2000:020d}"


def test_a_bit_map_that_no_file_has_room_for_leaves_the_tag_in_the_queue(in_memory):
    for first in (0, 10):
        options = small_options(consume_queue_ext=True, consume_queue_ext_file_size=1000)
        with open_store(
            in_memory / "store", options, clock=HeldClock(), background=False, bit_map_of=lambda request: bytes(1000)
        ) as store:
            put(store, range(first, first + 10))
            codes = [code for _, _, code in store.units("T", 0, 0, 99)]
            assert len(codes) == first + 10
            assert not any(map(is_ext_address, codes))
            assert tagged(store, "Tag1") == list(range(1, first + 10, 3))


def test_a_queue_that_was_cut_completely_begins_with_an_empty_extension(filled):
    with reopened(filled) as store:
        kill(store)
    for path in (filled / "commitlog").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    with reopened(filled) as store:
        assert store.queue_bounds("T", 0) == (0, 0)
        put(store, [1])
        units = tree(filled / "consumequeue_ext")
        assert {name: data.rstrip(b"\0")[UNIT:] for name, data in units.items()} == {f"T/0/{0:020d}": b""}
        assert tagged(store, "Tag1") == [0]
        assert tagged(store, "Tag0") == []


def test_a_deleted_topic_leaves_no_extension(filled):
    with reopened(filled) as store:
        assert store.delete_topic("T") == 1
        assert list((filled / "consumequeue_ext").iterdir()) == []
        put(store, [2])
        assert tagged(store, "Tag2") == [0]


def test_an_extension_of_another_file_size_is_refused(filled):
    before = tree(filled / "consumequeue_ext")
    with pytest.raises(LayoutError, match="expected a file of 2000 bytes, found 1000; open the store with the sizes"):
        reopened(filled, consume_queue_ext_file_size=2000)
    assert tree(filled / "consumequeue_ext") == before


def test_without_configuration_a_store_with_an_extension_gets_one_for_new_messages(filled):
    options = options_for(filled, {"maxHashSlotNum": 10, "maxIndexNum": 20})
    assert (options.consume_queue_ext, options.consume_queue_ext_file_size) == (True, 1000)


def test_files_of_the_extension_follow_the_queue(opened, clock):
    """ConsumeQueueExt.truncateByMinAddress: a file that ends before the address in the queue's first unit is deleted."""
    store = opened(
        consume_queue_ext=True,
        consume_queue_ext_file_size=1000,
        bit_map_of=lambda request: bytes(100),
        policy=RetentionPolicy(zone=UTC, batch_max=3),
    )
    for _ in range(60):
        clock.time += 1
        assert store.put("T", 0, b"x" * 500).ok
    store.dispatch()
    store.flush()
    for path in (store.path / "commitlog").iterdir():
        os.utime(path, (0, 0))
    directory = store.path / "consumequeue_ext" / "T" / "0"
    before = sorted(directory.iterdir())
    assert len(before) == 8  # of 8 units of 120 bytes
    with mqtool.open(store.path) as read:
        predicted = derived_files_before(read, 3 * 4096)
    store.clean_soon()
    deleted = store.clean()
    first = store.queue_bounds("T", 0)[0]
    assert first > 16
    expired = [path for number, path in enumerate(before) if (number + 1) * 1000 < first // 8 * 1000 + first % 8 * 120]
    assert len(expired) >= 2
    assert [path for path in deleted if path in before] == expired
    assert [path for path in deleted if path.parent.name != "commitlog"] == predicted
    assert sorted(directory.iterdir()) == before[len(expired) :]
    assert store.get_message("T", 0, first).status is GetStatus.FOUND
