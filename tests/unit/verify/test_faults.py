"""One fault at a time in a store whose every byte is known: it is found, at its place, and nothing intact is blamed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import mqtool
from mqtool.formats import checkpoint as checkpoint_format
from mqtool.formats import commit_log, index_file
from mqtool.formats.checkpoint import Checkpoint
from mqtool.verify import Options, Severity, State, Verification, verify
from tests.support.builder import StoreBuilder
from tests.support.stores import copy_store, store_fixture
from tests.support.tiers import NIGHT

pytestmark = pytest.mark.usefixtures("either_way")

SLOTS, ENTRIES, FAULTY = 20, 400, 30
CONFIG = {"maxHashSlotNum": str(SLOTS), "maxIndexNum": str(ENTRIES)}
ALONE = {
    "flag": 4,
    "sys_flag": 4,
    "born_timestamp": 8,
    "born_host": 8,
    "store_timestamp": 8,
    "store_host": 8,
    "reconsume_times": 4,
    "prepared_transaction_offset": 8,
}
"""Fields of which a record holds the only copy, and their sizes: a changed bit of these may be a value like any other."""
HEAD = [
    ("total_size", 4),
    ("magic_code", 4),
    ("body_crc", 4),
    ("queue_id", 4),
    ("flag", 4),
    ("queue_offset", 8),
    ("physical_offset", 8),
    ("sys_flag", 4),
    ("born_timestamp", 8),
    ("born_host", 8),
    ("store_timestamp", 8),
    ("store_host", 8),
    ("reconsume_times", 4),
    ("prepared_transaction_offset", 8),
    ("body_length", 4),
]
MASKS = (0x01, 0x80, 0xFF) if NIGHT else (0x80,)


def built(count: int = 60, **changes: int) -> StoreBuilder:
    builder = StoreBuilder(slots=SLOTS, entries=ENTRIES, **changes)
    for i in range(count):
        builder.put(
            b"body number %d" % i,
            topic=("Orders", "Audit")[i % 2],
            queue_id=i % 3,
            tags="TagA" if i % 4 else "",
            keys=f"k{i} x{i % 7}",
            unique_key=f"{i:032X}",
            step=500,
        )
    return builder


def verified(root: Path) -> Verification:
    with mqtool.open(root, CONFIG) as store:
        return verify(store)


def codes(found: Verification) -> set[str]:
    return {finding.code for finding in found.findings}


@contextmanager
def changed(path: Path, position: int, mask: int) -> Iterator[None]:
    """A file with some bits of one byte turned over, for a while."""
    before = path.read_bytes()
    data = bytearray(before)
    data[position] ^= mask
    path.write_bytes(data)
    try:
        yield
    finally:
        path.write_bytes(before)


@pytest.fixture(scope="module")
def valid_store(tmp_path_factory) -> tuple[StoreBuilder, Path]:
    builder = built()
    root = builder.write(tmp_path_factory.mktemp("faults") / "store")
    assert verified(root).findings == ()
    return builder, root


def segment_of(root: Path, base: int = 0) -> Path:
    return root / "commitlog" / f"{base:020d}"


def only_copies() -> set[int]:
    """Positions in a record of the fields in ALONE."""
    found, at = set(), 0
    for name, size in HEAD:
        found |= set(range(at, at + size)) if name in ALONE else set()
        at += size
    return found


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("mask", MASKS, ids=hex)
def test_a_changed_byte_of_a_record_is_found_and_only_this_record_is_blamed(valid_store, mask):
    builder, root = valid_store
    put = builder.puts[FAULTY]
    alone = only_copies()
    missed = []
    for at in range(put.size):
        with changed(segment_of(root), put.physical_offset + at, mask):
            found = verified(root)
        if not found.findings and at not in alone:
            missed.append(at)
        for part in found.losses.ranges:
            assert put.physical_offset <= part.start < part.end <= put.end, at
        lost = [(loss.topic, loss.queue_id, loss.offsets) for loss in found.losses.queues]
        assert lost in ([], [(put.topic, put.queue_id, ((put.queue_offset, put.queue_offset),))]), at
        blamed = {one.physical_offset for one in found.findings if one.code.startswith("log-bad")}
        assert blamed <= set(range(put.physical_offset, put.end)), at
    assert missed == []


@pytest.mark.slow
@pytest.mark.parametrize("unit", [4, 9], ids=["middle", "last"])
def test_a_changed_byte_of_a_unit_is_found_in_its_queue_and_no_message_is_called_lost(valid_store, unit):
    _, root = valid_store
    path = root / "consumequeue" / "Orders" / "0" / f"{0:020d}"
    for at in range(20):
        for mask in MASKS:
            with changed(path, unit * 20 + at, mask):
                found = verified(root)
            assert found.state is State.CORRUPT, (at, mask)
            assert {(one.topic, one.queue_id) for one in found.findings} == {("Orders", 0)}, (at, mask)
            assert found.losses.messages == found.losses.bytes == 0, (at, mask)


@pytest.mark.slow
@pytest.mark.parametrize(
    "position",
    [
        *range(index_file.slot_position(3), index_file.slot_position(4)),
        *range(index_file.entry_position(17, SLOTS), index_file.entry_position(18, SLOTS)),
    ],
    ids=str,
)
def test_a_changed_byte_of_a_slot_or_an_entry_is_found(valid_store, position):
    _, root = valid_store
    (path,) = (root / "index").iterdir()
    for mask in MASKS:
        with changed(path, position, mask):
            found = verified(root)
        assert {one.code.split("-")[0] for one in found.findings} == {"index"}, mask
        assert found.losses.messages == 0


@pytest.mark.slow
@pytest.mark.parametrize("position", range(40), ids=str)
def test_a_changed_byte_of_an_index_header_is_found(valid_store, position):
    _, root = valid_store
    (path,) = (root / "index").iterdir()
    for mask in MASKS:
        with changed(path, position, mask):
            found = verified(root)
        assert {one.code.split("-")[0] for one in found.findings} == {"index"}, mask


SHIFTS: dict[str, Callable[[bytes], bytes]] = {
    "one-earlier": lambda data: data[20:] + bytes(20),
    "one-later": lambda data: bytes(20) + data[:-20],
    "twice": lambda data: data[:100] + data[80:-20],
    "swapped": lambda data: data[:100] + data[120:140] + data[100:120] + data[140:],
    "some-bytes": lambda data: bytes(3) + data[:-3],
    "hole": lambda data: data[:100] + bytes(20) + data[120:],
}


@pytest.mark.parametrize("shift", SHIFTS)
def test_units_in_wrong_places_are_found_and_no_message_is_called_lost(valid_store, shift):
    _, root = valid_store
    path = root / "consumequeue" / "Orders" / "0" / f"{0:020d}"
    before = path.read_bytes()
    path.write_bytes(SHIFTS[shift](before))
    found = verified(root)
    path.write_bytes(before)
    assert found.state is State.CORRUPT
    assert {(one.topic, one.queue_id) for one in found.findings} == {("Orders", 0)}
    assert found.losses.messages == 0


@pytest.mark.slow
def test_a_record_that_a_kill_cut_off_at_any_length_is_dirty_and_never_corrupt(tmp_path):
    builder = built()
    root = builder.write(tmp_path / "store", index=False)
    last, known = builder.puts[-1], builder.puts[20].store_timestamp
    (root / "abort").touch()
    (root / "checkpoint").write_bytes(checkpoint_format.build(Checkpoint(known, known, 0)))
    queue = root / "consumequeue" / last.topic / str(last.queue_id) / f"{0:020d}"
    units = bytearray(queue.read_bytes())
    units[last.queue_offset * 20 : last.queue_offset * 20 + 20] = bytes(20)
    queue.write_bytes(units)
    whole = segment_of(root).read_bytes()
    for length in range(last.size):
        segment_of(root).write_bytes(whole[: last.physical_offset + length].ljust(len(whole), b"\0"))
        found = verified(root)
        assert {one.severity for one in found.findings} == {Severity.WARNING}, length
        allowed = {"abort-present", "log-torn-tail", "log-garbage-tail", "queue-missing-units"}
        assert codes(found) <= allowed, length
        assert found.losses.messages == 0


def test_a_record_that_was_cut_off_after_an_orderly_stop_is_lost_as_its_unit_proves(tmp_path):
    builder = built()
    root = builder.write(tmp_path / "store")
    last = builder.puts[-1]
    whole = segment_of(root).read_bytes()
    for length in range(0, last.size - 80, 5):  # behind that only properties are missing
        segment_of(root).write_bytes(whole[: last.physical_offset + length].ljust(len(whole), b"\0"))
        found = verified(root)
        assert "queue-ahead-of-log" in codes(found), length
        assert [(loss.topic, loss.queue_id, loss.offsets) for loss in found.losses.queues] == [
            (last.topic, last.queue_id, ((last.queue_offset, last.queue_offset),))
        ]


@pytest.fixture
def long(tmp_path) -> tuple[StoreBuilder, Path, list[Path]]:
    """A store of five segments."""
    builder = StoreBuilder(segment_size=1 << 13)
    for i in range(200):
        builder.put(b"body number %d" % i, queue_id=i % 3, unique_key=f"{i:032X}")
    root = builder.write(tmp_path / "store", index=False)
    last = builder.puts[-1].store_timestamp
    (root / "checkpoint").write_bytes(checkpoint_format.build(Checkpoint(last, last, 0)))
    return builder, root, sorted((root / "commitlog").iterdir())


def inside(builder: StoreBuilder, segment: Path) -> int:
    base = int(segment.name)
    return sum(base <= put.physical_offset < base + builder.segment_size for put in builder.puts)


def test_the_messages_of_a_missing_segment_are_lost_and_no_others(long):
    builder, root, segments = long
    assert len(segments) >= 4
    for segment in segments[1:]:
        data = segment.read_bytes()
        segment.unlink()
        found = verified(root)
        segment.write_bytes(data)
        assert "log-segment-missing" in codes(found)
        assert found.losses.messages == inside(builder, segment)


def test_segments_that_retention_deleted_are_no_loss(long):
    _, root, segments = long
    for segment in segments[:2]:
        segment.unlink()
    found = verified(root)
    assert (found.findings, found.losses.messages) == ((), 0)


def test_two_swapped_segments_are_named_and_cost_no_message(long):
    _, root, segments = long
    one, two = segments[1].read_bytes(), segments[2].read_bytes()
    segments[1].write_bytes(two)
    segments[2].write_bytes(one)
    found = verified(root)
    assert {(one.code, one.file) for one in found.findings} == {
        ("log-segment-name", f"commitlog/{segment.name}") for segment in (segments[1], segments[2])
    }
    assert found.losses.messages == 0


def test_a_unit_of_a_later_record_without_tags_is_a_duplicate_and_costs_its_own_message(valid_store):
    """Without the record of its own, the broker would have written this unit into the hole."""
    _, root = valid_store
    path = next((root / "consumequeue/Orders/0").iterdir())
    before = path.read_bytes()
    path.write_bytes(before[:20] + before[20 * 6 : 20 * 7] + before[40:])  # number 36, without tags, in place of 6
    try:
        (found,) = verified(root).findings
    finally:
        path.write_bytes(before)
    assert (found.code, found.position) == ("queue-duplicate-unit", 20)
    assert found.evidence == "unit 1: queue offset 1 points at the record with queue offset 6"


def test_a_unit_that_points_before_the_log_after_others_that_do_not_is_found(tmp_path):
    builder = built(base=1 << 20)
    root = builder.write(tmp_path / "store")
    path = next((root / "consumequeue/Orders/0").iterdir())
    data = bytearray(path.read_bytes())
    data[20:28] = (100).to_bytes(8, "big")
    path.write_bytes(data)
    found = {one.code: one for one in verified(root).findings}
    assert set(found) == {"queue-dangling-unit", "queue-missing-units"}
    words = f"unit 1: 1 unit(s) point before the log's first byte, {1 << 20}"
    assert (found["queue-dangling-unit"].position, found["queue-dangling-unit"].evidence) == (20, words)


def test_an_index_header_that_counts_other_slots_than_are_in_use_is_found(valid_store):
    _, root = valid_store
    path = next((root / "index").iterdir())
    used = int.from_bytes(path.read_bytes()[32:36], "big")
    with changed(path, 35, 4):
        (found,) = verified(root).findings
    assert (used, found.code, found.evidence) == (
        SLOTS,
        "index-header",
        f"counts {used ^ 4} slots in use, found {used}",
    )


def test_two_odd_store_times_are_two_findings(tmp_path):
    builder = built()
    root = builder.write(tmp_path / "store")
    odd = [builder.puts[number].physical_offset for number in (10, 30)]
    data = bytearray(segment_of(root).read_bytes())
    for offset in odd:
        data[offset + 56 : offset + 64] = (1).to_bytes(8, "big")
    segment_of(root).write_bytes(data)
    found = verified(root).findings
    assert [(one.code, one.physical_offset) for one in found] == [("log-bad-time", offset) for offset in odd]
    assert (
        found[0].evidence
        == f"store time 1 between {builder.puts[9].store_timestamp} and {builder.puts[11].store_timestamp}"
    )


def test_an_offset_gap_in_a_topic_that_was_not_asked_for_is_left_out(tmp_path):
    builder = StoreBuilder(slots=SLOTS, entries=ENTRIES)
    for number in range(20):
        builder.put(topic="Orders", queue_offset=number + 7 * (number >= 10), keys=f"k{number}")
        builder.put(topic="Audit", keys=f"a{number}")
    root = builder.write(tmp_path / "store", queues=False)
    with mqtool.open(root, CONFIG) as store:
        found = {
            topic: {one.code for one in verify(store, Options(topics=(topic,))).findings}
            for topic in ("Orders", "Audit")
        }
    assert found == {"Orders": {"log-offset-gap", "queue-missing"}, "Audit": {"queue-missing"}}


@pytest.mark.parametrize(
    ("field", "start", "size", "words"),
    [("time", 20, 8, "7 message(s) stored at {}"), ("count", 36, 2, "{} message(s)")],
)
def test_a_batch_unit_that_contradicts_its_record_is_found(field, start, size, words, tmp_path):
    root = copy_store("bcq-5.5.0", tmp_path)
    path = root / "batchconsumequeue/BatchTopic/1" / f"{0:020}"
    data = bytearray(path.read_bytes())
    value = int.from_bytes(data[start : start + size], "big") + 1
    data[start : start + size] = value.to_bytes(size, "big")
    path.write_bytes(data)
    with mqtool.open(root, store_fixture("bcq-5.5.0").config) as store:
        (found,) = verify(store).findings
    assert (found.code, found.position) == ("queue-wrong-batch", 0)
    assert found.evidence.startswith("unit 0: " + words.format(value))


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("body_length", (5).to_bytes(4, "big"), "log-bad-lengths"),
        ("physical_offset", (1 << 40).to_bytes(8, "big"), "log-bad-offset"),
        ("magic_code", (1).to_bytes(4, "big"), "log-bad-header"),
    ],
)
def test_records_in_a_row_with_the_same_damage_are_one_finding(field, value, code, tmp_path):
    builder = built()
    root = builder.write(tmp_path / "store", queues=False)
    data = bytearray(segment_of(root).read_bytes())
    for put in builder.puts[10:13]:
        at = put.physical_offset + commit_log.field_offset(field)
        data[at : at + len(value)] = value
    segment_of(root).write_bytes(data)
    found = [one for one in verified(root).findings if one.file.startswith("commitlog/")]
    assert [(one.code, one.position) for one in found] == [(code, builder.puts[10].physical_offset)]
    assert verified(root).statistics.records == 57


def test_findings_come_back_from_a_state_as_they_were(tmp_path):
    builder = built()
    root = builder.write(tmp_path / "store")
    data = bytearray(segment_of(root).read_bytes())
    at = builder.puts[10].physical_offset + 56
    data[at : at + 8] = (1).to_bytes(8, "big")
    segment_of(root).write_bytes(data)
    options = Options(state=tmp_path / "state")
    with mqtool.open(root, CONFIG) as store:
        first, again = verify(store, options), verify(store, options)
    assert [(one.code, one.severity) for one in first.findings] == [("log-bad-time", Severity.WARNING)]
    assert again.findings == first.findings
    assert all(isinstance(one.severity, Severity) for one in again.findings)
