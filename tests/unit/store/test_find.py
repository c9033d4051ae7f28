"""Messages by key: limits of a search through the index, and addresses of damaged records."""

import pytest

from mqtool.choices import SearchMethod
from mqtool.store import address, open_store
from mqtool.store.find import find_messages
from tests.support.builder import StoreBuilder


@pytest.fixture
def built(tmp_path):
    builder = StoreBuilder()
    for number in range(4):
        builder.put(keys="same", unique_key=f"u{number}")
    return builder, builder.write(tmp_path / "store")


@pytest.mark.parametrize("method", [SearchMethod.INDEX, SearchMethod.SCAN, SearchMethod.AUTO])
@pytest.mark.parametrize(("limit", "count"), [(0, 0), (1, 1), (3, 3), (9, 4), (None, 4)])
def test_a_search_ends_with_its_limit_by_whatever_it_looks(method, limit, count, built):
    builder, root = built
    with open_store(root) as store:
        found = find_messages(store, method, keys=["same"], limit=limit)
        offsets = [message.physical_offset for message in found.items]
    assert offsets == [put.physical_offset for put in builder.puts[:count]]


def test_a_place_in_a_queue_whose_record_is_damaged_is_said_with_what_is_wrong(built):
    builder, root = built
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(builder.puts[2].physical_offset + 4)
        file.write(b"\xff\xff")
    with open_store(root) as store:
        found = address.resolve(store, "Topic/0@2")
        assert (found.messages, found.damage[0].start) == ([], builder.puts[2].physical_offset)
        assert found.method.startswith("queue offset; its record is damaged: ")
        assert address.resolve(store, "Topic/0@1").messages[0].unique_key == "u1"
        assert address.resolve(store, "Topic/7@1").method == "there is no queue 7 of topic Topic"
