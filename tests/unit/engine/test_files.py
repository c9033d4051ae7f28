"""Files of the engine: opened once, never used by the number of another file, listed and deleted by several threads."""

import errno
import mmap
import os
import threading

import pytest

from mqtool.engine.disk import files as disk_files
from mqtool.engine.disk.files import ClosedFileError, File, Files
from mqtool.engine.disk.mapped_files import MappedFile, MappedFileQueue

USES = {
    "read": lambda file: file.read(0, 4),
    "peek": lambda file: file.peek(0, 4),
    "write": lambda file: file.write(0, b"late"),
    "reserve": lambda file: file.reserve(0, 10),
    "read_ahead": lambda file: file.read_ahead(0, 10),
    "populate": lambda file: file.populate(0, 10),
    "unlock": File.unlock,
    "sync": File.sync,
    "mapping": lambda file: file.mapping,
    "pin": lambda file: file.pin,
    "is_in_place": lambda file: file.is_in_place,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("was_open", [True, False])
def test_a_closed_file_is_never_opened_again(tmp_path, use, was_open):
    path = tmp_path / "file"
    path.write_bytes(b"old bytes.")
    file = File(path, 10)
    if was_open:
        assert file.read(0, 3) + file.peek(4, 5) == b"oldbytes"
    file.close()
    path.unlink()
    path.write_bytes(b"new bytes.")
    with pytest.raises(ClosedFileError, match="the file is closed"):
        use(file)
    file.close()
    assert path.read_bytes() == b"new bytes."


def test_a_descriptor_is_closed_when_the_last_call_that_uses_it_returns(tmp_path, monkeypatch):
    path, other = tmp_path / "file", tmp_path / "other"
    path.write_bytes(b"old bytes.")
    other.write_bytes(b"not these.")
    file, plain, numbers = File(path, 10), os.pread, []

    def pread(number, count, position):
        file.close()
        numbers.extend([number, os.open(other, os.O_RDONLY)])
        return plain(number, count, position)

    monkeypatch.setattr(os, "pread", pread)
    assert file.read(0, 9) == b"old bytes"
    used, opened = numbers
    assert used != opened
    os.close(opened)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(used)


def test_views_stay_valid_and_new_ones_are_refused(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old bytes.")
    mapped = MappedFile(File(path, 10), 0, wrote=10)
    view = mapped.view()
    mapped.file.close()
    assert (bytes(view), mapped.view(), mapped.read(0, 4), mapped.peek(0, 4)) == (b"old bytes.", None, b"", b"")


@pytest.fixture
def queue(tmp_path):
    """A queue of three full files, not flushed."""
    made = MappedFileQueue(Files(), (tmp_path / "queue",), 100)
    for number in range(3):
        made.create().append(bytes([number]) * 100)
    return made


class _NotedLock:
    """A lock that reports when a thread is about to wait for it."""

    def __init__(self, about_to_wait):
        self._lock = threading.Lock()
        self._about_to_wait = about_to_wait

    def __enter__(self):
        if self._lock.locked():
            self._about_to_wait.set()
        self._lock.acquire()

    def __exit__(self, *_error):
        self._lock.release()


def test_a_file_that_is_added_while_another_is_deleted_is_not_forgotten(queue):
    came, first = threading.Event(), queue.files[0]

    def add():
        queue.create().append(b"new")
        came.set()

    adding = threading.Thread(target=add)

    class Watched(tuple):
        """Another thread adds a file as soon as somebody has begun to go through these."""

        __slots__ = ()

        def __iter__(self):
            if not adding.ident:
                adding.start()
                assert came.wait(30)
            return super().__iter__()

    queue._changing = _NotedLock(came)
    queue.files = Watched(queue.files)
    assert queue.delete(first, 0, 0)
    adding.join(30)
    assert [file.file_from_offset for file in queue.files] == [100, 200, 300]
    assert (queue.max_offset, queue.next_base(0)) == (303, 400)


def test_a_file_is_deleted_once(queue):
    first = queue.files[0]
    assert queue.delete(first, 0, 0)
    first.file.path.write_bytes(b"of another queue")
    assert not queue.delete(first, 0, 0)
    assert first.file.path.exists()
    assert [file.file_from_offset for file in queue.files] == [100, 200]


def test_a_file_whose_name_cannot_be_removed_is_tried_again(queue, monkeypatch):
    first = queue.files[0]
    with monkeypatch.context() as patched:
        patched.setattr(Files, "remove", lambda _files, path: path.rmdir())
        with pytest.raises(NotADirectoryError):
            queue.delete(first, 0, 0)
    assert first in queue.files
    assert queue.delete(first, 0, 0)
    assert not first.file.path.exists()


def test_a_file_that_is_deleted_during_a_flush_counts_as_flushed(queue, monkeypatch):
    first, plain = queue.files[0], File.sync

    def sync(file):
        if file is first.file:
            assert queue.delete(first, 0, 0)
        plain(file)

    monkeypatch.setattr(File, "sync", sync)
    assert queue.flush() == 300
    assert not queue.is_dirty


def test_a_flush_of_files_that_were_closed_with_the_store_is_an_error(queue):
    queue.close()
    with pytest.raises(ClosedFileError):
        queue.flush()
    assert queue.flushed_offset == 0


def test_a_file_that_is_added_during_a_flush_is_not_flushed_before_its_name_is(tmp_path, monkeypatch):
    queue = MappedFileQueue(Files(), (tmp_path / "queue",), 100, names_at_flush=True)
    queue.create().append(b"x" * 100)
    plain = queue._sync_names

    def sync_names():
        plain()
        if queue.max_offset == 100:
            queue.create().append(b"y" * 50)

    monkeypatch.setattr(queue, "_sync_names", sync_names)
    assert queue.flush() == 100
    synced = []
    monkeypatch.setattr(Files, "sync_directory", lambda _files, path: synced.append(path))
    assert queue.is_dirty
    assert queue.flush() == 150
    assert tmp_path / "queue" in synced


def test_a_file_that_is_not_full_does_not_end_a_flush(queue):
    """A BatchConsumeQueue whose files have no room for another unit goes on in the next file."""
    queue.create().append(b"x" * 90)
    queue.create().append(b"y" * 50)
    assert queue.flush() == queue.wrote_offset == 450


def test_bytes_are_read_by_a_system_call_where_the_process_has_too_many_mappings(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old bytes.")
    file = File(path, 10)
    with monkeypatch.context() as patched:
        patched.setattr(mmap, "mmap", refuses(errno.ENOMEM))
        assert file.peek(4, 5) == b"bytes"
    assert file.peek(0, 3) == b"old"


def refuses(code):
    def call(*_arguments, **_options):
        raise OSError(code, os.strerror(code))

    return call


def test_a_write_that_makes_no_progress_is_an_error(tmp_path, monkeypatch):
    file = Files().create(tmp_path / "file", 10)
    taken = [4, 0]
    monkeypatch.setattr(os, "pwrite", lambda *_: taken.pop(0))
    with pytest.raises(OSError, match="write made no progress") as caught:
        file.write(0, b"ten bytes.")
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(tmp_path / "file"))


def test_a_file_that_is_put_back_stays_sparse(tmp_path, monkeypatch):
    monkeypatch.setattr("mqtool.engine.disk.files.BLOCK", 4096)
    path, plain, written = tmp_path / "file", File.write, []
    file = Files().create(path, 3 * 4096)
    file.write(2 * 4096, b"the last block")
    path.unlink()
    monkeypatch.setattr(File, "write", lambda file, at, data: written.append(at) or plain(file, at, data))
    Files().put_back(file)
    assert written == [2 * 4096]
    assert path.read_bytes() == bytes(2 * 4096) + b"the last block".ljust(4096, b"\0")


def test_what_does_not_fit_is_not_appended(tmp_path):
    mapped = MappedFile(Files().create(tmp_path / "file", 10), 0)
    assert mapped.append(b"six...")
    assert not mapped.append(b"five.")
    assert (mapped.wrote, mapped.append(b"four"), mapped.wrote) == (6, True, 10)
    assert mapped.read(0, 10) == b"six...four"


def test_a_file_whose_deletion_has_begun_cannot_be_held(queue):
    first = queue.files[0]
    assert first.hold()
    assert not queue.delete(first, 0, 1)
    assert not first.hold()
    first.release()
    assert queue.delete(first, 0, 1)


def test_offsets_are_found_past_a_file_that_is_missing_in_between(queue):
    queue.delete(queue.files[1], 0, 0)
    found = [queue.find(offset) for offset in (0, 99, 100, 199, 200, 299, 300)]
    assert [file and file.file_from_offset for file in found] == [0, 0, None, None, 200, 200, None]


@pytest.mark.parametrize("end", [0, 100, 150, 200])
def test_files_after_the_end_are_deleted(queue, end):
    queue.truncate(end)
    names = sorted(int(path.name) for path in queue.directories[0].iterdir())
    assert names == [file.file_from_offset for file in queue.files] == list(range(0, end, 100))
    assert (queue.max_offset, queue.flushed_offset) == (end, end)


def test_the_kernel_locks_pages_and_reads_them_ahead(tmp_path):
    size = 2 * disk_files.PAGE_SIZE
    mapping = Files().create(tmp_path / "file", size).mapping
    assert disk_files.call_on_pages("madvise", mapping, 0, size, disk_files.WILL_NEED)
    assert disk_files.call_on_pages("mlock", mapping, 1, size)
    assert disk_files.call_on_pages("munlock", mapping, 1, size)
    assert not disk_files.call_on_pages("mlock", mapping, size, size)  # no page


def test_where_the_system_cannot_lock_pages_nothing_is_locked(tmp_path, monkeypatch):
    mapping = Files().create(tmp_path / "file", disk_files.PAGE_SIZE).mapping
    monkeypatch.setattr(disk_files, "LIBC", None)
    assert not disk_files.call_on_pages("mlock", mapping, 0, disk_files.PAGE_SIZE)
