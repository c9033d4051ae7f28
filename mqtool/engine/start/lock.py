"""The lock of a store, and `abort`, the mark of an unclean stop.

The broker holds an exclusive lock on byte 0 of `lock`. The engine takes the same lock, so that only one of them opens
the store. Source: DefaultMessageStore.start/createTempFile/shutdown, MixAll.string2File (4.9.7, 5.5.0).
"""

import fcntl
import os
from enum import Enum
from pathlib import Path

from mqtool.engine.disk.files import Files, open_more
from mqtool.errors import StoreLockedError
from mqtool.formats import file_names
from mqtool.formats.release import Release
from mqtool.store.lock import EXCLUSIVE

_TEXT = b"lock"
_HELD = "a broker or another mqtool has the store open; stop it first"
OPEN_FILE_LOCK: int | None = getattr(fcntl, "F_OFD_SETLK", None)


class StoreLock:
    """The exclusive lock of one store.

    It is an open file description lock if the system has them: a process lock, as Java's, would be lost as soon as
    any code in this process opened and closed `lock`. The two kinds exclude each other.
    """

    def __init__(self, root: Path) -> None:
        self._path = root / file_names.LOCK
        self._fd = -1

    def test(self) -> None:
        """Checks whether the lock is free; writes nothing. Raises as `take`."""
        if self._path.exists():
            self.take()
            self.release()

    def acquire(self) -> None:
        """Takes the lock as a broker does, which writes into an empty file; raises as `take`."""
        self.take()
        if os.fstat(self._fd).st_size == 0:
            os.pwrite(self._fd, _TEXT, 0)

    def take(self) -> None:
        """Takes the lock and writes nothing; creates its file if it is missing.

        Raises StoreLockedError if another store object, or another process such as a broker, holds it.
        """
        self._fd = open_more(self._path, os.O_RDWR | os.O_CREAT)
        try:
            if OPEN_FILE_LOCK is None:
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            else:
                fcntl.fcntl(self._fd, OPEN_FILE_LOCK, EXCLUSIVE)
        except OSError as error:
            self.release()
            raise StoreLockedError(_HELD, self._path) from error

    def release(self) -> None:
        """Releases the lock; may be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class LastShutdown(Enum):
    """How the last writer of a store ended, read from `abort`."""

    NOBODY = "a clean shutdown, or an empty directory"
    BROKER = "a broker that did not shut down cleanly"
    KILL = "this engine, killed while the machine kept running"
    POWER_CUT = "this engine, when the machine went down"


class AbortMark:
    """The file `abort`: exists while the store is open, and remains if the process stopped without closing it."""

    def __init__(self, files: Files, root: Path, *, release: Release) -> None:
        self._files = files
        self._path = root / file_names.ABORT
        self._backup = root / file_names.ABORT_BACKUP
        self._new = root / file_names.ABORT_NEW
        self._release = release

    def last_shutdown(self) -> LastShutdown:
        """Returns how the last writer ended."""
        if not self._path.exists():
            return LastShutdown.NOBODY
        parts = self._path.read_text("ascii", "replace").split() if self._path.is_file() else []
        if len(parts) != 2:
            return LastShutdown.BROKER
        return LastShutdown.KILL if parts[1] == self._files.boot_id() else LastShutdown.POWER_CUT

    def create(self) -> None:
        """Creates `abort`, durably, with process id and boot id; 5.5 keeps an older one as `abort.bak`.

        It appears complete: an empty one would be taken for that of a broker.
        """
        before = self._path.read_bytes() if self._path.is_file() else b""
        if self._release >= (5, 0):
            self._files.write_file(self._backup, before)
        self._files.write_file(self._new, f"{os.getpid()} {self._files.boot_id()}".encode())
        self._files.rename(self._new, self._path)
        self._files.sync_directory(self._path.parent)

    def remove(self) -> None:
        """Deletes it, durably. Everything else must be on disk before."""
        self._files.remove(self._path)
        self._files.sync_directory(self._path.parent)
