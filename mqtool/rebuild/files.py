"""Fixed-size files in a new directory, written at any position. Ranges that are not written remain zero (sparse)."""

import os
from collections import OrderedDict
from pathlib import Path
from typing import Self

from mqtool.errors import StoreError, UsageError
from mqtool.formats import file_names
from mqtool.jobs.atomic import write_all, writing

_OPEN_FILES = 128


class OutputFiles:
    """Writes below one directory; keeps some files open.

    Attributes:
        root: the directory; nothing outside it is ever written.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._open: OrderedDict[str, int] = OrderedDict()

    def write(self, name: str, size: int, position: int, data: "bytes | memoryview") -> None:
        """Writes bytes into a file, which is created with its full size if it does not exist.

        Args:
            name: path below the root.
            size: size of the file in bytes.
            position: offset in the file.
            data: must end inside the file.

        Raises:
            StoreError: the operating system refuses, e.g. because the disk is full.
        """
        with writing(self.root / name):
            write_all(self._file(name, size), data, position)

    def _file(self, name: str, size: int) -> int:
        descriptor = self._open.get(name)
        if descriptor is not None:
            self._open.move_to_end(name)
            return descriptor
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        self._open[name] = descriptor
        if os.fstat(descriptor).st_size != size:
            os.ftruncate(descriptor, size)
        if len(self._open) > _OPEN_FILES:
            os.close(self._open.popitem(last=False)[1])
        return descriptor

    def exists(self, name: str) -> bool:
        """Whether the file exists."""
        return name in self._open or (self.root / name).exists()

    def read(self, name: str, position: int, count: int) -> bytes:
        """Returns bytes that were written before; fewer at the end of the file.

        Raises:
            StoreError: the file cannot be read.
        """
        try:
            descriptor = self._open.get(name)
            if descriptor is not None:
                return os.pread(descriptor, count, position)
            with (self.root / name).open("rb") as file:
                file.seek(position)
                return file.read(count)
        except OSError as error:
            raise StoreError(f"cannot be read: {error.strerror}", self.root / name) from error

    def require(self, name: str, size: int) -> None:
        """Checks that a file which an earlier run has written is still there.

        Raises:
            UsageError: it is missing or has another size.
        """
        path = self.root / name
        actual = path.stat().st_size if path.is_file() else None
        if actual != size:
            words = "it is missing" if actual is None else f"found {actual} bytes"
            raise UsageError(
                f"{path}: the run to resume wrote {size} bytes there, {words}; start again with a new directory, "
                "without --resume"
            )

    def remove(self, name: str) -> None:
        """Removes a file that this object may have created."""
        descriptor = self._open.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)
        (self.root / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Closes all files."""
        while self._open:
            os.close(self._open.popitem()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FileSequence:
    """Consecutive files of equal size, written sequentially: the files of one queue.

    Attributes:
        end: offset after the last byte.
        buffered: bytes that are not written yet.
    """

    BUFFER = 1 << 17

    def __init__(self, files: OutputFiles, directory: str, file_size: int) -> None:
        """Starts an empty sequence; the first append determines where it begins.

        Args:
            files: writes the bytes.
            directory: below the root of `files`.
            file_size: size of each file in bytes.
        """
        self.file_size = file_size
        self.end = 0
        self.buffered = 0
        self._files = files
        self._directory = directory
        self._bases: list[int] = []
        self._parts: list[bytes] = []

    @property
    def names(self) -> list[str]:
        """Names of the files, oldest first."""
        return [self._name(base) for base in self._bases]

    def start(self, offset: int) -> None:
        """Starts again at an offset; discards everything appended before."""
        self.cut(0)
        self.end = offset

    def append(self, data: bytes) -> None:
        """Appends bytes at the end."""
        self._parts.append(data)
        self.buffered += len(data)
        self.end += len(data)
        if self.buffered >= self.BUFFER:
            self.flush()

    def skip_to(self, offset: int) -> None:
        """Continues at a later offset; the bytes in between remain zero."""
        self.flush()
        self.end = offset

    def cut(self, offset: int) -> None:
        """Removes everything from an offset on, and continues there."""
        self.flush()
        while self._bases and self._bases[-1] >= offset:
            self._files.remove(self._name(self._bases.pop()))
        if self._bases and offset < self._bases[-1] + self.file_size:
            base = self._bases[-1]
            blank = bytes(base + self.file_size - offset)
            self._files.write(self._name(base), self.file_size, offset - base, blank)
        self.end = offset

    def flush(self) -> None:
        """Writes all buffered bytes to the files."""
        if not self._parts:
            return
        view = memoryview(b"".join(self._parts))
        offset = self.end - len(view)
        self._parts, self.buffered = [], 0
        while view:
            base = offset - offset % self.file_size
            part = view[: base + self.file_size - offset]
            if not self._bases or base > self._bases[-1]:
                self._bases.append(base)
            self._files.write(self._name(base), self.file_size, offset - base, part)
            view, offset = view[len(part) :], offset + len(part)

    def resume(self, first: int, end: int) -> None:
        """Continues after what an earlier run wrote; discards what it wrote after `end`.

        Args:
            first: offset of the first byte that was written.
            end: offset at which to continue.

        Raises:
            UsageError: a file of the earlier run is missing.
        """
        self._bases = list(range(first - first % self.file_size, end, self.file_size))
        for name in self.names:
            self._files.require(name, self.file_size)
        later = self._bases[-1] + self.file_size if self._bases else first - first % self.file_size
        while self._files.exists(self._name(later)):
            self._files.remove(self._name(later))
            later += self.file_size
        self.cut(end)

    def _name(self, base: int) -> str:
        return f"{self._directory}/{file_names.mapped_file_name(base)}"
