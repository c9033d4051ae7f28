"""How a broker treats a file in a directory of segments or queue files whose name is not that of one.

Source: MappedFileQueue.doLoad (4.9.7, 5.5.0).
"""

from pathlib import Path

from mqtool.formats import file_names
from mqtool.formats.release import Release
from mqtool.store.files import LARGEST, obstruction
from mqtool.verify.findings import Severity


def stray_file(path: Path, offset: str, release: Release, *, is_last: bool) -> tuple[int | None, str, Severity | None]:
    """Returns its length, a description, and its severity if that differs from the finding's default.

    Since 5.5 a broker skips directories, and deletes an empty file that sorts after all others.

    Args:
        path: of the file.
        offset: the name that it should have.
        release: of the broker that would load it.
        is_last: whether its name sorts after all others in the directory.

    Returns:
        The length is None for a directory.
    """
    if path.is_dir():
        return None, "a directory", None if release < (5, 5) else Severity.NOTE
    length = path.stat().st_size if path.is_file() else 0
    evidence = f"{length} bytes under a name that is no {offset} of 20 digits"
    if obstacle := obstruction(path):
        evidence = (
            f"expected a regular file, found {obstacle}: what it should contain cannot be read; mount or restore it"
        )
    if path.name == file_names.UNFINISHED:
        evidence = (
            "an interrupted change left it: run the same mqtool apply again, or mqtool undo; move it out of the store "
            "only if there is no .mqtool/journal"
        )
    if length > LARGEST:
        evidence = f"{length} bytes, more than a broker can map ({LARGEST})"
    return length, evidence, Severity.WARNING if length == 0 and is_last and release >= (5, 5) else None
