"""The broker's list of files: what it refuses, finds, cuts and makes."""

import errno
import os
from pathlib import Path
from typing import Never

import pytest

from mqtool.errors import UnreadableError
from mqtool.formats.release import V4_9, V5_5, Release
from mqtool.recovery.action_log import Action, ActionLog, StartFailed
from mqtool.recovery.dledger_recovery import LedgerFiles
from mqtool.recovery.mapped_files import Entry, Segments, SimulatedFile, list_entries
from mqtool.recovery.state import SegmentFiles

SIZE = 1000
DIRECTORY = Path("log")


def entry(name: str, size: int = SIZE, *, is_directory: bool = False) -> Entry:
    return Entry(DIRECTORY / name, size, is_directory, "Is a directory" if is_directory else "")


def loaded(*names: str, release: Release = V5_5) -> Segments:
    files = Segments(DIRECTORY, SIZE, ActionLog())
    files.load([entry(name) for name in names], release=release)
    return files


def name(base: int) -> str:
    return f"{base:020d}"


def names(files: Segments) -> list[str]:
    return [file.path.name for file in files.files]


def actions(files: Segments) -> list[tuple[Action, str]]:
    return [(step.action, step.path.name) for step in files._actions.steps]


def test_files_are_in_the_order_of_their_names_not_of_their_numbers():
    assert [file.base for file in loaded(name(1000), "500", name(0)).files] == [0, 1000, 500]


@pytest.mark.parametrize("release", [V4_9, V5_5])
@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (entry(name(1000), 999), "999 length not matched"),
        (entry("copy"), 'NumberFormatException: For input string: "copy"'),
        (entry(".hidden", 3), "3 length not matched"),
    ],
)
def test_a_file_of_a_wrong_length_or_name_is_refused_by_both(release, bad, words):
    files = Segments(DIRECTORY, SIZE, ActionLog())
    with pytest.raises(StartFailed, match=words) as refused:
        files.load([entry(name(0)), bad], release=release)
    assert refused.value.exit == -3


def test_a_directory_is_refused_by_4_9_and_passed_over_by_5_5():
    odd = entry("lost+found", 4096, is_directory=True)
    with pytest.raises(StartFailed, match="4096 length not matched"):
        Segments(DIRECTORY, SIZE, ActionLog()).load([odd], release=V4_9)
    files = Segments(DIRECTORY, SIZE, ActionLog())
    files.load([odd, entry(name(0))], release=V5_5)
    assert names(files) == [name(0)]


def test_an_empty_last_file_is_refused_by_4_9_and_deleted_by_5_5():
    empty = entry(name(1000), 0)
    with pytest.raises(StartFailed):
        Segments(DIRECTORY, SIZE, ActionLog()).load([entry(name(0)), empty], release=V4_9)
    files = Segments(DIRECTORY, SIZE, ActionLog())
    files.load([entry(name(0)), empty], release=V5_5)
    assert names(files) == [name(0)]
    assert actions(files) == [(Action.DELETE, name(1000))]


def test_an_empty_file_is_not_the_last_where_a_directory_sorts_behind_it():
    with pytest.raises(StartFailed, match="0 length not matched"):
        Segments(DIRECTORY, SIZE, ActionLog()).load(
            [entry(name(0), 0), entry("z", 4096, is_directory=True)], release=V5_5
        )


@pytest.mark.parametrize(
    ("names_", "offset", "base"),
    [
        ((name(0), name(1000)), 1500, 1000),
        ((name(0), name(1000)), 2000, None),
        ((name(0), name(2000)), 1500, None),
        ((name(1000), name(2000)), 999, None),
        ((name(0), name(1100)), 1050, None),
        ((name(0), name(1100)), 2050, 1100),
    ],
)
def test_a_file_is_found_by_an_offset_that_it_covers(names_, offset, base):
    found = loaded(*names_).find(offset)
    assert (found and found.base) == base


def test_the_first_file_stands_in_on_request():
    found = loaded(name(1000), name(2000)).find(0, or_first=True)
    assert found is not None
    assert found.base == 1000


def test_cutting_sets_back_the_file_that_holds_the_offset_and_deletes_those_behind():
    files = loaded(name(0), name(1000), name(2000))
    files.truncate_dirty(1250)
    assert [(file.base, file.wrote) for file in files.files] == [(0, 1000), (1000, 250)]
    assert actions(files) == [(Action.TRUNCATE, name(1000)), (Action.DELETE, name(2000))]


def test_cutting_at_a_border_keeps_the_file_that_begins_there_empty():
    files = loaded(name(0), name(1000), name(2000))
    files.truncate_dirty(1000)
    assert [(file.base, file.wrote) for file in files.files] == [(0, 1000), (1000, 0)]


def test_the_first_file_of_a_list_is_aligned_and_later_ones_adjoin():
    files = Segments(DIRECTORY, SIZE, ActionLog())
    first = files.last_for_append(3450)
    assert (first.base, first.is_first) == (3000, True)
    first.wrote = SIZE
    assert files.last_for_append(99_999).base == 4000
    assert actions(files) == [(Action.CREATE, name(3000)), (Action.CREATE, name(4000))]


def test_a_list_without_files_begins_at_minus_one_and_ends_at_zero():
    files = Segments(DIRECTORY, SIZE, ActionLog())
    assert (files.min_offset, files.max_offset) == (-1, 0)


def test_what_is_no_directory_lists_as_null(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    assert list_entries(tmp_path / "file") is None
    assert list_entries(tmp_path / "absent") is None


def test_a_link_that_leads_nowhere_is_an_empty_file(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    assert list_entries(tmp_path) == [Entry(tmp_path / "link", 0, is_directory=False)]


def test_a_ledgers_index_loses_the_files_before_its_first_entry():
    files = LedgerFiles(DIRECTORY, SIZE, ActionLog())
    files.load([entry(name(base)) for base in (2000, 0, 1000)])
    files.reset(1250)
    assert [(file.base, file.start) for file in files.files] == [(1000, 250), (2000, 0)]
    assert files.min_offset == 1250
    assert [(step.action, step.path.name) for step in files._actions.steps] == [(Action.DELETE, name(0))]


def test_a_directory_that_cannot_be_listed_is_not_taken_as_empty(tmp_path, monkeypatch):
    def denied(_path: Path) -> Never:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(UnreadableError, match="cannot be listed: Permission denied"):
        list_entries(tmp_path)


def test_a_path_with_a_nul_does_not_exist(tmp_path):
    assert list_entries(tmp_path / "a\0b") is None


def test_a_directory_of_the_size_of_a_file_cannot_be_loaded_by_4_9():
    odd = entry(name(1000), is_directory=True)
    with pytest.raises(StartFailed, match=rf"load file log/{name(1000)} error .*Is a directory"):
        Segments(DIRECTORY, SIZE, ActionLog()).load([entry(name(0)), odd], release=V4_9)


def test_a_directory_with_a_file_whose_size_the_system_does_not_say_is_not_judged(tmp_path, monkeypatch):
    system = Path.stat

    def failing(self, **options):
        if self.name == name(0):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return system(self, **options)

    (tmp_path / name(0)).touch()
    monkeypatch.setattr(Path, "stat", failing)
    with pytest.raises(UnreadableError, match="cannot be listed: Input/output error"):
        list_entries(tmp_path)


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_only_so_many_segments_are_open_and_each_is_read_as_its_own(tmp_path):
    count = 40
    files = []
    for number in range(count):
        (tmp_path / name(number)).write_bytes(bytes([number]))
        files.append(SimulatedFile(tmp_path / name(number), number, 1))
    opened, before = SegmentFiles(), descriptors()
    assert [opened.reader(file)(0, 1)[0] for file in [*files, *files[::-1]]] == [*range(count), *reversed(range(count))]
    assert descriptors() - before == 16
    opened.close()
    assert descriptors() == before


def test_each_fault_and_question_is_logged_once():
    actions = ActionLog()
    for log in (actions.log_reason, actions.log_accepted, actions.log_undecided):
        for words in ("one", "two", "one"):
            log(words)
    assert (actions.why, actions.accepted, actions.undecided) == (["one", "two"],) * 3
