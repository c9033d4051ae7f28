"""MappedFile: one fixed-size file of a directory, and how far it is written, committed and flushed.

Docs page: docs/engine.md. Source: DefaultMappedFile, ReferenceResource (4.9.7, 5.5.0).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mqtool.engine.disk.files import ClosedFileError, File, Files
from mqtool.engine.disk.memory import PAGE_SIZE


class MappedFile:
    """One file of fixed size.

    Attributes:
        file: the file itself.
        file_from_offset: offset of its first byte in the directory's address space.
        size: bytes.
        wrote: position after the last byte that was appended.
        committed: position up to which bytes are in the page cache; `wrote` unless a pool buffer is attached.
        flushed: position up to which bytes are on disk.
        reserved: position up to which the disk has blocks for what will be written.
        pool_buffer: receives the bytes first, with a transient store pool; otherwise None.
        store_timestamp: of the last record appended since the store was opened, 0 if none.
        available: False once its deletion has begun.
    """

    __slots__ = (
        "_guard",
        "_holds",
        "available",
        "committed",
        "file",
        "file_from_offset",
        "flushed",
        "pool_buffer",
        "reserved",
        "shutdown_at",
        "size",
        "store_timestamp",
        "wrote",
    )

    def __init__(self, file: File, file_from_offset: int, *, wrote: int = 0) -> None:
        self.file = file
        self.file_from_offset = file_from_offset
        self.size = file.size
        self.wrote = self.committed = self.flushed = self.reserved = wrote
        self.pool_buffer: Any = None
        self.store_timestamp = 0
        self.available = True
        self.shutdown_at = 0
        self._holds = 0
        self._guard = threading.Lock()

    @property
    def end(self) -> int:
        """Offset after its last byte."""
        return self.file_from_offset + self.size

    @property
    def is_full(self) -> bool:
        """Whether nothing more fits; a file ended by a BLANK is full."""
        return self.wrote == self.size

    @property
    def read_position(self) -> int:
        """Position up to which it may be read."""
        return self.wrote if self.pool_buffer is None else self.committed

    def set_end(self, position: int) -> None:
        """Sets the written, committed and flushed positions; bytes after them are unchanged (truncateDirtyFiles)."""
        self.wrote = self.committed = self.flushed = position
        self.reserved = min(self.reserved, position)

    def reserve(self, end: int) -> None:
        """Makes sure that up to `end` can be written through the mapping.

        Raises:
            OSError: the disk is full.
        """
        if end > self.reserved:
            self.file.reserve(self.reserved, end)
            self.reserved = end

    def append(self, data: bytes) -> bool:
        """Appends bytes by a system call, as the broker does through its FileChannel.

        In the page cache on return: they survive a kill of the process, not a power cut.

        Returns:
            False if it does not fit.

        Raises:
            OSError: nothing or only a part was written.
        """
        if self.wrote + len(data) > self.size:
            return False
        self.file.write(self.wrote, data)
        self.wrote += len(data)
        self.committed = self.wrote
        return True

    def due(self, done: int, target: int, least_pages: int) -> bool:
        """Whether at least `least_pages` pages are waiting between two positions (isAbleToFlush, isAbleToCommit)."""
        if self.is_full and target > done:
            return True
        if least_pages > 0:
            return target // PAGE_SIZE - done // PAGE_SIZE >= least_pages
        return target > done

    def commit(self, least_pages: int = 0) -> int:
        """Writes the content of the pool buffer into the file; does nothing without one.

        In the page cache on return.

        Returns:
            The committed position.

        Raises:
            OSError: the file could not be written; the buffer keeps the bytes.
        """
        wrote = self.wrote
        if self.pool_buffer is None:
            self.committed = wrote
        elif self.due(self.committed, wrote, least_pages):
            with self._unless_deleted():
                self.file.write(self.committed, memoryview(self.pool_buffer)[self.committed : wrote])
            self.committed = wrote
        return self.committed

    def flush(self, least_pages: int = 0) -> int:
        """Flushes committed bytes if there are at least `least_pages` pages of them.

        The bytes of a file that is deleted meanwhile count as flushed: nobody needs them any more.

        Returns:
            The flushed position: durable up to there.

        Raises:
            OSError: bytes after the flushed position may be lost.
        """
        target = self.read_position
        if self.due(self.flushed, target, least_pages):
            with self._unless_deleted():
                self.file.sync()
            self.flushed = target
        return self.flushed

    @contextmanager
    def _unless_deleted(self) -> Iterator[None]:
        """Ignores that the file is closed if it is so because it was deleted."""
        try:
            yield
        except ClosedFileError:
            if self.available:
                raise

    def view(self) -> memoryview | None:
        """Returns the bytes of the file; None once it is deleted. The view stays valid even then."""
        try:
            return self.file.pin
        except ClosedFileError:
            return None

    def read(self, position: int, count: int) -> bytes:
        """Returns bytes as `File.read` does; none once the file is deleted."""
        try:
            return self.file.read(position, count)
        except ClosedFileError:
            return b""

    def peek(self, position: int, count: int) -> bytes:
        """Returns bytes as `File.peek` does; none once the file is deleted."""
        try:
            return self.file.peek(position, count)
        except ClosedFileError:
            return b""

    def hold(self) -> bool:
        """Prevents the deletion of the file; returns False if that has begun. Pair with `release`."""
        with self._guard:
            if self.available:
                self._holds += 1
            return self.available

    def release(self) -> None:
        """Ends one `hold`."""
        with self._guard:
            self._holds -= 1

    def retire(self, now: int, forcibly_after_ms: int) -> bool:
        """Begins the deletion of the file: nobody can hold it from now on.

        Args:
            now: ms since epoch.
            forcibly_after_ms: how long to wait for holders, counted from the first call.

        Returns:
            Whether to `destroy` it now: it is not held, or the time is over.
        """
        with self._guard:
            if self.available:
                self.available = False
                self.shutdown_at = now
            return self._holds <= 0 or now - self.shutdown_at >= forcibly_after_ms

    def destroy(self, files: Files) -> None:
        """Closes a retired file and deletes it by its name, which must not belong to another file yet."""
        self.file.close()
        files.remove(self.file.path)
