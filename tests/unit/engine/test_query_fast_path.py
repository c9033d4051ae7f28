"""The fast path of a query by key and the slow one give the same answer, whatever they meet."""

import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.engine import MessageStore, QueryResult, open_store
from mqtool.formats import java
from mqtool.formats.properties import encode
from tests.support.engine import small_options
from tests.support.native import needs_native

pytestmark = needs_native

SMALLEST = "T#1LG3HE3"
"""Its hash in Java is the smallest int, which has no absolute value."""

KEYS = ["Aa", "BB", "k0", "k1", "тема", "", "\udc80", "many", "absent"]
"""The first two have one hash."""


@pytest.fixture
def store(opened, clock) -> MessageStore:
    """Messages in three segments, keys in six index files."""
    store = opened(commit_log_file_size=1 << 13, index_slots=5, index_entries=20, max_query=32)
    for number in range(60):
        clock.sleep(0.7)
        keys = f"{KEYS[number % 5]} many" if number % 3 else f"k{number}"
        assert store.put("T", 0, b"x" * 200, encode([("KEYS", keys)])).ok
    store.dispatch()
    segments = store._components.log.queue.files
    assert len(segments) == 3
    assert all(segment.file.pin for segment in segments)  # maps them; the fast path reads mapped files only
    assert len(store._components.searcher._index.files) == 6
    return store


def query(store: MessageStore, *arguments) -> QueryResult:
    """The answer of `query_message`, records as bytes."""
    found = store.query_message(*arguments)
    return found._replace(records=[*map(bytes, found.records)])


def both(store: MessageStore, *arguments) -> QueryResult:
    """The answer of both paths, which must be equal."""
    searcher = store._components.searcher
    searcher._finder, finder = None, searcher._finder
    slow = query(store, *arguments)
    searcher._finder = finder
    assert finder is not None
    assert query(store, *arguments) == slow
    return slow


def fast(store: MessageStore, key="many", topic="T", most=32, begin=0, end=java.LONG_MAX) -> QueryResult | None:
    """The fast path alone."""
    return store._components.searcher._finder.query(topic, key, most, begin, end)


def times(store: MessageStore) -> list[int]:
    """Store timestamps around the limits of all index files."""
    headers = [file.header for file in store._components.searcher._index.files]
    limits = [limit for one in headers for limit in (one.begin_timestamp, one.end_timestamp)]
    return [0, *(limit + more for limit in limits for more in (-1, 0, 1)), java.LONG_MAX]


def test_both_paths_find_the_same_messages(store):
    ranges = [*itertools.product(times(store)[::3], repeat=2), (0, java.LONG_MAX)]
    sizes = {
        len(both(store, "T", key, most, *span).records)
        for key in KEYS
        for most in (0, 1, 5, 32)
        for span in (ranges if key == "many" else ranges[-3:])
    }
    assert sizes >= {0, 1, 5, 9}
    assert fast(store) is not None
    assert fast(store, "Aa").physical_offsets == fast(store, "BB").physical_offsets


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 4, 32])
def test_both_paths_find_the_same_messages_of_any_time(store, most):
    for span in itertools.product(times(store), repeat=2):
        assert len(both(store, "T", "many", most, *span).records) <= most


@pytest.mark.parametrize(
    "arguments",
    [
        {"key": "тема"},
        {"key": "\udc80"},
        {"key": 7},
        {"topic": None},
        {"most": 1 << 70},
        {"begin": "0"},
        {"end": 1 << 63},
    ],
    ids=str,
)
def test_what_is_not_plain_takes_the_slow_path(store, arguments):
    assert fast(store) is not None
    assert fast(store, **arguments) is None


def test_entries_that_lead_to_no_record_are_skipped(store):
    both(store, "T", "many", 32)
    first, _, _, place, *_ = fast(store).physical_offsets
    file = store._components.log.queue.find(place).file
    at = place % file.size
    before = file.read(at, 8)
    for size, magic in [(1 << 20, 0xDAA320A7), (90, 0xDAA320A7), (300, 0), (8, 0xCBD43194), (0, 0)]:
        file.write(at, size.to_bytes(4, "big") + magic.to_bytes(4, "big"))
        found = both(store, "T", "many", 32)
        assert fast(store) is not None
        assert place not in found.physical_offsets
        assert first in found.physical_offsets
    file.write(at, before)


def test_records_of_deleted_segments_take_the_slow_path(store):
    both(store, "T", "many", 32)
    log = store._components.log.queue
    files = log.files
    log.files = files[1:]
    assert fast(store, most=1) is not None
    assert fast(store, end=store._components.searcher._index.files[0].header.end_timestamp) is None
    both(store, "T", "many", 32)
    log.files = files
    files[0].available = False
    places = fast(store).physical_offsets
    assert places == both(store, "T", "many", 32).physical_offsets
    assert len(places) < len(store._components.searcher._index.query(java.index_hash("T#many"), 32, 0, java.LONG_MAX))
    files[0].available = True


def test_files_that_are_not_mapped_take_the_slow_path(store):
    file = store._components.searcher._index.files[-1].file
    pin, file.pinned = file.pinned, None
    assert fast(store) is None
    file.pinned = pin
    both(store, "T", "many", 32)
    segment = store._components.log.queue.find(fast(store).physical_offsets[0])
    segment.file.pinned = None
    assert fast(store) is None
    both(store, "T", "many", 32)
    assert fast(store) is not None


def test_the_option_limits_the_number_of_messages(opened):
    store = opened(max_query=3)
    for _ in range(5):
        store.put("T", 0, b"x", encode([("KEYS", "many")]))
    store.dispatch()
    assert len(both(store, "T", "many", 32).records) == 3


def test_a_tag_takes_the_slow_path(store):
    assert store.query_message("T", "many", tag=True).records == []
    assert store.query_message("T", "many").records != []


def test_a_key_without_an_absolute_hash(opened):
    assert java.string_hash(SMALLEST) == java.INT_MIN
    store = opened()
    topic, key = SMALLEST.split("#")
    assert store.put(topic, 0, b"x").ok
    put = store.put(topic, 0, b"x", encode([("KEYS", key)]))
    store.dispatch()
    assert both(store, topic, key).physical_offsets == [put.physical_offset]
    assert fast(store, key) is not None


@given(
    st.lists(st.text(st.characters(codec="ascii", exclude_characters=" \0\1\2"), min_size=1, max_size=40), max_size=20)
)
def test_keys_are_hashed_as_they_were_indexed(keys):
    with TemporaryDirectory() as directory, open_store(Path(directory), small_options()) as store:
        offsets = [store.put("T", 0, b"x", encode([("KEYS", key)])).physical_offset for key in keys]
        store.dispatch()
        for key, offset in zip(keys, offsets, strict=True):
            assert offset in query(store, "T", key).physical_offsets
            assert offset in fast(store, key).physical_offsets


def test_each_thread_gets_its_own_answer(store):
    expected = {key: both(store, "T", key).physical_offsets for key in ("many", "Aa", "k0", "absent")}

    def ask(key: str) -> bool:
        return all(store.query_message("T", key).physical_offsets == expected[key] for _ in range(2000))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, [*expected] * 2))


def test_no_object_is_kept_longer_than_the_result(store):
    both(store, "T", "many", 32)
    kept = [store._components.log.queue.files[0].file.pin, "T", "many", None]
    before = [sys.getrefcount(one) for one in kept[:3]]
    for _ in range(100):
        fast(store)
        fast(store, "тема")
        fast(store, most=1 << 70)
    assert [sys.getrefcount(one) for one in kept[:3]] == before
