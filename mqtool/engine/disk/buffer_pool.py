"""BufferPool: the transient store pool. Records are written to a buffer first; commit writes them into the segment.

Bytes in a buffer that are not committed are lost when the process is killed, and cannot be read.
Source: TransientStorePool (4.9.7, 5.5.0).
"""

import mmap
import threading

from mqtool.engine.disk import memory
from mqtool.engine.disk.mapped_file import MappedFile


class BufferPool:
    """A fixed number of buffers, each as long as a CommitLog file; allocated when first needed, and reused."""

    def __init__(self, count: int, size: int) -> None:
        self._left = count
        self._size = size
        self._free: list[mmap.mmap] = []
        self._guard = threading.Lock()

    def lend(self, file: MappedFile) -> None:
        """Attaches a buffer to a new file; if none is free, the file is written through its mapping."""
        with self._guard:
            if self._free:
                file.pool_buffer = self._free.pop()
            elif self._left:
                self._left -= 1
                file.pool_buffer = memory.buffer(self._size)

    def reclaim(self, files: tuple[MappedFile, ...]) -> None:
        """Returns buffers of full and completely committed segments to the pool."""
        for file in files:
            buffer = file.pool_buffer
            if buffer is not None and file.committed == file.size:
                file.pool_buffer = None
                with self._guard:
                    self._free.append(buffer)

    @property
    def free(self) -> int:
        """Number of buffers that are available."""
        return self._left + len(self._free)
