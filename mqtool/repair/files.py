"""The files of a change: every call that changes the disk, fingerprints, and the places between which files move.

Tests replace `RepairFiles` with one that dies at a chosen call, loses unsynced data, or has no space left.
"""

import contextlib
import errno
import hashlib
import os
from pathlib import Path

from mqtool.engine.disk.files import Files, open_more, sync_path
from mqtool.jobs.atomic import write_all
from mqtool.repair.paths import QUARANTINE, STAGING, home_of, inside
from mqtool.repair.plan import Fingerprint, Step
from mqtool.store.files import LARGEST, ReadFile

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
_BLOCK = 1 << 20


class RepairFiles(Files):
    """The engine's file operations, and those that only a change needs."""

    def append(self, path: Path, data: bytes) -> None:
        """Appends to a file, creating it if needed. The data is durable on return; the name of a new file is not."""
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


def fingerprint(path: Path, *, full: bool = True) -> Fingerprint | None:
    """Returns the fingerprint of a regular file, or None if it is missing.

    With `full` all bytes are hashed, unless the file is longer than any file of a broker; otherwise it has only size
    and time.
    """
    if not path.exists():
        return None
    status = path.stat()
    return Fingerprint(status.st_size, status.st_mtime_ns, sha256_of(path) if full else None)


def is_left_out(fingerprint: Fingerprint) -> bool:
    """Whether a file is too long to be hashed."""
    return fingerprint.size > LARGEST


def result_of(path: Path) -> Fingerprint:
    """Returns the fingerprint of a newly built file, whose time has no meaning."""
    return Fingerprint(path.stat().st_size, None, sha256_of(path))


def sha256_of(path: Path) -> str | None:
    """Returns the SHA-256 of a file, or None if it is longer than `LARGEST`. Holes count as zeros and are not read."""
    digest = hashlib.sha256()
    zeros = bytes(_BLOCK)
    with ReadFile(path) as file:
        if file.size > LARGEST:
            return None
        at, end = 0, file.data_end()
        while at < file.size:
            count = min(_BLOCK, file.size - at)
            digest.update(file.read(at, count) if at < end else memoryview(zeros)[:count])
            at += count
    return digest.hexdigest()


class Places:
    """The three places of each file of a change."""

    def __init__(self, root: Path, time: str, files: RepairFiles) -> None:
        self.home = home_of(root)  # directory of mqtool below the root
        self._root = root
        self._time = time
        self._files = files

    def target(self, step: Step) -> Path:
        """Returns the file's place in the store."""
        return inside(self._root, step.path)

    def staged(self, step: Step) -> Path:
        """Returns where the new file waits."""
        return self.home / STAGING / step.path

    def kept(self, step: Step) -> Path:
        """Returns where the old file is kept."""
        return self.home / QUARANTINE / self._time / step.path

    def swap_in(self, step: Step) -> None:
        """Replaces the old file by the new one, unless that is done already. Durable on return."""
        target, staged, kept = self.target(step), self.staged(step), self.kept(step)
        if step.before is not None and not kept.exists():
            self._files.keep(target, kept)
            self._files.sync_directory(kept.parent)
        if step.after is None:
            if target.exists():
                self._files.remove(target)
        elif staged.exists():
            self._files.rename(staged, target)
            self._files.sync_directory(staged.parent)
        self._files.sync_directory(target.parent)

    def is_foreign(self, step: Step) -> bool:
        """Whether the file in the store is neither the old nor the new one: another process has written it."""
        states = [state for state in (step.before, step.after) if state is not None]
        actual = fingerprint(self.target(step), full=any(state.sha256 is not None for state in states))
        return actual is not None and not any(state.fits(actual) for state in states)

    def is_swapped(self, step: Step) -> bool:
        """Whether `swap_in` has begun; only meaningful while files are swapped or restored."""
        return self.kept(step).exists() if step.before is not None else not self.staged(step).exists()

    def swap_out(self, step: Step, *, any_content: bool = False) -> None:
        """Restores the old file, unless that is done already. Durable on return.

        With `any_content` a file that the change created is deleted even if its content is not the planned one: only
        for the process that swapped it in, before it releases the lock.
        """
        target, kept = self.target(step), self.kept(step)
        if kept.exists():
            if target.exists() and target.samefile(kept):
                self._files.remove(kept)  # renaming one name of a file to the other would leave both
            else:
                self._files.rename(kept, target)
                self._files.sync_directory(target.parent)
            self._files.sync_directory(kept.parent)
        elif (
            step.before is None
            and target.exists()
            and self.is_swapped(step)
            and (any_content or not self.is_foreign(step))
        ):
            self._files.remove(target)
            self._files.sync_directory(target.parent)


def remove_tree(path: Path, files: RepairFiles) -> int:
    """Removes a directory of mqtool with all in it, links not followed; returns the bytes on disk that this freed."""
    freed = 0
    for directory, _, names in os.walk(path, topdown=False):
        for name in names:
            file = Path(directory) / name
            status = file.lstat()
            freed += status.st_blocks * 512 if status.st_nlink == 1 else 0
            files.remove(file)
        for entry in os.scandir(directory):
            if entry.is_symlink():
                files.remove(Path(entry.path))
        files.remove_directory(Path(directory))
    return freed


def make_like_parent(path: Path, files: RepairFiles) -> None:
    """Creates a directory and its parents durably, with mode and owner of the directory above."""
    missing = [parent for parent in (path, *path.parents) if not parent.exists()]
    files.make_directory(path)
    for directory in reversed(missing):
        files.imitate(directory, directory.parent)
