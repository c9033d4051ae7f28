"""The file system as changes use it. Every call that changes the disk is here.

Tests replace it with one that dies at a chosen call, loses unsynced data, or has no space left.
"""

import contextlib
import errno
import os
from pathlib import Path

from mqtool.engine.disk.files import Files, open_more, sync_path
from mqtool.jobs.atomic import write_all

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


class RepairFiles(Files):
    """The engine's file operations, and those that only a change needs."""

    def append(self, path: Path, data: bytes) -> None:
        """Appends to a file, creating it if needed.

        The data is durable on return; the name of a new file is not.

        Raises:
            OSError: part of the data may have been written.
        """
        fd = open_more(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW)
        try:
            write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync(self, path: Path) -> None:
        """Makes a file durable that another process may have written."""
        sync_path(path, os.O_NOFOLLOW)

    def keep(self, path: Path, target: Path) -> None:
        """Gives a file a second name; moves it if the file system has no hard links."""
        try:
            os.link(path, target, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self.rename(path, target)

    def set_times(self, path: Path, modified_ns: int) -> None:
        """Sets the modification time of a file or directory, if the system allows it."""
        with contextlib.suppress(OSError):
            os.utime(path, ns=(path.stat().st_atime_ns, modified_ns))

    def cut(self, path: Path, size: int) -> None:
        """Shortens a file. Durable on return."""
        fd = open_more(path, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            os.ftruncate(fd, size)
            os.fsync(fd)
        finally:
            os.close(fd)

    def imitate(self, path: Path, model: Path) -> None:
        """Gives a file the mode of another and, if the system allows it, its owner."""
        status = model.stat()
        os.chmod(path, status.st_mode & 0o7777)  # noqa: PTH101 - next to chown, which Path does not have
        with contextlib.suppress(OSError):
            os.chown(path, status.st_uid, status.st_gid)

    def own(self, path: Path, model: Path) -> None:
        """Gives a new file the owner of a directory, if the system allows it."""
        with contextlib.suppress(OSError):
            status = model.stat()
            os.chown(path, status.st_uid, status.st_gid)

    def free_bytes(self, path: Path) -> int:
        """Returns the free space on the disk of a path."""
        disk = os.statvfs(path)
        return disk.f_bavail * disk.f_frsize
