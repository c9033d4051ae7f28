"""Files on the command line: they may be a pipe, `-` for stdin, or no file at all."""

import os
import sys
from pathlib import Path

from mqtool.errors import UsageError


def is_dash(path: Path) -> bool:
    """Whether a path is `-`: stdin or stdout."""
    return str(path) == "-"


def is_there(word: str) -> bool:
    """Whether a word of the command line, which may be a whole statement or line of a log, names an existing file."""
    return os.path.exists(word)  # noqa: PTH110 - Path.exists raises for more bytes than a name has


def read_input(path: Path, limit: int) -> bytes:
    """Returns the content of a file, a pipe, or stdin for `-`.

    Raises:
        UsageError: it is more than `limit` bytes.
    """
    from mqtool.store.files import read_file

    if is_dash(path):
        data = sys.stdin.buffer.read(limit + 1)
    elif path.is_fifo():
        with path.open("rb") as pipe:
            data = pipe.read(limit + 1)
    else:
        return read_file(path, limit)
    if len(data) > limit:
        raise UsageError(f"{path}: expected at most {limit} bytes")
    return data
