"""Files with some bytes replaced in memory: what a broker would write, as if it were written."""

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from mqtool.formats import index_file, java
from mqtool.formats.consume_queue import BATCH_CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT, PRE_BLANK
from mqtool.formats.index_file import HEADER, HEADER_SIZE
from mqtool.records.index_build import IndexFileBuilder
from mqtool.store.files import MappedFile, MappedFileList, ReadFile
from mqtool.store.index.index_file import IndexFile
from mqtool.store.queues.consume_queue import Queue, UnitCache

Patch = tuple[int, bytes]
"""Position in a file, and what stands there."""


class OverlaidFile(ReadFile):
    """A file, or none, with patches applied in memory; read like `ReadFile`.

    Attributes:
        path: of the existing or future file.
        size: bytes.
    """

    def __init__(self, path: Path, size: int, patches: list[Patch], *, exists: bool) -> None:
        """Opens the underlying file, if there is one.

        Args:
            path, size: of the whole.
            patches: in order; later ones win.
            exists: whether there is an underlying file.
        """
        self._below = ReadFile(path) if exists else None
        self.path = path
        self.size = size
        self._patches = patches

    def read(self, position: int, count: int) -> bytes:
        """Returns the bytes from a position; fewer only at the end of the file."""
        end = min(position + count, self.size)
        if end <= position:
            return b""
        data = bytearray(self._below.read(position, end - position) if self._below else b"")
        data.extend(bytes(end - position - len(data)))
        for at, patch in self._patches:
            low, high = max(at, position), min(at + len(patch), end)
            if low < high:
                data[low - position : high - position] = patch[low - at : high - at]
        return bytes(data)

    def data_end(self) -> int:
        """Returns a position after which there are only zeros."""
        ends = [at + len(patch) for at, patch in self._patches]
        return max([*ends, self._below.data_end() if self._below else 0])

    def close(self) -> None:
        """Closes the underlying file."""
        if self._below is not None:
            self._below.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class RecoveredQueue(Queue):
    """A queue as a broker's recovery leaves it, with units that are not on disk.

    Attributes:
        disk: the queue on disk; without files if there is none.
        pending: the units that are only in memory, as the layout's fields.
    """

    def __init__(
        self, disk: Queue, pending: np.ndarray, first: int, file_size: int, bounds: Callable[[], tuple[int, int]]
    ) -> None:
        """Adds units to a queue.

        Args:
            disk: the queue on disk.
            pending: units to add.
            first: queue offset of the first of them; in a BatchConsumeQueue they follow the last unit instead.
            file_size: bytes of a file of the store, at least one unit.
            bounds: as for `Queue`.
        """
        listed = MappedFileList(disk.files, disk.strays)
        super().__init__(disk.topic, disk.queue_id, disk.kind, disk.path, bounds, UnitCache(), listed)
        self.disk = disk
        self.pending = pending
        self._patches: dict[int, list[Patch]] = {}
        size = file_size // disk.unit_size * disk.unit_size
        at, data = (self._batch_end() if disk.is_batch else first * disk.unit_size), pending.tobytes()
        if not disk.files and not disk.is_batch:
            data = CONSUME_QUEUE_UNIT.build(PRE_BLANK) * (at % size // disk.unit_size) + data
            at -= at % size
        known = {file.base: file for file in disk.files}
        while data:
            base = at - at % size
            if base not in known or known[base].size < size:  # none yet, or created and never given its size
                known[base] = MappedFile(disk.path / f"{base:020d}", base, size)
            self._patches.setdefault(base, []).append((at - base, data[: base + size - at]))
            at, data = base + size, data[base + size - at :]
        self.files = tuple(known[base] for base in sorted(known))
        self._on_disk = {file.base for file in disk.files}

    def _batch_end(self) -> int:
        last = self.disk.last_unit()
        if last is None:
            return self.disk.files[0].base if self.disk.files else 0
        return self.disk.files[last[0]].base + (last[1] + 1) * BATCH_CONSUME_QUEUE_UNIT.size

    def modified_ms(self, number: int) -> int:
        """Returns the modification time of a file; for files with pending units that is in the future."""
        return java.LONG_MAX if self.files[number].base in self._patches else super().modified_ms(number)

    def _open(self, number: int) -> ReadFile:
        file = self.files[number]
        return OverlaidFile(file.path, file.size, self._patches.get(file.base, []), exists=file.base in self._on_disk)


class RecoveredIndexFile(IndexFile):
    """An index file as a broker's recovery leaves it: continued or rebuilt."""

    def __init__(self, path: Path, builder: IndexFileBuilder, entries: list[Patch], *, exists: bool) -> None:
        """Takes the result of a builder.

        Args:
            path: of the existing or future file.
            builder: header and slots.
            entries: those that are not on disk.
            exists: whether the older entries are on disk.
        """
        self.path = path
        self.size = index_file.file_size(builder.slots, builder.capacity)
        self.header = builder.header
        self._configured = builder.slots
        self._patches = [(0, HEADER.build(builder.header)), (HEADER_SIZE, builder.slot_bytes()), *entries]
        self._exists = exists

    def _open(self) -> ReadFile:
        return OverlaidFile(self.path, self.size, self._patches, exists=self._exists)
