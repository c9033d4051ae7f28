"""However many records a round of dispatch finds, the files are the same: few are taken one by one, many as columns."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from mqtool.engine import MessageStore
from mqtool.formats import commit_log
from mqtool.records.dispatch import request_of
from tests.support.engine import open_small

SIZES = {"commit_log_file_size": 1 << 15, "consume_queue_file_size": 2000, "index_slots": 50, "index_entries": 4000}


def filled(path: Path, *, every: int) -> MessageStore:
    """A store with 600 messages of many lengths in six queues, dispatched after `every` of them."""
    store = open_small(path, **SIZES)
    for number in range(600):
        held = b"KEYS\x01k%d\x02TAGS\x01t%d\x02" % (number, number % 5)
        store.put(f"topic-{number % 3}", number % 2, b"b" * (number * 7 % 300), held)
        if number % every == every - 1:
            store.dispatch()
    return store


def derived(root: Path) -> dict[str, bytes]:
    """Every file of queues and index, by what it is."""
    files = (path for path in (root / "consumequeue").rglob("*") if path.is_file())
    queues = {str(path.relative_to(root)): path.read_bytes() for path in files}
    return queues | {
        f"index {number}": path.read_bytes() for number, path in enumerate(sorted((root / "index").iterdir()))
    }


@pytest.mark.parametrize("every", [5, 23, 24, 97, 1000])
def test_rounds_of_any_size_write_the_same_files(in_memory, every):
    for name, size in (("rounds", every), ("one by one", 1)):
        with filled(in_memory / name, every=size) as store:
            store.dispatch()
            assert (
                sum(store.queue_bounds(f"topic-{topic}", queue)[1] for topic in range(3) for queue in range(2)) == 600
            )
    assert derived(in_memory / "rounds") == derived(in_memory / "one by one")


def test_dispatch_stops_before_a_segment_that_is_missing(opened):
    store = opened()
    for _ in range(3):
        store.put("T", 0, b"x" * 3000)
    queue = store._log.queue
    files = queue.files
    queue.files = (files[0], files[2])
    assert store.dispatch() == 1
    assert (store._components.dispatcher.reput_from_offset, store.queue_bounds("T", 0)) == (4096, (0, 1))
    queue.files = files
    store.dispatch()
    assert store.queue_bounds("T", 0) == (0, 3)


def test_dispatch_goes_on_after_a_segment_whose_end_has_no_room_for_a_blank(opened):
    store = opened()
    for _ in range(2):
        store.put("T", 0, b"x" * 3000)
    store.dispatch()
    dispatcher = store._components.dispatcher
    dispatcher.reput_from_offset = 4096 - 4
    assert store.dispatch() == 1
    assert dispatcher.reput_from_offset == store.max_physical_offset


def test_light_queues_of_a_topic_that_cannot_be_a_directory_get_their_units(opened):
    """A record from another writer; no put accepts such a topic."""
    store = opened(lmq=True, multi_dispatch=True)
    place = store.put("Topic", 0, b"x", b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02").physical_offset
    record = replace(commit_log.parse_record(store.message_at(place)), topic=b"../xy")
    dispatcher = store._components.dispatcher
    dispatcher.dispatch(request_of(record, dispatcher.rules))
    assert store.queue_bounds("%LMQ%a", 0) == (0, 1)
    assert [path.name for path in (store.path / "consumequeue").iterdir()] == ["%LMQ%a"]
    assert not (store.path / "xy").exists()
