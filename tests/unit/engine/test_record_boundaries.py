"""Dispatch with the writer's boundaries and without: the same bytes, and a boundaries that is wrong is not believed."""

from pathlib import Path

import pytest

from mqtool.engine import MessageStore
from mqtool.engine.write.record_boundaries import MOST, RecordBoundaries
from tests.support.engine import open_small

SIZES = {"commit_log_file_size": 1 << 15, "consume_queue_file_size": 2000, "index_slots": 50, "index_entries": 4000}


def filled(path: Path, *, every: int = 0) -> MessageStore:
    """A store with 600 messages of many lengths in six queues; dispatched after `every` of them, and in between not."""
    store = open_small(path, **SIZES)
    for number in range(600):
        held = b"KEYS\x01k%d\x02TAGS\x01t%d\x02" % (number, number % 5)
        store.put(f"topic-{number % 3}", number % 2, b"b" * (number * 7 % 300), held)
        if every and number % every == 0:
            store.dispatch()
    return store


def derived(root: Path) -> dict[str, bytes]:
    """Every file of queues and index, by what it is."""
    files = (path for path in (root / "consumequeue").rglob("*") if path.is_file())
    queues = {str(path.relative_to(root)): path.read_bytes() for path in files}
    return queues | {
        f"index {number}": path.read_bytes() for number, path in enumerate(sorted((root / "index").iterdir()))
    }


def test_dispatch_along_the_trail_writes_what_dispatch_without_it_writes(in_memory):
    with filled(in_memory / "trailed", every=97) as store:
        store.dispatch()
    with filled(in_memory / "hopped") as store:
        store._components.log.boundaries.forget(1 << 62)
        assert store.dispatch() == 600
    assert derived(in_memory / "trailed") == derived(in_memory / "hopped")


@pytest.mark.parametrize(
    "wrong", [[0, 0, 0], [0, 91], [0, 5], [3]], ids=["repeated", "short", "no record", "elsewhere"]
)
def test_a_trail_that_does_not_chain_is_not_believed(in_memory, wrong):
    with filled(in_memory / "plain") as store:
        store.dispatch()
    with filled(in_memory / "misled") as store:
        boundaries = store._components.log.boundaries
        boundaries.forget(1 << 62)
        boundaries.note_many(wrong * 30)
        assert store.dispatch() == 600
    assert derived(in_memory / "misled") == derived(in_memory / "plain")


def test_the_trail_is_gone_once_it_was_dispatched(in_memory):
    with filled(in_memory / "store") as store:
        assert len(store._components.log.boundaries) == 600
        store.dispatch()
        assert len(store._components.log.boundaries) == 0


def test_a_trail_that_nobody_takes_is_forgotten_before_it_takes_memory():
    boundaries = RecordBoundaries()
    boundaries.note_many(range(MOST))
    boundaries.bound()
    assert len(boundaries) == MOST
    boundaries.note(MOST)
    boundaries.bound()
    assert len(boundaries) == 0
