"""Reads one index file once: header, slots, chains, and the checksums of its entries for the comparison with the log.

Source: IndexFile.putKey, IndexHeader, IndexService (4.9.7, 5.5.0).
"""

from pathlib import Path

import numpy as np
from msgspec import Struct, field

from mqtool.errors import StoreError
from mqtool.formats import index_file, java
from mqtool.formats.index_file import ENTRY, HEADER, HEADER_SIZE, SLOT_SIZE, IndexHeader
from mqtool.jobs.progress import Throttle
from mqtool.records.index_chains import chain
from mqtool.records.segment_bytes import page_aligned
from mqtool.store.files import ReadFile
from mqtool.store.index_file import Shape, entries_written
from mqtool.verify.checksums import Buckets, Sums, mix_entries
from mqtool.verify.survey import Survey

CHUNK = 1 << 15
"""Entries that are read at a time: 640 KiB, which stay in the processor's cache."""
_SLOTS = 1 << 17
"""Slots that are read at a time."""
MAX_NOTED = 1000
"""Maximum number of invalid entries kept per file."""


class WrongEntry(Struct, frozen=True):
    """An entry that contradicts its file."""

    code: str  # of the finding
    number: int  # of the entry
    physical_offset: int  # as stored in it
    related: tuple[int, ...]  # numbers of the other entries involved
    evidence: str  # expected and found


class IndexFacts(Struct):
    """Facts about one index file."""

    path: Path  # and size: the file
    size: int
    header: IndexHeader  # its first 40 bytes
    entries: int = 0  # number of entries written, independent of the header's count
    begin: int = 0  # store time, ms, that the entries' times are relative to
    low: int = -1  # and high: minimum and maximum physical offset of entries inside the log, -1 if there is none
    high: int = -1
    ahead: int = 0  # entries that point at or beyond the end of the log
    first_entry: int = -1  # and last_entry: physical offsets in the first and the last entry, -1 if there is none
    last_entry: int = -1
    bad_header: list[str] = field(default_factory=list)  # what is wrong with the header, in words
    bad_slots: int = 0  # and first_bad_slot: slots that do not lead to their newest entry
    first_bad_slot: int = -1
    wrong: list[WrongEntry] = field(default_factory=list)  # entries that contradict the file, up to a limit
    wrong_count: int = 0  # number of such entries, without the limit
    # (first entry, how many, least and largest physical offset) of each block read.
    chunks: list[tuple[int, int, int, int]] = field(default_factory=list)
    failure: str = ""  # why reading stopped, "" if it did not


def check_index_file(
    survey: Survey, path: Path, shape: Shape, buckets: Buckets, sums: Sums, throttle: Throttle
) -> IndexFacts:
    """Reads all entries of a file and adds those inside the log to the sums; a read error is stored, not raised."""
    facts = IndexFacts(path, 0, IndexHeader(0, 0, 0, 0, 0, 0))
    try:
        with ReadFile(path) as file:
            facts.size = file.size
            facts.header = HEADER.parse_start(file.read(0, HEADER_SIZE))
            _Scan(survey, file, shape, buckets, sums, facts).run(throttle)
    except StoreError as error:
        facts.failure = str(error)
    return facts


class _Scan:
    def __init__(
        self, survey: Survey, file: ReadFile, shape: Shape, buckets: Buckets, sums: Sums, facts: IndexFacts
    ) -> None:
        self._survey = survey
        self._file = file
        self._shape = shape
        self._buckets = buckets
        self._sums = sums
        self.facts = facts
        self._heads = np.zeros(shape.slots, np.int32)
        self._memory = page_aligned(max(CHUNK * ENTRY.size, _SLOTS * SLOT_SIZE)).data

    def run(self, throttle: Throttle) -> None:
        facts, header = self.facts, self.facts.header
        room = max(0, (facts.size - HEADER_SIZE - self._shape.slots * SLOT_SIZE) // ENTRY.size - 1)
        written = min(entries_written(self._file.used_end(), self._shape.slots), room)
        facts.entries = min(written, header.entry_count) if self._survey.live else written
        facts.begin = header.begin_timestamp
        for first in range(1, facts.entries + 1, CHUNK):
            count = min(CHUNK, facts.entries - first + 1)
            data = self._read(index_file.entry_position(first, self._shape.slots), count * ENTRY.size)
            throttle.spend(len(data))
            entries = ENTRY.rows(data)
            if len(entries):  # else the file was cut meanwhile
                self._take(first, entries)
        self._check_header()
        self._check_slots()

    def _read(self, position: int, count: int) -> memoryview:
        """Reads into the same buffer each time."""
        return self._memory[: self._file.read_into(position, self._memory[:count])]

    def _take(self, first: int, entries: np.ndarray) -> None:
        facts = self.facts
        facts.first_entry = int(entries["physical_offset"][0]) if first == 1 else facts.first_entry
        facts.last_entry = int(entries["physical_offset"][-1])
        taken, *limits = self._buckets.add_plain_entries(self._sums, entries, first, self._heads, self._survey.end)
        bounds = limits if taken else []
        if taken < len(entries):
            bounds += self._take_any(first + taken, entries[taken:])
        if bounds:
            low, high = min(bounds), max(bounds)
            facts.low = low if facts.low < 0 else min(facts.low, low)
            facts.high = max(facts.high, high)
            facts.chunks.append((first, len(entries), low, high))

    def _take_any(self, first: int, entries: np.ndarray) -> list[int]:
        """Processes entries of any kind; returns bounds of the physical offsets inside the log, [] if none is."""
        physical = entries["physical_offset"].astype(np.int64)
        hashes = entries["key_hash"].astype(np.int64)
        self._chain(first, entries, hashes)
        bucket = self._buckets.of(physical)
        inside = (bucket >= 0) & (physical < self._survey.end)
        self.facts.ahead += int((physical >= self._survey.end).sum())
        if not inside.any():
            return []
        which = np.flatnonzero(inside)
        times = entries["time_diff"][which].astype(np.int64)
        self._sums.add(bucket[which], mix_entries(hashes[which], physical[which], times))
        return [int(physical[which].min()), int(physical[which].max())]

    def _chain(self, first: int, entries: np.ndarray, hashes: np.ndarray) -> None:
        """Compares each entry's predecessor with the newest entry of its slot before it."""
        negative = np.flatnonzero(hashes < 0)
        for row in negative.tolist()[: MAX_NOTED - len(self.facts.wrong)]:
            self._add_wrong("index-foreign-entry", first + row, entries, row, (), f"key hash {hashes[row]} is negative")
        self.facts.wrong_count += len(negative)
        previous = entries["previous"].astype(np.int64)
        for row, due in self._wrong_links(first, hashes, previous):
            related = tuple({due, int(previous[row])} - {0})
            evidence = f"entry {first + row} names {previous[row]} as its predecessor, expected {due}"
            self._add_wrong("index-chain", first + row, entries, row, related, evidence)

    def _wrong_links(self, first: int, hashes: np.ndarray, previous: np.ndarray) -> list[tuple[int, int]]:
        """Returns row and expected predecessor of entries that state another one, up to a limit; counts them all."""
        due = self._due(first, hashes)
        rows = np.flatnonzero(previous != due)
        wrong = np.stack([rows, due[rows]], axis=1)
        self.facts.wrong_count += len(wrong)
        return [(row, due) for row, due in wrong[: max(0, MAX_NOTED - len(self.facts.wrong))].tolist()]

    def _due(self, first: int, hashes: np.ndarray) -> np.ndarray:
        """Returns the expected predecessor of each entry: the newest in its slot so far. Updates the newest entries."""
        slots = np.maximum(hashes, 0).astype(np.int32) % np.int32(self._shape.slots)  # half the time of int64
        return chain(self._heads, slots, first)

    def _add_wrong(
        self, code: str, number: int, entries: np.ndarray, row: int, related: tuple[int, ...], evidence: str
    ) -> None:
        self.facts.wrong.append(WrongEntry(code, number, int(entries["physical_offset"][row]), related, evidence))

    def _check_header(self) -> None:
        facts, header, shape = self.facts, self.facts.header, self._shape
        if not 0 <= header.index_count <= shape.places:
            evidence = f"counts {header.index_count} of {shape.places} places, but {facts.entries} are written"
            facts.bad_header.append(evidence)
        elif header.entry_count != facts.entries and not self._survey.live:
            facts.bad_header.append(f"counts {header.entry_count} entries, but {facts.entries} are written")
        if not 0 <= header.hash_slot_count <= shape.slots:
            facts.bad_header.append(f"counts {header.hash_slot_count} of {shape.slots} slots in use")
        if min(header.begin_timestamp, header.end_timestamp) < 0:  # the end may be the earlier one: clocks step back
            facts.bad_header.append(f"times from {header.begin_timestamp} to {header.end_timestamp}")
        if header.begin_physical_offset > header.end_physical_offset or header.begin_physical_offset < 0:
            facts.bad_header.append(f"offsets from {header.begin_physical_offset} to {header.end_physical_offset}")

    def _check_slots(self) -> None:
        facts, slots = self.facts, self._shape.slots
        used = 0
        for start in range(0, slots, _SLOTS):
            count = min(_SLOTS, slots - start)
            data = self._read(index_file.slot_position(start), count * SLOT_SIZE)
            wrong, first, there = self._compared(data[: len(data) // SLOT_SIZE * SLOT_SIZE], start)
            if wrong and not facts.bad_slots:
                facts.first_bad_slot = start + first
            facts.bad_slots += wrong
            used += there
        plausible = 0 <= facts.header.hash_slot_count <= slots
        if plausible and used != facts.header.hash_slot_count and not facts.bad_slots and not self._survey.live:
            facts.bad_header.append(f"counts {facts.header.hash_slot_count} slots in use, found {used}")

    def _compared(self, data: memoryview, start: int) -> tuple[int, int, int]:
        """Returns how many stored slots are wrong, the first of them or -1, and how many are in use."""
        newest = self.facts.entries if self._survey.live else java.INT_MAX  # newer entries than those that were counted
        heads = self._heads[start : start + len(data) // SLOT_SIZE]
        stored = np.frombuffer(data, index_file.SLOT_TYPE).astype(np.int64)
        wrong = np.flatnonzero((stored != heads) & (stored <= newest))
        return len(wrong), int(wrong[0]) if len(wrong) else -1, int((stored != 0).sum())
