"""A directory that appears under its name when it is whole: built beside it under another name, then renamed."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from mqtool.errors import RefusedError, StoreError

SUFFIX = ".incomplete"
MARK = "made-by-mqtool"
"""File that says that what is around it was left by an interrupted run and may go."""


@contextlib.contextmanager
def built_aside(target: Path, *, into_empty: bool = False) -> Iterator[Path]:
    """Gives a directory to build in; on leaving without an error its `store` is renamed to the target, durably.

    Args:
        target: must not exist.
        into_empty: an empty directory of that name may exist; the rename replaces it.

    Raises:
        RefusedError: it exists, or beside it stands something that is not ours.
        StoreError: the system reports an error; what was built is removed.
    """
    if not target.name:
        raise RefusedError("target", "expected a name that is not taken; the result goes into a new directory", target)
    work = target.with_name(target.name + SUFFIX)
    _clear_way(target, work, into_empty=into_empty)
    try:
        work.mkdir(parents=True)
        (work / MARK).touch()
        (work / "store").mkdir()
    except OSError as error:
        raise StoreError(f"cannot be made: {error.strerror}", work) from error
    try:
        yield work
        sync_tree(work / "store")
        if _is_taken(target, into_empty=into_empty):
            raise RefusedError("target", "it appeared meanwhile", target)
        (work / "store").rename(target)
        sync(target.parent)
    except OSError as error:
        raise StoreError(f"cannot be written: {error.strerror}", error.filename or work) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _is_taken(target: Path, *, into_empty: bool) -> bool:
    return os.path.lexists(target) and not (into_empty and _is_empty(target))


def _is_empty(path: Path) -> bool:
    return not path.is_symlink() and path.is_dir() and not any(path.iterdir())


def _clear_way(target: Path, work: Path, *, into_empty: bool) -> None:
    if _is_taken(target, into_empty=into_empty):
        raise RefusedError("target", "expected a name that is not taken; the result goes into a new directory", target)
    if os.path.lexists(work):
        is_ours = (work / MARK).is_file() or _is_empty(work)  # empty: killed before it was marked
        if work.is_symlink() or not is_ours:
            raise RefusedError("target", "this is in the way, and not from an interrupted run; move it away", work)
        shutil.rmtree(work)


def sync_tree(root: Path) -> None:
    """Returns when every file and directory below a root is on disk."""
    for directory, _, names in os.walk(root, topdown=False):
        for name in names:
            sync(Path(directory) / name)
        sync(Path(directory))


def sync(path: Path) -> None:
    """Returns when a file or directory is on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
