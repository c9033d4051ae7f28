"""Converts facts about the index, and its differences from the CommitLog, to findings."""

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from mqtool.errors import StoreError
from mqtool.formats import file_names, index_file
from mqtool.formats.checkpoint import Checkpoint
from mqtool.recovery.mapped_files import entry_of
from mqtool.store.log.commit_log import CommitLog
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.findings import Severity
from mqtool.verify.index.index_detail import IndexDifferences, MissingKeys
from mqtool.verify.index.index_file import IndexFacts, WrongEntry
from mqtool.verify.recovery import Recovery
from mqtool.verify.survey import Survey


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

        Args:
            detail: differences between index and log.
            wrong: physical offsets of records that are reported themselves, and therefore explain a difference.
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
        severity, evidence = Severity.NOTE, "a file under a name that is not a time of 17 digits"
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
                evidence = f"begins at {after.first_entry}, {before.path.name} before it ends at {before.last_entry}"
                self._collector.add("index-order", after.path, evidence, position=0)

    def _missing(self, missing: MissingKeys) -> None:
        if self._survey.live and missing.end > self._indexed_end():
            return  # dispatch may not have come so far
        repaired = self._recovery.repairs_records(missing.start)
        evidence = f"{missing.keys} key(s) of {missing.records} message(s) have no entry"
        directory = self._survey.root / file_names.INDEX
        self._collector.add(
            "index-missing-entry",
            directory,
            evidence,
            span=(missing.start, missing.end),
            severity=Severity.WARNING if repaired else None,
        )

    def _indexed_end(self) -> int:
        return max((facts.high for facts in self._facts), default=0)

    def _ahead(self) -> None:
        """Reports entries past the end of the log: the broker indexes no record before the end of the last file."""
        last = self._facts[-1] if self._facts else None
        if last is None or self._survey.live or self._survey.has_dledger or last.bad_header:
            return
        end = last.header.end_physical_offset
        if end >= self._survey.end > 0:
            evidence = f"the last file ends at {end}, the log at {self._survey.end}; {last.ahead} entries point past it"
            self._collector.add("index-ahead-of-log", last.path, evidence, position=0, span=(end, end + 1))


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


def check_absent(
    survey: Survey, checkpoint: Checkpoint | None, enabled: bool | None, keyed: int, collector: FindingCollector
) -> str:
    """Checks a store whose index has no files, or only unreadable ones.

    Args:
        survey: the store.
        checkpoint: None if it cannot be read.
        enabled: messageIndexEnable as configured; None if it is not configured.
        keyed: number of records with keys in the log.
        collector: receives the findings.

    Returns:
        Why the index could not be checked; "" if there is nothing to check.
    """
    path = survey.root / file_names.INDEX
    if path.exists() and not path.is_dir():
        collector.add("index-not-directory", path, "a file, not a directory: no message is found by key")
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
    return "no index file: it was switched off (messageIndexEnable), or it is lost"
