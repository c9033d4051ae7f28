"""A file on the command line that may be a pipe, or `-` for stdin."""

import sys
from pathlib import Path

from mqtool.errors import UsageError


def is_dash(path: Path) -> bool:
    """Whether a path is `-`: stdin or stdout."""
    return str(path) == "-"


def read_input(path: Path, most: int) -> bytes:
    """Returns the content of a file, a pipe, or stdin for `-`.

    Raises:
        UsageError: it is more than `most` bytes.
    """
    from mqtool.store.files import read_file

    if is_dash(path):
        data = sys.stdin.buffer.read(most + 1)
    elif path.is_fifo():
        with path.open("rb") as pipe:
            data = pipe.read(most + 1)
    else:
        return read_file(path, most)
    if len(data) > most:
        raise UsageError(f"{path}: expected at most {most} bytes")
    return data
