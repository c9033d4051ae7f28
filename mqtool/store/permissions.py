"""What this user may not read. It is no damage: another user can read it, so nothing is concluded from it."""

import contextlib
import errno
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from mqtool.errors import PermissionDeniedError
from mqtool.formats import file_names

DENIED = (errno.EACCES, errno.EPERM)
_NOT_NEEDED = (file_names.LOCK, file_names.ASIDE)


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


def evidence_of(path: Path) -> str:
    """Returns, in words, that this user may not read a path, and whose it is."""
    owner, mode, _ = _owner_of(path)
    return f"Permission denied, owner {owner}, mode {stat.S_IMODE(mode):03o}"


def reader_of(path: Path) -> str | None:
    """Returns the user who owns a path and may read it; None if only root may, or the owner is this user."""
    owner, mode, number = _owner_of(path)
    return owner if mode & stat.S_IRUSR and number != os.geteuid() else None


def _owner_of(path: Path) -> tuple[str, int, int]:
    """Returns name of the owner, mode and number of the owner of a path, or of the first directory on the way seen."""
    for place in (path, *path.parents):
        with contextlib.suppress(OSError, ValueError):
            status = place.stat()
            with contextlib.suppress(KeyError):
                return pwd.getpwuid(status.st_uid).pw_name, status.st_mode, status.st_uid
            return f"#{status.st_uid}", status.st_mode, status.st_uid
    return "root", 0, 0


def denied(path: Path, what: str, more: str = "") -> PermissionDeniedError:
    """Returns the error of a path that this user may not read.

    Args:
        path: the file or directory.
        what: what cannot be done with it.
        more: another way, as an instruction.
    """
    owner = reader_of(path)
    user = f"-u {owner} " if owner else ""
    return PermissionDeniedError(f"{what}: {evidence_of(path)}; run `sudo {user}mqtool …`{more}", path)


def denied_paths(*roots: Path) -> Iterator[Path]:
    """Yields the files and directories of a store that this user may not read.

    Args:
        roots: of the store, and directories of its log elsewhere.
    """
    for root in roots:
        for directory, names, files in os.walk(root):
            if Path(directory) == root:
                names[:] = [name for name in names if name not in _NOT_NEEDED]
            paths = (Path(directory, name) for name in (*names, *files) if name not in _NOT_NEEDED)
            yield from filter(is_denied, paths)


def require_permission(*roots: Path) -> None:
    """Checks that this user may read every file and directory of a store; arguments as for `denied_paths`.

    Raises:
        PermissionDeniedError: one of them may not be read.
    """
    for path in denied_paths(*roots):
        raise denied(path, "cannot be read")
