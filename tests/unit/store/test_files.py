"""Opening and listing files: only regular ones, nothing waits, nothing is followed in a circle."""

import errno
import os
import socket
from pathlib import Path

import pytest

from mqtool.errors import NotAStoreError, StoreClosedError, StoreError, UnreadableError
from mqtool.store import files
from mqtool.store.files import ReadFile, list_directory, list_mapped_files, read_file, require_directory, subdirectories
from mqtool.store.log.readable_parts import UnreadableParts

NAME = f"{4096:020}"


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket may only be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def make_dangling(path: Path) -> None:
    path.symlink_to("nowhere")


STRANGE = {
    "directory": Path.mkdir,
    "FIFO": make_fifo,
    "socket": make_socket,
    "circle": make_loop,
    "dangling link": make_dangling,
}


@pytest.mark.parametrize("kind", ["directory", "FIFO", "socket"])
def test_only_a_regular_file_is_opened_and_nothing_is_waited_for(kind, tmp_path):
    path = tmp_path / "file"
    STRANGE[kind](path)
    with pytest.raises(StoreError, match=f"expected a regular file, found a {kind}"):
        ReadFile(path)


def test_a_device_is_not_opened():
    with pytest.raises(StoreError, match="expected a regular file, found a device"):
        ReadFile(Path(os.devnull))


@pytest.mark.parametrize(("make", "words"), [(make_loop, "symbolic links"), (make_dangling, "No such file")])
def test_a_link_that_leads_nowhere_is_an_error_with_its_path(make, words, tmp_path):
    make(tmp_path / "file")
    with pytest.raises(StoreError, match=f"{tmp_path}/file: cannot be opened: .*{words}"):
        ReadFile(tmp_path / "file")


def test_a_name_with_a_nul_is_an_error_and_no_crash(tmp_path):
    with pytest.raises(StoreError, match="cannot be opened"):
        ReadFile(tmp_path / "a\0b")
    with pytest.raises(NotAStoreError, match="cannot be opened"):
        require_directory(tmp_path / "a\0b")


def test_a_file_that_is_swapped_for_a_fifo_between_two_looks_is_refused(tmp_path, monkeypatch):
    regular = tmp_path / "regular"
    regular.write_bytes(b"x")
    status = regular.stat()
    make_fifo(tmp_path / "file")
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    with monkeypatch.context() as patched:
        patched.setattr("mqtool.store.files.os.stat", lambda _path, **_options: status)
        with pytest.raises(StoreError, match="found a FIFO"):
            ReadFile(tmp_path / "file")
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before


@pytest.mark.parametrize("kind", sorted(STRANGE))
def test_what_is_no_regular_file_is_a_stray_among_mapped_files(kind, tmp_path):
    (tmp_path / f"{0:020}").write_bytes(bytes(10))
    STRANGE[kind](tmp_path / NAME)
    listed = list_mapped_files(tmp_path)
    assert [(file.base, file.size) for file in listed.files] == [(0, 10)]
    assert listed.strays == (tmp_path / NAME,)


@pytest.mark.parametrize("name", ["1", f"{0:019}", f"{0:021}", f"{1 << 63:020}", f"-{1:019}", f"{0:019}a", f"{1:020}~"])
def test_a_name_that_is_no_offset_of_20_digits_is_a_stray(name, tmp_path):
    (tmp_path / name).write_bytes(b"x")
    assert list_mapped_files(tmp_path).strays == (tmp_path / name,)


def test_files_of_several_directories_are_one_list_by_base(tmp_path):
    for number in range(6):
        directory = tmp_path / f"part-{number % 3}"
        directory.mkdir(exist_ok=True)
        (directory / f"{number * 100:020}").write_bytes(bytes(100))
    listed = list_mapped_files(*(tmp_path / f"part-{number}" for number in range(3)))
    assert [(file.base, file.end) for file in listed.files] == [(n * 100, n * 100 + 100) for n in range(6)]


def test_subdirectories_are_directories_and_links_to_them(tmp_path):
    for number, make in enumerate(STRANGE.values()):
        make(tmp_path / f"entry-{number}")
    (tmp_path / "link").symlink_to("entry-0")
    assert [entry.name for entry in subdirectories(tmp_path)] == ["entry-0", "link"]


def test_what_is_absent_or_no_directory_lists_as_empty(tmp_path):
    assert list_directory(tmp_path / "absent") == []
    (tmp_path / "file").touch()
    assert list_directory(tmp_path / "file") == []
    assert list_directory(tmp_path / "file" / "below") == []


def test_a_directory_that_cannot_be_listed_is_named(tmp_path, monkeypatch):
    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(StoreError, match="cannot be listed: Permission denied") as raised:
        list_directory(tmp_path)
    assert raised.value.path == tmp_path


@pytest.mark.parametrize(
    ("position", "count", "found"), [(0, 4, b"0123"), (8, 4, b"89"), (10, 4, b""), (99, 4, b""), (3, 0, b"")]
)
def test_a_read_gives_what_the_file_has_there(position, count, found, tmp_path):
    (tmp_path / "file").write_bytes(b"0123456789")
    with ReadFile(tmp_path / "file") as file:
        assert file.read(position, count) == found


def test_a_file_that_has_been_cut_gives_fewer_bytes(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with ReadFile(path) as file:
        os.truncate(path, 3)
        assert (file.size, file.read(0, 10), file.read(5, 5)) == (10, b"012", b"")


@pytest.mark.parametrize(
    "opened", [ReadFile, lambda path: UnreadableParts().open(path, 1)], ids=["plain", "readable parts"]
)
def test_a_read_after_close_is_an_error(opened, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    file = opened(tmp_path / "file")
    file.close()
    file.close()
    for use in (lambda: file.read(0, 1), file.data_end):
        with pytest.raises(StoreClosedError):
            use()


def test_an_error_of_the_system_while_reading_says_where(tmp_path, monkeypatch):
    def broken(*_):
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "file").write_bytes(b"x")
    with ReadFile(tmp_path / "file") as file:
        monkeypatch.setattr("mqtool.store.files.os.pread", broken)
        monkeypatch.setattr("mqtool.store.files.os.preadv", broken)
        for use in (lambda: file.read(7, 1), lambda: file.read_into(7, memoryview(bytearray(1)))):
            with pytest.raises(UnreadableError, match="file: cannot be read at position 7: Input/output error"):
                use()


def test_the_end_of_data_of_a_sparse_file_is_near_its_last_byte(tmp_path):
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(64 << 20)
        file.seek(1 << 20)
        file.write(b"x")
    with ReadFile(path) as file:
        assert 1 << 20 < file.data_end() <= (1 << 20) + (64 << 10)
        assert file.size == 64 << 20


def test_the_end_of_data_of_a_file_without_a_hole_is_its_size(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 5000)
    with ReadFile(tmp_path / "file") as file:
        assert file.data_end() == 5000


def test_where_a_file_system_cannot_tell_the_whole_file_counts_as_data(tmp_path, monkeypatch):
    def unable(*_):
        raise OSError(errno.EINVAL, "Invalid argument")

    (tmp_path / "file").write_bytes(bytes(5000))
    with ReadFile(tmp_path / "file") as file:
        monkeypatch.setattr("mqtool.store.files.os.lseek", unable)
        assert file.data_end() == 5000


def test_a_small_file_is_read_whole_and_a_big_one_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 100)
    assert read_file(tmp_path / "file", 100) == b"x" * 100
    with pytest.raises(StoreError, match="expected at most 99 bytes, found 100"):
        read_file(tmp_path / "file", 99)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Path.touch, "is a file, not a store"),
        (make_loop, "symbolic links"),
        (lambda path: None, "no such directory"),
        (make_fifo, "is a file"),
    ],
)
def test_a_root_that_is_no_directory_is_refused_with_a_hint(make, words, tmp_path):
    make(tmp_path / "root")
    with pytest.raises(NotAStoreError, match=words):
        require_directory(tmp_path / "root")


def test_a_url_given_as_a_path_is_refused_with_what_reads_it():
    with pytest.raises(NotAStoreError, match="object storage is read by `mqtool export`"):
        require_directory(Path("s3://backup/store"))


@pytest.mark.parametrize("places", [(), (0,), (3 << 20,), (5, (2 << 20) + 1), ((1 << 20) - 1, 1 << 20)])
@pytest.mark.parametrize("start", [0, 1, 1 << 20, (3 << 20) + 1, 9 << 20])
@pytest.mark.parametrize("end", [None, 1, (1 << 20) + 1, 9 << 20])
def test_the_last_used_byte_of_a_range_is_found(tmp_path, places, start, end):
    with (tmp_path / "file").open("wb") as file:
        file.truncate(4 << 20)
        for place in places:
            file.seek(place)
            file.write(b"x")
    within = [place for place in places if start <= place and (end is None or place < end)]
    with ReadFile(tmp_path / "file") as opened:
        assert opened.used_end(start, end) == max(within, default=start - 1) + 1
        assert opened.has_data(start) == any(place >= start for place in places)


def test_a_file_whose_kind_cannot_be_asked_makes_its_directory_unlisted(tmp_path, monkeypatch):
    """As where a FUSE or NFS server answers with EIO for one name."""

    class Entry:
        def __init__(self, entry):
            self.name, self.path = entry.name, entry.path

        def stat(self):
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)

    (tmp_path / NAME).touch()
    real = list_directory
    monkeypatch.setattr(files, "list_directory", lambda path: [Entry(entry) for entry in real(path)])
    for ask in (list_mapped_files, subdirectories):
        with pytest.raises(UnreadableError, match="cannot be listed: Input/output error") as caught:
            ask(tmp_path)
        assert caught.value.path == tmp_path
