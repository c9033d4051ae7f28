"""IndexFile: real headers, slots and entries against the broker's answers; key texts and hashes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.formats import index_file
from mqtool.formats.index_file import ENTRY, HEADER, SLOT, IndexEntry, IndexHeader
from tests.support.stores import answered, answers
from tests.support.tables import in_parts
from tests.unit.formats.real import default_sizes, files

INDEX_FILES = files("index/" + "[0-9]" * 17)
SLOTS_OF_FIXTURES = 100


def slots_of(store) -> int:
    lines = store.config.read_text("utf-8").splitlines()
    return next((int(line.split("=")[1]) for line in lines if line.startswith("maxHashSlotNum=")), 5_000_000)


def test_every_real_header_is_written_back_to_its_own_bytes():
    heads = [path.read_bytes()[:40] for path in INDEX_FILES] + [default_sizes("index", 40)]
    assert len(heads) > 50
    for raw in heads:
        assert HEADER.build(HEADER.parse(raw)) == raw


@in_parts("path", INDEX_FILES)
def test_every_real_entry_is_written_back_to_its_own_bytes(path):
    data = path.read_bytes()
    start = index_file.entry_position(0, SLOTS_OF_FIXTURES)
    entries = [ENTRY.parse(data, at) for at in range(start, len(data) - len(data) % 20, 20) if at + 20 <= len(data)]
    written = b"".join(ENTRY.build(entry) for entry in entries)
    assert written == data[start : start + len(written)]


@pytest.mark.parametrize("store", [s for s in answered("gets") if s.directory], ids=str)
def test_headers_slots_and_entries_are_what_the_broker_answers(store):
    slots, compared = slots_of(store), 0
    for line in answers(store.name, "index"):
        path = store.directory / "index" / line["file"]
        if not path.exists():
            continue  # made by recovery
        data = path.read_bytes()
        assert HEADER.parse(data) == IndexHeader(
            line["beginTimestamp"],
            line["endTimestamp"],
            line["beginPhyOffset"],
            line["endPhyOffset"],
            line["hashSlotCount"],
            line["indexCount"],
        )
        assert HEADER.parse(data).entry_count == len(line["entries"])
        for number, *fields in line["entries"]:
            assert ENTRY.parse(data, index_file.entry_position(number, slots)) == IndexEntry(*fields)
        heads = {slot: newest for slot, newest, *_ in line["slots"]}
        for slot in range(slots):
            assert SLOT.unpack_from(data, index_file.slot_position(slot)) == (heads.get(slot, 0),)
        compared += 1
    assert compared


@pytest.mark.parametrize("store", answered("gets"), ids=str)
def test_key_hashes_are_those_of_the_broker(store):
    messages = {message["physicalOffset"]: message for message in answers(store.name, "messages")}
    compared = 0
    for line in answers(store.name, "index"):
        for _, key_hash, physical_offset, _, _ in line["entries"]:
            if (message := messages.get(physical_offset)) is None:
                continue
            topic, properties = message["topic"], message["properties"]
            keys = [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]
            texts = [index_file.key_text(topic, key) for key in keys if key]
            texts += [index_file.tag_key_text(topic, properties.get("TAGS", ""))] if store.version == "5.5.0" else []
            assert key_hash in {index_file.key_hash(text) for text in texts}
            compared += 1
    assert compared


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TopicTest#k1", 2746024),
        ("TopicTest#7F0000010FA818B4AAC26C9E7A3B0000", 349785209),
        ("TopicTest#polygenelubricants", 26908034),
        ("polygenelubricants", 0),
    ],
)
def test_known_key_hashes(text, expected):
    assert index_file.key_hash(text) == expected


def test_sizes_and_places_of_a_file_of_default_size():
    assert index_file.file_size(index_file.DEFAULT_SLOTS, index_file.DEFAULT_ENTRIES) == 420_000_040
    assert index_file.slot_position(2746024) == 10_984_136
    assert index_file.entry_position(1, index_file.DEFAULT_SLOTS) == 20_000_060


@pytest.mark.parametrize("store", [s for s in answered("gets") if s.directory], ids=str)
def test_files_have_the_size_that_their_counts_give(store):
    text = dict(line.split("=", 1) for line in store.config.read_text("utf-8").splitlines() if "=" in line)
    expected = index_file.file_size(int(text["maxHashSlotNum"]), int(text["maxIndexNum"]))
    assert {path.stat().st_size for path in (store.directory / "index").iterdir()} == {expected}


@pytest.mark.parametrize(
    ("store_timestamp", "begin", "seconds"),
    [
        (1_000_999, 1_000_000, 0),
        (1_001_000, 1_000_000, 1),
        (5, 0, 0),
        (5, -1, 0),
        (1_000_000, 1_002_000, 0),
        ((1 << 62), 1, 2147483647),
    ],
)
def test_time_differences_are_clamped_seconds(store_timestamp, begin, seconds):
    assert index_file.time_diff(store_timestamp, begin) == seconds


@given(st.integers(-1, 2))
def test_a_header_without_entries_has_none(count):
    assert IndexHeader(0, 0, 0, 0, 0, count).entry_count == max(0, count - 1)
