"""Damage: a byte range of the CommitLog without a valid record, as a value."""

import enum
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace


class DamageKind(enum.StrEnum):
    """What is wrong with a range. The names are stable: they appear in output and findings."""

    BAD_CRC = "bad-crc"
    """Framing is intact, the body is not what was written."""
    BAD_OFFSET = "bad-physical-offset"
    """Framing is intact, but the record states another physical offset than its own."""
    BAD_LENGTHS = "bad-lengths"
    """The inner lengths do not add up to total_size."""
    BAD_HEADER = "bad-header"
    """No magic code, or a total_size that cannot be."""
    ZEROS = "zeros"
    """Only zero bytes where records should be."""
    BAD_BLANK = "bad-blank"
    """A BLANK whose size does not run to the end of its segment."""
    MISSING = "missing"
    """The file ended before its records did, or no file covers the range."""
    UNREADABLE = "unreadable"
    """The system does not let these bytes be read: what they hold is unknown."""


class Damage(Struct, frozen=True):
    """A range without a valid record."""

    start: int  # physical offset of its first byte
    end: int  # physical offset after its last byte
    kind: str  # what is wrong: a `DamageKind`, or the name that the store of another system has for it
    detail: str  # expected and found
    path: Path | None = None  # the file
    position: int = 0  # of `start` in that file

    @property
    def file_name(self) -> str:
        """Name of the file; empty if the bytes come from no file."""
        return self.path.name if self.path is not None else ""

    def overlaps(self, start: int | None, end: int | None) -> bool:
        """Whether a part of the damage is in a range of physical offsets; None for no bound."""
        return (start is None or self.end > start) and (end is None or self.start < end)

    def at(self, path: Path, base: int) -> "Damage":
        """Returns the same damage with its file."""
        return replace(self, path=path, position=self.start - base)

    def as_dict(self) -> dict[str, str | int | None]:
        """Returns it as values of JSON."""
        return {
            "start": self.start,
            "end": self.end,
            "kind": str(self.kind),
            "detail": self.detail,
            "path": None if self.path is None else str(self.path),
            "position": self.position,
        }

    def __str__(self) -> str:
        where = f"{self.path} position {self.position}: " if self.path else ""
        return f"{where}{self.kind} at physical offset {self.start}, {self.end - self.start} bytes: {self.detail}"


class Tail(Struct, frozen=True):
    """What follows the last record of the log."""

    end: int  # physical offset after the last record
    # `clean` (zeros or the end of the file), `torn` (an unfinished record), `stale` (complete records from before the
    # file was reused), `garbage` (other bytes), `unreadable` (the last file cannot be read: `end` is its end).
    kind: str
    length: int  # bytes from `end` to the last nonzero byte
    detail: str  # in words
