"""Compares index and CommitLog entry by entry where their checksums differ, and converts what is wrong to findings.

The broker's own irregularities are not damage: the record at which dispatch continued after a crash is indexed
twice, the first entry of a file counts its time from the end of the previous file, and releases before 5.5
do not index tags.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.errors import StoreError
from mqtool.formats import file_names, index_file
from mqtool.formats.checkpoint import Checkpoint
from mqtool.formats.index_file import ENTRY
from mqtool.records.dispatch import IndexKeys
from mqtool.records.index_chains import time_diffs
from mqtool.records.number_sets import among
from mqtool.recovery.mapped_files import entry_of
from mqtool.store.files import ReadFile
from mqtool.store.log.commit_log import CommitLog
from mqtool.verify.checksums import Records, mix_entries, read_records
from mqtool.verify.consume_queue import runs_of
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.findings import Severity
from mqtool.verify.index_file import MAX_NOTED, IndexFacts, WrongEntry
from mqtool.verify.segment import FOREIGN, DamagedRange
from mqtool.verify.survey import Recovery, Survey


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
        self._survey = survey
        self._facts = facts
        self._starts = np.array([damage.start for damage in damages], np.int64)
        self._ends = np.array([damage.end for damage in damages], np.int64)
        self._foreign_segments = [damage for damage in damages if damage.kind == FOREIGN]
        self._open_at = -1
        self._run = (-1, 0)  # the file of the last odd entries, and how many of them in a row
        self.differences = IndexDifferences()

    def compare(self, records: Records, number: int, first_record: int) -> None:
        """Compares the keys of a range's records with the entries that point into it."""
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
            evidence = f"time {seconds[row]} s, but its record was stored {due[row]} s after the file's begin"
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


class IndexReport:
    """Reports the findings of all index files."""

    def __init__(
        self,
        survey: Survey,
        log: CommitLog,
        facts: Sequence[IndexFacts],
        recovery: Recovery,
        collector: FindingCollector,
    ) -> None:
        self._survey = survey
        self._log = log
        self._facts = facts
        self._recovery = recovery
        self._collector = collector

    def write(self, detail: IndexDifferences, wrong: Collection[int | None]) -> None:
        """Reports files, then entries, then keys without entries.

        The `wrong` physical offsets are of records that are reported themselves, and therefore explain a difference.
        """
        for path in self._survey.index.strays:
            self._stray(path)
        foreign: dict[int, set[int]] = {}
        for number, entry in detail.wrong:
            foreign.setdefault(number, set()).add(entry.number)
            if entry.physical_offset not in wrong:
                self._entry(self._facts[number], entry)
        for number, facts in enumerate(self._facts):
            self._file(facts, foreign.get(number, set()), wrong)
        self._order()
        for missing in detail.missing:
            if missing.records > 1 or missing.start not in wrong:
                self._missing(missing)
        self._ahead()

    def _stray(self, path: Path) -> None:
        entry = entry_of(path)
        severity, evidence = Severity.NOTE, "its name is not a time of 17 digits"
        if entry.problem:
            evidence = "a directory" if entry.is_directory else f"cannot be opened: {entry.problem}"
            if _is_number(path.name):
                start = "refuses to start" if self._survey.release >= (5, 0) else "drops the whole index"
                severity, evidence = Severity.ERROR, f"{evidence}: a broker of {self._survey.release} {start}"
        self._collector.add("index-stray-file", path, evidence, severity=severity)

    def _file(self, facts: IndexFacts, foreign: set[int], wrong: Collection[int | None]) -> None:
        shape = self._survey.index.shape
        assert shape is not None
        if facts.failure:
            self._collector.add("index-unreadable", facts.path, facts.failure)
            return
        if facts.size != shape.file_size:
            self._collector.add("index-file-size", facts.path, f"expected {shape.file_size} bytes, found {facts.size}")
            if facts.size < shape.file_size:
                return  # a truncated file explains the other differences
        bad_header = facts.bad_header or list(self._bounds(facts, foreign, wrong))
        if bad_header:
            self._collector.add("index-header", facts.path, "; ".join(bad_header), position=0)
        chain = [entry for entry in facts.wrong if not ({entry.number, *entry.related} & foreign)]
        if facts.bad_slots and not (foreign and facts.bad_slots <= 2 * len(foreign)):
            evidence = f"{facts.bad_slots} slot(s) do not lead to their newest entry, the first: {facts.first_bad_slot}"
            position = index_file.slot_position(facts.first_bad_slot)
            self._collector.add("index-slot", facts.path, evidence, position=position)
        if chain:
            self._chain(facts, chain)

    def _bounds(self, facts: IndexFacts, foreign: set[int], wrong: Collection[int | None]) -> Iterator[str]:
        """Yields differences between a header and the records of the first and the last entry (IndexFile.putKey)."""
        header, invalid = facts.header, foreign | {item.number for item in facts.wrong}
        ends = (
            ("begins", 1, facts.first_entry, header.begin_physical_offset, header.begin_timestamp),
            ("ends", facts.entries, facts.last_entry, header.end_physical_offset, header.end_timestamp),
        )
        for word, number, entry, physical, time in ends:
            if entry < 0 or number in invalid or entry in wrong or self._survey.live:
                continue
            if physical != entry:
                yield f"{word} at {physical}, entry {number} points at {entry}"
            stored = self._stored_at(entry)
            if stored is not None and time != stored:
                yield f"{word} at time {time}, the record of entry {number} was stored at {stored}"

    def _stored_at(self, physical_offset: int) -> int | None:
        try:
            return self._log.record(physical_offset).store_timestamp
        except StoreError:
            return None

    def _chain(self, facts: IndexFacts, chain: list[WrongEntry]) -> None:
        count = len(chain) if facts.wrong_count == len(facts.wrong) else facts.wrong_count
        first = chain[0]
        more = "" if count == 1 else f"; {count} entries in all"
        self._entry(facts, WrongEntry(first.code, first.number, first.physical_offset, (), first.evidence + more))

    def _entry(self, facts: IndexFacts, entry: WrongEntry) -> None:
        shape = self._survey.index.shape
        assert shape is not None
        self._collector.add(
            entry.code,
            facts.path,
            f"entry {entry.number}: {entry.evidence}",
            position=index_file.entry_position(entry.number, shape.slots),
            span=(entry.physical_offset, entry.physical_offset + 1),
        )

    def _order(self) -> None:
        """Compares each file with the previous one by name: queries use that order (IndexService)."""
        filled = [facts for facts in self._facts if facts.first_entry >= 0 and not facts.failure]
        ordered = sorted(filled, key=lambda facts: facts.first_entry)
        if any(before.last_entry > after.first_entry for before, after in pairwise(ordered)):
            return  # after a crash a broker indexes records again in later files that older files contain already
        for before, after in pairwise(filled):
            if before.last_entry > after.first_entry and not (before.bad_header or after.bad_header):
                evidence = (
                    f"begins at {after.first_entry}, but {before.path.name} before it ends at {before.last_entry}"
                )
                self._collector.add("index-order", after.path, evidence, position=0)

    def _missing(self, missing: MissingKeys) -> None:
        if self._survey.live and missing.end > max((facts.high for facts in self._facts), default=0):
            return  # dispatch may not have come so far
        repaired = self._recovery.repairs_records(missing.start)
        severity = Severity.WARNING if repaired else None
        evidence = f"{missing.keys} key(s) of {missing.records} message(s) have no entry"
        directory, span = self._survey.root / file_names.INDEX, (missing.start, missing.end)
        self._collector.add("index-missing-entry", directory, evidence, span=span, severity=severity)

    def _ahead(self) -> None:
        """Reports entries past the end of the log: the broker indexes no record before the end of the last file."""
        last = self._facts[-1] if self._facts else None
        if last is None or self._survey.live or self._survey.has_dledger or last.bad_header:
            return
        end = last.header.end_physical_offset
        if end >= self._survey.end > 0:
            evidence = (
                f"the last file ends at {end}, the log at {self._survey.end}; {last.ahead} entries point past that"
            )
            self._collector.add("index-ahead-of-log", last.path, evidence, position=0, span=(end, end + 1))


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


def check_absent(
    survey: Survey, checkpoint: Checkpoint | None, enabled: bool | None, keyed: int, collector: FindingCollector
) -> str:
    """Checks a store whose index has no files, or only unreadable ones.

    `enabled` is messageIndexEnable, None if it is not configured; `keyed` is the number of records with keys in the
    log. Returns why the index could not be checked; "" if there is nothing to check.
    """
    path = survey.root / file_names.INDEX
    if path.exists() and not path.is_dir():
        collector.add("index-not-directory", path, "a file, not a directory: the broker finds no message by key")
        return ""
    if survey.index.files:
        return "no index file states its number of slots; add --config broker.conf"
    if not keyed or enabled is False:
        return ""
    newest = checkpoint.index_msg_timestamp if checkpoint is not None else 0
    if enabled or newest > 0:
        reason = "messageIndexEnable=true" if enabled else f"checkpoint.index is {newest}"
        collector.add("index-missing", path, f"no index file; {reason}")
        return ""
    return "no index file: it is switched off (messageIndexEnable) or lost"
