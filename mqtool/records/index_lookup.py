"""Look-up of a key hash in index files: newest file first, newest entry first.

Source: IndexService.queryOffset, IndexFile.selectPhyOffset (4.9.7, 5.5.0). Docs page: docs/formats/index-file.md.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from mqtool.formats.index_file import IndexHeader

Entry = tuple[int, int, int, int]
"""Key hash, physical offset, time difference and previous entry, as in `formats.index_file.ENTRY`."""


class KeyFile(Protocol):
    """An index file: one that the engine writes, or one on disk."""

    @property
    def header(self) -> IndexHeader:
        """Its header."""

    def lookup(self, key_hash: int, begin: int, end: int, max_num: int) -> list[int]:
        """Returns physical offsets of entries with a hash and a time in [begin, end], newest first."""


def query_offsets(files: Sequence[KeyFile], key_hash: int, max_num: int, begin: int, end: int) -> list[int]:
    """Returns physical offsets of entries with a key hash, newest first.

    Args:
        files: oldest first.
        key_hash: of the key text.
        max_num: maximum number of offsets.
        begin, end: store timestamps, both inclusive, ms.
    """
    found: list[int] = []
    for file in reversed(files):
        if file.header.is_time_matched(begin, end):
            found.extend(file.lookup(key_hash, begin, end, max_num - len(found)))
        if file.header.begin_timestamp < begin or len(found) >= max_num:
            break
    return found


def chain(read: Callable[[int], Entry | None], newest: int, highest: int) -> Iterator[Entry]:
    """Yields the entries of a slot, newest first.

    An older entry has a smaller number. The broker trusts that chains end; here one that leads back ends too.

    Args:
        read: returns an entry by its number, None where the file ends before it.
        newest: as the slot states it.
        highest: largest number that an entry can have.
    """
    number = newest
    while 0 < number <= highest:
        entry = read(number)
        if entry is None:
            return
        yield entry
        if entry[3] >= number:
            return
        number = entry[3]


def select(entries: Iterable[Entry], begin_timestamp: int, key_hash: int, begin: int, end: int) -> Iterator[int]:
    """Yields physical offsets of those entries of a chain that have a key hash and a time in [begin, end].

    The time of an entry is known to the second, below its record's. The chain ends at a negative time and at an entry
    older than `begin`.

    Args:
        entries: newest first.
        begin_timestamp: of the file's header.
        key_hash: of the key text.
        begin, end: store timestamps, both inclusive, ms.
    """
    for stored_hash, physical_offset, time_diff, _ in entries:
        if time_diff < 0:
            return
        time = begin_timestamp + time_diff * 1000
        if stored_hash == key_hash and begin <= time <= end:
            yield physical_offset
        if time < begin:
            return
