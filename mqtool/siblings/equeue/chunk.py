"""Reads one chunk file of EQueue: header, footer, frames of messages or entries of a queue."""

from pathlib import Path

import numpy as np

from mqtool.formats import equeue
from mqtool.formats.equeue import ENTRY_SIZE, FOOTER_SIZE, HEADER_SIZE, LENGTH, ChunkHeader
from mqtool.siblings.frames import Frame, FrameFile, InvalidFrame
from mqtool.store.readable_parts import UnreadableParts

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
