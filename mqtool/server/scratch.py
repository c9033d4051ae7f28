"""Directories of stores that are deleted at the end: in memory, if there is a file system for it with enough room."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")  # noqa: S108 - the directory in it gets a name and permissions of its own
_ROOM = 1 << 30
"""Free bytes needed there: a container has 64 MiB by default, of which a store would soon fill the permitted part."""


def new_directory() -> Path:
    """Creates a directory that only this user can read; the caller deletes it, or the end of the process."""
    try:
        fits = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ROOM
    except OSError:
        fits = False
    directory = Path(tempfile.mkdtemp(prefix="mqtool-server-", dir=_MEMORY if fits else None))
    atexit.register(_delete, directory, os.getpid())
    return directory


def _delete(directory: Path, process: int) -> None:
    if os.getpid() == process:  # not that of a child, whose end it is
        shutil.rmtree(directory, ignore_errors=True)
