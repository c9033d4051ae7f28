"""What a broker makes of a file among segments or queue files whose name is none of theirs.

Source: MappedFileQueue.doLoad (4.9.7, 5.5.0).
"""

from pathlib import Path

from mqtool.formats.release import Release
from mqtool.store.files import LARGEST
from mqtool.verify.findings import Severity


def stray_file(path: Path, offset: str, release: Release, *, is_last: bool) -> tuple[int | None, str, Severity | None]:
    """Returns its length, what it is in words, and its severity where that is not the finding's own.

    Since 5.5, a broker passes over directories, and deletes an empty file after all others.

    Args:
        path: of it.
        offset: what its name should be.
        release: whose broker would load it.
        is_last: all other names of the directory come before its own.

    Returns:
        The length is None for a directory.
    """
    if path.is_dir():
        return None, "a directory", None if release < (5, 5) else Severity.NOTE
    length = path.stat().st_size if path.is_file() else 0
    words = f"{length} bytes under a name that is no {offset} of 20 digits"
    if length > LARGEST:
        words = f"{length} bytes, more than a broker can map ({LARGEST})"
    return length, words, Severity.WARNING if length == 0 and is_last and release >= (5, 5) else None
