"""Queues of a store as plans for consumer positions see them."""

import pytest

from mqtool.store import open_store
from mqtool.store.groups.offset_moves import StoredQueues
from tests.support.builder import FIRST_TIME, StoreBuilder


@pytest.fixture
def built(tmp_path):
    builder = StoreBuilder()
    for number in range(40):
        builder.put(b"%d" % number, keys=f"k{number}", step=10)
    return builder, builder.write(tmp_path / "store")


@pytest.fixture
def queues(built):
    with open_store(built[1]) as store:
        yield StoredQueues(store)


def offsets(queues, start, end):
    return [message.queue_offset for message in queues.messages("Topic", 0, start, end)]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, 40, range(40)), (35, 99, range(35, 40)), (3, 5, (3, 4)), (40, 50, ()), (5, 5, ())],
)
def test_messages_of_a_range_end_where_the_queue_does(start, end, expected, queues):
    assert offsets(queues, start, end) == list(expected)
    assert offsets(queues, 0, 3) == [0, 1, 2]
    assert list(queues.messages("Absent", 0, 0, 3)) == []


def test_a_record_that_states_another_queue_offset_is_none_of_the_range(built):
    """Its unit leads to it, so a consumer would get it; what it is called is not known."""
    builder, root = built
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(builder.puts[3].physical_offset + 20)
        file.write((77).to_bytes(8, "big"))
    with open_store(root) as store:
        queues = StoredQueues(store)
        assert offsets(queues, 2, 6) == [2, 4, 5]
        assert queues.message("Topic", 0, 3) is None
        assert queues.message("Topic", 0, 4).key == "k4"


@pytest.mark.parametrize(("time", "expected"), [(0, 0), (FIRST_TIME + 110, 10), (FIRST_TIME + 400, 39)])
def test_an_offset_by_time_is_that_of_the_message_of_that_time(time, expected, queues):
    assert queues.at_time("Topic", 0, time) == expected


def test_a_batch_queue_without_units_begins_at_0_at_any_time(built):
    """A broker resets a consumer to -1 there, which it then reads as 0."""
    directory = built[1] / "batchconsumequeue" / "Batch" / "0"
    directory.mkdir(parents=True)
    (directory / f"{0:020}").write_bytes(bytes(46 * 10))
    with open_store(built[1]) as store:
        assert StoredQueues(store).at_time("Batch", 0, FIRST_TIME) == 0
