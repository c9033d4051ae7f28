"""Directories of stores that are deleted at the end: in memory, if there is a file system for it with enough room."""

import os
import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")  # noqa: S108 - the directory in it gets a name and permissions of its own
_ROOM = 1 << 30
"""Free bytes needed there: a container has 64 MiB by default, of which a store would soon fill the permitted part."""


def new_directory() -> Path:
    """Creates a directory that only this user can read; the caller deletes it."""
    try:
        fits = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ROOM
    except OSError:
        fits = False
    return Path(tempfile.mkdtemp(prefix="mqtool-server-", dir=_MEMORY if fits else None))
