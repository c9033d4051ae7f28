"""A file that takes the result of a check: outside the store, written in full or not at all."""

import os
from pathlib import Path

from mqtool.errors import UsageError


def check_result_file(store: Path, file: Path) -> None:
    """Makes sure that a file to be written is not in the store, and no device that it would take the place of.

    Raises:
        UsageError: it is.
    """
    from mqtool.store.named_files import require_regular
    from mqtool.store.real_path import is_inside

    require_regular(file)
    if is_inside(file, store):
        raise UsageError(f"{file}: lies inside the store, which is only read; name a file elsewhere")


def write_result_file(file: Path, data: bytes) -> None:
    """Writes a new file next to it first, so that a reader sees the old one or the new one."""
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(data)
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
