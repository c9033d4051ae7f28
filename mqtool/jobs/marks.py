"""Marks of running processes: files that are locked (flock) while the process that created them uses a directory.

The lock ends with the process, however it ends, so a mark that can be locked is left from an interrupted run.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
"""Writable, because network file systems lock no other file exclusively."""
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
"""How flock fails where the file system has no locks."""


def create_mark(path: Path) -> int:
    """Creates a mark and locks it; returns its descriptor, which keeps the lock until it is closed.

    On a file system without locks the mark has none, and `claim_mark` never takes it.

    Raises:
        FileExistsError: it exists.
        BlockingIOError: another process claimed it before it was locked.
        OSError: it cannot be created.
    """
    descriptor = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        _lock(descriptor, fcntl.LOCK_NB)
        is_ours = _is_at(path, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    if not is_ours:
        os.close(descriptor)
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), str(path))
    return descriptor


def claim_mark(path: Path) -> int | None:
    """Locks the mark of an interrupted run; returns its descriptor, which keeps the lock until it is closed.

    Returns:
        None if the process that created the mark is running, if the file system has no locks, or if there is no mark.

    Raises:
        OSError: it cannot be opened or locked.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError:
        return None
    is_claimed = False
    try:
        with contextlib.suppress(BlockingIOError):
            is_claimed = _lock(descriptor, fcntl.LOCK_NB) and _is_at(path, descriptor)
    finally:
        if not is_claimed:
            os.close(descriptor)
    return descriptor if is_claimed else None


@contextlib.contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """Waits until no other process is in a block with this file. The file is created and stays.

    Raises:
        OSError: it cannot be created or locked.
    """
    descriptor = os.open(path, _FLAGS | os.O_CREAT, 0o666)
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, flags: int = 0) -> bool:
    """Locks an open file; returns False if the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | flags)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether an open file still has this name; another process may have deleted or replaced it."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
