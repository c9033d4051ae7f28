"""The index files during a start: which the broker keeps and deletes, and what dispatch adds.

Only headers and the use of slots are modelled; entries are counted, not written. Whether a key is found afterwards
would follow from that only if no two keys shared a hash, so it is not predicted.
Source: IndexService, IndexFile, IndexHeader (4.9.7, 5.5.0).
"""

from pathlib import Path

import numpy as np
from msgspec import Struct

from mqtool.errors import FormatError
from mqtool.formats import file_names, index_file, java
from mqtool.formats.index_file import IndexHeader
from mqtool.records.dispatched import IndexKeys
from mqtool.records.frames import Frames
from mqtool.records.index_build import chain
from mqtool.recovery.action_log import Action, ActionLog, load_fails
from mqtool.recovery.mapped_files import Entry, base_of, is_a_directory, list_entries
from mqtool.recovery.settings import Settings
from mqtool.store.files import ReadFile

NEW = "new"
"""Stands for the name of a file made by a start: that is the clock's."""


class SimulatedIndexFile(Struct):
    """One index file.

    Attributes:
        path: of the file; None for one that a start creates.
        begin_timestamp, end_timestamp, begin_physical_offset, end_physical_offset: of its header.
        hash_slot_count, index_count: of its header, as the broker has them in memory.
        added: number of entries added by dispatch.
        stored_count: the counter in the file, 0 if it was never written.
        slots: newest entry of each slot; read when the first key is added.
    """

    path: Path | None
    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 1
    added: int = 0
    stored_count: int = 0
    slots: np.ndarray | None = None

    @property
    def summary(self) -> tuple[str, int, int, int, int]:
        """Name, begin and end physical offset, used slots and entry counter, as in the file after the start."""
        name = self.path.name if self.path else NEW
        return name, self.begin_physical_offset, self.end_physical_offset, self.hash_slot_count, self.stored_count


class SimulatedIndex:
    """All index files in the order of their names.

    Attributes:
        files: those in use.
        full_until: end timestamp of the last file that dispatch filled, which goes into the checkpoint; None if
            none.
        is_broken: no file can be created because something else is in place of the directory.
    """

    def __init__(self, settings: Settings, actions: ActionLog) -> None:
        self._settings = settings
        self._actions = actions
        self._directory = settings.root / file_names.INDEX
        self.files: list[SimulatedIndexFile] = []
        self.full_until: int | None = None
        self.is_broken = self._directory.exists() and not self._directory.is_dir()
        self.refusal: str | None = None

    def load(self, *, clean_stop: bool, index_timestamp: int) -> None:
        """Loads the files; after a crash, files that the checkpoint does not cover are deleted.

        If the broker stops loading, `refusal` has its message; 4.9 continues with what it has, 5.5 refuses to start
        in the end.
        """
        entries = list_entries(self._directory) or []
        for entry in sorted(entries, key=lambda one: java.utf16_units(one.name)):
            if not self._take(entry, clean_stop, index_timestamp):
                return

    def _take(self, entry: Entry, clean_stop: bool, index_timestamp: int) -> bool:
        try:
            base_of(entry.name)
        except FormatError:
            self._actions.log_accepted(
                f"index/{entry.name} is not a number: the file is skipped with an ERROR (IndexService.load)"
            )
            return True
        if entry.is_directory:
            self.refusal = f"load file {entry.path} error {is_a_directory(entry.path)}"
            return False
        self._grow(entry)
        file = _read_header(entry.path)
        if not clean_stop and file.end_timestamp > index_timestamp:
            self._actions.do(Action.DELETE, entry.path)
            self._actions.log_reason(
                "after a crash every index file whose end time is later than the checkpoint's index time is deleted; "
                "only scanned records are indexed again (IndexService.load)"
            )
            return True
        self.files.append(file)
        return True

    def _grow(self, entry: Entry) -> None:
        slots, entries = self._settings.index_slots, self._settings.index_entries
        if slots is None or entries is None:
            return
        full_size = index_file.file_size(slots, entries)
        if entry.size < full_size:
            self._actions.do(Action.GROW, entry.path, full_size)
            self._actions.log_accepted(
                f"index/{entry.name} has {entry.size} bytes: it is lengthened with zeros to {full_size}"
            )

    def put(self, frames: Frames, keys: IndexKeys) -> None:
        """Indexes the keys of records, in order (IndexService.buildIndex)."""
        if not len(frames):
            return
        if self._settings.index_entries is None:
            self._actions.log_undecided(
                "when an index file is full: its slots and entries are not known, give --config"
            )
        if self.is_broken:
            self._actions.log_reason(
                "index/ is not a directory: no index file can be created, the store becomes read-only"
            )
            return
        self._current()
        offsets = frames.column("physical_offset")
        has_key = np.zeros(len(offsets), bool)
        has_key[keys.row] = True
        taken = _not_before_end(offsets, has_key, self.files[-1].end_physical_offset)
        keys = keys.select(taken[keys.row])
        self._put_keys(keys.key_hash, keys.physical_offset, keys.store_timestamp)
        if not len(keys) or keys.row[-1] < len(offsets) - 1:
            self._current()  # the last record looks for a file, too

    def _current(self) -> SimulatedIndexFile:
        """Returns the last file, or a new one if it is full (IndexService.getAndCreateLastIndexFile)."""
        last = self.files[-1] if self.files else None
        if last is not None and not self._is_full(last):
            return last
        made = SimulatedIndexFile(None)
        if last is not None:
            if last.end_physical_offset > 0:
                made.begin_physical_offset = made.end_physical_offset = last.end_physical_offset
            if last.end_timestamp > 0:
                made.begin_timestamp = made.end_timestamp = last.end_timestamp
                self.full_until = last.end_timestamp
        self.files.append(made)
        self._actions.do(Action.CREATE, self._directory / f"<new-{self._new_count}>", self._file_size)
        if self._new_count > 1:
            self._actions.log_undecided(
                "names of new index files: they come from the clock; two made within one millisecond share one"
            )
        return made

    @property
    def _new_count(self) -> int:
        return sum(file.path is None for file in self.files)

    @property
    def _file_size(self) -> int:
        slots, entries = self._settings.index_slots, self._settings.index_entries
        return index_file.file_size(slots, entries) if slots is not None and entries is not None else 0

    def _is_full(self, file: SimulatedIndexFile) -> bool:
        entries = self._settings.index_entries
        return entries is not None and file.index_count >= entries

    def flush_all(self) -> None:
        """Writes every header, as 5.5 does when it stops (IndexService.shutdown)."""
        for file in self.files:
            if file.path is not None and file.stored_count != file.index_count:
                self._actions.do(Action.WRITE, file.path, 0, index_file.HEADER_SIZE)
            file.stored_count = file.index_count

    def _put_keys(self, hashes: np.ndarray, offsets: np.ndarray, timestamps: np.ndarray) -> None:
        start = 0
        while start < len(hashes):
            file = self._current()
            entries = self._settings.index_entries
            room = len(hashes) - start if entries is None else entries - file.index_count
            if room <= 0:
                raise load_fails("index files that hold no entry: maxIndexNum is too small")
            end = min(len(hashes), start + room)
            self._fill(file, hashes[start:end], offsets[start:end], timestamps[start:end])
            start = end

    def _fill(self, file: SimulatedIndexFile, hashes: np.ndarray, offsets: np.ndarray, timestamps: np.ndarray) -> None:
        if file.index_count <= 1:
            file.begin_physical_offset, file.begin_timestamp = int(offsets[0]), int(timestamps[0])
        if file.path is not None and not file.added:
            self._actions.do(Action.APPEND, file.path, file.index_count, 0)
        slots = self._settings.index_slots
        if slots is not None:
            self._use_slots(file, hashes, slots)
        file.index_count += len(hashes)
        file.stored_count = file.index_count
        file.added += len(hashes)
        file.end_physical_offset, file.end_timestamp = int(offsets[-1]), int(timestamps[-1])

    @staticmethod
    def _use_slots(file: SimulatedIndexFile, hashes: np.ndarray, slots: int) -> None:
        """Counts slots that were empty, or contained a number past the entries, when a key was added to them."""
        if file.slots is None:
            file.slots = _read_slots(file.path, slots)
        file.hash_slot_count += int((chain(file.slots, hashes % slots, file.index_count) == 0).sum())


def _not_before_end(offsets: np.ndarray, keyed: np.ndarray, end: int) -> np.ndarray:
    """Returns a bool per record: its offset is not below the highest physical offset indexed before it."""
    known = np.where(keyed, offsets, np.iinfo(np.int64).min)
    before = np.maximum.accumulate(np.concatenate([[end], known]))[:-1]
    return np.asarray(offsets >= before)


def _read_header(path: Path) -> SimulatedIndexFile:
    with ReadFile(path) as file:
        data = file.read(0, index_file.HEADER_SIZE).ljust(index_file.HEADER_SIZE, b"\0")
    header: IndexHeader = index_file.HEADER.parse(data)
    return SimulatedIndexFile(
        path,
        header.begin_timestamp,
        header.end_timestamp,
        header.begin_physical_offset,
        header.end_physical_offset,
        header.hash_slot_count,
        max(header.index_count, 1),
        stored_count=header.index_count,
    )


def _read_slots(path: Path | None, slots: int) -> np.ndarray:
    found = np.zeros(slots, np.int64)
    if path is not None:
        with ReadFile(path) as file:
            data = file.read(index_file.HEADER_SIZE, slots * index_file.SLOT_SIZE)
        read = np.frombuffer(data, ">i4", len(data) // index_file.SLOT_SIZE)
        found[: len(read)] = read
    return found
