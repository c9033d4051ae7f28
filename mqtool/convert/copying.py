"""Copies files of a store unchanged into a new directory and keeps holes in sparse files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mqtool.errors import UsageError
from mqtool.jobs.atomic import staged_directory, writing
from mqtool.store.files import ReadFile, list_directory
from mqtool.store.real_path import is_inside

_PIECE = 1 << 20


@contextmanager
def staging_directory(store: Path, target: Path) -> Iterator[Path]:
    """Yields a staging directory, which is renamed to the target on success and deleted on failure.

    Its content is on disk before the rename.

    Args:
        store: the source's root; the target must lie outside of it.
        target: new, or an empty directory.

    Raises:
        UsageError: it is not empty, or is inside the store.
        RefusedError: files next to it were not left by an interrupted run.
        StoreError: a file cannot be written.
    """
    if is_inside(target, store):
        raise UsageError(f"{target}: expected a directory outside of {store}: nothing is written into a store")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target}: expected a new or empty directory")
    if not target.name:
        raise UsageError(f"{target}: expected a name; the result is renamed to it")
    with staged_directory(target, into_empty=True) as work:
        yield work / "store"


def copy_file(source: Path, target: Path) -> None:
    """Copies a file; ranges of zeros become holes.

    Raises:
        StoreError: the source cannot be read or the target cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    zeros = bytes(_PIECE)
    with writing(target), ReadFile(source) as file, target.open("wb") as sink:
        end, at = file.data_end(), 0
        while at < end:
            data = file.read(at, min(_PIECE, end - at))
            if not data:
                break
            if data != zeros[: len(data)]:
                sink.seek(at)
                sink.write(data)
            at += len(data)
        sink.truncate(file.size)


def copy_tree(source: Path, target: Path) -> None:
    """Copies the regular files below a directory; links to directories are not followed.

    Raises:
        StoreError: a file cannot be read or written.
    """
    for entry in list_directory(source):
        if entry.is_dir(follow_symlinks=False):
            (target / entry.name).mkdir(parents=True, exist_ok=True)
            copy_tree(source / entry.name, target / entry.name)
        elif os.path.isfile(entry.path):  # noqa: PTH113 - never raises
            copy_file(source / entry.name, target / entry.name)
