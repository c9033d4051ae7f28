"""Checks what replication adds to a store: the DLedger log with its index, and the text files of both modes.

The records in the entries belong to the CommitLog and are checked with it. Source: DLedgerMmapFileStore.recover,
MemberState (dledger 0.3.1.2, 0.3.2), EpochFileCache, CheckpointFile (controller mode, 5.5.0).
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np

from mqtool.errors import FormatError, StoreError, UnreadableError
from mqtool.formats import dledger, epoch, file_names
from mqtool.formats.epoch import EpochEntry
from mqtool.records.damage import Damage
from mqtool.records.frames import Frames
from mqtool.recovery.dledger_recovery import rewritten_units
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.files import MappedFile, ReadFile, list_mapped_files, read_file
from mqtool.store.layout import broker_identity, epoch_file
from mqtool.store.log.log_walk import walk_file
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.findings import Severity
from mqtool.verify.survey import Survey

_HEADS = dledger.ENTRY.dtype
_BLOCK = 1 << 15


class LedgerCheck:
    """Checks the DLedger log of a store."""

    def __init__(self, survey: Survey, collector: FindingCollector) -> None:
        self._survey = survey
        self._collector = collector
        self._files = tuple(segment for segment in survey.segments if segment.entries)
        self._index = -1
        self._term = -1
        self._units: dict[int, MappedFile] = {}

    @cached_property
    def _rewritten(self) -> frozenset[int]:
        """Numbers of the entries whose units the next start writes again; while a broker runs, that is not known."""
        place = self._survey.ledger
        if place is None or self._survey.live:
            return frozenset()
        return rewritten_units(place, self._files[-1].size)

    @property
    def applies(self) -> bool:
        """Whether the log is a DLedger log, or continues as one."""
        return bool(self._files)

    def run(self) -> str:
        """Runs the checks; returns a text that states what was checked. Raises StoreError if a file cannot be read."""
        assert self._survey.ledger is not None
        directory = self._survey.ledger.directory
        self._units = {file.base: file for file in list_mapped_files(directory / dledger.INDEX).files}
        entries = 0
        for file in self._files:
            for heads in self._heads(file):
                self._follow(file, heads)
                self._compare(file, heads)
                entries += len(heads)
        self._texts(directory)
        if not self._units:
            raise StoreError("contains no index file to compare entries with", directory / dledger.INDEX)
        return f"{entries} entries, up to index {self._index} of term {self._term}"

    def _heads(self, file: MappedFile) -> Iterator[np.ndarray]:
        """Yields the headers of the valid entries of a file, as a structured array."""
        with ReadFile(file.path) as opened:
            is_last = file is self._files[-1]
            for item in walk_file(opened, file, is_last=is_last, crc=False):
                if not isinstance(item, Damage):
                    heads = _heads_of(item)
                    if self._survey.live:
                        heads = heads[heads["position"] + heads["size"] <= self._survey.end]
                    if len(heads):
                        yield heads

    def _follow(self, file: MappedFile, heads: np.ndarray) -> None:
        """Checks that the index increases by one from entry to entry, and that the term never decreases."""
        index, term = heads["index"].astype(np.int64), heads["term"].astype(np.int64)
        before = np.concatenate([[index[0] - 1 if self._index < 0 else self._index], index[:-1]])
        for row in np.flatnonzero(index != before + 1).tolist():
            evidence = f"expected index {before[row] + 1}, found {index[row]}"
            self._entry("dledger-index-order", file, heads, row, evidence)
        terms = np.concatenate([[max(self._term, 0)], term[:-1]])
        for row in np.flatnonzero((term < terms) | (term < 0)).tolist():
            self._entry("dledger-term-order", file, heads, row, f"term {term[row]} follows term {terms[row]}")
        self._index, self._term = int(index[-1]), int(term.max())
        unused = (heads["channel"] != 0) | (heads["chain_crc"] != 0) | (heads["body_crc"] != 0)
        for row in np.flatnonzero(unused).tolist():
            evidence = ", ".join(f"{name} {heads[name][row]}" for name in ("channel", "chain_crc", "body_crc"))
            self._entry("dledger-unused-field", file, heads, row, evidence)

    def _entry(
        self,
        code: str,
        file: MappedFile,
        heads: np.ndarray,
        row: int,
        evidence: str,
        severity: Severity | None = None,
    ) -> None:
        at = int(heads["position"][row])
        self._collector.add(code, file.path, evidence, position=at - file.base, span=(at, at + 1), severity=severity)

    def _compare(self, file: MappedFile, heads: np.ndarray) -> None:
        """Compares entries with their units in the index file."""
        if not self._units:
            return
        for first in range(0, len(heads), _BLOCK):
            part = heads[first : first + _BLOCK]
            units = self._units_of(part["index"].astype(np.int64))
            wrong = np.zeros(len(part), bool)
            for name in ("magic", "position", "size", "index", "term"):
                wrong |= units[name] != part[name]
            for row in np.flatnonzero(wrong).tolist():
                names = ("position", "size", "index", "term")
                actual, expected = (tuple(int(side[name][row]) for name in names) for side in (units, part))
                evidence = (
                    f"unit {part['index'][row]}: expected {expected}, found {actual} (position, size, index, term)"
                )
                is_repaired = int(part["index"][row]) in self._rewritten
                self._entry("dledger-index-unit", file, part, row, evidence, Severity.WARNING if is_repaired else None)

    def _units_of(self, index: np.ndarray) -> np.ndarray:
        """Returns the index units of some entries; zeros for entries missing from the index files."""
        aligned = np.zeros(len(index), dledger.INDEX_UNIT.dtype)
        size = dledger.INDEX_UNIT_SIZE
        for base, file in self._units.items():
            inside = np.flatnonzero((index * size >= base) & (index * size + size <= base + file.size))
            if len(inside):
                inside = inside[np.argsort(index[inside], kind="stable")]
                with ReadFile(file.path) as opened:
                    # a damaged index of one entry is far from the others
                    for near in np.split(inside, np.flatnonzero(np.diff(index[inside]) > _BLOCK) + 1):
                        low, high = int(index[near[0]]), int(index[near[-1]])
                        units = dledger.INDEX_UNIT.rows(opened.read(low * size - base, (high - low + 1) * size))
                        near = near[index[near] - low < len(units)]  # noqa: PLW2901
                        aligned[near] = units[index[near] - low]
        return aligned

    def _texts(self, directory: Path) -> None:
        path = directory / dledger.CHECKPOINT
        try:
            state = dledger.parse_state(read_file(path))
            for name, value in (("endIndex", state.end_index), ("committedIndex", state.committed_index)):
                if value is not None and value > self._index and not self._survey.live:
                    self._collector.add(
                        "dledger-checkpoint-ahead", path, f"{name} {value}, but the last entry is {self._index}"
                    )
        except (FormatError, StoreError) as error:
            self._text(path, error)
        path = directory / dledger.CURRENT_TERM
        try:
            term = dledger.parse_current_term(read_file(path))
            if term is not None and term < self._term and not self._survey.live:
                self._collector.add(
                    "dledger-term-behind", path, f"currTerm {term}, but the last entry is of term {self._term}"
                )
        except (FormatError, StoreError) as error:
            self._text(path, error)

    def _text(self, path: Path, error: FormatError | StoreError) -> None:
        severity = Severity.UNKNOWN if isinstance(error, UnreadableError) else None
        self._collector.add("dledger-text", path, str(error), severity=severity)


def _heads_of(frames: Frames) -> np.ndarray:
    """Returns the entry headers of frames, except damaged headers."""
    starts = frames.positions - dledger.ENTRY_HEADER_SIZE
    starts = starts[starts >= 0]
    rows = [bytes(frames.view[at : at + dledger.ENTRY_HEADER_SIZE]) for at in starts.tolist()]
    heads = np.frombuffer(b"".join(rows), _HEADS)
    return heads[heads["magic"] == dledger.MAGIC_ENTRY]


def check_controller(survey: Survey, config: BrokerConfig, collector: FindingCollector) -> str | None:
    """Checks the epoch file; returns a text that states what was checked, None if the store needs no epoch file.

    If enableControllerMode is not configured, the existence of brokerIdentity decides, which a broker writes when a
    controller has registered it.
    """
    enabled = config.flag("enableControllerMode")
    path = epoch_file(survey.root, config)
    backup = path.with_name(path.name + file_names.BACKUP_SUFFIX)
    if not path.exists() and not backup.exists():
        identity = broker_identity(survey.root, config)
        reason = "enableControllerMode=true" if enabled else f"{identity.name} exists" if identity.is_file() else ""
        if not reason or enabled is False or survey.end <= survey.min_offset:
            return None
        collector.add("epoch-missing", path, f"neither it nor its .bak; {reason}, the log ends at {survey.end}")
        return "0 epochs"
    entries, problem = _read(path)
    if problem is not None:
        _, of_backup = _read(backup)
        evidence = f"{problem}; {backup.name}: {of_backup or 'can be read'}"
        severity = Severity.UNKNOWN if isinstance(problem, UnreadableError) else None if of_backup else Severity.WARNING
        collector.add("epoch-unreadable", path, evidence, severity=severity)
        return "0 epochs"
    for before, after in pairwise(entries):
        if after.epoch <= before.epoch or after.start_offset < before.start_offset:
            evidence = f"epoch {after.epoch} from {after.start_offset} follows"
            collector.add("epoch-order", path, f"{evidence} epoch {before.epoch} from {before.start_offset}")
    last = entries[-1] if entries else None
    if last is not None and last.start_offset > survey.end and not survey.live and survey.segments:
        collector.add(
            "epoch-order", path, f"epoch {last.epoch} starts at {last.start_offset}, but the log ends at {survey.end}"
        )
    return f"{len(entries)} epoch(s)"


def _read(path: Path) -> tuple[tuple[EpochEntry, ...], FormatError | StoreError | None]:
    try:
        return epoch.parse(read_file(path)), None
    except (FormatError, StoreError) as error:
        return (), error
