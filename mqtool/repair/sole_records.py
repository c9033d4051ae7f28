"""Finds records that only one file holds, and that would be lost with it."""

from pathlib import Path

from msgspec import Struct

from mqtool.formats import file_names
from mqtool.records.record_search import records_anywhere
from mqtool.store.files import ReadFile
from mqtool.store.log.commit_log import Segment
from mqtool.store.store import Store


class SoleRecords(Struct, frozen=True):
    """Records of a file that are not in the store's CommitLog."""

    count: int  # how many
    first: int  # and last: smallest and largest physical offset that they state
    last: int

    def __str__(self) -> str:
        """Returns the records in words."""
        return f"{self.count} record(s) found nowhere else (physical offsets {self.first} to {self.last})"


def sole_records(store: Store, path: Path) -> SoleRecords | None:
    """Returns the records of a file that the CommitLog does not hold in other files; None if there are none.

    Args:
        store: opened; records that it reads from this file do not count.
        path: any file, in the store or not.

    Raises:
        StoreError: a file cannot be read.
    """
    count, first, last = 0, 0, 0
    own = _segment_of(store, path)
    with ReadFile(path) as file:
        for position, record in records_anywhere(file):
            at = record.physical_offset
            inside = own is not None and own.base <= at < own.end
            if not inside and store.commit_log.read(at, record.total_size) == file.read(position, record.total_size):
                continue
            first, last = (at, at) if not count else (min(first, at), max(last, at))
            count += 1
    return SoleRecords(count, first, last) if count else None


def _segment_of(store: Store, path: Path) -> Segment | None:
    """Returns the segment for a file, found by name because a store may have very many."""
    base = file_names.parse_mapped_file_name(path.name)
    index = store.commit_log.segment_at(base) if base is not None else None
    segment = store.commit_log.segments[index] if index is not None else None
    return segment if segment is not None and segment.path == path else None
