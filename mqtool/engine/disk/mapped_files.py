"""Mapped files: one of fixed size, and how far it is written, committed and flushed; all of a log or queue in order.

Docs page: docs/engine.md. Source: DefaultMappedFile, ReferenceResource, MappedFileQueue, MultiPathMappedFileQueue
(4.9.7, 5.5.0).
"""

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mqtool.engine.disk.files import PAGE_SIZE, ClosedFileError, File, Files
from mqtool.errors import LayoutError
from mqtool.formats import file_names
from mqtool.store.files import list_mapped_files


class MappedFile:
    """One file of fixed size.

    Attributes:
        file_from_offset: offset of its first byte in the directory's address space.
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
        """Makes sure that up to `end` can be written through the mapping; raises OSError if the disk is full."""
        if end > self.reserved:
            self.file.reserve(self.reserved, end)
            self.reserved = end

    def append(self, data: bytes) -> bool:
        """Appends bytes by a system call, as the broker does through its FileChannel; returns False if they do not fit.

        In the page cache on return: they survive a kill of the process, not a power cut. If it raises OSError, a part
        may have been written.
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
        """Writes the content of the pool buffer, if there is one, into the page cache; returns the committed position.

        If it raises OSError, the buffer keeps the bytes.
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
        """Flushes committed bytes if there are at least `least_pages` pages of them; returns the flushed position.

        The bytes of a file that is deleted meanwhile count as flushed: nobody needs them any more. If it raises
        OSError, bytes after the flushed position may be lost.
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
        """Begins the deletion of the file: nobody can hold it from now on. Returns whether to `destroy` it now.

        That is so if nobody holds it, or `forcibly_after_ms` after the first call.
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


class MappedFileQueue:
    """Files of equal size. One thread appends, any may delete and read.

    Attributes:
        file_size: bytes of each file.
        files: in order of offsets. Replaced, never changed in place, so that a reader may keep its copy; a file in that
            copy may be deleted meanwhile.
        flushed_offset: durable up to here.
        committed_offset: in the page cache up to here.
        full_directories: those whose disk is too full for a new file.
    """

    def __init__(
        self,
        files: Files,
        directories: Iterable[Path],
        file_size: int,
        read_only: Iterable[Path] = (),
        *,
        names_at_flush: bool = False,
    ) -> None:
        """Reads and creates nothing; `load` does.

        With several directories, file number n is created in the (n mod count)th by name, none in `read_only` ones.
        With `names_at_flush` names of new files become durable with the next flush, not when they are created: for
        derived files, whose writer must not wait for the disk.
        """
        self.directories = tuple(directories)
        self.read_only = tuple(read_only)
        self.file_size = file_size
        self.files: tuple[MappedFile, ...] = ()
        self.flushed_offset = 0
        self.committed_offset = 0
        self.full_directories: frozenset[Path] = frozenset()
        self._files = files
        self._names_at_flush = names_at_flush
        self._to_sync: deque[Path] = deque()
        self._syncing = threading.Lock()
        self._changing = threading.Lock()  # while `files` is read, changed and replaced
        self._deleting = threading.Lock()  # until a deleted file's name is free; taken before `_changing`

    def load(self) -> None:
        """Lists the files; each counts as full until recovery sets its end.

        Raises LayoutError if a file has another size than the options state.
        """
        entries = list_mapped_files(*self.directories, *self.read_only).files
        for listed in entries:
            if listed.size != self.file_size:
                raise LayoutError(
                    f"expected a file of {self.file_size} bytes, found {listed.size}; "
                    "open the store with the sizes that it was created with",
                    listed.path,
                )
        self.files = tuple(
            MappedFile(self._files.open(item.path, item.size), item.base, wrote=item.size) for item in entries
        )
        self.set_end(self.max_offset)

    @property
    def min_offset(self) -> int:
        """Offset of the first byte that still exists; -1 if there is no file."""
        for file in self.files:
            if file.available:
                return file.file_from_offset
        return -1

    @property
    def max_offset(self) -> int:
        """Offset up to which it may be read; 0 if there is no file."""
        files = self.files
        return files[-1].file_from_offset + files[-1].read_position if files else 0

    @property
    def wrote_offset(self) -> int:
        """Offset after the last byte that was appended."""
        files = self.files
        return files[-1].file_from_offset + files[-1].wrote if files else 0

    @property
    def is_dirty(self) -> bool:
        """Whether a flush has something to write."""
        return self.flushed_offset < self.wrote_offset

    @property
    def last(self) -> MappedFile | None:
        """The file that is appended to."""
        files = self.files
        return files[-1] if files else None

    def find(self, offset: int) -> MappedFile | None:
        """Returns the file that contains an offset, None if there is none."""
        files = self.files
        if not files:
            return None
        size = self.file_size
        index = offset // size - files[0].file_from_offset // size
        if 0 <= index < len(files):
            file = files[index]
            if 0 <= offset - file.file_from_offset < size:  # all files have this size
                return file
        # The computed index is wrong only if a file in between is missing.
        return next((file for file in files if file.file_from_offset <= offset < file.end), None)

    def next_base(self, start_offset: int) -> int:
        """Returns the base offset of the next file: after the last, or the file boundary at or below `start_offset`."""
        return self.files[-1].end if self.files else start_offset - start_offset % self.file_size

    def path_for(self, base: int) -> Path:
        """Returns the path of the file that begins at `base`."""
        writable = sorted(set(self.directories) - set(self.read_only) - self.full_directories)
        writable = writable or sorted(set(self.directories) - set(self.read_only))
        return writable[base // self.file_size % len(writable)] / file_names.mapped_file_name(base)

    def create(self, start_offset: int = 0) -> MappedFile:
        """Creates the next file, of zeros, and makes it the last; its name is durable, or after the next flush."""
        base = self.next_base(start_offset)
        path = self.path_for(base)
        directories = self._files.make_directory_now(path.parent)
        file = self._files.create(path, self.file_size)
        self._to_sync.extend((*directories, path.parent))
        if not self._names_at_flush:
            self._sync_names()
        return self.add(MappedFile(file, base))

    def _sync_names(self) -> None:
        if not self._to_sync:
            return
        with self._syncing:
            while self._to_sync:
                with suppress(FileNotFoundError):  # removed again meanwhile
                    self._files.sync_directory(self._to_sync[0])
                self._to_sync.popleft()

    def add(self, file: MappedFile) -> MappedFile:
        """Appends a file that the allocator created."""
        with self._changing:
            self.files = (*self.files, file)
        return file

    def delete(self, file: MappedFile, now: int, forcibly_after_ms: int) -> bool:
        """Deletes a file unless it is held (`MappedFile.retire`); returns False too if another thread has deleted it.

        If its name cannot be removed, it is closed, and the next call tries again.
        """
        with self._deleting:
            if file not in self.files or not file.retire(now, forcibly_after_ms):
                return False
            file.destroy(self._files)
            with self._changing:
                self.files = tuple(kept for kept in self.files if kept is not file)
            return True

    def delete_all(self) -> None:
        """Deletes every file, held or not; raises as `delete`."""
        for file in self.files:
            self.delete(file, 0, 0)

    def set_end(self, offset: int) -> None:
        """Sets the offset up to which bytes count as flushed and committed."""
        self.flushed_offset = self.committed_offset = offset

    def truncate(self, offset: int) -> None:
        """Sets the end: deletes files that start at or after it; bytes after it in the last file are not changed."""
        for file in self.files:
            if file.file_from_offset >= offset:
                self.delete(file, 0, 0)
            else:
                file.set_end(min(offset - file.file_from_offset, file.size))
        self.set_end(offset)

    def commit(self, least_pages: int = 0) -> int:
        """Writes pool buffers into their files as `MappedFile.commit`; returns the committed offset."""
        for file in self._from(self.committed_offset, self.files):
            self.committed_offset = file.file_from_offset + file.commit(least_pages)
            if not file.is_full or file.committed < file.size:
                break
        return self.committed_offset

    def flush(self, least_pages: int = 0) -> int:
        """Flushes files as `MappedFile.flush`; returns the flushed offset: every byte below it is durable."""
        files = self.files  # before the names: those of files that are added from now on may not be durable
        self._sync_names()
        for file in self._from(self.flushed_offset, files):
            self.flushed_offset = file.file_from_offset + file.flush(least_pages)
            if file.flushed < file.wrote:  # not `size`: a BatchConsumeQueue may leave less than a unit at a file's end
                break
        return self.flushed_offset

    @staticmethod
    def _from(offset: int, files: tuple[MappedFile, ...]) -> Iterator[MappedFile]:
        return (file for file in files if file.end > offset)

    def close(self) -> None:
        """Closes every file; nothing is flushed."""
        for file in self.files:
            file.file.close()
