"""Copies files of a store, as they are or with some bytes changed, keeping holes."""

import os
from collections.abc import Sequence
from pathlib import Path

from mqtool.jobs.atomic import write_all, writing
from mqtool.store.files import ReadFile, list_directory

_BLOCK = 1 << 20


def copy_file(
    source: Path,
    target: Path,
    patches: Sequence[tuple[int, bytes]] = (),
    *,
    zeros_from: int | None = None,
    size: int | None = None,
) -> None:
    """Copies a file. Blocks of zeros become holes.

    Args:
        target: created, with its directories.
        patches: (position, bytes) to write into the copy; inside the file.
        zeros_from: position from which the copy contains zeros.
        size: size of the copy, if it is to be another; after it, the file must be zeros from `zeros_from` on.

    Raises:
        StoreError: a file cannot be read or written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with ReadFile(source) as file:
        end = file.size if zeros_from is None else min(zeros_from, file.size)
        end = min(end, file.data_end())
        with writing(target):
            fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            try:
                os.ftruncate(fd, size or file.size)
                for at in range(0, end, _BLOCK):
                    block = file.read(at, min(_BLOCK, end - at))
                    if block.strip(b"\0"):
                        write_all(fd, block, at)
                for position, data in patches:
                    write_all(fd, data, position)
            finally:
                os.close(fd)


def copy_tree(source: Path, target: Path) -> None:
    """Copies the regular files below a directory, without following links; raises StoreError if one is unreadable."""
    for entry in list_directory(source):
        if entry.is_dir(follow_symlinks=False):
            (target / entry.name).mkdir(parents=True, exist_ok=True)
            copy_tree(source / entry.name, target / entry.name)
        elif os.path.isfile(entry.path):  # noqa: PTH113 - never raises
            copy_file(source / entry.name, target / entry.name)
