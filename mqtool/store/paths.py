"""Paths as users name them: kinds of files, links resolved, and what this user or the store's owner may not use.

Opening a FIFO waits for its other end, a device has no end, and a rename over either removes it from the system. A
missing permission is not damage: nothing is concluded from it.
"""

import contextlib
import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from mqtool.errors import PermissionDeniedError, UsageError
from mqtool.formats import file_names

_KINDS = {
    stat.S_IFREG: "regular file",
    stat.S_IFDIR: "directory",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFLNK: "symbolic link",
}

DENIED = (errno.EACCES, errno.EPERM)


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
    """Checks that a path leads to a regular file or to nothing, else raises UsageError; opening shows the rest."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - a name may hold a NUL
    except (OSError, ValueError):
        return
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path}: expected a regular file, found a {kind_of(mode)}{hint and f'; {hint}'}")


def is_denied(path: Path) -> bool:
    """Whether a file or directory exists and this user may not read it."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - a name may hold a NUL
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    rights = os.R_OK | (os.X_OK if stat.S_ISDIR(mode) else 0)
    return not os.access(path, rights, effective_ids=os.access in os.supports_effective_ids)


def evidence_of(path: Path, user: str = "") -> str:
    """Returns, in words, that this user or another one may not use a path, and whose it is."""
    owner, mode = "root", 0
    for place in (path, *path.parents):  # of the first one on the way that can be seen
        with contextlib.suppress(OSError, ValueError):
            status = place.stat()
            owner, mode = _name_of(status.st_uid), stat.S_IMODE(status.st_mode)
            break
    return f"Permission denied{user and f' to {user}'}, owner {owner}, mode {mode:03o}"


def _name_of(number: int) -> str:
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(number).pw_name
    return f"#{number}"


def owner_of(path: Path) -> str:
    """Returns owner and group of a file or directory, as `chown` takes them."""
    status = path.stat()
    group = str(status.st_gid)
    with contextlib.suppress(KeyError):
        group = grp.getgrgid(status.st_gid).gr_name
    return f"{_name_of(status.st_uid).removeprefix('#')}:{group}"


class OwnerDenial(NamedTuple):
    """What the owner of a store, as whom its broker runs, may not read and write."""

    path: Path  # of the file or directory
    evidence: str  # in words
    words: tuple[str, ...]  # of the command that permits it


def denied_to_owner(root: Path, *more: Path, own: bool = False) -> Iterator[OwnerDenial]:
    """Yields what the owner of a store may not use, by owner, group and mode; nothing unless this user is that or root.

    Root may use everything, so what it can read shows nothing about the broker. The owner may have made a copy that is
    only to be read: files of its own count only with `own`. Paths are as for `denied_paths`.
    """
    with contextlib.suppress(OSError):
        owner, user = root.stat(), os.geteuid()
        if owner.st_uid != 0 and user in (0, owner.st_uid):
            yield from _denied_to(owner, root, more, own=own or user == 0)


def owned_by_root(root: Path) -> list[str]:
    """Returns a line if a store that `sudo` reads belongs to root, so that no other user's rights are compared."""
    is_root = root.is_dir() and root.stat().st_uid == 0 and os.environ.get("SUDO_USER", "root") != "root"
    words = f"the store belongs to root: if the broker runs as another user, first run chown -R USER {root}"
    return [words] if is_root else []


def _denied_to(owner: os.stat_result, root: Path, more: Iterable[Path], *, own: bool) -> Iterator[OwnerDenial]:
    groups, name = {owner.st_gid}, _name_of(owner.st_uid)
    with contextlib.suppress(KeyError):
        groups = set(os.getgrouplist(name, pwd.getpwuid(owner.st_uid).pw_gid))
    for path in (root, *_paths(root, *more)):
        with contextlib.suppress(OSError, ValueError):
            status = path.stat()
            is_own = status.st_uid == owner.st_uid
            shift = 6 if is_own else 3 if status.st_gid in groups else 0
            needed = os.R_OK | os.W_OK | (os.X_OK if stat.S_ISDIR(status.st_mode) else 0)
            if ~(status.st_mode >> shift) & needed and (own or not is_own):
                where = str(root if path.is_relative_to(root) else path.parent)
                how = ("chmod", "-R", "u+rwX") if is_own else ("chown", "-R", f"--reference={root}")
                # the next command is typed without it
                sudo = ("sudo",) if "SUDO_USER" in os.environ or (os.geteuid() and not is_own) else ()
                yield OwnerDenial(path, evidence_of(path, name), (*sudo, *how, where))


def denied(path: Path, what: str, more: str = "") -> PermissionDeniedError:
    """Returns the error of a path that this user may not read; `more` is another way, as an instruction."""
    return PermissionDeniedError(f"{what}: {evidence_of(path)}; run `sudo mqtool …`{more}", path)


def denied_paths(*roots: Path) -> Iterator[Path]:
    """Yields the files and directories of a store, and of its log elsewhere, that this user may not read."""
    yield from (path for path in _paths(*roots) if path.name != file_names.LOCK and is_denied(path))


def _paths(*roots: Path) -> Iterator[Path]:
    """Yields every file and directory below some directories, without those of mqtool."""
    elsewhere = (root for root in roots[1:] if not root.is_relative_to(roots[0]))
    for root in (roots[0], *elsewhere):
        for directory, names, files in os.walk(root):
            if Path(directory) == root:
                names[:] = [name for name in names if name != file_names.ASIDE]
            yield from (Path(directory, name) for name in (*names, *files))


def require_permission(*roots: Path) -> None:
    """Raises PermissionDeniedError if this user may not read everything of a store; arguments as `denied_paths`."""
    for path in denied_paths(*roots):
        raise denied(path, "cannot be read")
