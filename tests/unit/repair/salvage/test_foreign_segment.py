"""A segment of another broker's log in the place of the store's own: no message of this log moves or is dropped."""

import random
import shutil

import pytest

import mqtool
from mqtool.cli.app import run as cli
from mqtool.repair.outlook import outlook
from mqtool.repair.salvage import SalvageOptions, salvage
from mqtool.store.log.misplaced_bytes import ForeignSegments, units_by_place
from mqtool.verify import State, verify
from tests.support.damage import base_messages, damage_case, foreign_segment
from tests.support.engine import HeldClock, open_small
from tests.support.stores import fixture
from tests.support.tiers import one_in

CASES = one_in(4, [(base, number) for base in ("5.5.0-clean", "4.9.7-crash") for number in range(9)])


def parts(base, number):
    """The base's messages that are in the replaced segment, and the others; only those that are in a queue."""
    messages = [message for message in base_messages(base) if message["offset"] >= 0]
    gone = [message for message in messages if message["phy"] // 16384 == number]
    return gone, [message for message in messages if message not in gone]


def places(root):
    """Physical offset by topic, queue id and queue offset."""
    with mqtool.open(root) as store:
        return {
            (queue.topic, queue.queue_id, queue.first_offset + index): physical
            for queue in store.disk_queues()
            for index, physical in enumerate(queue.units()["physical_offset"].tolist())
        }


@pytest.mark.parametrize(("base", "number"), CASES)
def test_every_message_of_this_log_keeps_its_queue_offset(base, number, tmp_path):
    gone, kept = parts(base, number)
    root = damage_case(foreign_segment(base, number), tmp_path)
    result = salvage(root, tmp_path / "new")
    found = places(tmp_path / "new")
    own = {(message["topic"], message["queue"], message["offset"]): message["phy"] for message in kept}
    assert {place: found.get(place) for place in own} == own
    lost = {
        (row.topic, row.queue_id, offset)
        for row in result.queues
        for first, last in row.lost_offsets
        for offset in range(first, last + 1)
    }
    assert lost == {(message["topic"], message["queue"], message["offset"]) for message in gone}
    assert not result.is_complete
    assert any(f"{number * 16384:020d} is of another broker's log" in note for note in result.notes)
    with mqtool.open(tmp_path / "new") as store:
        assert verify(store).state is not State.CORRUPT


def test_the_exit_code_is_1_and_the_segment_is_named(tmp_path, capsys):
    root = damage_case(foreign_segment("5.5.0-clean", 3), tmp_path)
    assert cli(["salvage", str(root), "-o", str(tmp_path / "new")]) == 1
    assert "00000000000000049152 is of another broker's log" in capsys.readouterr().out


def test_a_copy_gives_back_what_was_in_the_segment(tmp_path):
    root = damage_case(foreign_segment("5.5.0-clean", 3), tmp_path)
    copy = fixture("damage/bases/5.5.0-clean/store")
    result = salvage(root, tmp_path / "new", SalvageOptions(copies=(copy,)))
    assert result.is_complete
    found = places(tmp_path / "new")
    everything = [message for part in parts("5.5.0-clean", 3) for message in part]
    assert all(found[row["topic"], row["queue"], row["offset"]] == row["phy"] for row in everything)


def test_a_compacted_store_has_the_same_messages_at_the_same_queue_offsets(tmp_path):
    gone, kept = parts("5.5.0-crash", 4)
    root = damage_case(foreign_segment("5.5.0-crash", 4), tmp_path)
    options = SalvageOptions(compact=True, map_file=tmp_path / "map.csv")
    result = salvage(root, tmp_path / "new", options)
    assert result.lost == len(gone)
    with mqtool.open(root) as old, mqtool.open(tmp_path / "new") as new:
        for message in kept:
            queue = new.queue(message["topic"], message["queue"])
            place = int(queue.units()["physical_offset"][message["offset"] - queue.first_offset])
            assert new.commit_log.record(place).body == old.commit_log.record(message["phy"]).body


@pytest.mark.parametrize("base", ["5.5.0-clean", "4.9.7-crash"])
def test_rebuilt_queues_of_such_a_store_lead_to_every_message_of_this_log(base, tmp_path):
    root, out = damage_case(foreign_segment(base, 5), tmp_path), tmp_path / "out"
    assert cli(["rebuild", "consumequeue", str(root), "--output", str(out)]) in (0, 1)
    shutil.copytree(root / "commitlog", out / "commitlog")
    found = places(out)
    own = {(row["topic"], row["queue"], row["offset"]): row["phy"] for row in parts(base, 5)[1]}
    assert {place: found.get(place) for place in own} == own


@pytest.mark.parametrize("base", ["4.9.7-clean", "4.9.7-crash", "5.5.0-clean", "5.5.0-crash"])
def test_no_segment_of_an_undamaged_log_is_foreign(base):
    with mqtool.open(fixture(f"damage/bases/{base}/store")) as store:
        queues = store.disk_queues()
        judge = ForeignSegments(store.commit_log, queues, units_by_place(queues).between)
        assert [judge.evidence(number) for number in range(9)] == [""] * 9


def test_without_any_unit_another_store_host_and_times_out_of_order_decide(tmp_path):
    root = damage_case(foreign_segment("5.5.0-clean", 4), tmp_path)
    with mqtool.open(root) as store:
        queues = store.disk_queues()
        units = units_by_place(queues)
        segment = store.commit_log.segments[4]

        def without(start, end):
            return units.between(start, end) if start != segment.base else units.between(0, 0)

        assert ForeignSegments(store.commit_log, queues, without).evidence(4) == ""
    data = bytearray(segment.path.read_bytes())
    for at in range(len(data) - 8):
        if data[at : at + 8] == bytes((192, 168, 1, 10)) + (10911).to_bytes(4, "big"):
            data[at : at + 8] = bytes((10, 0, 0, 7)) + (10911).to_bytes(4, "big")
    segment.path.write_bytes(data)
    with mqtool.open(root) as store:
        evidence = ForeignSegments(store.commit_log, store.disk_queues(), without).evidence(4)
    assert "store host 10.0.0.7:10911, in other segments 192.168.1.10:10911" in evidence
    assert "out of order" in evidence


def written(root, seed, start):
    """A store of 150 messages of one size in three queues, as `seed` chooses them; (queue, queue offset) by place."""
    chosen, clock, found = random.Random(seed), HeldClock(start), {}
    with open_small(root, clock) as store:
        for number in range(150):
            clock.time += 10
            queue = chosen.randrange(3)
            result = store.put("T", queue, b"%d-%08d" % (seed, number), b"TAGS\1a\2")
            found[result.physical_offset] = queue, result.queue_offset
    return found


@pytest.mark.parametrize("number", [0, 2, 4])
def test_records_of_equal_sizes_are_lost_where_the_other_broker_stated_another_place(number, tmp_path):
    root, other = tmp_path / "store", tmp_path / "other"
    mine, theirs = written(root, 1, 1_700_000_000_000), written(other, 2, 1_700_000_500_000)
    name = f"commitlog/{number * 4096:020d}"
    shutil.copyfile(other / name, root / name)
    before = outlook(root, "5.5")
    result = salvage(root, tmp_path / "new")
    gone = {at: place for at, place in mine.items() if at // 4096 == number}
    assert result.lost == sum(theirs[at] != place for at, place in gone.items())
    assert set(before.served.tolist()) <= set(outlook(tmp_path / "new", "5.5").served.tolist())
