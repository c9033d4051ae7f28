"""Messages by key: limits of a search through the index, and addresses of damaged records."""

import base64
import json
import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from mqtool.choices import SearchMethod
from mqtool.cli.app import run
from mqtool.formats import index_file
from mqtool.store import Message, find, open_store
from mqtool.store.describe import oddities
from mqtool.store.find import find_messages, messages_by_key
from mqtool.story import histories_of
from tests.support.builder import StoreBuilder
from tests.support.stores import answers, copy_store, store_fixture
from tests.support.unreadable import unreadable


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
        found = find.resolve(store, "Topic/0@2")
        assert (found.messages, found.damage[0].start) == ([], builder.puts[2].physical_offset)
        assert found.missing == f"its record at physical offset {builder.puts[2].physical_offset} is damaged"
        assert find.resolve(store, "Topic/0@1").messages[0].unique_key == "u1"
        assert find.resolve(store, "Topic/7@1").missing == "there is no queue 7 of topic Topic"


# --- holes of the index ----------------------------------------------------------------------------------------------


def claim_less(path: Path) -> None:
    """Lets the header state fewer entries than there are."""
    with path.open("r+b") as file:
        file.seek(36)
        file.write((3).to_bytes(4, "big"))


HARM = {
    "deleted": os.unlink,
    "empty": lambda path: os.truncate(path, 0),
    "cut": lambda path: os.truncate(path, 1000),
    "fewer entries": claim_less,
}


def keys_of(root: Path, number: int) -> list[str]:
    """Keys of records that one index file names."""
    with open_store(root) as store:
        file = store.disk_index_files()[number]
        first, last = file.header.begin_physical_offset, file.header.end_physical_offset
        messages = [one for one in store.messages(start=first, end=last + 1) if isinstance(one, Message)]
    assert len(messages) > 9
    return [one.unique_key for one in (messages[0], messages[len(messages) // 2], messages[-1])]


def check_found(root: Path, keys: list[str]) -> None:
    with open_store(root) as store:
        for key in keys:
            by_index = list(find_messages(store, keys=[key]).items)
            assert by_index == list(find_messages(store, SearchMethod.SCAN, keys=[key]).items)
            assert by_index == messages_by_key(store, key).messages != []
            assert find.resolve(store, key).messages == by_index


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
@pytest.mark.parametrize("number", [0, 1, -1])
def test_records_in_a_hole_of_the_index_are_found(harm, number, tmp_path, monkeypatch):
    monkeypatch.setattr(find, "SMALL_LOG", -1)
    root = copy_store("orders-5.5.0", tmp_path)
    keys = keys_of(root, number)
    harm(sorted((root / "index").iterdir())[number])
    check_found(root, keys)


@pytest.mark.parametrize("from_position", [None, 100], ids=["denied", "bad sector"])
def test_an_unreadable_index_file_is_a_hole_and_is_named(from_position, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(find, "SMALL_LOG", -1)
    root = copy_store("orders-5.5.0", tmp_path)
    keys, path = keys_of(root, 1), sorted((root / "index").iterdir())[1]
    with unreadable(monkeypatch, path, from_position=from_position):
        check_found(root, keys)
        with open_store(root) as store:
            assert [one for one in oddities(store) if path.name in one and "cannot be" in one]
        if from_position is None:
            assert run(["info", str(root)]) == 0
            assert path.name in capsys.readouterr().out.partition("commit_log")[0]


def test_a_complete_index_leaves_nothing_to_scan(tmp_path, monkeypatch):
    monkeypatch.setattr(find, "SMALL_LOG", -1)
    root = copy_store("orders-5.5.0", tmp_path)
    with open_store(root) as store:
        (words,) = find_messages(store, keys=["k0"]).methods
    assert "9 files" in words
    assert "--by scan finds these" in words


def test_a_hole_that_is_too_long_for_a_story_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(find, "MAX_SCANNED", 1000)
    root = copy_store("orders-5.5.0", tmp_path)
    keys = keys_of(root, 1)
    sorted((root / "index").iterdir())[1].unlink()
    with open_store(root) as store:
        found = messages_by_key(store, keys[1])
        assert (found.messages, found.unread > 1000) == ([], True)
        assert "not covered by the index" in histories_of(store, keys[1])[1][0]


# --- records that the index cannot name ------------------------------------------------------------------------------


def delete_topic(root: Path, topic: str) -> None:
    shutil.rmtree(root / "consumequeue" / topic)
    for path in (root / "config").glob("topics.json*"):
        found = json.loads(path.read_text())
        found["topicConfigTable"].pop(topic, None)
        path.write_text(json.dumps(found))


@pytest.mark.parametrize("is_small", [True, False])
def test_messages_of_a_deleted_topic_are_found_or_said_to_be_unknown(is_small, tmp_path, monkeypatch):
    root = copy_store("orders-5.5.0", tmp_path)
    with open_store(root) as store:
        wanted = next(one for one in store.messages(topics=["Orders"]) if isinstance(one, Message))
    delete_topic(root, "Orders")
    if not is_small:
        monkeypatch.setattr(find, "SMALL_LOG", 1000)
    with open_store(root) as store:
        key = wanted.unique_key
        assert list(find_messages(store, topics=["Orders"], keys=[key]).items) == [wanted]
        found, by_id = find_messages(store, keys=[key]), find.resolve(store, key)
        lives, notes = histories_of(store, key)
        if is_small:
            assert list(found.items) == by_id.messages == lives[0].records == [wanted]
            return
        assert (list(found.items), by_id.messages, lives) == ([], [], [])
        for words in (found.methods[0], by_id.method, notes[0]):
            assert "topics without queue and configuration" in words


def test_rolled_back_transactions_are_found(tmp_path):
    root = copy_store("txbits-4.9.7", tmp_path)
    with open_store(root) as store:
        found = list(find_messages(store, keys=["x12"]).items)
        assert {one.sys_flag & 12 for one in found} == {12}
        assert found == list(find_messages(store, SearchMethod.SCAN, keys=["x12"]).items)
        assert len(histories_of(store, "x12")[0]) == len(found)


@pytest.mark.parametrize("method", [SearchMethod.AUTO, SearchMethod.SCAN])
def test_the_messages_of_an_inner_batch_are_found_one_by_one(method):
    """As a consumer got them from the broker."""
    delivered = [line for line in answers("bcq-5.5.0", "messages") if line["kind"] == "message"]
    with open_store(store_fixture("bcq-5.5.0").directory) as store:

        def places(**criteria):
            found = find_messages(store, method, **criteria).items
            return [(one.topic, one.queue_id, one.queue_offset, one.body) for one in found]

        def expected(fits):
            rows = [row for row in delivered if fits(row["properties"])]
            return sorted(
                (row["topic"], row["queueId"], row["queueOffset"], base64.b64decode(row["body"])) for row in rows
            )

        for row in delivered[::7]:
            key, word = row["properties"]["UNIQ_KEY"], row["properties"].get("KEYS", "k0")
            assert places(unique_keys=[key]) == expected(lambda found, key=key: found["UNIQ_KEY"] == key)
            assert sorted(places(keys=[word])) == expected(lambda found, word=word: found.get("KEYS") == word)
        assert sorted(places(tags=["TagA"])) == expected(lambda found: found.get("TAGS") == "TagA")
        assert places(unique_keys=["FD"]) == []
        (history,) = histories_of(store, delivered[1]["properties"]["UNIQ_KEY"])[0]
        assert [(one.queue_id, one.queue_offset) for one in history.records] == [
            (delivered[1]["queueId"], delivered[1]["queueOffset"])
        ]


def test_a_selection_of_records_does_not_look_into_batches():
    """A purge chooses whole records."""
    with open_store(store_fixture("bcq-5.5.0").directory) as store:
        assert list(store.messages(keys=["k3"])) == []


def test_an_index_entry_that_leads_into_a_record_names_no_message(tmp_path):
    """As after records were cut off and others written in their place."""
    builder = StoreBuilder()
    for number in range(4):
        builder.put(bytes(500), keys=f"k{number}")
    root = builder.write(tmp_path / "store")
    (index,) = (root / "index").iterdir()
    data = bytearray(index.read_bytes())
    at = index_file.entry_position(2, builder.slots)
    entry = index_file.ENTRY.parse(data, at)
    assert entry.physical_offset == builder.puts[1].physical_offset
    data[at : at + index_file.ENTRY.size] = index_file.ENTRY.build(
        replace(entry, physical_offset=entry.physical_offset + 200)
    )
    index.write_bytes(data)
    with open_store(root) as store:
        assert list(find_messages(store, SearchMethod.INDEX, keys=["k1"]).items) == []
        assert [one.keys for one in find_messages(store, SearchMethod.INDEX, keys=["k2"]).items] == [("k2",)]
