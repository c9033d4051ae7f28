"""Files and directories that appear complete and durable under their name, or not at all.

Every file that mqtool writes for a user as a whole is written here: state files, results, plans, manifests. The
engine and changes of a store write through `engine.disk.files` and `repair.files`, where tests inject faults.
"""

import contextlib
import errno
import fcntl
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import IO, Any

from mqtool.errors import RefusedError, StoreError

_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
"""Writable, because network file systems lock no other file exclusively."""
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
"""How flock fails where the file system has no locks."""

PART = ".part"
"""Ends the name of a file that is not complete; see `leftovers`."""

SUFFIX = ".incomplete"
"""Ends the name of a directory that is not complete."""

MARK = "made-by-mqtool"
"""File in such a directory, locked while its run lasts; if it is not locked, the next run deletes the directory."""

UNFINISHED = (
    "the unfinished result of a command that was interrupted or is still running; run that command again, which "
    "removes it first"
)
"""What such a directory is, and what to do."""

_NUMBERS = count(1)

_LONGEST_STEM = 200
"""Bytes of a name that its temporary name repeats; the longest name of a file has 255."""

_NO_DIRECTORY_SYNC = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
"""How fsync of a directory fails where the file system has none."""

_NO_UNNAMED_FILES = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT})
"""How an open with O_TMPFILE fails where the file system, or an old kernel, does not know it."""


def create_mark(path: Path) -> int:
    """Creates a mark and locks it; returns its descriptor, which keeps the lock until it is closed.

    On a file system without locks the mark has none, and `claim_mark` never takes it. Raises FileExistsError;
    BlockingIOError if another process claimed it before it was locked; OSError.
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

    None if the process that created the mark is running, if the file system has no locks, or if there is no mark.
    Raises OSError if it cannot be opened or locked.
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
    """Waits until no other process is in a block with this file, which is created and stays; raises OSError."""
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


# -- files -------------------------------------------------------------------------------------------------------


def replace_file(path: Path, data: bytes, *, sync_name: bool = True) -> None:
    """Replaces a file atomically: a reader sees the old or the new content, also after a power cut.

    Durable on return, but for its name without `sync_name`: the caller then calls `sync_directory` once for many files.
    An old file's mode is kept. Several processes may do this to one file: the last one wins. Raises OSError, which
    names `path`.
    """
    with replacing(path, sync_name=sync_name) as file:
        file.write(data)


@contextlib.contextmanager
def replacing(path: Path, *, sync_name: bool = True) -> Iterator[IO[bytes]]:
    """Yields a new file, which replaces `path` on exit as `replace_file` does; an error removes it."""
    with naming(path):
        temporary, descriptor = _temporary(path)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                with contextlib.suppress(FileNotFoundError):
                    os.fchmod(descriptor, path.stat().st_mode & 0o7777)
                os.fsync(descriptor)
            temporary.rename(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        if sync_name:
            sync_directory(path.parent)


def create_file(path: Path, data: bytes) -> None:
    """Writes a new file, durable on return. It gets its name once it is complete, if the system supports that.

    Raises FileExistsError, or OSError, which names `path`, if it was not written.
    """

    def fill(descriptor: int) -> None:
        write_all(descriptor, data)
        os.fsync(descriptor)

    with naming(path):
        if not create_unnamed(path, fill):
            with path.open("xb") as file:
                try:
                    fill(file.fileno())
                except BaseException:
                    path.unlink(missing_ok=True)
                    raise
        sync_directory(path.parent)


def write_new(path: Path, data: bytes) -> None:
    """Writes a small new file, with its directories; raises StoreError if it cannot be written."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        create_file(path, data)


def leftovers(path: Path) -> list[Path]:
    """Returns the temporary files left by killed calls of `replace_file` for a path."""
    stem = _stem(path.name)
    try:
        return sorted(entry for entry in path.parent.iterdir() if _is_temporary(entry.name, stem))
    except FileNotFoundError:
        return []


class NewFile:
    """A new file, open for writing. Its content is durable once it is closed."""

    def __init__(self, path: Path) -> None:
        """Creates it; raises FileExistsError if it exists."""
        self._path = path
        self._file = path.open("xb")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: Any) -> int:
        """Appends data. Errors name the file; the system's own error for a full disk does not."""
        with naming(self._path):
            return self._file.write(data)

    def close(self) -> None:
        """Makes the content durable and closes the file; may be called again."""
        if not self._file.closed:
            with naming(self._path), self._file:
                self._file.flush()
                os.fsync(self._file.fileno())


def make_directory(path: Path) -> None:
    """Creates a directory with its parents, durably; it may exist."""
    for changed in make_directory_now(path):
        sync_directory(changed)


def make_directory_now(path: Path) -> list[Path]:
    """Creates a directory with its parents; returns the directories to sync until their names are durable."""
    missing = [parent for parent in (path, *path.parents) if not parent.exists()]
    path.mkdir(parents=True, exist_ok=True)
    return [parent.parent for parent in missing]


def sync(path: Path) -> None:
    """Makes the content of a file durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Makes the names in a directory durable; does nothing if the file system cannot do that."""
    try:
        descriptor = open_raising_limit(lambda: os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except PermissionError:  # a drop box: names may be added, but not listed
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_SYNC:
            raise
    finally:
        os.close(descriptor)


def open_raising_limit(open_file: Callable[[], int]) -> int:
    """Calls a function that opens a file; at the soft limit of open files raises it to the hard one and tries again."""
    try:
        return open_file()
    except OSError as error:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if error.errno != errno.EMFILE or soft == hard:
            raise
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return open_file()


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Makes errors of the system name this path instead of a temporary one."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename != str(path):
            raise type(error)(error.errno, error.strerror, str(path)) from error
        raise


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns errors of the system into a StoreError that names this path."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot be written: {error.strerror}", path) from error


def _temporary(path: Path) -> tuple[Path, int]:
    """Creates an empty file next to a path, with a unique name because two processes may replace one file."""
    while True:
        temporary = path.with_name(f".{_stem(path.name)}.{os.getpid()}-{next(_NUMBERS)}{PART}")
        with contextlib.suppress(FileExistsError):  # of a killed process with this id
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            return temporary, os.open(temporary, flags, 0o666)


def _stem(name: str) -> str:
    return os.fsdecode(os.fsencode(name)[:_LONGEST_STEM])


def _is_temporary(name: str, stem: str) -> bool:
    number = name.removeprefix(f".{stem}.").removesuffix(PART)
    return name == f".{stem}.{number}{PART}" and number.replace("-", "", 1).isdecimal()


def create_unnamed(path: Path, fill: Callable[[int], None], mode: int = 0o666) -> bool:
    """Creates a file that is complete when it gets its name; returns False if the system cannot do that.

    Raises FileExistsError, or OSError if the content was not written.
    """
    try:
        descriptor = open_raising_limit(lambda: os.open(path.parent, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, mode))
    except OSError as error:
        if error.errno in _NO_UNNAMED_FILES:
            return False
        raise
    try:
        fill(descriptor)
        try:
            # with a dir_fd, which an absolute path ignores, Python calls linkat(2): only that follows the link
            os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)
        except FileExistsError:
            raise
        except OSError:  # no /proc, or no links
            return False
    finally:
        os.close(descriptor)
    return True


def write_all(descriptor: int, data: "bytes | memoryview", position: int | None = None) -> None:
    """Writes all data: at a position, or where the descriptor is."""
    view = memoryview(data)
    while view:
        done = os.write(descriptor, view) if position is None else os.pwrite(descriptor, view, position)
        view = view[done:]
        position = None if position is None else position + done


# -- directories -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def staged_directory(target: Path, *, into_empty: bool = False) -> Iterator[Path]:
    """Yields a directory to build in. On exit without an error its `store` is renamed to the target, durably.

    The target must not exist, unless `into_empty` allows an empty directory, which the rename replaces. Raises
    RefusedError if it exists, or something that is not from an interrupted run is next to it, such as the directory of
    a run that is in progress; StoreError if the system reports an error, and what was built is removed.
    """
    if not target.name:
        raise RefusedError("target", "this exists; give the name of a new directory", target)
    work = target.with_name(target.name + SUFFIX)
    _clear_way(target, work, into_empty=into_empty)
    mark = _create_work(work)
    try:
        (work / "store").mkdir()
        yield work
        sync_tree(work / "store")
        if _is_taken(target, into_empty=into_empty):
            raise RefusedError("target", "it was created by another process; choose another name", target)
        (work / "store").rename(target)
        sync_directory(target.parent)
    except OSError as error:
        raise StoreError(f"cannot be written: {error.strerror}", error.filename or work) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
        os.close(mark)


def is_marked(directory: Path) -> bool:
    """Whether a directory is one in which a command builds, or was building when it was interrupted."""
    return os.path.isfile(directory / MARK)  # noqa: PTH113 - Path.is_file raises where the system refuses


def check_interrupted(target: Path) -> None:
    """Raises RefusedError if another process is building a target, or may be."""
    mark = target.with_name(target.name + SUFFIX) / MARK
    if mark.is_file():
        os.close(_claim(mark))


def _create_work(work: Path) -> int:
    """Creates a directory to build in, and its mark; returns the descriptor of that."""
    try:
        work.mkdir(parents=True)
    except OSError as error:
        raise _in_progress(work) if os.path.lexists(work) else _not_created(work, error) from error
    try:
        return create_mark(work / MARK)
    except (FileExistsError, FileNotFoundError, BlockingIOError) as error:  # the directory was ours a moment ago
        raise _in_progress(work) from error
    except OSError as error:
        raise _not_created(work, error) from error


def _claim(mark: Path) -> int:
    """Locks the mark of an interrupted run; returns its descriptor."""
    with writing(mark):
        descriptor = claim_mark(mark)
    if descriptor is None:
        raise _in_progress(mark.parent)
    return descriptor


def _in_progress(work: Path) -> RefusedError:
    reason = "another run may be writing this: wait for it, or delete the directory if no mqtool is running"
    return RefusedError("target", reason, work)


def _not_created(work: Path, error: OSError) -> StoreError:
    return StoreError(f"cannot be created: {error.strerror}", work)


def _is_taken(target: Path, *, into_empty: bool) -> bool:
    return os.path.lexists(target) and not (into_empty and _is_empty(target))


def _is_empty(path: Path) -> bool:
    return not path.is_symlink() and path.is_dir() and not any(path.iterdir())


def _clear_way(target: Path, work: Path, *, into_empty: bool) -> None:
    if _is_taken(target, into_empty=into_empty):
        raise RefusedError("target", "this exists; give the name of a new directory", target)
    if os.path.ismount(target):  # known before the work, not after it
        raise RefusedError("target", "this is a mount point, which no rename replaces; name a directory in it", target)
    if not os.path.lexists(work):
        return
    if _is_empty(work):  # killed before it was marked
        with writing(work):
            work.rmdir()
    elif work.is_symlink() or not (work / MARK).is_file():
        raise RefusedError("target", "this was not left by an interrupted run; move it elsewhere", work)
    else:
        mark = _claim(work / MARK)
        try:
            with writing(work):
                shutil.rmtree(work)
        finally:
            os.close(mark)


def sync_tree(root: Path) -> None:
    """Makes every file and directory below a root durable."""
    for directory, _, names in os.walk(root, topdown=False):
        for name in names:
            sync(Path(directory) / name)
        sync_directory(Path(directory))
