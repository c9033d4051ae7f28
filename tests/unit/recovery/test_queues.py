"""A ConsumeQueue while the broker starts."""

import os
from pathlib import Path

import pytest

from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT
from mqtool.recovery.action_log import Action, ActionLog, StartHung
from mqtool.recovery.mapped_files import UnitContent, list_entries
from mqtool.recovery.queues import SimpleQueue
from tests.unit.recovery.stores import QUEUE_FILE, patch, settings, unit, write_queue

PER_FILE = QUEUE_FILE // 20
BOTH = pytest.mark.parametrize("release", ["4.9", "5.5"])


def units(count: int, start: int = 0) -> list[bytes]:
    return [unit(number * 100, 100) for number in range(start, start + count)]


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "consumequeue" / "Orders" / "0"


def queue(root, release: str = "5.5", **keys) -> SimpleQueue:
    made = SimpleQueue("Orders", 0, settings(root, release, **keys), ActionLog())
    made.load(list_entries(made.files.directory) or [])
    return made


def recovered(root, release: str = "5.5") -> SimpleQueue:
    made = queue(root, release)
    made.recover()
    return made


def done(made: SimpleQueue, action: Action) -> list[str]:
    return [step.path.name for step in made._actions.steps if step.action is action]


@BOTH
def test_the_end_is_behind_the_last_valid_unit(release, tmp_path, directory):
    write_queue(directory, units(13))
    made = recovered(tmp_path, release)
    assert (made.max_offset, made.max_physical_offset) == (13, 1300)


@BOTH
@pytest.mark.parametrize("bad", [bytes(20), unit(-1), unit(5, 0), unit(5, -3)])
def test_a_bad_unit_ends_the_queue_and_later_files_go(release, bad, tmp_path, directory):
    write_queue(directory, [*units(12), bad, *units(17, 13)])
    made = recovered(tmp_path, release)
    assert made.max_offset == 12
    assert done(made, Action.DELETE) == [f"{2 * QUEUE_FILE:020d}"]
    assert any("ends before unit 12" in rule for rule in made._actions.why)


def test_only_the_last_three_files_are_looked_at(tmp_path, directory):
    write_queue(directory, [bytes(20), *units(34, 1)])
    assert recovered(tmp_path).max_offset == 35


def test_a_queue_of_blank_units_reaches_to_the_largest_size(tmp_path, directory):
    write_queue(directory, [unit(0, 0x7FFFFFFF)] * 3)
    assert recovered(tmp_path).max_physical_offset == 0x7FFFFFFF


@BOTH
def test_units_at_or_beyond_the_end_of_the_log_are_dropped(release, tmp_path, directory):
    write_queue(directory, units(25))
    made = recovered(tmp_path, release)
    made.truncate(1500)
    assert (made.max_offset, made.max_physical_offset) == (15, 1500)
    assert done(made, Action.DELETE) == [f"{2 * QUEUE_FILE:020d}"]


def test_a_record_that_straddles_the_end_keeps_its_unit(tmp_path, directory):
    write_queue(directory, units(5))
    made = recovered(tmp_path)
    made.truncate(450)
    assert made.max_offset == 5


def test_the_first_unit_of_a_file_counts_even_if_it_is_empty(tmp_path, directory):
    write_queue(directory, units(PER_FILE))
    (directory / f"{QUEUE_FILE:020d}").write_bytes(bytes(QUEUE_FILE))
    made = recovered(tmp_path)
    made.truncate(10_000)
    assert made.max_offset == PER_FILE + 1
    assert any("is empty, but counts" in fault for fault in made._actions.accepted)


def test_a_queue_without_files_takes_the_end_of_the_log_for_its_own(tmp_path):
    made = recovered(tmp_path)
    made.truncate(700)
    assert (made.max_physical_offset, made.max_offset) == (700, 0)


def test_files_of_one_unit_are_never_done_with(tmp_path, directory):
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes(unit(0))
    made = queue(tmp_path, queue_file_size=20)
    with pytest.raises(StartHung):
        made.truncate(1000)


def test_a_record_up_to_the_queues_end_is_there_already(tmp_path, directory):
    write_queue(directory, units(5))
    made = recovered(tmp_path)
    made.put(400, 100, 0, 4)
    assert made.max_offset == 5
    made.put(500, 100, 7, 5)
    assert made.max_offset == 6


def test_an_offset_below_the_end_is_a_repetition_and_one_above_shifts_the_queue(tmp_path, directory):
    write_queue(directory, units(5))
    made = recovered(tmp_path)
    made.put(900, 100, 0, 3)
    assert (made.max_offset, made.max_physical_offset) == (5, 500)
    made.put(900, 100, 0, 9)
    assert made.max_offset == 6
    assert any("states queue offset 9 is put at 5" in fault for fault in made._actions.accepted)


def test_a_queue_offset_of_zero_is_not_compared(tmp_path, directory):
    write_queue(directory, units(5))
    made = recovered(tmp_path)
    made.put(900, 100, 0, 0)
    assert made.max_offset == 6


def test_a_new_queue_is_filled_with_blanks_up_to_its_first_offset(tmp_path):
    made = queue(tmp_path)
    made.put(5000, 100, 0, 13)
    assert [file.base for file in made.files.files] == [QUEUE_FILE]
    assert (made.min_offset, made.max_offset) == (13, 14)
    assert made.files.files[0].units()["size"].tolist()[:4] == [0x7FFFFFFF] * 3 + [100]


def test_the_minimum_in_4_9_may_be_a_blank_unit_where_the_log_begins_at_0(tmp_path):
    made = queue(tmp_path, "4.9")
    made.put(5000, 100, 0, 13)
    made.correct_min(0)
    assert made.min_offset == 10
    made.correct_min(4000)
    assert made.min_offset == 13


@BOTH
def test_the_minimum_is_the_first_unit_that_points_into_the_log(release, tmp_path, directory):
    write_queue(directory, units(8))
    made = recovered(tmp_path, release)
    made.correct_min(350)
    assert made.min_offset == 4


def test_an_expired_queue_is_empty_in_5_5_and_unchanged_in_4_9(tmp_path, directory):
    write_queue(directory, units(8))
    found = {}
    for release in ("4.9", "5.5"):
        made = recovered(tmp_path, release)
        made.correct_min(100_000)
        found[release] = made.min_offset
    assert found == {"4.9": 0, "5.5": 8}


def test_two_names_of_one_place_share_the_bytes(tmp_path, directory):
    write_queue(directory, units(PER_FILE))
    made = recovered(tmp_path)
    first = made.files.files[0]
    made.files.files.append(made.files._new_file(first.path, 0, is_first=False))
    made.files.files[-1].append((9999, 1, 0))
    assert first.units()["physical_offset"][0] == 9999
    assert first.content.is_changed


def test_the_files_themselves_are_not_written(tmp_path, directory):
    write_queue(directory, units(5))
    before = (directory / f"{0:020d}").read_bytes()
    made = recovered(tmp_path)
    made.put(500, 100, 7, 5)
    assert (directory / f"{0:020d}").read_bytes() == before
    assert made.files.files[0].content.is_changed


def test_a_file_that_is_made_anew_begins_as_zeros_whatever_lies_there(tmp_path, directory):
    write_queue(directory, units(3))
    made = recovered(tmp_path)
    made.destroy()
    made.put(500, 100, 7, 1)
    patch(directory / f"{0:020d}", 0, unit(77))
    assert made.files.files[0].units()["physical_offset"].tolist()[:3] == [0, 500, 0]


def resident() -> int:
    """Bytes of memory that this process occupies."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
@pytest.mark.parametrize("is_new", [True, False])
def test_files_that_get_a_unit_take_memory_for_their_units_only(tmp_path, is_new):
    size = 300_000 * 20
    paths = [tmp_path / f"{number}" for number in range(50)]
    for path in paths:
        path.touch()
        os.truncate(path, size)
    before = resident()
    files = [UnitContent(path, CONSUME_QUEUE_UNIT, size, is_new=is_new) for path in paths]
    for file in files:
        file.write(20, (100, 100, 7))
    assert resident() - before < len(paths) * size // 2  # a huge page each is a third
    assert all(file.unit_at(1).tolist() == (100, 100, 7) for file in files)
    assert not any(file.units()["size"][[0, 2, -1]].any() for file in files[:3])


def test_the_minimum_is_found_before_an_empty_last_file(tmp_path, directory):
    write_queue(directory, [*units(PER_FILE), bytes(20)])
    made = recovered(tmp_path)
    assert [file.wrote for file in made.files.files] == [QUEUE_FILE, 0]
    made.correct_min(500)
    assert made.min_offset == 5


def test_a_file_that_begins_inside_of_a_unit_and_has_no_whole_one_leaves_the_minimum(tmp_path, directory):
    write_queue(directory, units(PER_FILE))
    (directory / f"{0:020d}").rename(directory / f"{10:020d}")
    made = queue(tmp_path)
    made.files.files[0].wrote = 15
    before = made.min_offset
    made.correct_min(500)
    assert made.min_offset == before
