"""DLedger's own recovery: checks each entry against its index unit, up to the first mismatch, in two lists of files.

Nothing is mapped, created or deleted. Records are not checked: a damaged record in a valid entry stays. Source:
MmapFileList, DefaultMmapFile, DLedgerMmapFileStore.load, recover, reviseLedgerBeginIndex, updateCommittedIndex (dledger
0.3.1.2, 0.3.2).
"""

import itertools
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from mqtool.errors import FormatError, StoreError
from mqtool.formats import dledger, java
from mqtool.formats.dledger import BLANK_ENTRY_SIZE, ENTRY, ENTRY_HEADER_SIZE, INDEX_UNIT, INDEX_UNIT_SIZE, EntryHeader
from mqtool.formats.release import V5_5, Release
from mqtool.recovery.action_log import Action, ActionLog, StartFailed, exits, load_fails
from mqtool.recovery.mapped_files import Entry, MappedFiles, SimulatedFile, list_entries, stated_base
from mqtool.recovery.state import SegmentFiles
from mqtool.store.files import read_file
from mqtool.store.layout import LedgerPlace

_LAST_FILES = 3
_WINDOW = 1 << 20
_NONE = -1
_FAILS = "load exception io.openmessaging.storage.dledger.exception.DLedgerException: [code=414,name=DISK_ERROR,desc=]"


class LedgerFile(SimulatedFile):
    """One file of a list."""

    def __init__(self, path: Path, base: int, wrote: int, *, is_new: bool = False, is_first: bool = False) -> None:
        super().__init__(path, base, wrote, is_new=is_new, is_first=is_first)
        self.start = 0  # number of bytes at its front that no longer count


class DataFile(LedgerFile):
    """A file of entries, each of which contains a record."""

    entries = True


class LedgerFiles(MappedFiles[LedgerFile]):
    """Files in the order of their names."""

    kind = LedgerFile

    def _loaded(self, entry: Entry, base: int) -> LedgerFile:
        return self.kind(entry.path, base, self.file_size)

    def _new_file(self, path: Path, base: int, *, is_first: bool) -> LedgerFile:
        return self.kind(path, base, 0, is_new=True, is_first=is_first)

    def load(self, entries: Iterable[Entry], *, release: Release = V5_5) -> None:  # noqa: ARG002 - alike in both releases
        """Loads the files of a directory (MmapFileList.doLoad)."""
        for entry in sorted(entries, key=lambda item: java.utf16_units(item.name)):
            if entry.size != self.file_size:
                reason = "length not matched message store config value, please check it manually"
                raise exits(f"{entry.path}\t{entry.size} {reason}")
            self.files.append(self._loaded(entry, stated_base(entry)))

    @property
    def min_offset(self) -> int:
        """First offset that counts in the first file, 0 if there is no file."""
        return self.files[0].base + self.files[0].start if self.files else 0

    def adjoins(self) -> bool:
        """Whether each file begins where the one before it ends (checkSelf)."""
        return all(after.base - before.base == self.file_size for before, after in itertools.pairwise(self.files))

    def reset(self, offset: int) -> None:
        """Drops everything before an offset (MmapFileList.resetOffset)."""
        kept = []
        for file in self.files:
            if file.base <= offset:
                if offset >= file.base + self.file_size:
                    self._actions.do(Action.DELETE, file.path)
                    continue
                file.start = self.remainder(offset)
            kept.append(file)
        self.files = kept

    def rebuild_at(self, offset: int) -> bool:
        """Deletes all files and starts over at an offset (MmapFileList.rebuildWithPos)."""
        self.truncate_dirty(-1)
        self.last_for_append(offset)
        self.truncate_dirty(offset)
        self.reset(offset)
        return offset == self.max_offset == self.min_offset


class DataFiles(LedgerFiles):
    """The files of entries."""

    kind = DataFile


class LedgerRecoveryResult(Struct):
    """Result of recovering a log."""

    scan_from: int = 0  # and end: log positions between which entries were followed; the next entry is written at `end`
    end: int = 0
    entry_end: int = _NONE  # after the last entry; differs from `end` if a blank entry follows
    begin_index: int = _NONE  # and end_index: numbers of the first and last entry, -1 for none
    end_index: int = _NONE
    # committed_index, committed_position: last entry that a majority has, according to the file `checkpoint`; -1 if it
    # does not say.
    committed_index: int = _NONE
    committed_position: int = _NONE
    entries: int = 0  # number of entries followed


def rewritten_units(place: LedgerPlace, file_size: int) -> frozenset[int]:
    """Returns the numbers of the entries whose index units the next start writes again; none if it fails."""
    if len(place.data) > 1:
        return frozenset()
    actions = ActionLog()
    data = DataFiles(place.data[0], file_size, actions)
    index = LedgerFiles(place.directory / dledger.INDEX, dledger.DEFAULT_INDEX_FILE_SIZE, actions)
    recovery = LedgerRecovery(place.directory, data, index, actions)
    try:
        for files in (data, index):
            files.load(list_entries(files.directory) or [])
        if data.files:
            recovery.run()
    except StartFailed:
        return frozenset()
    return recovery.written_units


class LedgerRecovery:
    """One recovery of a DLedger log."""

    def __init__(self, directory: Path, data: LedgerFiles, index: LedgerFiles, actions: ActionLog) -> None:
        """Takes the loaded files; `data` has at least one."""
        self._directory = directory
        self._data = data
        self._index = index
        self._actions = actions
        self._segments = SegmentFiles()
        self._window = b""
        self._window_at: tuple[Path | None, int] = (None, 0)
        self._written: dict[int, bytes] = {}
        self._writes = False
        self._last_term = _NONE
        self._reason = ""
        self.result = LedgerRecoveryResult()

    def run(self) -> LedgerRecoveryResult:
        """Follows the entries, cuts both lists, reads the checkpoint."""
        try:
            self._check_lists("before")
            last = self._data.files[-1]
            self._scan(self._first_file())
            if last.base - self.result.end > self._data.file_size:
                raise exits(
                    "[MONITOR]The processOffset is too small, you should check it manually before truncating the data "
                    f"from {self.result.end}"
                )
            self._cut()
            self._check_lists("after")
            self._commit()
        finally:
            self._segments.close()
        return self.result

    @property
    def written_units(self) -> frozenset[int]:
        """Numbers of the entries whose index units it writes again."""
        return frozenset(offset // INDEX_UNIT_SIZE for offset in self._written)

    def _check_lists(self, when: str) -> None:
        for files, name in ((self._data, "data"), (self._index, "index")):
            if not files.adjoins():
                raise load_fails(f"{_FAILS} check {name} file order failed {when} recovery")

    def _first_file(self) -> int:
        """Returns the index of the first file to check: the third from the end, or one before it."""
        number = max(0, len(self._data.files) - _LAST_FILES)
        while number > 0 and not self._begins_well(self._data.files[number]):
            number -= 1
        return number

    def _begins_well(self, file: LedgerFile) -> bool:
        head = self._head(file, 0)
        if len(head) < ENTRY_HEADER_SIZE:
            return False
        entry = ENTRY.parse(head)
        adds_up = entry.size > ENTRY_HEADER_SIZE and java.to_int32(entry.body_length + ENTRY_HEADER_SIZE) == entry.size
        is_here = entry.magic >= dledger.MAGIC_ENTRY and entry.position == file.base
        return is_here and adds_up and self._is_indexed(entry)

    def _head(self, file: LedgerFile, at: int) -> bytes:
        """Returns the bytes of an entry's header, fewer at the end of the file."""
        path, start = self._window_at
        if path != file.path or not start <= at <= start + len(self._window) - ENTRY_HEADER_SIZE:
            self._window = b"" if file.is_new else self._segments.reader(file)(at, _WINDOW)
            self._window_at, start = (file.path, at), at
        return self._window[at - start : at - start + ENTRY_HEADER_SIZE]

    def _scan(self, number: int) -> None:
        files = self._data.files
        self.result.scan_from = self.result.end = files[number].base
        at = 0
        while True:
            file = files[number]
            size = self._step(file, at)
            if size is None:
                break
            if size:
                at += size
                self.result.end += size
                self.result.entry_end = file.base + at
                continue
            self.result.end = file.base + self._data.file_size
            number += 1
            if number >= len(files):
                self._reason = "a blank entry ends the last file"
                break
            at, self.result.end = 0, files[number].base
        self._actions.log_reason(
            f"DLedger follows {self.result.entries} entries from {self.result.scan_from} and cuts its log at "
            f"{self.result.end}: {self._reason} (DLedgerMmapFileStore.recover)"
        )

    def _step(self, file: LedgerFile, at: int) -> int | None:
        """Returns the size of the entry at a position, 0 for a blank entry, None if it is not accepted."""
        head = self._head(file, at)
        if len(head) >= BLANK_ENTRY_SIZE:
            blank = dledger.BLANK_ENTRY.parse(head)
            if blank.magic == dledger.MAGIC_BLANK_ENTRY:
                return 0
            if blank.remaining == 0:
                self._reason = "no entry follows"
                return None
        if len(head) < ENTRY_HEADER_SIZE:
            self._reason = "the file ends"
            return None
        entry = ENTRY.parse(head)
        self._reason = self._fault(entry, file, at)
        if self._reason or not self._put(entry):
            return None
        self.result.end_index, self._last_term = entry.index, entry.term
        self.result.entries += 1
        return entry.size

    def _fault(self, entry: EntryHeader, file: LedgerFile, at: int) -> str:
        """Returns why an entry is not accepted, "" if it is."""
        before = self.result.end_index
        if entry.position != file.base + at:
            return f"an entry states position {entry.position}"
        if java.to_int32(entry.body_length + ENTRY_HEADER_SIZE) != entry.size:
            return f"an entry of size {entry.size} states a body of {entry.body_length}"
        if not 0 <= at + entry.size <= self._data.file_size:
            return f"an entry of size {entry.size} does not fit into the file"
        if entry.magic != dledger.MAGIC_ENTRY:
            return f"an entry has magic {entry.magic}"
        if before != _NONE and entry.index != before + 1:
            return f"an entry has index {entry.index}, but the one before it has {before}"
        if entry.term < self._last_term:
            return f"an entry is of term {entry.term}, but the one before it is of term {self._last_term}"
        return "" if entry.size > ENTRY_HEADER_SIZE else f"an entry has size {entry.size}"

    def _is_indexed(self, entry: EntryHeader) -> bool:
        """Whether the index agrees with an entry."""
        data = self._unit(entry.index)
        if data is None:
            return False
        unit = INDEX_UNIT.parse(data)
        return (unit.magic, unit.position, unit.size, unit.index, unit.term) == (
            entry.magic,
            entry.position,
            entry.size,
            entry.index,
            entry.term,
        )

    def _unit(self, number: int) -> bytes | None:
        offset = java.to_int64(number * INDEX_UNIT_SIZE)
        file = self._index.find(offset, or_first=offset == 0)
        at = self._index.remainder(offset)
        if file is None or not 0 <= at <= file.wrote - INDEX_UNIT_SIZE:
            return None
        if offset in self._written:
            return self._written[offset]
        return bytes(INDEX_UNIT_SIZE) if file.is_new else self._segments.reader(file)(at, INDEX_UNIT_SIZE)

    def _put(self, entry: EntryHeader) -> bool:
        """Compares an entry with the index, or writes its unit if an earlier one was wrong already."""
        offset = java.to_int64(entry.index * INDEX_UNIT_SIZE)
        if not self._writes:
            if self._is_indexed(entry):
                return True
            self._actions.log_reason(
                f"the index does not describe entry {entry.index} correctly: its units are rewritten from there on"
            )
            self._index.truncate_dirty(offset)
            if self._index.max_offset != offset and not self._index.rebuild_at(offset):
                self._reason = f"the index cannot begin at entry {entry.index}"
                return False
            self._writes = True
        file = self._index.last_for_append(0)
        place = file.base + file.wrote
        self._written[place] = INDEX_UNIT.build(
            dledger.IndexUnit(entry.magic, entry.position, entry.size, entry.index, entry.term)
        )
        if self._differs(file, place):
            self._actions.do(Action.WRITE, file.path)
        file.wrote += INDEX_UNIT_SIZE
        if place != offset:
            self._reason = f"the index continues at {place}, not at the unit of entry {entry.index}"
        return place == offset

    def _differs(self, file: LedgerFile, place: int) -> bool:
        if file.is_new or any(step.path == file.path and step.action is Action.WRITE for step in self._actions.steps):
            return False
        return self._segments.reader(file)(place - file.base, INDEX_UNIT_SIZE) != self._written[place]

    def _cut(self) -> None:
        result = self.result
        if result.end_index != _NONE:
            first = self._data.files[0]
            result.begin_index = ENTRY.parse_start(self._head(first, first.start)).index
            self._index.reset(java.to_int64(result.begin_index * INDEX_UNIT_SIZE))
        self._data.truncate_dirty(result.end)
        self._index.truncate_dirty(java.to_int64((result.end_index + 1) * INDEX_UNIT_SIZE))

    def _commit(self) -> None:
        """Applies the committed index (updateCommittedIndex)."""
        text = self._stated()
        if not text:
            self._actions.log_reason(
                "DLedger's checkpoint names no committed index: nothing is committed until a leader confirms it"
            )
            return
        try:
            number = java.parse_long(text)
        except FormatError:
            raise load_fails(f'load exception java.lang.NumberFormatException: For input string: "{text}"') from None
        result = self.result
        if number < 0 or result.end_index == _NONE or number < result.begin_index:
            return
        number = min(number, result.end_index)
        data = self._unit(number)
        if data is None:
            raise load_fails(f"{_FAILS} Get null index for {number}")
        unit = INDEX_UNIT.parse(data)
        result.committed_index, result.committed_position = number, unit.position + unit.size

    def _stated(self) -> str:
        try:
            return dledger.committed_index_text(read_file(self._directory / dledger.CHECKPOINT))
        except (StoreError, FormatError):
            return ""
