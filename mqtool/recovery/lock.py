"""Finds the holder of a store's lock without taking the lock."""

import fcntl
import os
import struct
from pathlib import Path

from mqtool.errors import StoreError
from mqtool.store.files import open_regular

_FLOCK = struct.Struct("hhqqi")
_SPARE = bytes(8)


def lock_holder(path: Path) -> int | None:
    """Returns the process that holds byte 0 of a lock file, None if none does or it is unknown.

    The file is opened for reading only, and F_GETLK takes no lock. Do not call this in a process that holds the lock
    itself:
    closing any descriptor of a file releases all POSIX locks that the process has on it.
    """
    try:
        fd = open_regular(path, os.O_RDONLY)
    except (OSError, StoreError):
        return None
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0) + _SPARE
        kind, _, _, _, process = _FLOCK.unpack_from(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    except OSError:
        return None
    finally:
        os.close(fd)
    return None if kind == fcntl.F_UNLCK else process
