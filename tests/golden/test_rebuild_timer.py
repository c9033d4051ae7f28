"""Timer wheel, timer log and timer checkpoint from the topic of parked messages: the broker's own bytes."""

import os
import shutil

import pytest

import mqtool
from mqtool.cli.app import run
from mqtool.formats import timer
from mqtool.rebuild.timer import rebuild_timer
from mqtool.verify.store import verify
from tests.support.stores import answers, copy_store, store_fixture, tree_digest

NAMES = ("timer-5.5.0", "orders-5.5.0")


def timer_files(root):
    """The timer's files below a root, without the holes of a wheel that nobody reads."""
    paths = [*sorted((root / "timerlog").iterdir()), root / "timerwheel", root / "config/timercheck"]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def without_timer(root):
    """Takes the timer's files out of a store."""
    shutil.rmtree(root / "timerlog")
    (root / "timerwheel").unlink()


@pytest.mark.parametrize("name", NAMES)
def test_the_files_are_the_broker_s_byte_for_byte(name, tmp_path):
    root = copy_store(name, tmp_path)
    expected = timer_files(root)
    without_timer(root)
    before = tree_digest(root)
    with mqtool.open(root, store_fixture(name).config) as store:
        found = rebuild_timer(store, tmp_path / "made")
    assert timer_files(tmp_path / "made") == expected
    assert (found.units, found.passed, found.problems.count) == (found.parked, 0, 0)
    assert tree_digest(root) == before


@pytest.mark.parametrize("name", NAMES)
def test_without_the_checkpoint_the_read_time_comes_from_what_was_dequeued(name, tmp_path):
    root = copy_store(name, tmp_path)
    known = timer.parse_checkpoint((root / "config/timercheck").read_bytes())
    wheel = (root / "timerwheel").read_bytes()
    without_timer(root)
    (root / "config/timercheck").unlink()
    with mqtool.open(root, store_fixture(name).config) as store:
        found = rebuild_timer(store, tmp_path / "made")
    made = timer.parse_checkpoint((tmp_path / "made/config/timercheck").read_bytes())
    assert made.last_timer_queue_offset == known.last_timer_queue_offset
    assert made.last_timer_log_flush_position == known.last_timer_log_flush_position
    slot = timer.SLOT.parse(wheel, timer.slot_index(made.last_read_time_ms) * timer.SLOT_SIZE)
    assert slot.time * 1000 == made.last_read_time_ms <= known.last_read_time_ms
    assert found.read_time_from != "timercheck"


@pytest.mark.parametrize("name", NAMES)
def test_verify_finds_nothing_wrong_with_them(name, tmp_path):
    root = copy_store(name, tmp_path)
    without_timer(root)
    with mqtool.open(root, store_fixture(name).config) as store:
        rebuild_timer(store, tmp_path / "made")
    shutil.copytree(tmp_path / "made", root, dirs_exist_ok=True)
    with mqtool.open(root) as store:
        found = verify(store)
    assert found.findings == ()
    assert "timer" in {check.area.value for check in found.checks}


def test_a_log_file_is_closed_where_no_unit_and_mark_fit(tmp_path):
    with mqtool.open(store_fixture("timer-5.5.0").directory, {"mappedFileSizeTimerLog": 52 * 3 + 16}) as store:
        found = rebuild_timer(store, tmp_path)
    files = sorted((tmp_path / "timerlog").iterdir())
    assert [path.name for path in files] == [f"{172 * number:020d}" for number in range(9)]
    assert all(timer.is_log_end(path.read_bytes(), 156) for path in files[:-1])
    assert found.units == 25


def test_what_left_the_timer_and_is_not_in_the_log_any_more_waits_again(tmp_path):
    """Three messages were delivered; the record of the first is damaged: it alone is to come again."""
    root = copy_store("timer-5.5.0", tmp_path)
    first = next(row for row in answers("timer-5.5.0", "messages") if "TIMER_DEQUEUE_MS" in row.get("properties", {}))
    with (root / "commitlog/00000000000000000000").open("r+b") as file:
        file.seek(first["phyOffset"])
        file.write(bytes(first["size"]))
    with mqtool.open(root, store_fixture("timer-5.5.0").config) as store:
        found = rebuild_timer(store, tmp_path / "made")
    due = int(first["properties"]["TIMER_OUT_MS"])
    assert (found.missed, found.units, found.last_read_time_ms) == (1, found.parked - 2, due)
    slot = timer.SLOT.parse((tmp_path / "made/timerwheel").read_bytes(), timer.slot_index(due) * timer.SLOT_SIZE)
    assert (slot.time, slot.count) == (due // 1000, 1)


def test_a_store_without_timer_messages_gets_an_empty_wheel(tmp_path):
    with mqtool.open(store_fixture("ipv6").directory) as store:
        found = rebuild_timer(store, tmp_path)
    assert (found.parked, found.units, found.files) == (0, 0, ["timerwheel", "config/timercheck"])
    assert (tmp_path / "timerwheel").stat().st_size == timer.WHEEL_FILE_SIZE


def test_the_command_says_what_it_had_to_guess(tmp_path, capsys):
    source = store_fixture("timer-5.5.0")
    code = run(
        ["rebuild", "timer", str(source.directory), "--output", str(tmp_path / "made"), "--config", str(source.config)]
    )
    printed = capsys.readouterr().out
    assert code == 0
    assert "22 of 25 units" in printed
    assert run(["rebuild", "timer", str(source.directory), "--output", str(tmp_path / "made2"), "--jobs", "2"]) == 2


@pytest.mark.parametrize(("first_digit", "words"), [(b"x", "expected a Java long"), (b"-", "TIMER_OUT_MS is -")])
def test_a_message_whose_time_no_broker_writes_gets_no_unit_and_is_reported(first_digit, words, tmp_path):
    root = copy_store("timer-5.5.0", tmp_path)
    whole, parked = rebuilt_with_first_time(root, None, tmp_path / "whole"), 25
    found = rebuilt_with_first_time(root, first_digit, tmp_path / "made")
    assert (whole.units, found.units, found.parked) == (parked, parked - 1, parked - 1)
    assert [words in problem for problem in found.problems.items] == [True]


def test_a_message_that_was_due_when_the_timer_read_it_gets_no_unit(tmp_path):
    root = copy_store("timer-5.5.0", tmp_path)
    found = rebuilt_with_first_time(root, b"0", tmp_path / "made")
    assert (found.units, found.parked, found.passed, found.problems.count) == (24, 25, 1, 0)


def rebuilt_with_first_time(root, first_digit, out):
    """The timer rebuilt after the first digit of TIMER_OUT_MS of one message was replaced."""
    if first_digit is not None:
        parked = [row for row in answers("timer-5.5.0", "messages") if row["topic"] == "rmq_sys_wheel_timer"]
        with (root / "commitlog/00000000000000000000").open("r+b") as file:
            record = os.pread(file.fileno(), parked[3]["size"], parked[3]["phyOffset"])
            file.seek(parked[3]["phyOffset"] + record.index(b"TIMER_OUT_MS\1") + 13)
            file.write(first_digit)
    with mqtool.open(root, store_fixture("timer-5.5.0").config) as store:
        return rebuild_timer(store, out)
