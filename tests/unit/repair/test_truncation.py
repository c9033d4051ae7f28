"""Where the end of a log may be put, and what becomes of files that are then empty or cannot be cut."""

from itertools import pairwise

import pytest

import mqtool
from mqtool.errors import NothingToChangeError, UnsupportedFormatError, UsageError
from mqtool.repair import RebuildMetadata, Trim, Truncate, apply, make_plan
from mqtool.repair.log_files import Cut, find_cut
from mqtool.store.log.message import Message
from tests.support.engine import open_small
from tests.support.stores import copy_store
from tests.unit.recovery.stores import patch

SEGMENT = 4096


@pytest.fixture
def root(in_memory):
    """Five segments of six records in queue T/0, whose files hold ten units each."""
    with open_small(in_memory / "store") as store:
        for number in range(30):
            assert store.put("T", 0, b"x" * 500, b"KEYS\x01k%d\x02" % number).ok
        store.dispatch()
    return in_memory / "store"


def messages(root) -> list[Message]:
    with mqtool.open(root) as store:
        return [found for found in store.messages() if isinstance(found, Message)]


def cut_at(root, at: int) -> Cut:
    with mqtool.open(root) as store:
        return find_cut(store, at)


def with_unread_database(root):
    """Positions in config/metadata, which mqtool does not read."""
    (root / "config" / "metadata").mkdir(parents=True)
    (root / "config" / "metadata" / "CURRENT").write_text("MANIFEST-000005\n")


def test_a_queue_is_not_cut_where_the_positions_in_it_cannot_be_moved_back(root):
    at = messages(root)[20].physical_offset
    assert make_plan(root, Truncate(at)).steps
    with_unread_database(root)
    with pytest.raises(UnsupportedFormatError, match=r"config/metadata: .* is not read; positions past the new ends"):
        make_plan(root, Truncate(at))


def test_metadata_is_not_composed_next_to_a_database_that_is_not_read(root):
    with_unread_database(root)
    with pytest.raises(UnsupportedFormatError, match=r"config/metadata: .* is not read; only configuration in files"):
        make_plan(root, RebuildMetadata())


def test_a_plan_that_deletes_messages_says_that_positions_are_unknown(root):
    change = Trim(2 * SEGMENT)
    words = "which of them are unread is unknown: config/metadata"
    assert not [note for note in make_plan(root, change).notes if note.startswith(words)]
    with_unread_database(root)
    assert [note for note in make_plan(root, change).notes if note.startswith(words)]


def test_at_the_start_of_a_segment_the_one_before_ends_the_log(root):
    last = next(one for one in reversed(messages(root)) if one.physical_offset < 2 * SEGMENT)
    cut = cut_at(root, 2 * SEGMENT)
    assert (cut.end, cut.last_time, cut.loses_nothing) == (
        last.physical_offset + last.store_size,
        last.store_timestamp,
        False,
    )


def test_the_time_of_the_last_record_comes_from_before_segments_without_one(tmp_path):
    """An oversized record leaves segments that hold nothing but a BLANK."""
    root = copy_store("oversize-5.5.0", tmp_path)
    with mqtool.open(root) as store:
        size = store.commit_log.segments[0].size
    found = messages(root)
    before, after = next(
        (one, next_one)
        for one, next_one in pairwise(found)
        if next_one.physical_offset // size > one.physical_offset // size + 1
    )
    cut = cut_at(root, after.physical_offset)
    assert before.physical_offset < cut.end <= after.physical_offset
    assert cut.last_time == before.store_timestamp


def test_damage_is_cut_at_its_start_and_not_inside(root):
    found = messages(root)
    damaged, before = found[8], found[7]
    patch(root / "commitlog" / f"{SEGMENT:020d}", damaged.physical_offset - SEGMENT, bytes(8))
    assert cut_at(root, damaged.physical_offset) == Cut(damaged.physical_offset, before.store_timestamp, False)
    with pytest.raises(UsageError, match=f"inside of damage that begins at {damaged.physical_offset}: cut there"):
        cut_at(root, damaged.physical_offset + 9)


def test_damage_before_the_cut_stays(root):
    found = messages(root)
    damaged, before, first_gone = found[7], found[8], found[9]
    patch(root / "commitlog" / f"{SEGMENT:020d}", damaged.physical_offset - SEGMENT, bytes(8))
    assert cut_at(root, first_gone.physical_offset) == Cut(first_gone.physical_offset, before.store_timestamp, False)


def test_a_log_that_ends_in_zeros_has_nothing_to_cut_after_its_end(root):
    with mqtool.open(root) as store:
        end = store.commit_log.max_offset
    with pytest.raises(NothingToChangeError):
        make_plan(root, Truncate(end))


def test_the_time_of_a_cut_index_file_is_that_of_its_last_entry_though_the_record_is_damaged(root):
    (root / "checkpoint").unlink(missing_ok=True)
    found = messages(root)
    last, cut = found[7], found[8]
    patch(root / "commitlog" / f"{SEGMENT:020d}", last.physical_offset - SEGMENT, bytes(8))
    apply(make_plan(root, Truncate(cut.physical_offset)), backup_acknowledged=True)
    assert not (root / "checkpoint").exists()
    with mqtool.open(root) as store:
        (header,) = (index.header for index in store.disk_index_files())
    assert header.end_physical_offset == last.physical_offset
    assert 0 <= last.store_timestamp - header.end_timestamp < 1000


def test_a_cut_inside_a_record_is_refused_with_the_start_of_that_record(root):
    found = messages(root)
    with pytest.raises(UsageError, match=f"expected the start of a record; one starts at {found[3].physical_offset}"):
        cut_at(root, found[3].physical_offset + 1)


def test_a_cut_inside_the_end_of_a_segment_is_refused(root):
    last = next(one for one in reversed(messages(root)) if one.physical_offset < SEGMENT)
    end = last.physical_offset + last.store_size
    assert cut_at(root, end).end == end
    with pytest.raises(UsageError, match=f"the last one of its file ends at {end}"):
        cut_at(root, end + 1)


def test_a_queue_whose_first_files_had_expired_begins_at_0_again_if_no_message_is_left(in_memory):
    root = in_memory / "store"
    with open_small(root) as store:
        for topic, count in (("T", 20), ("U", 10), ("T", 5)):
            for _ in range(count):
                assert store.put(topic, 0, b"x" * 500).ok
        store.dispatch()
    found = messages(root)
    for number in range(4):
        (root / "commitlog" / f"{number * SEGMENT:020d}").unlink()
    for base in (0, 200):
        (root / "consumequeue" / "T" / "0" / f"{base:020d}").unlink()
    assert {one.topic for one in messages(root)[:-5]} == {"U"}
    plan = make_plan(root, Truncate(found[30].physical_offset))
    assert "T/0: no message is left; the queue will begin at 0 again" in plan.notes
    assert "T/0: 5 units from queue offset 20 on are removed" in plan.notes
    apply(plan, backup_acknowledged=True)
    assert list((root / "consumequeue" / "T" / "0").iterdir()) == []
    with open_small(root) as store:
        assert store.put("T", 0, b"x").queue_offset == 0


def test_an_index_file_whose_slots_are_not_known_is_left_to_a_rebuild(root):
    index = max((root / "index").iterdir())
    index.write_bytes(index.read_bytes()[:-7])
    plan = make_plan(root, Truncate(messages(root)[20].physical_offset))
    assert f"{index.name}: cannot be cut, because its number of slots is unknown; rebuild the index" in plan.notes
