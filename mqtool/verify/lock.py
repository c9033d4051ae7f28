"""Whether a broker holds the store's lock, determined without taking it.

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

_FLOCK = struct.Struct("hhqqi4x")
_LOCKS = Path("/proc/locks")


def is_held(root: Path) -> bool:
    """Returns whether another process holds the store's lock; False if the system cannot report it."""
    path = root / file_names.LOCK
    try:
        if _is_ours(path):
            return True
        descriptor = open_regular(path, os.O_RDONLY)
    except (OSError, StoreError):
        return False
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))[0]
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return bool(kind != fcntl.F_UNLCK)


def _is_ours(path: Path) -> bool:
    """Whether this process holds a lock on the file, according to the kernel's list.

    A line of the list reads `1: POSIX ADVISORY WRITE PID MAJOR:MINOR:INODE START END`. The kernel may take 20 ms to
    make the list, so it is read only if the file is open: a lock ends when its process closes the file.
    """
    status = path.stat()
    if not _is_open(status):
        return False
    try:
        lines = _LOCKS.read_text("ascii").splitlines()
    except OSError:
        return False
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return any(wanted in line.split() and f" {os.getpid()} " in line for line in lines)


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
