"""Timer wheel, timer log and timer checkpoint: real files and the broker's answers."""

import pytest

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
