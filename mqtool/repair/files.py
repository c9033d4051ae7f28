"""The file system as a change uses it: every call that changes the disk is here.

Tests put one in its place that dies at a chosen call, loses what was not synced, or has no space left.
"""

import contextlib
import errno
import os
from pathlib import Path

from mqtool.engine.disk.files import Files, open_more

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


class RepairFiles(Files):
    """What the engine's files can do, and what a change needs beyond that."""

    def append(self, path: Path, data: bytes) -> None:
        """Writes at the end of a file, making it if need be. Durable on return, but for a new file's name.

        Raises:
            OSError: a part of it may have been written.
        """
        fd = open_more(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync(self, path: Path) -> None:
        """Returns when a file that somebody else has written is on disk."""
        fd = open_more(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def keep(self, path: Path, target: Path) -> None:
        """Gives a file a second name; where the file system has no hard links it is moved."""
        try:
            os.link(path, target, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self.rename(path, target)

    def set_times(self, path: Path, modified_ns: int) -> None:
        """Sets when a file or directory was last written; where that is not allowed it stays."""
        with contextlib.suppress(OSError):
            os.utime(path, ns=(path.stat().st_atime_ns, modified_ns))

    def cut(self, path: Path, size: int) -> None:
        """Shortens a file; durable on return."""
        fd = open_more(path, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            os.ftruncate(fd, size)
            os.fsync(fd)
        finally:
            os.close(fd)

    def imitate(self, path: Path, model: Path) -> None:
        """Gives a file the mode and, where that is allowed, the owner of another."""
        status = model.stat()
        os.chmod(path, status.st_mode & 0o7777)  # noqa: PTH101 - next to chown, which Path does not have
        with contextlib.suppress(OSError):
            os.chown(path, status.st_uid, status.st_gid)

    def own(self, path: Path, model: Path) -> None:
        """Gives a new file the owner of a directory, where that is allowed."""
        with contextlib.suppress(OSError):
            status = model.stat()
            os.chown(path, status.st_uid, status.st_gid)

    def free_bytes(self, path: Path) -> int:
        """Returns how much can be written to the disk of a path."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize
