"""Reads files without leaving a trace, by O_RDONLY and positional reads; copies them elsewhere, keeping holes.

Nothing is mapped: a mapping would be faster for single bytes, but the process ends with SIGBUS if the file is cut
meanwhile. A positional read just returns less.
"""

import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from msgspec import Struct

from mqtool.errors import NotAStoreError, StoreClosedError, StoreError, UnreadableError
from mqtool.formats import file_names
from mqtool.formats.dledger import ENTRY_HEADER_SIZE
from mqtool.jobs.atomic import write_all, writing
from mqtool.store.paths import DENIED, denied, kind_of
from mqtool.store.remote import RemoteBytes, RemotePath, is_remote

LARGEST = (1 << 31) - 1
"""Bytes of the longest file that a broker maps (`MappedFile.fileSize` is an int, 4.9.7 and 5.5.0)."""


_PIECE = 1 << 20
_ZEROS = bytes(_PIECE)


_unlisted: ContextVar[dict[Path, str] | None] = ContextVar("unlisted", default=None)


class _LocalBytes:
    """Positional reads of a file of this machine; see `ReadFile`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self.descriptor = open_regular(path, os.O_RDONLY)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            if isinstance(error, OSError) and (not is_absent(error) or path.is_symlink()):
                raise unreadable("cannot be opened", error, path) from error
            raise StoreError(f"cannot be opened: {_reason(error)}", path) from error
        self.size = os.fstat(self.descriptor).st_size

    def read(self, position: int, count: int) -> bytes:
        parts = []
        while count > 0:
            try:
                part = os.pread(self.descriptor, count, position)
            except OSError as error:
                raise UnreadableError(f"cannot be read at position {position}: {error.strerror}", self._path) from error
            if not part:
                break
            parts.append(part)
            position += len(part)
            count -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, position: int, target: memoryview) -> int:
        done = 0
        while done < len(target):
            try:
                count = os.preadv(self.descriptor, [target[done:]], position + done)
            except OSError as error:
                where = f"cannot be read at position {position + done}"
                raise UnreadableError(f"{where}: {error.strerror}", self._path) from error
            if not count:
                break
            done += count
        return done

    def data_end(self) -> int:
        end = 0
        try:
            while end < self.size:
                end = os.lseek(self.descriptor, os.lseek(self.descriptor, end, os.SEEK_DATA), os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # a file system that cannot tell
                return self.size
        return min(end, self.size)

    def next_data(self, position: int) -> int:
        try:
            return os.lseek(self.descriptor, position, os.SEEK_DATA) if position < self.size else self.size
        except OSError as error:
            return self.size if error.errno == errno.ENXIO else position

    def close(self) -> None:
        os.close(self.descriptor)


class Closing(ABC):
    """Closed at the end of a `with`."""

    @abstractmethod
    def close(self) -> None:
        """Closes the files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class ReadFile(Closing):
    """A file open for reading, local or in object storage; `size` is that at the time of opening."""

    def __init__(self, path: Path) -> None:
        self.path = path
        where: Any = path
        self._bytes: _LocalBytes | RemoteBytes | None
        self._bytes = where.opened() if isinstance(where, RemotePath) else _LocalBytes(path)
        self.size = self._bytes.size

    def read(self, position: int, count: int) -> bytes:
        """Returns bytes from a position, fewer than `count` only at the end; StoreError, e.g. for a bad sector."""
        return self._opened().read(position, count)

    def read_into(self, position: int, target: memoryview) -> int:
        """Reads into a buffer; returns the number of bytes, fewer than fit only at the end; raises as `read`."""
        opened = self._opened()
        if isinstance(opened, _LocalBytes) and hasattr(os, "preadv"):
            return opened.read_into(position, target)
        data = opened.read(position, len(target))
        target[: len(data)] = data
        return len(data)

    @property
    def descriptor(self) -> int | None:
        """The system's number of the open file; None if it is in object storage."""
        opened = self._opened()
        return opened.descriptor if isinstance(opened, _LocalBytes) else None

    def data_end(self) -> int:
        """Returns a position after which the file contains only zeros, from its sparse extents; its size if unknown."""
        return self._opened().data_end()

    def has_data(self, start: int = 0) -> bool:
        """Whether a byte at or after a position is not zero."""
        end = self.data_end()
        return any(self.read(at, min(_PIECE, end - at)).strip(b"\0") for at in range(start, end, _PIECE))

    def used_end(self, start: int = 0, end: int | None = None) -> int:
        """Returns the position after the last byte of a range that is not zero; `start` if there is none."""
        at = min(self.data_end(), self.size if end is None else end)
        while at > start:
            first = max(start, at - _PIECE)
            used = len(self.read(first, at - first).rstrip(b"\0"))
            if used:
                return first + used
            at = first
        return start

    def next_data(self, position: int) -> int:
        """Returns the first position at or after `position` that may hold a nonzero byte; the size if there is none."""
        opened = self._opened()
        return min(opened.next_data(position), self.size) if isinstance(opened, _LocalBytes) else position

    def _opened(self) -> "_LocalBytes | RemoteBytes":
        if self._bytes is None:
            raise StoreClosedError("used after close", self.path)
        return self._bytes

    def close(self) -> None:
        """Closes the file; may be called twice."""
        if self._bytes is not None:
            self._bytes.close()
            self._bytes = None


def is_file(path: Path) -> bool:
    """Whether a path is a regular file or a link to one; raises UnreadableError if the system does not report it."""
    try:
        return path.is_file()
    except OSError as error:
        raise unreadable("cannot be inspected", error, path) from error


def obstruction(path: Path) -> str:
    """Returns what a path leads to if that is neither a regular file nor a directory; "" if it is, or does not exist.

    For example a FIFO, or a link to a disk that is not mounted: it has a name and no bytes that can be read.
    """
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - as in open_regular
    except (OSError, ValueError):
        return "a broken link" if os.path.islink(path) else ""  # noqa: PTH114 - Path.is_symlink may raise
    return "" if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else f"a {kind_of(mode)}"


def open_regular(path: Path, flags: int) -> int:
    """Opens a regular file and refuses anything else: a FIFO would block, a device might react to being opened.

    For writing it must not be a symbolic link either, which could lead out of the store. Raises StoreError; OSError or
    ValueError if it cannot be opened, or the name contains a NUL.
    """
    writes = bool(flags & (os.O_WRONLY | os.O_RDWR))
    if writes:
        flags |= os.O_NOFOLLOW
    try:
        _require_regular(path, os.stat(path, follow_symlinks=not writes).st_mode)  # noqa: PTH116 - as os.open below
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, 0o644)
    try:
        _require_regular(path, os.fstat(descriptor).st_mode)  # what the name meant may have changed
    except StoreError:
        os.close(descriptor)
        raise
    return descriptor


def _require_regular(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise StoreError(f"expected a regular file, found a {kind_of(mode)}", path)


def unreadable(what: str, error: OSError, path: "str | Path") -> UnreadableError:
    """Returns the error of a path that the system does not let be read, by whether another user could."""
    if error.errno in DENIED:
        return denied(Path(error.filename or path), what)
    return UnreadableError(f"{what}: {_reason(error)}", path)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def read_file(path: Path, limit: int = 64 << 20) -> bytes:
    """Returns the content of a small file; raises StoreError if it cannot be read or is larger than `limit` bytes."""
    with ReadFile(path) as file:
        if file.size > limit:
            raise StoreError(f"expected at most {limit} bytes, found {file.size}", path)
        return file.read(0, file.size)


class MappedFile(Struct, frozen=True):
    """One file in a directory of fixed-size files."""

    path: Path  # of the file
    base: int  # file_from_offset, from its 20-digit name
    size: int  # bytes on disk
    entries: bool = False  # each record in it is the body of a DLedger entry

    @property
    def end(self) -> int:
        """Offset after the last byte."""
        return self.base + self.size

    @property
    def record_header(self) -> int:
        """Bytes before each record: those of the header of a DLedger entry, else 0."""
        return ENTRY_HEADER_SIZE if self.entries else 0

    @property
    def first_record(self) -> int:
        """Offset of the first record, if there is one at the start of the file."""
        return self.base + self.record_header


class MappedFileList(Struct, frozen=True):
    """Content of a directory of fixed-size files."""

    files: tuple[MappedFile, ...]  # those with a 20-digit name, by base
    # Everything else, by name, including files too long for a broker, such as a sparse terabyte.
    strays: tuple[Path, ...]


@contextmanager
def recording_unlisted(noted: dict[Path, str] | None) -> Iterator[None]:
    """Within the context, directories that cannot be listed count as empty and are noted with the reason.

    This is for descriptions, which say what is unknown. None makes it an error again, which is the default.
    """
    token = _unlisted.set(noted)
    try:
        yield
    finally:
        _unlisted.reset(token)


def list_directory(path: Path) -> list[os.DirEntry[str]]:
    """Returns the entries of a directory by name, none if there is no directory; raises UnreadableError."""
    where: Any = path
    try:
        if isinstance(where, RemotePath):
            entries_there: Any = list(where.iterdir())
            return cast("list[os.DirEntry[str]]", entries_there)
        with os.scandir(path) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        if not is_absent(error):
            _not_listed(path, error)
        return []


def is_absent(error: OSError) -> bool:
    """Whether an error says that a path does not exist, rather than that it cannot be read."""
    absent = isinstance(error, FileNotFoundError | NotADirectoryError)  # object storage gives no number
    return absent or error.errno == errno.ELOOP


def _not_listed(directory: Path, error: OSError) -> None:
    noted = _unlisted.get()
    if noted is None:
        raise unreadable("cannot be listed", error, directory) from error
    noted.setdefault(directory, _reason(error))


def subdirectories(path: Path) -> list[os.DirEntry[str]]:
    """Returns the subdirectories of a directory by name; symlink loops do not count."""
    return [entry for entry in list_directory(path) if _status_if(entry, stat.S_ISDIR) is not None]


def is_regular(entry: "os.DirEntry[str]") -> bool:
    """Whether a directory entry is a regular file or a link to one, not in a circle; raises UnreadableError."""
    return _is(entry, entry.is_file)


def is_directory(entry: "os.DirEntry[str]") -> bool:
    """Whether a directory entry is a directory, or a link to one; see `is_regular`."""
    return _is(entry, entry.is_dir)


def _is(entry: "os.DirEntry[str]", test: Callable[[], bool]) -> bool:
    try:
        return test()
    except OSError as error:
        if not is_absent(error):
            _not_listed(Path(entry.path).parent, error)
        return False


def list_mapped_files(*directories: Path) -> MappedFileList:
    """Lists the fixed-size files of one or more directories taken together (MultiPathMappedFileQueue)."""
    files, strays = [], []
    for directory in directories:
        for entry in list_directory(directory):
            base = file_names.parse_mapped_file_name(entry.name)
            size = None if base is None else _size_of_regular(entry)
            if base is None or size is None or size > LARGEST:
                strays.append(directory / entry.name)
            else:
                files.append(MappedFile(directory / entry.name, base, size))
    return MappedFileList(tuple(sorted(files, key=lambda file: (file.base, file.path))), tuple(strays))


def _size_of_regular(entry: "os.DirEntry[str]") -> int | None:
    status = _status_if(entry, stat.S_ISREG)
    return None if status is None else status.st_size


def _status_if(entry: "os.DirEntry[str]", is_kind: Callable[[int], bool]) -> os.stat_result | None:
    try:
        status = entry.stat()
    except OSError as error:
        if not is_absent(error):  # a link that leads in a circle, or a file that a broker has just deleted, is
            _not_listed(Path(entry.path).parent, error)
        return None
    return status if is_kind(status.st_mode) else None


def require_directory(path: Path) -> Path:
    """Returns the path if it is a directory that can be listed; raises NotAStoreError if it is not."""
    if is_remote(path):
        return path
    try:
        os.listdir(path)  # noqa: PTH208 - only whether it works
    except FileNotFoundError as error:
        if path.parts and path.parts[0].endswith(":"):  # a Path has lost one slash of ://
            reason = (
                "object storage is read by `mqtool export` and the library; for this command, copy the store to a disk"
            )
            raise NotAStoreError(reason, path) from error
        raise NotAStoreError("no such directory; give the store's root (it contains commitlog/)", path) from error
    except NotADirectoryError as error:
        raise NotAStoreError("is a file, not a store directory; `mqtool dump` reads single files", path) from error
    except (OSError, ValueError) as error:
        raise NotAStoreError(f"cannot be opened: {_reason(error)}", path) from error
    return path


def copy_file(
    source: Path,
    target: Path,
    patches: Sequence[tuple[int, bytes]] = (),
    *,
    zeros_from: int | None = None,
    size: int | None = None,
) -> None:
    """Copies a file. Blocks of zeros become holes.

    Args:
        target: created, with its directories.
        patches: (position, bytes) to write into the copy; inside the file.
        zeros_from: position from which the copy contains zeros.
        size: size of the copy, if it is to be another; after it, the file must be zeros from `zeros_from` on.

    Raises:
        StoreError: a file cannot be read or written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with ReadFile(source) as file:
        end = file.size if zeros_from is None else min(zeros_from, file.size)
        end = min(end, file.data_end())
        with writing(target):
            fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            try:
                os.ftruncate(fd, size or file.size)
                for at in range(0, end, _PIECE):
                    block = file.read(at, min(_PIECE, end - at))
                    if block != _ZEROS[: len(block)]:
                        write_all(fd, block, at)
                for position, data in patches:
                    write_all(fd, data, position)
            finally:
                os.close(fd)


def copy_tree(source: Path, target: Path) -> None:
    """Copies the regular files below a directory, without following links; raises StoreError if one is unreadable."""
    for entry in list_directory(source):
        if entry.is_dir(follow_symlinks=False):
            (target / entry.name).mkdir(parents=True, exist_ok=True)
            copy_tree(source / entry.name, target / entry.name)
        elif os.path.isfile(entry.path):  # noqa: PTH113 - never raises
            copy_file(source / entry.name, target / entry.name)
