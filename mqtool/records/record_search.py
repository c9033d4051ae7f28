"""Searches for records by their magic codes where no chain of records leads.

Results are not proved to belong to the log; `records.resync` adds that proof. This serves searches for records that
may be in another place than they state, such as a file under a wrong name.
"""

from collections.abc import Iterator
from heapq import merge
from typing import Protocol

from mqtool.errors import FormatError
from mqtool.formats import commit_log
from mqtool.formats.commit_log import Record

_BLOCK = 1 << 20
_MAGIC_AT = commit_log.FRAME.size - 4
RECORD_CODES = tuple(code.to_bytes(4, "big", signed=True) for code in commit_log.RECORD_MAGICS)
"""The magic codes of records as stored."""
BLANK_CODE = commit_log.MAGIC_BLANK.to_bytes(4, "big", signed=True)


class Source(Protocol):
    """An open file."""

    size: int

    def read(self, position: int, count: int) -> bytes:
        """Returns the bytes from a position; fewer at the end of the file."""

    def next_data(self, position: int) -> int:
        """Returns the first position at or after `position` that may hold a nonzero byte; the size if there is none."""


def frame_starts(data: bytes, codes: tuple[bytes, ...] = RECORD_CODES, magic_at: int = _MAGIC_AT) -> Iterator[int]:
    """Yields, ascending, the positions at which a frame would begin according to its magic code only.

    Args:
        data: bytes to search.
        codes: magic codes. One `bytes.find` for each is faster than a regular expression for all.
        magic_at: distance of the code from the start of the frame.
    """
    return merge(*(_places(data, code, magic_at) for code in codes))


def _places(data: bytes, code: bytes, magic_at: int) -> Iterator[int]:
    at = data.find(code, magic_at)
    while at >= 0:
        yield at - magic_at
        at = data.find(code, at + 1)


def holds_record(data: bytes) -> bool:
    """Whether the bytes contain a complete record; its CRC is not checked."""
    for at in frame_starts(data):
        try:
            commit_log.parse_record(data, at)
        except FormatError:
            continue
        return True
    return False


def records_anywhere(file: Source) -> Iterator[tuple[int, Record]]:
    """Yields position and value of each record with consistent lengths and a matching body CRC, at any offset.

    The bodies of such records are not searched.
    """
    at = 0
    while (magic := next_magic(file, at)) is not None:
        position = magic - _MAGIC_AT
        record = _record(file, position) if position >= 0 else None
        if record is None:
            at = magic + 1
            continue
        yield position, record
        at = position + record.total_size


def next_magic(file: Source, at: int) -> int | None:
    """Returns the first position at or after `at` with a record's magic code; holes are not read."""
    while (at := file.next_data(at)) < file.size:
        start = next(frame_starts(file.read(at, _BLOCK + 3), magic_at=0), None)
        if start is not None:
            return at + start
        at += _BLOCK
    return None


def _record(file: Source, position: int) -> Record | None:
    size = commit_log.frame_size(file.read(position, commit_log.FRAME.size), 0, file.size - position)
    try:
        record = commit_log.parse_record(file.read(position, size)) if size else None
    except FormatError:
        return None
    return record if record is not None and record.body_crc in (0, commit_log.body_crc(record.body)) else None
