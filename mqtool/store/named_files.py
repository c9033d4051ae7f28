"""Files that a user names to be read or written beside a store: regular ones, or none yet.

Whoever opens a FIFO waits for its other end, a device has no end, and a rename over one takes it out of the system.
"""

import os
import stat
from pathlib import Path

from mqtool.errors import UsageError

_KINDS = {
    stat.S_IFDIR: "directory",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFLNK: "symbolic link",
}


def kind_of(mode: int) -> str:
    """Returns the word for what is not a regular file."""
    return _KINDS.get(stat.S_IFMT(mode), "device")


def require_regular(path: Path, hint: str = "") -> None:
    """Makes sure that a path leads to a regular file, or to nothing; what cannot be looked at is left to its opening.

    Args:
        path: as the user named it.
        hint: what to do instead.

    Raises:
        UsageError: something else is there.
    """
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - a name may hold a NUL
    except (OSError, ValueError):
        return
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path}: expected a regular file, found a {kind_of(mode)}{hint and f'; {hint}'}")
