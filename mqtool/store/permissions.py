"""What this user may not read, and what the broker may not use that root reads all the same.

Neither is damage: nothing is concluded from it.
"""

import contextlib
import errno
import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from mqtool.errors import PermissionDeniedError
from mqtool.formats import file_names

DENIED = (errno.EACCES, errno.EPERM)


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


class OwnerDenial(NamedTuple):
    """What the owner of a store, as whom its broker runs, may not read and write."""

    path: Path  # of the file or directory
    evidence: str  # in words
    words: tuple[str, ...]  # of the command that permits it


def denied_to_owner(root: Path, *more: Path) -> Iterator[OwnerDenial]:
    """Yields what the owner of a store may not use, by owner, group and mode; nothing unless this user is root.

    Root may use everything, so what it can read shows nothing about the broker.
    """
    with contextlib.suppress(OSError):
        if os.geteuid() == 0 and (owner := root.stat()).st_uid != 0:
            yield from _denied_to(owner, root, more)


def _denied_to(owner: os.stat_result, root: Path, more: Iterable[Path]) -> Iterator[OwnerDenial]:
    groups, name = {owner.st_gid}, _name_of(owner.st_uid)
    with contextlib.suppress(KeyError):
        groups = set(os.getgrouplist(name, pwd.getpwuid(owner.st_uid).pw_gid))
    for path in (root, *_paths(root, *more)):
        with contextlib.suppress(OSError, ValueError):
            status = path.stat()
            shift = 6 if status.st_uid == owner.st_uid else 3 if status.st_gid in groups else 0
            needed = os.R_OK | os.W_OK | (os.X_OK if stat.S_ISDIR(status.st_mode) else 0)
            if ~(status.st_mode >> shift) & needed:
                where = str(root if path.is_relative_to(root) else path.parent)
                is_own = status.st_uid == owner.st_uid
                how = ("chmod", "-R", "u+rwX") if is_own else ("chown", "-R", f"--reference={root}")
                sudo = ("sudo",) if "SUDO_USER" in os.environ else ()  # the next command is typed without it
                yield OwnerDenial(path, evidence_of(path, name), (*sudo, *how, where))


def denied(path: Path, what: str, more: str = "") -> PermissionDeniedError:
    """Returns the error of a path that this user may not read.

    Args:
        more: another way, as an instruction.
    """
    return PermissionDeniedError(f"{what}: {evidence_of(path)}; run `sudo mqtool …`{more}", path)


def denied_paths(*roots: Path) -> Iterator[Path]:
    """Yields the files and directories of a store that this user may not read.

    Args:
        roots: of the store, and directories of its log elsewhere.
    """
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
    """Checks that this user may read every file and directory of a store; arguments as for `denied_paths`.

    Raises:
        PermissionDeniedError: one of them may not be read.
    """
    for path in denied_paths(*roots):
        raise denied(path, "cannot be read")
