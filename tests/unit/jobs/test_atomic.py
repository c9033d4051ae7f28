"""Files that are replaced or created in one go: complete and durable, or as before."""

import errno
import fcntl
import os
import resource
import stat
from pathlib import Path

import pytest

from mqtool.errors import RefusedError, StoreError
from mqtool.jobs import atomic
from mqtool.jobs.atomic import MARK, NewFile, check_interrupted, create_file, leftovers, replace_file, staged_directory

CALLS = ("open", "write", "fchmod", "fsync", "rename", "link", "unlink")
_LOW = 256
CHANGING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Stopped(BaseException):
    """As Ctrl-C: no Exception."""


class Calls:
    """Notes the system calls that a write makes, and ends it before the one of a number."""

    def __init__(self, monkeypatch, stops_at=0):
        self.made = []
        self._stops_at = stops_at
        for name in CALLS:
            monkeypatch.setattr(os, name, self._noting(name, getattr(os, name)))

    def _noting(self, name, call):
        def noting(first, *more, **named):
            what = Path(f"/proc/self/fd/{first}").readlink() if isinstance(first, int) else first
            self.made.append((name, Path(os.fspath(what)).name))
            if len(self.made) == self._stops_at:
                raise Stopped
            return call(first, *more, **named)

        return noting


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_a_file_is_on_disk_before_its_name_and_its_name_before_the_return(tmp_path, monkeypatch):
    calls = Calls(monkeypatch)
    replace_file(tmp_path / "state", b"new")
    monkeypatch.undo()
    steps = [call for call in calls.made if call[0] in {"fsync", "rename"}]
    assert [name for name, _ in steps] == ["fsync", "rename", "fsync"]
    assert steps[0][1] == steps[1][1] != "state"  # the temporary file
    assert steps[2][1] == tmp_path.name
    assert names(tmp_path) == ["state"]
    assert (tmp_path / "state").read_bytes() == b"new"


def test_the_names_of_many_files_can_be_synced_once(tmp_path, monkeypatch):
    calls = Calls(monkeypatch)
    replace_file(tmp_path / "piece", b"data", sync_name=False)
    assert [name for name, _ in calls.made if name == "fsync"] == ["fsync"]


@pytest.mark.parametrize(("write", "old"), [(replace_file, b"old"), (replace_file, None), (create_file, None)])
def test_stopped_at_any_call_there_is_the_old_content_or_the_new_and_nothing_else(tmp_path, monkeypatch, write, old):
    stopped = 0
    for stops_at in range(1, 30):
        directory = tmp_path / str(stops_at)
        directory.mkdir()
        path = directory / "state"
        if old is not None:
            path.write_bytes(old)
        with monkeypatch.context() as patch:
            Calls(patch, stops_at)
            try:
                write(path, b"new")
            except Stopped:
                stopped += 1
        found = path.read_bytes() if path.exists() else None
        assert found in (old, b"new")
        assert names(directory) == ([] if found is None else ["state"])
    assert 3 < stopped < 29


def test_an_old_file_keeps_its_mode_and_a_new_one_has_that_of_the_umask(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(b"")
    old.chmod(0o640)
    before = os.umask(0o027)
    try:
        replace_file(old, b"1")
        replace_file(new, b"1")
        create_file(tmp_path / "created", b"1")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (old, new, tmp_path / "created")] == [0o640, 0o640, 0o640]
    old.chmod(0o604)
    replace_file(old, b"2")
    assert stat.S_IMODE(old.stat().st_mode) == 0o604


def test_an_error_names_the_file_and_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "state"
    path.write_bytes(b"old")

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left") as found:
            replace_file(path, b"new")
        assert found.value.filename == str(path)
        with pytest.raises(OSError, match="No space left") as found:
            create_file(tmp_path / "created", b"new")
        assert found.value.filename == str(tmp_path / "created")
    assert names(tmp_path) == ["state"]
    assert path.read_bytes() == b"old"


def test_where_no_directory_is_the_error_names_the_file(tmp_path):
    for write in (replace_file, create_file):
        with pytest.raises(FileNotFoundError) as found:
            write(tmp_path / "none" / "state", b"")
        assert found.value.filename == str(tmp_path / "none" / "state")


def test_a_file_system_that_cannot_sync_directories_is_written_to(tmp_path, monkeypatch):
    system = os.fsync

    def refusing(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(22, "Invalid argument")
        system(descriptor)

    monkeypatch.setattr(os, "fsync", refusing)
    replace_file(tmp_path / "state", b"new")
    assert (tmp_path / "state").read_bytes() == b"new"


def test_any_other_error_of_a_directory_s_sync_is_reported(tmp_path, monkeypatch):
    system = os.fsync

    def failing(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(5, "Input/output error")
        system(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="Input/output"):
        replace_file(tmp_path / "state", b"new")


@pytest.mark.parametrize("unnamed", [True, False])
def test_a_file_that_exists_is_never_created_again(tmp_path, monkeypatch, unnamed):
    if not unnamed:
        monkeypatch.setattr(atomic, "create_unnamed", lambda _path, _fill: False)
    path, link = tmp_path / "plan", tmp_path / "link"
    create_file(path, b"first")
    link.symlink_to(tmp_path / "nowhere")
    for taken in (path, link):
        with pytest.raises(FileExistsError):
            create_file(taken, b"second")
    assert path.read_bytes() == b"first"
    assert names(tmp_path) == ["link", "plan"]


def test_a_file_that_cannot_be_written_to_its_end_is_removed_where_it_has_its_name_first(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "create_unnamed", lambda _path, _fill: False)

    def broken(_descriptor, _data):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "write", broken)
    with pytest.raises(OSError, match="Input/output"):
        create_file(tmp_path / "plan", b"data")
    assert names(tmp_path) == []


def test_what_a_killed_process_left_is_found_and_nothing_else(tmp_path):
    path = tmp_path / "state"
    replace_file(path, b"")
    for name in (".state.17-1.part", ".state.part", "state.17-1.part", ".other.17-1.part", ".state.17-x.part"):
        (tmp_path / name).write_bytes(b"")
    assert [left.name for left in leftovers(path)] == [".state.17-1.part"]
    assert leftovers(tmp_path / "none" / "state") == []


def test_the_longest_names_can_be_replaced(tmp_path):
    path = tmp_path / ("ü" * 127 + "n")
    replace_file(path, b"1")
    replace_file(path, b"2")
    assert names(tmp_path) == [path.name]
    assert path.read_bytes() == b"2"


def test_a_new_file_refuses_an_old_one_and_is_synced_when_closed(tmp_path, monkeypatch):
    calls = Calls(monkeypatch)
    file = NewFile(tmp_path / "part")
    file.write(b"data")
    file.close()
    file.close()
    assert [call for call in calls.made if call[0] == "fsync"] == [("fsync", "part")]
    with pytest.raises(FileExistsError):
        NewFile(tmp_path / "part")


@pytest.mark.parametrize("position", [None, 3])
def test_all_data_is_written_where_the_system_takes_it_in_pieces(tmp_path, monkeypatch, position):
    write, pwrite = os.write, os.pwrite
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:2]))
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, at: pwrite(descriptor, data[:2], at))
    with (tmp_path / "file").open("wb") as file:
        atomic.write_all(file.fileno(), b"abcdefg", position)
    assert (tmp_path / "file").read_bytes() == bytes(position or 0) + b"abcdefg"


def test_a_file_is_opened_after_the_limit_was_raised():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_LOW, hard))
    tries = []

    def opened() -> int:
        tries.append(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        if len(tries) == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return 7

    try:
        assert atomic.open_raising_limit(opened) == 7
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert tries == [_LOW, hard]


def test_a_directory_that_cannot_be_created_is_named(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(StoreError, match="cannot be created: Not a directory"),
        staged_directory(tmp_path / "file" / "new"),
    ):
        pytest.fail("there is nowhere to build")


def test_a_target_that_another_process_creates_meanwhile_is_left_alone(tmp_path):
    target = tmp_path / "new"

    def build():
        with staged_directory(target) as work:
            (work / "store" / "ours").touch()
            target.mkdir()
            (target / "theirs").touch()

    with pytest.raises(RefusedError, match="it was created by another process"):
        build()
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == ["new", "new/theirs"]


def test_a_mount_point_is_refused_before_anything_is_built(tmp_path, monkeypatch):
    monkeypatch.setattr(os.path, "ismount", lambda path: path == tmp_path)
    with (
        pytest.raises(RefusedError, match="this is a mount point"),
        staged_directory(tmp_path, into_empty=True),
    ):
        pytest.fail("the rename would fail after all the work")
    assert list(tmp_path.parent.glob(f"{tmp_path.name}.*")) == []


def test_a_target_that_is_being_built_is_refused_and_its_files_stay(tmp_path):
    target = tmp_path / "new"
    with staged_directory(target) as work:
        (work / "store" / "ours").touch()
        with pytest.raises(RefusedError, match="another run may be writing this") as refused, staged_directory(target):
            pytest.fail("the files of the first run would be deleted")
        assert refused.value.path == work
        with pytest.raises(RefusedError, match="another run may be writing this"):
            check_interrupted(target)
    assert [path.name for path in target.iterdir()] == ["ours"]


@pytest.mark.parametrize("marked", [True, False])
def test_the_rest_of_a_run_that_was_killed_is_deleted(marked, tmp_path):
    target, work = tmp_path / "new", tmp_path / "new.incomplete"
    work.mkdir()
    if marked:
        (work / MARK).touch()
        (work / "store").mkdir()
        (work / "store" / "theirs").touch()
    check_interrupted(target)
    with staged_directory(target) as found:
        (found / "store" / "ours").touch()
    assert [path.name for path in target.iterdir()] == ["ours"]
    assert not work.exists()


@pytest.mark.parametrize("lost", ["directory", "mark"])
def test_a_directory_that_another_process_deletes_as_it_is_created_is_refused(lost, tmp_path, monkeypatch):
    """It looked like the rest of a killed run: empty, or with a mark that was not locked yet."""
    create, lock, work = atomic.create_mark, fcntl.flock, tmp_path / "new.incomplete"

    def created(path):
        if lost == "directory":
            work.rmdir()
        return create(path)

    def locked(descriptor, flags):
        if lost == "mark":
            (work / MARK).unlink()
        lock(descriptor, flags)

    monkeypatch.setattr(atomic, "create_mark", created)
    monkeypatch.setattr(fcntl, "flock", locked)
    with pytest.raises(RefusedError, match="another run may be writing this"), staged_directory(tmp_path / "new"):
        pytest.fail("two processes would build in one directory")


def test_without_locks_a_run_that_may_be_in_progress_is_refused(tmp_path, monkeypatch):
    def unsupported(_descriptor, _flags):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    target = tmp_path / "new"
    with (
        staged_directory(target),
        pytest.raises(RefusedError, match="delete the directory if no mqtool is running"),
        staged_directory(target),
    ):
        pytest.fail("whether the first run is in progress is unknown")
    assert target.is_dir()


def refuse(monkeypatch, kind, code):
    """The system refuses to open a directory, or a file without a name (O_TMPFILE contains O_DIRECTORY)."""
    system = os.open

    def refusing(path, flags, *more, **named):
        if flags & os.O_TMPFILE == kind:
            raise OSError(code, os.strerror(code), str(path))
        return system(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refusing)


def test_a_directory_that_may_be_written_to_but_not_listed_is(tmp_path, monkeypatch):
    """It has mode 0300; its names cannot be made durable."""
    refuse(monkeypatch, os.O_DIRECTORY, errno.EACCES)
    for write in (replace_file, create_file):
        write(tmp_path / write.__name__, b"new")
        assert (tmp_path / write.__name__).read_bytes() == b"new"


def test_where_no_file_can_be_created_the_error_names_it_and_there_is_none(tmp_path, monkeypatch):
    refuse(monkeypatch, os.O_TMPFILE, errno.ENOSPC)
    with pytest.raises(OSError, match="No space left") as caught:
        create_file(tmp_path / "plan", b"data")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "plan"))
    assert names(tmp_path) == []
