"""The index files during a start: which the broker keeps and deletes, and what dispatch adds.

Only headers and the use of slots are modelled; entries are counted, not written. Whether a key is found afterwards
would follow from that only if no two keys shared a hash, so it is not predicted.
Source: IndexService, IndexFile, IndexHeader (4.9.7, 5.5.0).
"""

from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mqtool.errors import FormatError
from mqtool.formats import file_names, index_file, java
from mqtool.formats.index_file import IndexHeader
from mqtool.records.dispatch import IndexKeys
from mqtool.records.index_chains import chain, spread
from mqtool.recovery.action_log import Action, ActionLog, load_fails
from mqtool.recovery.mapped_files import Entry, base_of, list_entries, not_opened
from mqtool.recovery.settings import RecoverySettings
from mqtool.store.files import ReadFile

NEW = "new"
"""Stands for the name of a file made by a start: that is the clock's."""


class SimulatedIndexFile(Struct):
    """One index file."""

    path: Path | None  # of the file; None for one that a start creates
    header: IndexHeader  # as the broker has it in memory
    capacity: int  # maxIndexNum
    added: int = 0  # number of entries added by dispatch
    stored_count: int = 0  # the counter in the file, 0 if it was never written
    slots: np.ndarray | None = None  # newest entry of each slot; read when the first key is added

    @property
    def room(self) -> int:
        """How many more entries fit."""
        return max(0, self.capacity - self.header.index_count)

    @property
    def summary(self) -> tuple[str, int, int, int, int]:
        """Name, begin and end physical offset, used slots and entry counter, as in the file after the start."""
        return summary_of(self.path.name if self.path else NEW, replace(self.header, index_count=self.stored_count))


class SimulatedIndex:
    """All index files in the order of their names.

    Attributes:
        full_until: end timestamp of the last file that dispatch filled, which goes into the checkpoint; None if none.
        is_broken: no file can be created because something else is in place of the directory.
        indexed_from: physical offset of the first record whose keys dispatch added; None if it added none.
    """

    def __init__(self, settings: RecoverySettings, actions: ActionLog) -> None:
        self._settings = settings
        self._actions = actions
        self._directory = settings.root / file_names.INDEX
        self.files: list[SimulatedIndexFile] = []  # those in use
        self.full_until: int | None = None
        self.deleted: list[tuple[Path, IndexHeader]] = []  # files that the start deletes, and their headers
        self.indexed_from: int | None = None
        self.is_broken = self._directory.exists() and not self._directory.is_dir()
        self.refusal: str | None = None

    def load(self, *, clean_stop: bool, index_timestamp: int) -> None:
        """Loads the files; after a crash, files that the checkpoint does not cover are deleted.

        If the broker stops loading, `refusal` has its message; 4.9 continues with what it has, 5.5 refuses to start
        in the end.
        """
        entries = list_entries(self._directory) or []
        for entry in sorted(entries, key=lambda item: java.utf16_units(item.name)):
            if not self._take(entry, clean_stop, index_timestamp):
                return

    def _take(self, entry: Entry, clean_stop: bool, index_timestamp: int) -> bool:
        try:
            base_of(entry.name)
        except FormatError:
            self._actions.log_accepted(
                f"index/{entry.name} is not a number: the broker skips the file and logs an ERROR (IndexService.load)"
            )
            return True
        if entry.problem:
            self.refusal = f"load file {entry.path} error {not_opened(entry.path, entry.problem)}"
            return False
        self._grow(entry)
        header = read_header(entry)
        if not clean_stop and header.end_timestamp > index_timestamp:
            self._actions.do(Action.DELETE, entry.path)
            self.deleted.append((entry.path, header))
            self._actions.log_reason(
                "after a crash every index file whose end time is later than the checkpoint's index time is deleted; "
                "only scanned records are indexed again (IndexService.load)"
            )
            return True
        counted = replace(header, index_count=max(header.index_count, 1))
        self.files.append(SimulatedIndexFile(entry.path, counted, self._capacity, stored_count=header.index_count))
        return True

    def _grow(self, entry: Entry) -> None:
        slots, entries = self._settings.index_slots, self._settings.index_entries
        if slots is None or entries is None:
            return
        full_size = index_file.file_size(slots, entries)
        if entry.size < full_size:
            self._actions.do(Action.GROW, entry.path, full_size)
            self._actions.log_accepted(
                f"index/{entry.name} has {entry.size} bytes: the broker pads it with zeros to {full_size}"
            )

    def put(self, keys: IndexKeys, records: int) -> None:
        """Indexes the keys of records, in order (IndexService.buildIndex); see `spread`."""
        if self._settings.index_entries is None:
            self._actions.log_undecided(
                "when an index file is full: its numbers of slots and entries are unknown; give --config"
            )
        if self.is_broken:
            self._actions.log_reason(
                "index/ is not a directory: no index file can be created, the store becomes read-only"
            )
            return
        if len(keys) and self.indexed_from is None:
            self.indexed_from = int(keys.physical_offset[0])
        for file, part in spread(self.current, keys, records):
            if len(part):
                self._fill(file, part)
            elif len(keys) and not file.room:
                raise load_fails("index files without room for an entry: maxIndexNum is too small")

    def current(self) -> SimulatedIndexFile:
        """Returns the last file, or a new one if it is full (IndexService.getAndCreateLastIndexFile)."""
        last = self.files[-1] if self.files else None
        if last is not None and last.room:
            return last
        file = SimulatedIndexFile(None, index_file.header_after(None if last is None else last.header), self._capacity)
        if last is not None and last.header.end_timestamp > 0:
            self.full_until = last.header.end_timestamp
        self.files.append(file)
        self._actions.do(Action.CREATE, self._directory / f"<new-{self._new_count}>", self._file_size)
        if self._new_count > 1:
            self._actions.log_undecided("the names of new index files: they contain the creation time")
        return file

    @property
    def _capacity(self) -> int:
        entries = self._settings.index_entries
        return java.INT_MAX if entries is None else entries

    @property
    def _new_count(self) -> int:
        return sum(file.path is None for file in self.files)

    @property
    def _file_size(self) -> int:
        slots, entries = self._settings.index_slots, self._settings.index_entries
        return index_file.file_size(slots, entries) if slots is not None and entries is not None else 0

    def lost(self, log_min: int, log_end: int) -> int | None:
        """Returns how many entries for records in the log the start deletes and does not add again; None if unknown.

        A record before the first one that is indexed again stays without them, for ever. The bounds of the log are
        those after the start.
        """
        slots = self._settings.index_slots
        if not self.deleted:
            return 0
        if slots is None:
            return None
        end = log_end if self.indexed_from is None else min(log_end, self.indexed_from)
        lost = 0
        for path, header in self.deleted:
            with ReadFile(path) as file:
                start = index_file.entry_position(1, slots)
                count = max(0, min(header.index_count - 1, (file.size - start) // index_file.ENTRY_SIZE))
                entries = index_file.ENTRY.rows(file.read(start, count * index_file.ENTRY_SIZE))
            places = entries["physical_offset"]
            lost += int(((places >= log_min) & (places < end)).sum())
        return lost

    def flush_all(self) -> None:
        """Writes every header, as 5.5 does when it stops (IndexService.shutdown)."""
        for file in self.files:
            if file.path is not None and file.stored_count != file.header.index_count:
                self._actions.do(Action.WRITE, file.path, 0, index_file.HEADER_SIZE)
            file.stored_count = file.header.index_count

    def _fill(self, file: SimulatedIndexFile, keys: IndexKeys) -> None:
        if file.path is not None and not file.added:
            self._actions.do(Action.APPEND, file.path, file.header.index_count, 0)
        slots, fresh = self._settings.index_slots, 0
        if slots is not None:
            if file.slots is None:
                file.slots = _read_slots(file.path, slots)
            # slots that were empty, or contained a number past the entries, when a key was added to them
            fresh = int((chain(file.slots, keys.key_hash % slots, file.header.index_count) == 0).sum())
        first, last = ((int(keys.store_timestamp[at]), int(keys.physical_offset[at])) for at in (0, -1))
        file.header = file.header.after(first, last, len(keys), fresh)
        file.stored_count = file.header.index_count
        file.added += len(keys)


def read_header(entry: Entry) -> IndexHeader:
    """Returns the header of an index file; zeros past the end of a shorter file."""
    if not entry.size:  # or a link to a file that the broker creates
        return index_file.HEADER.parse_start(b"")
    with ReadFile(entry.path) as file:
        return index_file.HEADER.parse_start(file.read(0, index_file.HEADER_SIZE))


def summary_of(name: str, header: IndexHeader) -> tuple[str, int, int, int, int]:
    """Returns name, begin and end physical offset, used slots and entry counter of an index file."""
    begin, end = header.begin_physical_offset, header.end_physical_offset
    return name, begin, end, header.hash_slot_count, header.index_count


def _read_slots(path: Path | None, slots: int) -> np.ndarray:
    heads = np.zeros(slots, np.int64)
    if path is not None:
        with ReadFile(path) as file:
            data = file.read(index_file.HEADER_SIZE, slots * index_file.SLOT_SIZE)
        read = np.frombuffer(data, index_file.SLOT_TYPE, len(data) // index_file.SLOT_SIZE)
        heads[: len(read)] = read
    return heads
