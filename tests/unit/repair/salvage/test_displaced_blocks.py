"""Blocks of a segment that are in other places of it: records prove by their physical offsets where they belong."""

import pytest

import mqtool
from mqtool.formats import commit_log
from mqtool.recovery import predict
from mqtool.repair.salvage import salvage
from mqtool.store import Message
from mqtool.store.log.commit_log import CommitLog, Segment
from mqtool.store.log.misplaced_bytes import DisplacedRecords
from mqtool.verify import verify
from tests.support.builder import encode
from tests.support.damage import damage_case, exchanged_blocks
from tests.support.stores import fixture
from tests.support.tiers import one_in

CASES = [
    ("5.5.0-clean", 2, 0, 1, 4096),
    ("5.5.0-clean", 5, 0, 2, 4096),  # where a body of one record is followed by the properties of another
    ("5.5.0-clean", 2, 1, 3, 4096),  # with the BLANK
    ("5.5.0-clean", 3, 0, 1, 8192),
    ("5.5.0-clean", 4, 1, 2, 2048),
    ("4.9.7-crash", 3, 5, 20, 512),
    ("4.9.7-crash", 8, 0, 2, 4096),  # in the last segment
    ("5.5.0-crash", 7, 0, 1, 4096),
]


def records(root):
    """Bytes of all records by physical offset."""
    with mqtool.open(root) as store:
        offsets = [message.physical_offset for message in store.messages() if isinstance(message, Message)]
        return {at: commit_log.build_record(store.commit_log.record(at)) for at in offsets}


@pytest.mark.parametrize(("base", "number", "first", "second", "size"), one_in(3, CASES))
def test_salvage_puts_every_record_of_exchanged_blocks_back(base, number, first, second, size, tmp_path):
    root = damage_case(exchanged_blocks(base, number, first, second, size), tmp_path)
    result = salvage(root, tmp_path / "new")
    # no checksum covers the end of a record, so one that reaches into an exchanged block may look valid as it is
    expected = records(fixture(f"damage/bases/{base}/store")) | records(root)
    assert records(tmp_path / "new") == expected
    assert result.is_complete
    assert any("blocks that were in another place of their segment" in note for note in result.notes)


@pytest.mark.parametrize(("base", "number", "first", "second", "size"), one_in(3, CASES))
def test_verify_does_not_count_them_as_lost_and_says_that_a_start_loses_them(
    base, number, first, second, size, tmp_path
):
    root = damage_case(exchanged_blocks(base, number, first, second, size), tmp_path)
    with mqtool.open(root) as store:
        found = verify(store)
    assert "log-displaced-block" in {finding.code for finding in found.findings}
    assert found.losses.messages == 0
    assert found.next_start.do_not_start
    assert (found.next_start.losses, found.next_start.losses.gone) == (predict(root).count(), 0)


def test_blocks_that_moved_around_three_places_are_put_back(tmp_path):
    root = damage_case(exchanged_blocks("5.5.0-clean", 2, 0, 1, 4096), tmp_path)
    path = root / "commitlog" / f"{2 * 16384:020d}"
    data = bytearray(path.read_bytes())
    data[4096:8192], data[8192:12288] = data[8192:12288], data[4096:8192]
    path.write_bytes(data)
    assert salvage(root, tmp_path / "new").lost <= 2  # those that reach into a page without a complete record
    assert len(records(tmp_path / "new")) >= len(records(fixture("damage/bases/5.5.0-clean/store"))) - 2


def test_an_undamaged_segment_has_none(tmp_path):
    with mqtool.open(fixture("damage/bases/5.5.0-clean/store")) as store:
        segment = store.commit_log.segments[2]
        blocks = DisplacedRecords.of_segment(store.commit_log, 2)
        assert list(blocks.between(segment.base, segment.end)) == []


@pytest.mark.parametrize(("distance", "is_taken"), [(1024, True), (1000, False)])
def test_a_record_is_taken_only_from_where_a_block_may_have_been_moved(distance, is_taken, tmp_path):
    data, record = bytearray(4096), encode(600)
    data[600 + distance : 600 + distance + len(record)] = record
    path = tmp_path / f"{0:020d}"
    path.write_bytes(data)
    log = CommitLog((Segment(path, 0, len(data)),))
    found = list(DisplacedRecords(log, 0, [(500, 1500), (1500, 3000)]).between(0, 4096))
    assert [bytes(frames.view) for frames in found] == ([record] if is_taken else [])
    assert [frames.base for frames in found] == ([600] if is_taken else [])
    assert not list(DisplacedRecords(log, 0, [(1500, 3000)]).between(0, 4096))  # nothing is damaged where it belongs
    log.close()
