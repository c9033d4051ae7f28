"""Compares index and CommitLog entry by entry where their checksums differ.

The broker's own irregularities are not damage: the record at which dispatch continued after a crash is indexed
twice, the first entry of a file counts its time from the end of the previous file, and releases before 5.5
do not index tags.
"""

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.errors import StoreError
from mqtool.formats import index_file
from mqtool.formats.index_file import ENTRY
from mqtool.records.dispatch import IndexKeys
from mqtool.records.index_build import time_diffs
from mqtool.records.number_sets import among
from mqtool.store.files import ReadFile
from mqtool.verify.index.index_file import MAX_NOTED, IndexFacts, WrongEntry
from mqtool.verify.log.checksums import mix_entries
from mqtool.verify.log.records import Records, read_records
from mqtool.verify.log.segment import FOREIGN, DamagedRange
from mqtool.verify.queues.consume_queue import runs_of
from mqtool.verify.survey import Survey


class MissingKeys(Struct, frozen=True):
    """Consecutive records whose keys have no entry."""

    start: int  # and end: physical offsets of the first record and after the last
    end: int
    records: int  # and keys: number of each
    keys: int


class IndexDifferences(Struct):
    """Result of the comparison."""

    # Invalid entries, with the number of their index file.
    wrong: list[tuple[int, WrongEntry]] = field(default_factory=list)
    missing: list[MissingKeys] = field(default_factory=list)  # records without entries, in order


class IndexDetail:
    """Compares the groups of buckets one by one."""

    def __init__(self, survey: Survey, facts: list[IndexFacts], damages: list[DamagedRange]) -> None:
        """Starts with the facts about each index file, and the damaged ranges of the log in order."""
        self._survey = survey
        self._facts = facts
        self._starts = np.array([damage.start for damage in damages], np.int64)
        self._ends = np.array([damage.end for damage in damages], np.int64)
        self._foreign_segments = [damage for damage in damages if damage.kind == FOREIGN]
        self._open_at = -1
        self._run = (-1, 0)  # the file of the last odd entries, and how many of them in a row
        self.differences = IndexDifferences()

    def compare(self, records: Records, number: int, first_record: int) -> None:
        """Compares the keys of a range's records with the entries that point into it.

        Args:
            records: of the range.
            number: of the segment.
            first_record: physical offset of the first of them.
        """
        if any(segment.start <= records.start < segment.end for segment in self._foreign_segments):
            return  # the finding about the segment explains every difference
        keys = records.keys
        file, entry, hashes, physical, seconds = self._entries(records)
        due = _mixed(keys.key_hash, keys.physical_offset)
        present = _mixed(hashes, physical)
        absent = ~among(due, present)
        foreign = ~among(present, due)
        if foreign.any() and not self._survey.rules.index_tags:
            with_tags = self._keys(records, number, first_record, index_tags=True)
            foreign &= ~among(present, _mixed(with_tags.key_hash, with_tags.physical_offset))
        foreign_at = set(physical[foreign].tolist())
        self._foreign(records, file, entry, hashes, physical, foreign)
        known = np.flatnonzero(~foreign)
        self._times(records, file[known], entry[known], physical[known], seconds[known])
        if absent.any() and self._survey.rules.index_tags:
            absent &= ~self._tags_not_indexed(records, number, first_record, present, absent)
        replaced = among(keys.physical_offset, np.fromiter(foreign_at, np.int64, len(foreign_at)))
        self._missing(records, keys, absent & ~replaced)

    def _entries(self, records: Records) -> tuple[np.ndarray, ...]:
        parts = [
            self._read(number, chunk, records)
            for number, facts in enumerate(self._facts)
            for chunk in facts.chunks
            if chunk[3] >= records.start and chunk[2] < records.end
        ]
        return tuple(np.concatenate([part[i] for part in parts]) if parts else np.empty(0, np.int64) for i in range(5))

    def _read(self, number: int, chunk: tuple[int, int, int, int], records: Records) -> tuple[np.ndarray, ...]:
        first, count = chunk[:2]
        shape = self._survey.index.shape
        assert shape is not None
        try:
            with ReadFile(self._facts[number].path) as file:
                data = file.read(index_file.entry_position(first, shape.slots), count * ENTRY.size)
        except StoreError as error:  # since the first pass
            self._facts[number].failure, data = str(error), b""
        entries = ENTRY.rows(data)
        physical = entries["physical_offset"].astype(np.int64)
        which = np.flatnonzero((physical >= records.start) & (physical < records.end) & (physical < self._survey.end))
        return (
            np.full(len(which), number, np.int64),
            first + which,
            entries["key_hash"][which].astype(np.int64),
            physical[which],
            entries["time_diff"][which].astype(np.int64),
        )

    def _foreign(
        self,
        records: Records,
        file: np.ndarray,
        entry: np.ndarray,
        hashes: np.ndarray,
        physical: np.ndarray,
        foreign: np.ndarray,
    ) -> None:
        which = np.flatnonzero(foreign & (hashes >= 0))
        at = records.at(physical[which])
        for row, record in zip(which.tolist(), at.tolist(), strict=True):
            if self._is_full(int(file[row])):  # there may be millions: no words for those
                continue
            where = int(physical[row])
            if record >= 0:
                evidence = f"no key of the record at {where} has hash {hashes[row]}"
                self._add_wrong("index-foreign-entry", int(file[row]), int(entry[row]), where, evidence)
            elif not self._damaged(where):
                evidence = f"points at {where}, where no record starts"
                self._add_wrong("index-dangling-entry", int(file[row]), int(entry[row]), where, evidence)

    def _times(
        self, records: Records, file: np.ndarray, entry: np.ndarray, physical: np.ndarray, seconds: np.ndarray
    ) -> None:
        at = records.at(physical)
        begin = np.array([facts.begin for facts in self._facts], np.int64)[file]
        due = time_diffs(records.times[at], begin)
        has_header = np.array([not facts.bad_header for facts in self._facts], bool)[file]
        wrong = (due != seconds) & (at >= 0) & (entry != 1) & has_header
        for row in np.flatnonzero(wrong).tolist():
            evidence = f"time {seconds[row]} s, its record was stored {due[row]} s after the file's begin"
            self._add_wrong("index-wrong-time", int(file[row]), int(entry[row]), int(physical[row]), evidence)

    def _add_wrong(self, code: str, file: int, entry: int, physical: int, evidence: str) -> None:
        if self._is_full(file):
            return
        self._run = (file, self._run[1] + 1 if self._run[0] == file else 1)
        self.differences.wrong.append((file, WrongEntry(code, entry, physical, (), evidence)))

    def _is_full(self, file: int) -> bool:
        """Whether the last stored entries are all from one file, and its limit of stored entries is reached."""
        return self._run == (file, MAX_NOTED)

    def _damaged(self, physical: int) -> bool:
        at = int(np.searchsorted(self._starts, physical, side="right")) - 1
        return at >= 0 and physical < self._ends[at]

    def _tags_not_indexed(
        self, records: Records, number: int, first_record: int, present: np.ndarray, absent: np.ndarray
    ) -> np.ndarray:
        """Marks the absent keys of tags before the first and after the last tag of the range that is indexed.

        An older release dispatched these records, before an upgrade or after a return to it.
        """
        keys = records.keys
        without = self._keys(records, number, first_record, index_tags=False)
        mixed = _mixed(keys.key_hash, keys.physical_offset)
        tags = ~among(mixed, _mixed(without.key_hash, without.physical_offset))
        indexed = keys.row[tags & among(mixed, present)]
        if not len(indexed):
            return tags
        return np.asarray(tags & absent & ((keys.row < indexed.min()) | (keys.row > indexed.max())))

    def _keys(self, records: Records, number: int, first_record: int, *, index_tags: bool) -> IndexKeys:
        """Returns the keys of a range, with or without those of tags."""
        rules = replace(self._survey.rules, index_tags=index_tags)
        return read_records(self._survey, number, (records.start, records.end), first_record, rules).keys

    def _missing(self, records: Records, keys: IndexKeys, absent: np.ndarray) -> None:
        """Stores runs of records whose keys are absent; a record between them whose keys are present ends a run."""
        lost = np.bincount(keys.row[absent], minlength=len(records.offsets))
        keyed = np.flatnonzero(np.bincount(keys.row, minlength=len(records.offsets)))
        is_open = self._open_at == records.start
        for low, high in runs_of(lost[keyed] > 0):
            rows = keyed[low:high]
            end = int(records.offsets[rows[-1]] + records.sizes[rows[-1]])
            run = MissingKeys(int(records.offsets[rows[0]]), end, len(rows), int(lost[rows].sum()))
            if low == 0 and is_open and self.differences.missing:
                last = self.differences.missing.pop()
                run = MissingKeys(last.start, end, last.records + run.records, last.keys + run.keys)
            self.differences.missing.append(run)
        if len(keyed):
            self._open_at = records.end if lost[keyed[-1]] else -1
        elif is_open:
            self._open_at = records.end


def _mixed(hashes: np.ndarray, physical: np.ndarray) -> np.ndarray:
    return mix_entries(hashes, physical, np.zeros(len(hashes), np.int64))
