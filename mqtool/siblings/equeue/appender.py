"""Writes the chunk files of one folder: appends records, starts new chunks, completes full ones.

Writes the same bytes as ECommon 2.6.5 (Chunk.InitNew, Chunk.TryAppend, Chunk.Complete, ChunkWriter.Write).
"""

import os
import uuid
from collections.abc import Callable
from pathlib import Path

from mqtool.errors import MessageRejectedError, StoreError
from mqtool.formats import equeue
from mqtool.formats.equeue import FOOTER_SIZE, HEADER_SIZE, ChunkFooter, ChunkHeader
from mqtool.jobs.atomic import make_directory, sync_directory, write_all
from mqtool.siblings.equeue.start import LoadedChunk


class ChunkAppender:
    """Appends records to the last chunk of a folder.

    A record is in the page cache when `append` returns. It is on disk after `flush(sync=True)`, and once its chunk is
    completed.
    """

    def __init__(self, directory: Path, prefix: str, capacity: int) -> None:
        """Creates an appender; opens no file.

        Args:
            directory: the folder; created if it does not exist.
            prefix: name prefix of its chunk files.
            capacity: data bytes of each new chunk.
        """
        self._directory = directory
        self._prefix = prefix
        self._capacity = capacity
        self._descriptor: int | None = None
        self._header = ChunkHeader(-1, capacity)
        self._next_number = 0
        self._data_end = 0

    @property
    def position(self) -> int:
        """Global position of the next record, if it fits into the current chunk."""
        return self._header.start + self._data_end

    def resume(self, chunk: LoadedChunk) -> None:
        """Continues at the data end that the start model found; bytes after it are not changed.

        Args:
            chunk: the chunk that is written to.
        """
        self._next_number = chunk.number + 1
        if chunk.file is None:
            self.begin(chunk.number)
        elif not chunk.completed:
            self._descriptor = os.open(chunk.file.path, os.O_RDWR | os.O_CLOEXEC)
            self._header = ChunkHeader(chunk.number, chunk.capacity)
            self._data_end = chunk.data_end

    def begin(self, number: int) -> None:
        """Creates a chunk of full length under a temporary name, and renames it once its header is on disk.

        Raises:
            StoreError: a file of this name exists. The broker would delete it.
        """
        path = self._directory / equeue.chunk_name(self._prefix, number)
        if path.exists():
            raise StoreError("exists already, though it is the next chunk to create; salvage the store", path)
        self._header = ChunkHeader(number, self._capacity)
        self._data_end = 0
        self._next_number = number + 1
        make_directory(self._directory)
        temporary = path.with_name(f"{path.name}.{uuid.uuid4()}{equeue.TEMPORARY_SUFFIX}")
        self._descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        os.truncate(self._descriptor, HEADER_SIZE + self._capacity + FOOTER_SIZE)
        write_all(self._descriptor, equeue.HEADER.build(self._header), 0)
        os.fsync(self._descriptor)
        temporary.rename(path)
        sync_directory(self._directory)

    def append(self, build: Callable[[int], bytes]) -> int:
        """Writes one record; starts the next chunk if the current one has no room for it.

        Args:
            build: returns the record's bytes for a global position; called again if the record moves to the next chunk.

        Returns:
            The global position of the record.

        Raises:
            MessageRejectedError: the record does not fit into an empty chunk.
            StoreError: the file of the next chunk exists; see `begin`.
        """
        if self._descriptor is None:
            self.begin(self._next_number)
        data = build(self.position)
        if not self._fits(data):
            if len(data) > self._capacity:
                raise MessageRejectedError(f"{len(data)} bytes do not fit into a chunk of {self._capacity}")
            self._complete()
            self.begin(self._next_number)
            data = build(self.position)
        assert self._descriptor is not None
        position = self.position
        write_all(self._descriptor, data, HEADER_SIZE + self._data_end)
        self._data_end += len(data)
        return position

    def flush(self, *, sync: bool = False) -> None:
        """Flushes written bytes to disk if `sync` is true; otherwise does nothing."""
        if sync and self._descriptor is not None:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Closes the last chunk without writing a footer, as on a shutdown of the broker."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _fits(self, data: bytes) -> bool:
        return self._data_end + len(data) <= self._header.capacity

    def _complete(self) -> None:
        """Writes the footer after the data, truncates the file there, and makes it durable: `flush` cannot later.

        A power cut that took the end of a completed chunk would keep the broker from starting
        (Chunk.CheckCompletedFileChunk).
        """
        assert self._descriptor is not None
        end = HEADER_SIZE + self._data_end
        write_all(self._descriptor, equeue.FOOTER.build(ChunkFooter(self._data_end)), end)
        os.truncate(self._descriptor, end + FOOTER_SIZE)
        os.fsync(self._descriptor)
        self.close()
