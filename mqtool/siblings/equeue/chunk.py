"""One chunk file of EQueue opened for reading: header, footer, frames of messages or entries of a queue."""

from pathlib import Path

import numpy as np

from mqtool.formats import equeue
from mqtool.formats.equeue import ENTRY_SIZE, FOOTER_SIZE, HEADER_SIZE, LENGTH
from mqtool.siblings.frames import Frame, FrameFile, NoFrame

__all__ = ["ChunkFile", "Frame", "NoFrame"]


class ChunkFile(FrameFile):
    """A chunk's file.

    Attributes:
        header: its first 128 bytes.
        footer: its last 128 bytes, None if it is too short to have a header and a footer.
        footer_data_size: the data size that those state.
    """

    states_at = LENGTH.size

    def __init__(self, path: Path) -> None:
        """Opens the file and reads both ends.

        Raises:
            TruncatedError: it is shorter than a header.
            StoreError: it cannot be read.
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

    @property
    def is_finished(self) -> bool:
        """Whether the footer says exactly how long the file is: it has been completed."""
        size = self.footer_data_size
        return size is not None and size >= 0 and HEADER_SIZE + size + FOOTER_SIZE == self.size

    @property
    def room(self) -> int:
        """Data position before which all records of the file have to end."""
        if self.is_finished:
            return self.footer_data_size or 0
        return min(self.header.capacity, max(0, self.size - HEADER_SIZE))

    def entries(self, count: int) -> "np.ndarray[tuple[int], np.dtype[np.void]]":
        """Returns the first entries of a queue chunk, fewer where the file ends."""
        data = self._file.read(HEADER_SIZE, count * ENTRY_SIZE)
        return np.frombuffer(data, equeue.QUEUE_ENTRY.dtype, len(data) // ENTRY_SIZE)
