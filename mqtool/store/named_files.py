"""Files next to a store that a user names for reading or writing: regular files, or new ones.

Opening a FIFO waits for its other end, a device has no end, and a rename over either removes it from the system.
"""

import os
import stat
from pathlib import Path

from mqtool.errors import UsageError

_KINDS = {
    stat.S_IFREG: "regular file",
    stat.S_IFDIR: "directory",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFLNK: "symbolic link",
}


def kind_of(mode: int) -> str:
    """Returns the word for a kind of file."""
    return _KINDS.get(stat.S_IFMT(mode), "device")


def require_regular(path: Path, hint: str = "") -> None:
    """Checks that a path leads to a regular file or to nothing; what cannot be checked, opening will show.

    Args:
        path: as the user named it.
        hint: what to do instead.

    Raises:
        UsageError: it is something else.
    """
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - a name may hold a NUL
    except (OSError, ValueError):
        return
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path}: expected a regular file, found a {kind_of(mode)}{hint and f'; {hint}'}")
