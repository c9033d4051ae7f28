"""Writes index files while their entries arrive: entries immediately, slots and header when a file is complete."""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import numpy as np
from msgspec import structs

from mqtool.formats import file_names, index_file
from mqtool.formats.index_file import ENTRY_SIZE, HEADER, HEADER_SIZE, IndexHeader
from mqtool.rebuild.files import OutputFiles
from mqtool.records.dispatch import IndexKeys
from mqtool.records.index_build import Entries, IndexBuilder, IndexFileBuilder, chain

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_YEAR = 9999


class IndexWriter:
    """Writes all index files of a rebuild.

    Attributes:
        names: of the files written, oldest first.
    """

    def __init__(self, output: OutputFiles, slots: int, capacity: int, zone: tzinfo | None = None) -> None:
        """Starts without a file.

        Args:
            slots, capacity: maxHashSlotNum and maxIndexNum.
            zone: time zone of file names; None for the machine's local zone. The broker names a file after the time
                at which it creates it; here it is the store timestamp of the first record in the file.
        """
        self.names: list[str] = []
        self._output = output
        self._slots = slots
        self._capacity = capacity
        self._size = index_file.file_size(slots, capacity)
        self._zone = zone
        self._builder = IndexBuilder(slots, capacity)
        self._open: IndexFileBuilder | None = None

    def add(self, keys: IndexKeys, records: int, last_time: int) -> None:
        """Indexes the keys of some records; `last_time` is the store timestamp of the last of them."""
        for file, entries in self._builder.add(keys, records):
            if file is not self._open:
                self._complete()
                self._open = file
                self._begin(int(keys.store_timestamp[0]) if len(keys) else last_time)
            self._write(entries)

    def only(self, name: str, file: IndexFileBuilder) -> None:
        """Starts a single file with a given name; its keys are then added with `fill`."""
        self.names.append(name)
        self._open = file
        self._output.write(self._path(name), self._size, 0, bytes(HEADER_SIZE))

    @property
    def is_full(self) -> bool:
        """Whether the open file has no room for more keys."""
        return self._open is not None and not self._open.room

    def fill(self, keys: IndexKeys) -> int:
        """Adds keys to the open file until it is full; returns how many were added."""
        if self._open is None:
            return 0
        entries = self._open.add(keys)
        self._write(entries)
        return len(entries.entries)

    def finish(self) -> None:
        """Completes the last file."""
        self._complete()

    def _write(self, entries: Entries) -> None:
        if len(entries.entries):
            at = index_file.entry_position(entries.first, self._slots)
            self._output.write(self._path(self.names[-1]), self._size, at, entries.entries.tobytes())

    def _complete(self) -> None:
        if self._open is None:
            return
        path = self._path(self.names[-1])
        self._output.write(path, self._size, HEADER_SIZE, self._open.slot_bytes())
        self._output.write(path, self._size, 0, HEADER.build(self._open.header))

    def _begin(self, time: int) -> None:
        """Starts the next file. Names must ascend, because the broker reads the files in order of their names."""
        name = index_name(time, self._zone)
        while self.names and name <= self.names[-1]:
            name = f"{int(self.names[-1]) + 1:0{file_names.INDEX_NAME_DIGITS}d}"
        self.names.append(name)
        self._output.write(self._path(name), self._size, 0, bytes(HEADER_SIZE))

    @staticmethod
    def _path(name: str) -> str:
        return f"{file_names.INDEX}/{name}"

    def state(self) -> dict[str, Any]:
        """Returns what `resume` needs; all entries are written by then."""
        header = None if self._open is None else list(structs.astuple(self._open.header))
        return {"names": self.names, "header": header}

    def resume(self, state: dict[str, Any]) -> None:
        """Continues after what an earlier run wrote; recomputes the slots from the entries.

        Raises:
            UsageError: a file of the earlier run is missing.
        """
        self.names = list(state["names"])
        for name in self.names:
            self._output.require(self._path(name), self._size)
        if state["header"] is None:
            return
        header = IndexHeader(*state["header"])
        heads = np.zeros(self._slots, np.int32)
        step = 1 << 18
        for first in range(1, header.index_count, step):
            count = min(step, header.index_count - first)
            at = index_file.entry_position(first, self._slots)
            data = self._output.read(self._path(self.names[-1]), at, count * ENTRY_SIZE)
            entries = index_file.ENTRY.rows(data)
            chain(heads, entries["key_hash"] % self._slots, first)
        self._open = IndexFileBuilder.resumed(header, heads, self._capacity)
        self._builder = IndexBuilder(self._slots, self._capacity, self._open)


def index_name(time: int, zone: tzinfo | None) -> str:
    """Returns the file name for a time in ms; a time outside the calendar is clamped to its nearest end."""
    try:
        moment = (_EPOCH + timedelta(milliseconds=time)).astimezone(zone)
    except (OverflowError, ValueError):
        moment = datetime(_LAST_YEAR if time > 0 else 1, 1, 1, tzinfo=UTC)
    return file_names.index_file_name(moment)
