"""Reads one chunk file of EQueue: header, footer, frames of messages or entries of a queue."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mqtool.formats import equeue
from mqtool.formats.equeue import ENTRY_SIZE, FOOTER_SIZE, HEADER_SIZE, LENGTH, ChunkHeader
from mqtool.records.damage import Damage
from mqtool.siblings.frames import Frame, FrameFile, InvalidFrame
from mqtool.store.log.readable_parts import UnreadableParts

__all__ = ["ChunkFile", "Frame", "InvalidFrame"]


class ChunkFile(FrameFile):
    """A chunk file, open for reading.

    Attributes:
        header: the first 128 bytes.
        footer: the last 128 bytes; None if the file is too short for a header and a footer.
        footer_data_size: the data size that the footer states.
    """

    position_field = LENGTH.size

    def __init__(self, path: Path, unreadable: UnreadableParts | None = None) -> None:
        """Opens the file and reads header and footer.

        Args:
            path: path of the file.
            unreadable: where to note unreadable parts between header and footer; None to raise an error for them.

        Raises:
            TruncatedError: the file is shorter than a header.
            StoreError: the file cannot be read.
        """
        super().__init__(path)
        try:
            self.header = equeue.HEADER.parse(self._file.read(0, HEADER_SIZE))
        except Exception:
            self.close()
            raise
        self.start = self.header.start
        self.footer_data_size = None
        self.footer = None
        if self.size >= HEADER_SIZE + FOOTER_SIZE:
            self.footer = equeue.FOOTER.parse(self._file.read(self.size - FOOTER_SIZE, FOOTER_SIZE))
            self.footer_data_size = self.footer.data_size
        if unreadable is not None:
            self.tolerate(unreadable)

    def assume(self, header: ChunkHeader) -> None:
        """Reads the chunk as if it had another header, because its own one is damaged."""
        self.header = header
        self.start = header.start

    @property
    def is_finished(self) -> bool:
        """Whether the chunk is completed: its footer states exactly the length that the file has."""
        size = self.footer_data_size
        return size is not None and size >= 0 and HEADER_SIZE + size + FOOTER_SIZE == self.size

    @property
    def room(self) -> int:
        """Data position at which the last record must end at the latest."""
        if self.is_finished:
            return self.footer_data_size or 0
        return min(self.header.capacity, max(0, self.size - HEADER_SIZE))

    def entries(self, count: int) -> "np.ndarray[tuple[int], np.dtype[np.void]]":
        """Returns the first `count` entries of a queue chunk, or fewer if the file ends earlier."""
        data = self._file.read(HEADER_SIZE, count * ENTRY_SIZE)
        return equeue.QUEUE_ENTRY.rows(data)

    def entry_parts(
        self, *, is_last: bool
    ) -> "Iterator[tuple[int, np.ndarray[tuple[int], np.dtype[np.void]]] | Damage]":
        """Yields (queue offset of the first entry, array of entries) of a queue chunk, with unreadable parts between.

        The positions of a damage are those of entries: a queue offset times 12 bytes.

        Args:
            is_last: stop where the broker finds the end of the queue, at the first entry without a position. After an
                unreadable part without such an entry before it, the queue may have ended in that part.
        """
        entries = self.entries(min(self.header.capacity, self.room) // ENTRY_SIZE)
        first = self.header.chunk_number * (self.header.capacity // ENTRY_SIZE)
        at = 0
        for start, after in [*self._unread_entries(len(entries)), (len(entries), len(entries))]:
            part = entries[at:start]
            if is_last and len(invalid := np.flatnonzero(part["position_plus_one"] <= 0)):
                yield first + at, part[: invalid[0]]
                return
            yield first + at, part
            if start < after and (unread := self.unread(start * ENTRY_SIZE, after * ENTRY_SIZE)):
                low, high = (first + start) * ENTRY_SIZE, (first + after) * ENTRY_SIZE
                yield Damage(low, high, unread.kind, unread.detail, self.path, HEADER_SIZE + start * ENTRY_SIZE)
            at = after

    def _unread_entries(self, count: int) -> list[tuple[int, int]]:
        """Returns the ranges of the first `count` entries of which a byte could not be read; ascending, half-open."""
        ranges = [] if self._unreadable is None else self._unreadable.ranges(self.path, -HEADER_SIZE)
        unread: list[tuple[int, int]] = []
        for start, end in sorted(ranges):
            first, after = max(0, start) // ENTRY_SIZE, min(count, -(-end // ENTRY_SIZE))
            if unread and first <= unread[-1][1]:
                unread[-1] = unread[-1][0], max(after, unread[-1][1])
            elif first < after:
                unread.append((first, after))
        return unread
