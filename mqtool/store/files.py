"""Reading files without a trace: O_RDONLY and positional reads, nothing mapped, nothing created.

A mapping would be faster for single bytes, but a file that is cut while it is mapped ends the process
with SIGBUS; a positional read just returns less.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from mqtool.errors import NotAStoreError, StoreClosedError, StoreError
from mqtool.formats import file_names


class ReadFile:
    """A file opened for reading.

    Attributes:
        path: where it is.
        size: its bytes when it was opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd: int | None = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StoreError(f"cannot be opened: {error.strerror}", path) from error
        self.size = os.fstat(self._fd).st_size

    def read(self, position: int, count: int) -> bytes:
        """Returns the bytes from a position; fewer than `count` only where the file ends.

        Raises:
            StoreError: the system reports an error, e.g. a bad sector.
        """
        if self._fd is None:
            raise StoreClosedError("used after close", self.path)
        parts = []
        while count > 0:
            try:
                part = os.pread(self._fd, count, position)
            except OSError as error:
                raise StoreError(f"cannot be read at position {position}: {error.strerror}", self.path) from error
            if not part:
                break
            parts.append(part)
            position += len(part)
            count -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def data_end(self) -> int:
        """Returns a position after which the file holds only zeros, from its sparse extents; its size if unknown."""
        if self._fd is None:
            raise StoreClosedError("used after close", self.path)
        end = 0
        try:
            while end < self.size:
                end = os.lseek(self._fd, os.lseek(self._fd, end, os.SEEK_DATA), os.SEEK_HOLE)
        except OSError:  # ENXIO: no data after `end`; another error: a file system without extents
            return end
        return min(end, self.size)

    def close(self) -> None:
        """Closes the file; may be called twice."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def read_file(path: Path, limit: int = 64 << 20) -> bytes:
    """Returns a small file whole.

    Raises:
        StoreError: it cannot be read or is larger than `limit` bytes.
    """
    with ReadFile(path) as file:
        if file.size > limit:
            raise StoreError(f"expected at most {limit} bytes, found {file.size}", path)
        return file.read(0, file.size)


@dataclass(frozen=True, slots=True)
class MappedFile:
    """One file of a directory of fixed-size files.

    Attributes:
        path: where it is.
        base: file_from_offset, from its 20-digit name.
        size: bytes on disk.
    """

    path: Path
    base: int
    size: int

    @property
    def end(self) -> int:
        """Offset after its last byte."""
        return self.base + self.size


@dataclass(frozen=True, slots=True)
class MappedFileList:
    """What a directory of fixed-size files holds.

    Attributes:
        files: those with a 20-digit name, by base.
        strays: everything else in it, by name.
    """

    files: tuple[MappedFile, ...]
    strays: tuple[Path, ...]


def list_directory(path: Path) -> list[os.DirEntry[str]]:
    """Returns the entries of a directory by name; an absent one has none.

    Raises:
        StoreError: it cannot be listed.
    """
    try:
        with os.scandir(path) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"cannot be listed: {error.strerror}", path) from error


def list_mapped_files(*directories: Path) -> MappedFileList:
    """Lists the fixed-size files of one or more directories taken together (MultiPathMappedFileQueue)."""
    files, strays = [], []
    for directory in directories:
        for entry in list_directory(directory):
            base = file_names.parse_mapped_file_name(entry.name)
            if base is not None and _is_file(entry):
                files.append(MappedFile(Path(entry.path), base, entry.stat().st_size))
            else:
                strays.append(Path(entry.path))
    return MappedFileList(tuple(sorted(files, key=lambda file: (file.base, file.path))), tuple(strays))


def _is_file(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_file()
    except OSError:  # a symlink that leads in a circle
        return False


def require_directory(path: Path) -> Path:
    """Returns the path if it is a directory that can be listed.

    Raises:
        NotAStoreError: it is none.
    """
    try:
        os.listdir(path)  # noqa: PTH208 - only whether it works
    except FileNotFoundError as error:
        raise NotAStoreError("no such directory; give the store's root (it holds commitlog/)", path) from error
    except NotADirectoryError as error:
        raise NotAStoreError("is a file, not a store directory; `mqtool dump` reads single files", path) from error
    except OSError as error:
        raise NotAStoreError(f"cannot be opened: {error.strerror}", path) from error
    return path
