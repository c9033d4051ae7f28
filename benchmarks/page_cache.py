"""Brings files into the page cache, so that every side of a comparison finds them there.

Some systems, such as small virtual machines, page out what was not read for a minute, also if memory is free.
"""

from pathlib import Path

_PIECE = 1 << 20


def warm(directory: Path) -> None:
    """Reads all files below a directory."""
    piece = bytearray(_PIECE)
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.readinto(piece):
                    pass
