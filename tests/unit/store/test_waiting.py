"""Messages that the broker keeps until later, against what real brokers said about the recorded stores."""

import contextlib
import json
import os

import pytest

import mqtool
from mqtool.formats.timer import LOG_UNIT, WHEEL_FILE_SIZE, TimerCheckpoint, TimerLogUnit, build_checkpoint
from mqtool.store.waiting.held_back import WaitingKind, waiting_messages
from mqtool.store.waiting.timer import read_log_file, saved_checkpoint
from tests.support.stores import FIXTURES, copy_store
from tests.support.unreadable import unreadable


def offsets_of(root, kind):
    with mqtool.open(root) as store:
        found = [one for one in waiting_messages(store) if one.kind is kind]
        for one in found:
            for offset, physical in zip(one.queue_offsets, one.physical_offsets, strict=True):
                record = store.commit_log.record(int(physical))
                assert (record.topic.decode(), record.queue_id, record.queue_offset) == (
                    one.topic,
                    one.queue_id,
                    offset,
                )
    return {(one.queue_id, int(offset)) for one in found for offset in one.queue_offsets}


def timer_answers():
    lines = (FIXTURES / "timer-5.5.0" / "answers" / "timer.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    by_kind = {kind: [row for row in rows if row["kind"] == kind] for kind in ("timercheck", "slot", "unit")}
    units = {row["pos"]: row for row in by_kind["unit"]}
    read_to = by_kind["timercheck"][0]["lastReadTimeMs"]
    chains = [row["chain"].split() for row in by_kind["slot"] if row["timeMs"] >= read_to]
    waiting = [units[int(position)] for chain in chains for position in chain]
    return {unit["phyOffset"] for unit in waiting if not unit["magic"] & 4}


def test_delays_wait_beyond_the_offsets_of_their_levels():
    root = FIXTURES / "orders-4.9.7" / "store"  # delayOffset.json: {1: 20, 2: 4, 3: 4, 4: 1}
    assert offsets_of(root, WaitingKind.DELAY) == {(level - 1, 0) for level in range(5, 19)} | {(17, 1)}


def test_timers_wait_in_the_slots_that_the_broker_has_not_read():
    with mqtool.open(FIXTURES / "timer-5.5.0" / "store") as store:
        (found,) = waiting_messages(store)
    assert set(found.physical_offsets.tolist()) == timer_answers()
    assert len(found.queue_offsets) == 21


@pytest.mark.parametrize("lost", ["timerwheel", "timerlog", "half of timerwheel"])
def test_without_the_timers_own_files_no_waiting_timer_is_left_out(tmp_path, lost):
    root = copy_store("timer-5.5.0", tmp_path)
    if lost.startswith("half"):
        os.truncate(root / "timerwheel", WHEEL_FILE_SIZE // 2)
        lost = "none"
    for path in [root / lost] if (root / lost).is_file() else list((root / lost).glob("*")):
        path.unlink()
    with mqtool.open(root) as store:
        (found,) = waiting_messages(store)
    assert set(found.physical_offsets.tolist()) >= timer_answers()
    assert len(found.queue_offsets) < 25  # those that were due and delivered are not among them


@pytest.mark.parametrize(("name", "expected"), [("orders-4.9.7", set()), ("metadata-4.9.7", {(0, 0), (0, 1)})])
def test_half_messages_wait_until_an_op_message_ends_them(name, expected):
    assert offsets_of(FIXTURES / name / "store", WaitingKind.TRANSACTION) == expected


def test_a_timer_log_whose_last_unit_ends_in_a_hole_is_read_with_it(tmp_path):
    """As in a copy by `cp --sparse=always`: the unit's last bytes are zeros and in a page of their own."""
    unit = LOG_UNIT.build(TimerLogUnit(52, -1, 1, 1_790_000_000_000, 5000, 100, 200, 7, 0))
    data = unit * 709
    assert len(data) % 4096 == 4
    path = tmp_path / f"{0:020}"
    path.write_bytes(data[:-4])
    os.truncate(path, 100 * 4096)
    assert read_log_file(path).startswith(data)


@pytest.mark.parametrize("harm", ["unreadable", "absent", "cut"])
def test_a_timer_checkpoint_that_cannot_be_read_counts_as_one_of_zeros(harm, tmp_path, monkeypatch):
    path = tmp_path / "config" / "timercheck"
    path.parent.mkdir()
    if harm != "absent":
        path.write_bytes(build_checkpoint(TimerCheckpoint(7))[: 3 if harm == "cut" else None])
    with unreadable(monkeypatch, path) if harm == "unreadable" else contextlib.nullcontext():
        assert saved_checkpoint(tmp_path) == TimerCheckpoint()
