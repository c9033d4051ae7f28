"""A real store opened by the engine answers gets, queries and times as the release that wrote it."""

import pytest

from mqtool.engine import open_store
from mqtool.store.queues.by_time import Boundary
from mqtool.store.queues.get_message import TagFilter
from tests.support.engine import HeldClock, options_of
from tests.support.stores import answered, answers, copy_store

STORES = [store for store in answered("gets", "queries", "times") if store.clean_stop]


@pytest.fixture(params=STORES, ids=str)
def opened(request, tmp_path):
    """A copy of each real store with all answers, open."""
    fixture = request.param
    root = copy_store(fixture.name, tmp_path)
    options = options_of(fixture.config, fixture.version)
    with open_store(root, options, clock=HeldClock(), background=False) as store:
        yield fixture.name, store


def test_gets_are_answered_as_by_the_broker(opened):
    name, store = opened
    wrong = []
    for line in answers(name, "gets"):
        wanted = None if line["tags"] is None else TagFilter(line["tags"])
        found = store.get_message(line["topic"], line["queueId"], line["offset"], line["max"], wanted)
        offsets = [int.from_bytes(record[28:36], "big") for record in found.records]
        got = (found.status.name, found.next_begin_offset, found.min_offset, found.max_offset, found.size, offsets)
        expected = tuple(
            line[key] for key in ("status", "nextBeginOffset", "minOffset", "maxOffset", "bytes", "physicalOffsets")
        )
        if got != expected:
            wrong.append((line, got))
    assert wrong == []


def test_queries_are_answered_as_by_the_broker(opened):
    name, store = opened
    for line in answers(name, "queries"):
        found = store.query_message(line["topic"], line["key"], line["max"], line["begin"], line["end"])
        assert found.physical_offsets == line["physicalOffsets"], line
        assert found.index_last_update_physical_offset == line["indexLastUpdatePhyOffset"]
        assert found.index_last_update_timestamp == line["indexLastUpdateTimestamp"]


@pytest.mark.slow
def test_offsets_by_time_are_answered_as_by_the_broker(opened):
    name, store = opened
    for line in answers(name, "times"):
        place = (line["topic"], line["queueId"], line["timestamp"])
        assert store.offset_in_queue_by_time(*place) == line["offset"], line
        if "lower" in line:
            assert store.offset_in_queue_by_time(*place, Boundary.LOWER) == line["lower"], line
            assert store.offset_in_queue_by_time(*place, Boundary.UPPER) == line["upper"], line
