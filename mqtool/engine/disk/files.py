"""The engine's file system: the only module that creates, writes, maps, syncs and deletes files.

Tests replace it by a file system that loses power or reports errors. OSError passes through: callers turn it into a
put status or a StoreError. A write is durable after `sync` of its file, a name after `sync_directory` of its
directory; nothing else is guaranteed.

Advice to the kernel about mapped pages replaces DefaultMappedFile.warmMappedFile, mlock and LibC (4.9.7, 5.5.0). It
goes through ctypes: `mmap.madvise` holds the interpreter lock while the kernel works, so that no other thread could
write meanwhile. No result depends on it.
"""

import contextlib
import ctypes
import errno
import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mqtool.formats.codec import Buffer
from mqtool.jobs.atomic import create_unnamed, make_directory_now, open_raising_limit, sync_directory, write_all
from mqtool.store.files import open_regular

PAGE_SIZE = 4096
"""Bytes of a page in the broker's flush rules (MappedFile.OS_PAGE_SIZE)."""

POPULATE_WRITE = 23
"""Advice: make pages present and writable, so that writing causes no page fault (Linux 5.14)."""
WILL_NEED = 3

LIBC = ctypes.CDLL(None, use_errno=True)


_T = TypeVar("_T")

BLOCK = 1 << 20
"""Bytes that are read by one system call."""


def zeroed_memory(size: int) -> mmap.mmap:
    """Returns zeroed private memory, in huge pages if the kernel grants them, which saves page faults."""
    mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError, AttributeError):
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping


def call_on_pages(name: str, mapping: mmap.mmap, start: int, end: int, *advice: int) -> bool:
    """Calls madvise, mlock or munlock for the pages of a range; returns False if the system does not do it."""
    function = getattr(LIBC, name, None)
    start -= start % PAGE_SIZE
    end = min(end, len(mapping))
    if function is None or end <= start:
        return False
    # The mapping must not be closed while the kernel works on it: `anchor` holds it.
    anchor = ctypes.c_char.from_buffer(mapping)
    address = ctypes.c_void_p(ctypes.addressof(anchor) + start)
    done = bool(function(address, ctypes.c_size_t(end - start), *map(ctypes.c_int, advice)) == 0)
    del anchor
    return done


class ClosedFileError(OSError):
    """A file was used after `File.close`: it was deleted meanwhile, or the store was closed."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EBADF, "the file is closed", str(path))


class _Descriptor:
    """An open descriptor, closed when nothing refers to it any more.

    A call keeps it in a variable of its own until it returns, so that the number cannot belong to another file by then.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        with contextlib.suppress(OSError):  # what must be durable was synced before
            close(self.number)


class File:
    """A file of fixed size, open for reading and writing. Safe to use from several threads.

    It is opened by its name when it is first used, and never again after `close`: by then the name may belong to
    another file. Every method but `close` then raises `ClosedFileError`.

    Attributes:
        path: of the file.
        size: in bytes.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        self._closed = False
        self._descriptor: _Descriptor | None = None
        self._mapping: mmap.mmap | None = None
        self.pinned: memoryview | None = None
        self._guard = threading.Lock()  # taken to open, map and close; not to use what is open

    def _open(self) -> int:
        """Opens the file by its name; returns the descriptor."""
        return open_more(self.path, os.O_RDWR)

    def _opened(self) -> _Descriptor:
        return self._descriptor or self._made(self._make_descriptor)

    def _made(self, make: Callable[[], _T]) -> _T:
        with self._guard:
            if self._closed:
                raise ClosedFileError(self.path)
            return make()

    def _make_descriptor(self) -> _Descriptor:
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._descriptor = _Descriptor(self._open())
        return descriptor

    def _make_mapping(self) -> mmap.mmap:
        mapping = self._mapping
        if mapping is None:
            mapping = self._mapping = mmap.mmap(self._make_descriptor().number, self.size)
        return mapping

    def _make_pin(self) -> memoryview:
        if self.pinned is None:
            self.pinned = memoryview(self._make_mapping())
        return self.pinned

    @property
    def mapping(self) -> mmap.mmap:
        """A mapping of the complete file, created on first use.

        Writing to a page without a block on a full disk kills the process (SIGBUS): call `reserve` first.
        """
        mapping = self._mapping
        return self._made(self._make_mapping) if mapping is None else mapping

    @property
    def pin(self) -> memoryview:
        """A view of the mapping, which stays valid when the file is closed."""
        pinned = self.pinned
        return self._made(self._make_pin) if pinned is None else pinned

    def read(self, position: int, count: int) -> bytes:
        """Returns the bytes at a position, fewer where the file ends."""
        opened = self._opened()
        return os.pread(opened.number, count, position)

    def peek(self, position: int, count: int) -> bytes:
        """Reads as `read` does, but through the mapping, which saves a system call; the range must be in the file.

        If the process already has too many mappings, the bytes are read by a system call.
        """
        try:
            view = self.pin
        except OSError:
            return self.read(position, count)
        return view[position : position + count].tobytes()

    def write(self, position: int, data: Buffer) -> None:
        """Writes all of the data at a position; if it raises OSError, some of it may have been written."""
        done = self._pwrite(data, position)
        while done < len(data):
            more = self._pwrite(memoryview(data)[done:], position + done)
            if not more:
                raise OSError(errno.EIO, "write made no progress", str(self.path))
            done += more

    def _pwrite(self, data: Buffer, position: int) -> int:
        opened = self._opened()
        return os.pwrite(opened.number, data, position)

    def reserve(self, start: int, end: int) -> None:
        """Allocates blocks for a range, so that writing there cannot fail; raises OSError if the disk is full."""
        opened = self._opened()
        os.posix_fallocate(opened.number, start, end - start)

    def populate(self, start: int, end: int, *, lock: bool = False) -> None:
        """Faults in the pages of a reserved range."""
        if not call_on_pages("madvise", self.mapping, start, end, POPULATE_WRITE):
            call_on_pages("madvise", self.mapping, start, end, WILL_NEED)
        if lock:
            call_on_pages("mlock", self.mapping, start, end)

    def read_ahead(self, start: int, end: int) -> None:
        """Reads a reserved range, so that writes by system calls find its pages in the page cache.

        Where nothing was written, no disk is read: the kernel makes zeroed pages, in larger units than faults would.
        What is written into them can later be read faster, too; `POSIX_FADV_WILLNEED` would make single pages.
        """
        opened, scratch = self._opened(), memoryview(zeroed_memory(min(BLOCK, end - start)))
        for at in range(start, end, BLOCK):
            os.preadv(opened.number, [scratch[: end - at]], at)

    def unlock(self) -> None:
        """Unlocks all pages of the file."""
        call_on_pages("munlock", self.mapping, 0, self.size)

    @property
    def is_in_place(self) -> bool:
        """Whether the file's name still refers to it. A broker started on an open store removes some of its files."""
        try:
            opened = self._opened()
            named, ours = self.path.stat(), os.fstat(opened.number)
        except FileNotFoundError:
            return False
        return (named.st_ino, named.st_dev) == (ours.st_ino, ours.st_dev)

    def sync(self) -> None:
        """Returns after all writes, through the mapping or not, are on disk (fdatasync).

        If it raises OSError, writes may be lost. Later calls do not report it again, so the store must stop writing.
        """
        opened = self._opened()
        os.fdatasync(opened.number)

    def close(self) -> None:
        """Closes descriptor and mapping, each once no other thread uses it; views returned earlier stay valid."""
        with self._guard:
            self._closed = True
            self._release()

    def _release(self) -> None:
        """Lets go of what is open. The mapping is not closed: another thread may be about to make a view of it."""
        self._descriptor = self._mapping = self.pinned = None


class Files:
    """The file system."""

    def create(self, path: Path, size: int) -> File:
        """Creates a sparse file of zeros; an existing file is extended if it is shorter, never truncated.

        A new file gets its name after its size: a kill between the two would leave an empty file, on which a broker of
        4.9 does not start. On file systems without unnamed files (O_TMPFILE) the name comes first.
        """
        is_new = False
        if not path.exists():
            with contextlib.suppress(FileExistsError):  # another process created it meanwhile
                is_new = create_unnamed(path, lambda fd: os.ftruncate(fd, size), 0o644)
        if not is_new:
            fd = open_more(path, os.O_RDWR | os.O_CREAT)
            try:
                if os.fstat(fd).st_size < size:
                    os.ftruncate(fd, size)
            finally:
                os.close(fd)
        return self.open(path, size)

    def open(self, path: Path, size: int) -> File:
        """Returns a file that exists."""
        return File(path, size)

    def make_directory(self, path: Path) -> None:
        """Creates a directory with its parents, durably."""
        for directory in self.make_directory_now(path):
            self.sync_directory(directory)

    def make_directory_now(self, path: Path) -> list[Path]:
        """Creates a directory with its parents; returns the directories to sync until their names are durable."""
        return make_directory_now(path)

    def sync_directory(self, path: Path) -> None:
        """Makes the names in a directory durable; does nothing if the file system cannot do that."""
        sync_directory(path)

    def sync_file(self, path: Path) -> None:
        """Makes all writes to a file durable, including those of other processes."""
        sync_path(path)

    def write_file(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        """Writes a small file and syncs it. A crash may leave it incomplete: write a temporary file and `rename` it."""
        fd = open_more(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_all(fd, data)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)

    def put_back(self, file: File) -> None:
        """Writes a copy of an open file under its name, after another process removed it.

        The contents are durable on return; the name is not.
        """
        self.remove(file.path)
        copy = self.create(file.path, file.size)
        try:
            for at in range(0, file.size, BLOCK):
                data = file.read(at, BLOCK)
                if any(data):
                    copy.write(at, data)
            copy.sync()
        finally:
            copy.close()

    def rename(self, path: Path, target: Path) -> None:
        """Renames a file, over the target if there is one."""
        path.rename(target)

    def remove(self, path: Path) -> None:
        """Deletes a file if it exists."""
        path.unlink(missing_ok=True)

    def remove_directory(self, path: Path) -> None:
        """Removes a directory if it is empty."""
        with contextlib.suppress(OSError):
            path.rmdir()

    def boot_id(self) -> str:
        """Returns the boot id of the machine; "" if it is unknown."""
        path = Path("/proc/sys/kernel/random/boot_id")
        return path.read_text("ascii").strip() if path.exists() else ""

    def modified(self, path: Path) -> int:
        """Returns when a file was last written, ms since epoch."""
        return path.stat().st_mtime_ns // 1_000_000

    def used_ratio(self, path: Path) -> float:
        """Returns the used fraction of the disk of a path, 0 to 1, in steps of 0.01; -1 if it is unknown.

        Used bytes over used plus usable bytes, rounded up (UtilAll.getDiskPartitionSpaceUsedPercent).
        """
        try:
            disk = os.statvfs(path)
        except OSError:
            return -1.0
        used = disk.f_blocks - disk.f_bfree
        total = used + disk.f_bavail
        return -(-used * 100 // total) / 100 if total else -1.0


def open_more(path: Path, flags: int) -> int:
    """Opens a regular file, also at the soft limit of open files; raises StoreError for another kind, e.g. a FIFO."""
    return open_raising_limit(lambda: open_regular(path, flags))


def sync_path(path: Path, flags: int = 0) -> None:
    """Makes an existing file durable; `flags` are those of the open, besides O_RDONLY. Raises as `open_more`."""
    fd = open_more(path, os.O_RDONLY | flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
