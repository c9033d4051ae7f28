"""The two file lists of a DLedger log during a start: data and index. Nothing is mapped, created or deleted.

Source: MmapFileList, DefaultMmapFile, DLedgerMmapFileStore.load (dledger 0.3.1.2, 0.3.2).
"""

import itertools
from collections.abc import Iterable
from pathlib import Path

from mqtool.formats import java
from mqtool.formats.release import V5_5, Release
from mqtool.recovery.action_log import Action, exits
from mqtool.recovery.mapped_files import Entry, MappedFiles, SimulatedFile, stated_base


class LedgerFile(SimulatedFile):
    """One file of a list.

    Attributes:
        start: number of bytes at its front that no longer count.
    """

    def __init__(self, path: Path, base: int, wrote: int, *, is_new: bool = False, is_first: bool = False) -> None:
        super().__init__(path, base, wrote, is_new=is_new, is_first=is_first)
        self.start = 0


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
        """Loads the files of a directory (MmapFileList.doLoad).

        Raises:
            StartFailed: DLedger refuses one of them.
        """
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
