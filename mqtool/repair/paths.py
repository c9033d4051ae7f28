"""The paths that a change may touch: regular files below the store's root, reached without links or tricks."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mqtool.errors import RefusedError
from mqtool.formats import file_names

HOME = file_names.ASIDE
JOURNAL = "journal"
STAGING = "staging"
QUARANTINE = "quarantine"
BUILDING = "building"
BARRIER = file_names.UNFINISHED
"""File among the segments while files change places: every broker refuses a store with such a file, unchanged."""

_DEEPEST = 8
_LONGEST = 1024


def check_name(name: object, where: Path) -> str:
    """Returns a `/`-separated path relative to the root if a change may touch it.

    Refuses one that is absolute, leads upwards, has empty parts, or names mqtool's own files or the broker's lock.
    """
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST or "\0" in name:
        raise RefusedError("path", f"expected a path below the store, found {str(name)[:60]!r}", where)
    parts = name.split("/")
    if len(parts) > _DEEPEST or any(not file_names.is_directory_name(part) for part in parts):
        raise RefusedError("path", f"expected a plain path below the store, found {name[:200]!r}", where)
    if parts[0] in (HOME, file_names.LOCK):
        raise RefusedError("path", f"{name!r} cannot be changed by a plan", where)
    return name


def inside(root: Path, name: str) -> Path:
    """Returns the path of an existing or possible file, after checking every directory on the way.

    Raises RefusedError as `check_name` does; also if a part of the way is a symbolic link or no directory, or it is not
    a regular file.
    """
    path = root
    parts = check_name(name, root).split("/")
    for part in parts[:-1]:
        path = path / part
        _require(path, stat.S_ISDIR, "directory")
    path = path / parts[-1]
    _require(path, stat.S_ISREG, "regular file", may_link=root in _TREES_OF_LINKS)
    return path


_TREES_OF_LINKS: set[Path] = set()


@contextmanager
def tree_of_links(root: Path) -> Iterator[None]:
    """Lets `inside` accept links to files below a directory while the context lasts.

    Such a directory looks like a store after a change, so that what follows that change can be planned too.
    """
    _TREES_OF_LINKS.add(root)
    try:
        yield
    finally:
        _TREES_OF_LINKS.discard(root)


def _require(path: Path, kind: Callable[[int], bool], name: str, *, may_link: bool = False) -> None:
    try:
        mode = (os.stat if may_link else os.lstat)(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise RefusedError("path", f"cannot be read: {error.strerror}", path) from error
    if stat.S_ISLNK(mode):
        raise RefusedError("path", "a symbolic link: changes do not follow links; use its target", path)
    if not kind(mode):
        raise RefusedError("path", f"expected a {name}", path)


def home_of(root: Path) -> Path:
    """Returns the directory of mqtool's own files in a store; raises RefusedError if something else has its name."""
    path = root / HOME
    for part in (path, path / BUILDING, path / STAGING, path / QUARANTINE):
        _require(part, stat.S_ISDIR, "directory")
    _require(path / JOURNAL, stat.S_ISREG, "regular file")
    return path


def earlier_change(home: Path) -> RefusedError:
    """Returns the error for a store with the undo data of another change."""
    return RefusedError(
        "quarantine", "the undo data of an earlier change still exists: run mqtool discard-undo or mqtool undo", home
    )


def parents_of(name: str) -> list[str]:
    """Returns the directories that contain a file, the root "" first."""
    parts = name.split("/")[:-1]
    return ["", *("/".join(parts[: count + 1]) for count in range(len(parts)))]
