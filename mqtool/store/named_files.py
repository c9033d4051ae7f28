"""Paths as users name them: files next to a store for reading or writing, and paths with their links resolved.

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


def real_path(path: Path) -> Path:
    """Returns the absolute path without links; for a loop the part before it is resolved."""
    return Path(os.path.realpath(path))


def is_inside(path: Path, directory: Path) -> bool:
    """Whether a path is a directory or is below it, by whatever name; neither has to exist."""
    return real_path(path).is_relative_to(real_path(directory))


def named_below(directory: Path, path: Path) -> Path:
    """Returns a path inside of a directory in terms of that directory, however both are named; any other as it is."""
    lexical = Path(os.path.abspath(path)), Path(os.path.abspath(directory))  # noqa: PTH100 - without links resolved
    real = real_path(directory)
    for inner, outer in (lexical, (real_path(path.parent) / path.name, real), (real_path(path), real)):
        if inner.is_relative_to(outer):
            return directory / inner.relative_to(outer)
    return path


def kind_of(mode: int) -> str:
    """Returns the word for a kind of file."""
    return _KINDS.get(stat.S_IFMT(mode), "device")


def require_regular(path: Path, hint: str = "") -> None:
    """Checks that a path leads to a regular file or to nothing; what cannot be checked, opening will show.

    Raises:
        UsageError: it is something else.
    """
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - a name may hold a NUL
    except (OSError, ValueError):
        return
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path}: expected a regular file, found a {kind_of(mode)}{hint and f'; {hint}'}")
