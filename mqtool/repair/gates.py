"""The gates: named conditions that must hold before a store is changed."""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from mqtool.engine.start.lock import StoreLock
from mqtool.engine.statuses import NO_SPACE
from mqtool.errors import RefusedError, StoreError, StoreLockedError
from mqtool.formats import file_names
from mqtool.repair.files import RepairFiles
from mqtool.repair.paths import inside, parents_of
from mqtool.repair.plan import Plan
from mqtool.store.files import list_directory
from mqtool.words import size

_PROCESSES = Path("/proc")
_WRITING = os.O_WRONLY | os.O_RDWR


def store_of(plan: Plan) -> Path:
    """Returns the root of the store that a plan is for; raises RefusedError if it is missing, or another directory."""
    root = Path(plan.store)
    try:
        status = root.stat()
        same = root.resolve(strict=True) == root
    except OSError as error:
        raise RefusedError("store", f"the plan's store cannot be found: {error.strerror}", root) from error
    if not same or status.st_ino != plan.inode:
        raise RefusedError("store", "the plan was made for another directory; run `mqtool plan` again", root)
    return root


def check_writable(root: Path, names: Iterable[str]) -> None:
    """Raises RefusedError if a directory to change is not writable or is on another file system."""
    device = root.stat().st_dev
    for directory in sorted({parent for name in names for parent in parents_of(name)} | {""}):
        path = root / directory
        if not path.exists():
            continue
        if not os.access(path, os.W_OK | os.X_OK) or os.statvfs(path).f_flag & os.ST_RDONLY:
            raise RefusedError("read-only", "this directory is not writable", path)
        if path.stat().st_dev != device:
            raise RefusedError(
                "file-system",
                "this directory is on another file system than the root, so files cannot be swapped atomically",
                path,
            )


def check_space(root: Path, needed: int, files: RepairFiles) -> None:
    """Raises RefusedError if the disk has too little space."""
    free = files.free_bytes(root)
    if free < needed:
        raise RefusedError("space", f"not enough disk space: need {size(needed)}, {size(free)} free", root)


def check_backup(root: Path, *, acknowledged: bool) -> None:
    """Raises RefusedError unless the caller has confirmed a backup."""
    if not acknowledged:
        raise RefusedError(
            "backup", "confirm with --yes that there is a backup or snapshot, or that none is needed", root
        )


def check_nobody_writes(root: Path) -> None:
    """Raises RefusedError if another process visibly has a file of the store open for writing."""
    for process in _writers(root):
        raise RefusedError("nobody-writes", f"process {process} has files of the store open for writing", root)


def _writers(root: Path) -> Iterator[int]:
    prefix = f"{root}/"
    own = os.getpid()
    with contextlib.suppress(StoreError):
        for entry in list_directory(_PROCESSES):
            number = int(entry.name) if entry.name.isdigit() else own
            if number != own and (_has_open(entry.path, prefix) or _has_mapped(entry.path, prefix)):
                yield number


def _has_open(process: str, prefix: str) -> bool:
    with contextlib.suppress(StoreError):  # gone meanwhile, or not ours to look at
        for entry in list_directory(Path(f"{process}/fd")):
            with contextlib.suppress(OSError, ValueError):
                if str(Path(entry.path).readlink()).startswith(prefix):
                    text = Path(f"{process}/fdinfo/{entry.name}").read_text("ascii")
                    flags = next(line.split()[1] for line in text.splitlines() if line.startswith("flags:"))
                    if int(flags, 8) & _WRITING:
                        return True
    return False


def _has_mapped(process: str, prefix: str) -> bool:
    with contextlib.suppress(OSError):
        lines = Path(f"{process}/maps").read_text("utf-8", "replace").splitlines()
        return any(
            f" {prefix}" in line and "w" in line.split(maxsplit=2)[1] and "s" in line.split(maxsplit=2)[1]
            for line in lines
        )
    return False


@contextlib.contextmanager
def locked(root: Path) -> Iterator[int]:
    """Holds the store's lock as a broker does; yields the root's modification time before that, ns.

    Creates the lock file if it is missing. It stays: a broker opens it when it is constructed and locks it after it has
    loaded the store (DefaultMessageStore, 4.9.7 and 5.5.0), so it could lock a deleted file, which excludes nobody.
    """
    path = root / file_names.LOCK
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise RefusedError("lock", "expected a regular file", path)
    root_time = root.stat().st_mtime_ns
    lock = StoreLock(root)
    try:
        lock.take()
    except OSError as error:
        gate = "space" if error.errno in NO_SPACE else "read-only"
        raise RefusedError(gate, f"the lock cannot be taken: {error.strerror}", path) from error
    try:
        yield root_time
    finally:
        lock.release()


@contextlib.contextmanager
def exclusive(home: Path) -> Iterator[None]:
    """Excludes undo and discard-undo by other mqtool processes; a broker may hold the store meanwhile."""
    fd = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreLockedError("another mqtool is undoing this change or discarding its undo data", home) from error
        yield
    finally:
        os.close(fd)


def check_places(root: Path, plan: Plan) -> None:
    """Raises RefusedError if a path of a plan leads through a link, or to something that is not a file."""
    for step in plan.steps:
        inside(root, step.path)
    for read in plan.reads:
        inside(root, read.path)
