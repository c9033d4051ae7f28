"""Timer wheel, timer log and timer checkpoint: real files and the broker's answers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.formats import java, timer
from mqtool.formats.timer import TimerLogUnit, TimerSlot
from tests.support.stores import answers, fixture
from tests.unit.formats.real import files, label, unpacked

WHEELS = ("orders-5.5.0", "timer-5.5.0", "crash-5.5.0", "ipv6", "propcrc-5.5.0")
LOGS = files("timerlog/" + "[0-9]" * 20)


def lines(name):
    kind = "timer" if name == "timer-5.5.0" else "timers"
    found = answers(name, kind)
    slots = [line for line in found if "firstPos" in line]
    return slots, [line for line in found if "prevPos" in line]


@pytest.mark.parametrize("name", WHEELS)
def test_slots_are_what_the_broker_answers_and_written_back_to_their_own_bytes(name):
    wheel = unpacked(fixture(f"{name}/store/timerwheel.zst"), timer.WHEEL_FILE_SIZE + 1)
    assert len(wheel) == timer.WHEEL_FILE_SIZE
    for line in lines(name)[0]:
        index = timer.slot_index(line["timeMs"])
        assert index == line.get("slot", line.get("slotIndex"))
        raw = wheel[index * timer.SLOT_SIZE : (index + 1) * timer.SLOT_SIZE]
        slot = timer.SLOT.parse(raw)
        expected = TimerSlot(line["timeMs"] // 1000, line["firstPos"], line["lastPos"], line["num"], line["magic"])
        assert slot == expected
        assert timer.SLOT.build(slot) == raw


@pytest.mark.parametrize("path", LOGS, ids=label)
def test_every_real_unit_is_written_back_to_its_own_bytes_up_to_the_end_mark(path):
    data, position = path.read_bytes(), 0
    while not timer.is_log_end(data, position) and data[position : position + 4] == b"\0\0\0\x34":
        raw = data[position : position + timer.LOG_UNIT_SIZE]
        unit = timer.LOG_UNIT.parse(raw)
        assert timer.LOG_UNIT.build(unit) == raw
        assert timer.is_magic_valid(unit.magic)
        position += unit.size
    assert position
    if timer.is_log_end(data, position):
        assert timer.LOG_END.parse(data, position).remaining == len(data) - position
        assert position == timer.last_unit_position(len(data)) + timer.LOG_UNIT_SIZE
    else:
        assert not any(data[position:])


def test_a_full_log_file_of_the_fixtures_has_an_end_mark():
    full = fixture("timer-5.5.0/store/timerlog/00000000000000000000").read_bytes()
    assert timer.is_log_end(full, timer.last_unit_position(1024) + timer.LOG_UNIT_SIZE)
    assert timer.last_unit_position(timer.DEFAULT_LOG_FILE_SIZE) == 104_857_532


@pytest.mark.parametrize("name", ["orders-5.5.0", "timer-5.5.0"])
def test_log_units_are_what_the_broker_answers(name):
    log = b"".join(path.read_bytes() for path in sorted(fixture(f"{name}/store/timerlog").iterdir()))
    units = lines(name)[1]
    assert units
    for line in units:
        unit = timer.LOG_UNIT.parse(log, line["pos"])
        assert unit == TimerLogUnit(
            timer.LOG_UNIT_SIZE,
            line["prevPos"],
            line["magic"],
            line.get("writeTime", line.get("writeTimeMs")),
            line.get("delay", line.get("delayMs")),
            line.get("physicalOffset", line.get("phyOffset")),
            line.get("phySize", line["size"]),
            line["topicHash"],
            0,
        )


def test_topic_hashes_are_java_hashes_of_the_real_topic():
    assert {line["topicHash"] for line in lines("orders-5.5.0")[1]} == {java.string_hash("Timed")}


@pytest.mark.parametrize("path", files("config/timercheck"), ids=label)
def test_every_real_timer_checkpoint_is_written_back_to_its_own_bytes(path):
    data = path.read_bytes()
    assert timer.build_checkpoint(timer.parse_checkpoint(data)) == data


def test_the_timer_checkpoint_is_what_the_broker_answers():
    expected = next(line for line in answers("timer-5.5.0", "timer") if line["kind"] == "timercheck")
    found = timer.parse_checkpoint(fixture("timer-5.5.0/store/config/timercheck").read_bytes())
    assert [getattr(found, name) for name in found.__struct_fields__] == [v for k, v in expected.items() if k != "kind"]


def test_a_short_timer_checkpoint_lacks_values_that_are_zero():
    assert timer.parse_checkpoint(b"") == timer.TimerCheckpoint()
    assert timer.parse_checkpoint(timer.build_checkpoint(timer.TimerCheckpoint(1, 2))[:8]) == timer.TimerCheckpoint(1)


@pytest.mark.parametrize(("magic", "valid"), [(0, True), (1, True), (7, True), (15, True), (16, False), (-1, False)])
def test_magics_beyond_four_bits_are_not_valid(magic, valid):
    assert timer.is_magic_valid(magic) is valid


@pytest.mark.parametrize("size", range(16))
def test_a_torn_end_mark_is_none(size):
    mark = timer.LOG_END.build(timer.TimerLogEnd(20, 0, -875286124))
    assert timer.is_log_end(mark, 0)
    assert not timer.is_log_end(mark[:size], 0)


_I32, _I64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
_UNITS = st.builds(
    TimerLogUnit, st.sampled_from((52, 0, 51, -52)), _I64, st.integers(-2, 17), _I64, _I32, _I64, _I32, _I32, _I64
)


@given(st.lists(_UNITS, max_size=6), st.binary(max_size=60))
def test_places_of_a_log_file_hold_a_unit_in_both_forms_or_in_none(units, tail):
    data = b"".join(map(timer.LOG_UNIT.build, units)) + tail
    rows, is_unit = timer.log_rows(data)
    scalar = [timer.unit_at(data, at) for at in range(0, len(data), 52)][: len(rows)]
    assert [TimerLogUnit(*row) if held else None for row, held in zip(rows.tolist(), is_unit, strict=True)] == scalar
    assert timer.unit_at(data, len(rows) * 52) is None


@pytest.mark.parametrize("path", LOGS, ids=label)
def test_an_end_mark_is_never_a_unit(path):
    data = path.read_bytes()
    _, is_unit = timer.log_rows(data)
    end = int(np.append(is_unit, False).argmin())
    assert not is_unit[end:].any()
    assert timer.is_unused(data, end * timer.LOG_UNIT_SIZE)


def test_units_end_without_damage_at_a_mark_or_zeros_only():
    mark = timer.LOG_END.build(timer.TimerLogEnd(52, 0, -875286124)) + b"x" * 36
    assert [timer.is_unused(data) for data in (b"", bytes(52), bytes(51) + b"x", mark)] == [True, True, False, True]
    assert timer.unit_at(mark) is None


def test_slots_wait_from_the_read_time_on():
    slots = np.array([(9, 0, 0, 1, 0), (10, 0, 0, 1, 0), (11, -1, -1, 0, 0), (12, 0, 52, 2, 0)], timer.SLOT.dtype)
    assert timer.unread_slots(slots, 10_000, 1000).tolist() == [False, True, False, True]
    assert timer.unread_slots(slots, 10_001, 1000).tolist() == [False, False, False, True]
    assert timer.unread_slots(slots, 2000, 200).tolist() == [False, True, False, True]


def test_a_message_past_the_window_enters_an_earlier_slot():
    """TimerMessageStore.doEnqueue: with little more than the window, half of it is left for the next roll."""
    found = [timer.time_in_wheel(5000 + slots * 500, 5000, 90, 500) for slots in (89, 90, 119, 120)]
    assert found == [
        (5000 + slots * 500, is_rolled) for slots, is_rolled in ((89, False), (45, True), (45, True), (90, True))
    ]


def test_a_slot_takes_units_and_deletions():
    slot = timer.slot_at(TimerSlot(7, 0, 0, 5, 0), 8)
    assert slot == TimerSlot(8, -1, -1, 0, 0)
    slot = slot.after(104, 1)
    assert slot.after(156, 4 | 1) == TimerSlot(8, 104, 156, 0, 0)
    assert timer.slot_at(slot, 8) is slot


def test_a_log_file_ends_where_a_unit_and_a_mark_do_not_fit():
    assert timer.log_end_at(1024 - 68, 1024) is None
    assert timer.log_end_at(5 * 1024 - 67, 1024) == timer.TimerLogEnd(67, 0, -875286124)
