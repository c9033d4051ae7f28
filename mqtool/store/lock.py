"""Which process holds the lock of a store, determined without taking it.

The broker locks byte 0 of `lock` (DefaultMessageStore.start). The kernel reports the holder (F_GETLK); no lock is
taken. The file is not opened if this process holds the lock itself: closing it would release the lock.
"""

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path

from mqtool.errors import StoreError
from mqtool.formats import file_names
from mqtool.store.files import open_regular
from mqtool.store.remote import is_remote

_FLOCK = struct.Struct("hhqqi4x")
"""struct flock of 64-bit Linux: type, whence, start, length, process."""
EXCLUSIVE = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
"""Describes the lock to the kernel."""
LOCKS = Path("/proc/locks")
PROCESSES = Path("/proc")


def lock_holder(root: Path) -> int | None:
    """Returns the process that holds a store's lock, None if none does or the system cannot report it.

    It may be this process; 0 or -1 stand for one that cannot be seen from here (see `holder_words`).
    """
    if is_remote(root):
        return None
    path = root / file_names.LOCK
    try:
        if _is_ours(path):
            return os.getpid()
        descriptor = open_regular(path, os.O_RDONLY)
    except (OSError, StoreError):
        return None
    try:
        kind, _, _, _, process = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, EXCLUSIVE))
        return None if kind == fcntl.F_UNLCK else process if process >= 0 else _opener_of(os.fstat(descriptor))
    except OSError:
        return None
    finally:
        os.close(descriptor)


def holder_words(process: int) -> str:
    """Returns what messages call the holder of a lock: 0 is a process of another container, -1 one of another user."""
    return f"process {process}" if process > 0 else "another process"


def _opener_of(status: os.stat_result) -> int:
    """Returns the process that locked a file through its open file, as the engine does; -1 if it cannot be seen.

    For such a lock F_GETLK reports process -1, but the list of a process's descriptors names it.
    """
    for directory in PROCESSES.glob("[0-9]*/fdinfo"):
        with suppress(OSError):  # of another user, or ended meanwhile
            for entry in directory.iterdir():
                if _has_locked(entry, status):
                    return int(directory.parent.name)
    return -1


def _has_locked(entry: Path, status: os.stat_result) -> bool:
    """Whether a descriptor, an entry of `fdinfo`, is of a file and has a lock; False if it is closed meanwhile."""
    try:
        is_same = os.path.samestat((entry.parents[1] / "fd" / entry.name).stat(), status)
        return is_same and "OFDLCK" in entry.read_text("ascii")
    except OSError:
        return False


def _is_ours(path: Path) -> bool:
    """Whether this process holds a lock on the file, according to the kernel's list.

    A line of the list reads `1: POSIX ADVISORY WRITE PID MAJOR:MINOR:INODE START END`. The kernel may take 20 ms to
    make the list, so it is read only if the file is open: a lock ends when its process closes the file.
    """
    status = path.stat()
    if not _is_open(status):
        return False
    try:
        lines = LOCKS.read_text("ascii").splitlines()
    except OSError:
        return False
    inode = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return any(inode in line.split() and f" {os.getpid()} " in line for line in lines)


def _is_open(status: os.stat_result) -> bool:
    """Whether a descriptor of this process refers to a file; True if the system cannot list them."""
    try:
        descriptors = os.listdir("/proc/self/fd")  # noqa: PTH208 - numbers, not paths
    except OSError:
        return True
    for number in descriptors:
        with suppress(OSError):  # the descriptor of the list itself is closed by now
            if os.path.samestat(os.fstat(int(number)), status):
                return True
    return False
