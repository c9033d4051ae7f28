"""Looks up a key hash in index files, newest file and newest entry first.

Source: IndexService.queryOffset, IndexFile.selectPhyOffset (4.9.7, 5.5.0). Docs page: docs/formats/index-file.md.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from mqtool.formats.index_file import IndexHeader

Entry = tuple[int, int, int, int]
"""Key hash, physical offset, time difference and previous entry, as in `formats.index_file.ENTRY`."""


class KeyFile(Protocol):
    """An index file that the engine writes, or one on disk."""

    @property
    def header(self) -> IndexHeader:
        """Header of the file."""

    def lookup(self, key_hash: int, begin: int, end: int, max_num: int) -> list[int]:
        """Returns physical offsets of entries with a hash and a time in [begin, end], newest first."""


def query_offsets(files: Sequence[KeyFile], key_hash: int, max_num: int, begin: int, end: int) -> list[int]:
    """Returns physical offsets of entries with a key hash, newest first, from files oldest first.

    Store timestamps are from `begin` to `end`, both inclusive, ms.
    """
    offsets: list[int] = []
    for file in reversed(files):
        if file.header.is_time_matched(begin, end):
            offsets.extend(file.lookup(key_hash, begin, end, max_num - len(offsets)))
        if file.header.begin_timestamp < begin or len(offsets) >= max_num:
            break
    return offsets


def offsets_in_chain(
    read: Callable[[int], Entry | None],
    newest: int,
    header: IndexHeader,
    highest: int,
    matches: tuple[int, int, int],
    max_num: int,
) -> list[int]:
    """Returns physical offsets of the entries in a slot's chain that match a key hash and a time range, newest first.

    Times of entries are rounded down to seconds. An older entry has a smaller number; none is above `highest`. The
    chain ends at a negative time and at an entry older than the range. The broker trusts that chains end; this function
    also ends at an entry that points forward, and where `read` returns None because the file ends before it. `matches`
    are key hash and store timestamps (ms), both inclusive.
    """
    (key_hash, begin, end), number = matches, newest
    file_begin = header.begin_timestamp
    offsets: list[int] = []
    while 0 < number <= highest and len(offsets) < max_num:
        entry = read(number)
        if entry is None:
            break
        stored_hash, physical_offset, time_diff, previous = entry
        time = file_begin + time_diff * 1000
        if time_diff < 0:
            break
        if stored_hash == key_hash and begin <= time <= end:
            offsets.append(physical_offset)
        if time < begin or previous >= number:
            break
        number = previous
    return offsets
