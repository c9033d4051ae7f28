"""The log indexed again has the entries that dispatch put into the index, from wherever it begins."""

import pytest

from mqtool.engine.disk.files import Files
from mqtool.engine.index import Index, reindex
from mqtool.engine.options import rules_of
from mqtool.formats.properties import encode
from tests.support.engine import HeldClock, open_small, small_options
from tests.unit.recovery.stores import patch

MESSAGES = 60
DELAYED = 7


@pytest.fixture
def store(in_memory):
    """Three segments and four index files; one message waits for a delay level."""
    with open_small(in_memory / "store") as store:
        for number in range(MESSAGES):
            topic, more = ("SCHEDULE_TOPIC_XXXX", {"DELAY": "1"}) if number == DELAYED else ("T", {})
            assert store.put(topic, 0, b"x" * 50, encode({"KEYS": f"k{number}", **more}.items())).ok
        store.dispatch()
        yield store


@pytest.fixture
def index(in_memory):
    return Index(small_options(), Files(), in_memory / "again", HeldClock(), background=False)


def entries(index: Index) -> list[tuple[int, int]]:
    """Key hash and physical offset of each entry, over all files."""
    return [file._entry(number)[:2] for file in index.files for number in range(1, file.header.index_count)]


def indexed_again(store, index, start: int) -> int:
    return reindex(store._components.log.queue, index, start, rules_of(store.options, frozenset()))


def test_all_records_have_their_entries_again(store, index):
    assert indexed_again(store, index, 0) == MESSAGES
    assert len(index.files) == len(store._components.index.files) == 4
    assert entries(index) == entries(store._components.index)
    assert [file.header for file in index.files] == [file.header for file in store._components.index.files]


@pytest.mark.parametrize("first", [1, 30, 59])
def test_records_before_the_start_have_none(store, index, first):
    known = entries(store._components.index)
    assert indexed_again(store, index, known[first][1]) == MESSAGES - first
    assert entries(index) == known[first:]


def test_nothing_is_indexed_past_the_last_record(store, index):
    last = entries(store._components.index)[-1][1]
    assert indexed_again(store, index, last + 1) == 0
    assert index.files == ()


def test_a_record_that_a_broker_does_not_dispatch_has_no_entry_and_the_others_have_theirs(store, index):
    known = entries(store._components.index)
    at = known[DELAYED][1]
    segment = store.path / "commitlog" / f"{at // 4096 * 4096:020d}"
    patch(segment, segment.read_bytes().index(b"DELAY\x011") + 6, b"x")
    assert indexed_again(store, index, 0) == MESSAGES
    assert entries(index) == [entry for entry in known if entry[1] != at]
