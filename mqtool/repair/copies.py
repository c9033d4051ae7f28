"""Copies files with some bytes changed, keeping holes."""

import os
from collections.abc import Sequence
from pathlib import Path

from mqtool.jobs.atomic import create_file, writing
from mqtool.store.files import ReadFile

_BLOCK = 1 << 20


def copy_patched(
    source: Path,
    target: Path,
    patches: Sequence[tuple[int, bytes]] = (),
    *,
    zeros_from: int | None = None,
    size: int | None = None,
) -> None:
    """Copies a file. Blocks of zeros become holes.

    Args:
        source: not changed.
        target: created, with its directories.
        patches: (position, bytes) to write into the copy; inside the file.
        zeros_from: position from which the copy contains zeros.
        size: size of the copy, if it is to be longer.

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
                        _write(fd, at, block)
                for position, data in patches:
                    _write(fd, position, data)
            finally:
                os.close(fd)


def _write(fd: int, position: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(fd, view, position)
        view, position = view[done:], position + done


def write_new(target: Path, data: bytes) -> None:
    """Writes a small new file.

    Raises:
        StoreError: it cannot be written.
    """
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        create_file(target, data)
