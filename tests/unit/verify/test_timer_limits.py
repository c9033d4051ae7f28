"""The timer's files with numbers that no broker writes: findings or nothing, in bounded time, and no exception."""

import pytest

import mqtool
from mqtool.formats import timer
from mqtool.repair.from_findings import changes_of
from mqtool.verify.store import verify
from tests.support.stores import answers, copy_store, store_fixture

EXTREMES = (-(1 << 63), -1, 0, (1 << 31) - 1, 1 << 62, (1 << 63) - 1)


def timer_codes(root):
    with mqtool.open(root) as store:
        return {finding.code for finding in verify(store).findings if finding.code.startswith("timer-")}


@pytest.mark.slow
@pytest.mark.parametrize("value", EXTREMES)
@pytest.mark.parametrize("name", ["size", "magic", "previous_position", "physical_offset", "write_time", "delay"])
def test_hostile_numbers_in_the_timer_s_files_are_findings(tmp_path, name, value):
    root = copy_store("timer-5.5.0", tmp_path)
    unit = next(field for field in timer.LOG_UNIT.fields if field.name == name)
    width = 8 if name in {"previous_position", "physical_offset", "write_time"} else 4
    log = min((root / "timerlog").iterdir())
    value = (value + (1 << 8 * width - 1)) % (1 << 8 * width) - (1 << 8 * width - 1)
    with log.open("r+b") as file:
        file.seek(timer.LOG_UNIT_SIZE + unit.offset)
        file.write(value.to_bytes(width, "big", signed=True))
    found = timer_codes(root)
    if name == "size" or (name == "magic" and not timer.is_magic_valid(value)):
        assert "timer-bad-unit" in found
    if name == "previous_position" and value not in (timer.NO_POSITION, 0):
        assert "timer-bad-chain" in found
    if name == "physical_offset" and value > 0:
        assert "timer-dangling-unit" in found


@pytest.mark.parametrize("size", [0, 1, timer.WHEEL_FILE_SIZE - 1, timer.WHEEL_FILE_SIZE + 32])
def test_a_wheel_of_another_length_is_a_finding(tmp_path, size):
    root = copy_store("timer-5.5.0", tmp_path)
    with (root / "timerwheel").open("r+b") as file:
        file.truncate(size)
    assert "timer-wheel-size" in timer_codes(root)


@pytest.mark.parametrize("name", ["timerwheel", "config/timercheck"])
def test_a_directory_in_place_of_a_file_is_a_finding_and_no_change_is_proposed(tmp_path, name):
    root = copy_store("timer-5.5.0", tmp_path)
    (root / name).unlink()
    (root / name).mkdir()
    with mqtool.open(root, store_fixture("timer-5.5.0").config) as store:
        found = verify(store)
        assert changes_of(store, found.findings).changes == ()
    assert [(one.code, one.file) for one in found.findings] == [("timer-not-file", name)]
    assert found.next_start is not None
    assert found.next_start.do_not_start is True


def test_a_unit_of_a_damaged_record_proves_nothing_about_the_timer(tmp_path):
    root = copy_store("timer-5.5.0", tmp_path)
    parked = [row for row in answers("timer-5.5.0", "messages") if row["topic"] == "rmq_sys_wheel_timer"]
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(parked[3]["phyOffset"] + 4)
        file.write(bytes(4))
    with mqtool.open(root, store_fixture("timer-5.5.0").config) as store:
        found = verify(store)
    assert [one.code for one in found.findings] == ["log-bad-header"]


def test_an_empty_last_file_of_the_timer_log_is_no_finding(tmp_path):
    """A broker deletes it on its start (MappedFileQueue.doLoad, 5.5.0)."""
    root = copy_store("timer-5.5.0", tmp_path)
    (root / "timerlog" / f"{2048:020}").touch()
    assert timer_codes(root) == set()
    (root / "timerlog" / f"{1024:020}").write_bytes(b"")
    assert "timer-log-size" in timer_codes(root)
