"""The queues of a store, open for reading: ConsumeQueue, its extension, BatchConsumeQueue, ends of compacted queues.

Bounds are found in blocks from either end, so opening a store reads little of a queue, however long it is.
"""

import bisect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
from msgspec import Struct

from mqtool.errors import FormatError, StoreError, UnreadableError
from mqtool.formats import file_names
from mqtool.formats.config_files import BATCH_QUEUES, SIMPLE_QUEUES
from mqtool.formats.consume_queue import (
    BATCH_CONSUME_QUEUE_UNIT,
    BATCH_UNIT_SIZE,
    CONSUME_QUEUE_UNIT,
    EXT_END_BLANK_SIZE,
    LONGEST_EXT_UNIT,
    PRE_BLANK_SIZE_FIELD,
    ConsumeQueueExtUnit,
    ext_offset,
    parse_ext_unit,
)
from mqtool.formats.java import LONG_MIN
from mqtool.records.queue_build import batch_min_offset
from mqtool.store.files import MappedFile, MappedFileList, ReadFile, list_mapped_files, recording_unlisted

BLOCK = 1 << 18
_KEPT = 32 << 20

Test = Callable[[np.ndarray], np.ndarray]

Positions = Mapping[str, Mapping[str, Mapping[int, int]]]
"""Next queue offset by group, topic and queue id."""

MAX_PROBLEMS = 1000

_PIECE = 1 << 20


class UnitCache:
    """Units of the most recently read queue files, shared by all queues of a store."""

    def __init__(self, limit: int = _KEPT) -> None:
        """Keeps up to `limit` bytes, and always the file read last."""
        self._limit = limit
        self._held: OrderedDict[Path, np.ndarray] = OrderedDict()
        self._bytes = 0

    def get(self, path: Path, load: Callable[[], np.ndarray]) -> np.ndarray:
        """Returns the cached units of a file, or loads them."""
        units = self._held.get(path)
        if units is None:
            units = self._held[path] = load()
            self._bytes += units.nbytes
            while self._bytes > self._limit and len(self._held) > 1:
                self._bytes -= self._held.popitem(last=False)[1].nbytes
        else:
            self._held.move_to_end(path)
        return units


class Queue:
    """One queue of a topic.

    Attributes:
        topic, queue_id: names the queue.
        kind: "SimpleCQ" (20-byte units, one for each message) or "BatchCQ" (46-byte units, one for each record).
        path: its directory.
        files: by file_from_offset.
        strays: other files in the directory.
    """

    def __init__(
        self,
        topic: str,
        queue_id: int,
        kind: str,
        path: Path,
        bounds: Callable[[], tuple[int, int]],
        cache: UnitCache | None = None,
        files: MappedFileList | None = None,
    ) -> None:
        """Takes a queue directory, whose content is listed if `files` are not given; raises StoreError.

        `bounds` returns minimum and maximum physical offset of the CommitLog.
        """
        self.topic = topic
        self.queue_id = queue_id
        self.kind = kind
        self.path = path
        listed = list_mapped_files(path) if files is None else files
        self.files = listed.files
        self.strays = listed.strays
        self._bounds = bounds
        self._unit = CONSUME_QUEUE_UNIT if kind == SIMPLE_QUEUES else BATCH_CONSUME_QUEUE_UNIT
        self._cache = cache or UnitCache()

    @property
    def is_batch(self) -> bool:
        """Whether a unit may represent several messages."""
        return self.kind == BATCH_QUEUES

    @property
    def file_units(self) -> int:
        """Capacity of the first file in units."""
        return self.files[0].size // self._unit.size if self.files else 0

    def units_of(self, number: int) -> np.ndarray:
        """Returns the units of one file, up to the last one in use, as a structured array in field order.

        Its fields are big-endian and named as in the layout; the array is read-only.
        """
        return self._cache.get(self.files[number].path, lambda: self._load(number))

    def _open(self, number: int) -> ReadFile:
        return ReadFile(self.files[number].path)

    def modified_ms(self, number: int) -> int:
        """Returns the modification time of a file, ms since the epoch."""
        return self.files[number].path.stat().st_mtime_ns // 1_000_000

    def _load(self, number: int) -> np.ndarray:
        with self._open(number) as file:
            units = self._read(file, 0, self._room(number, file))
        used = np.flatnonzero(_in_use(units))
        return units[: used[-1] + 1] if len(used) else units[:0]

    def _room(self, number: int, file: ReadFile) -> int:
        """Number of units of a file before its last hole."""
        capacity = min(self.files[number].size, file.size) // self._unit.size
        return min(capacity, -(-file.data_end() // self._unit.size))

    def _read(self, file: ReadFile, first: int, count: int) -> np.ndarray:
        data = file.read(first * self._unit.size, count * self._unit.size)
        return self._unit.rows(data)

    def unit_at(self, number: int, index: int) -> np.ndarray:
        """Returns one unit of a file as an array of length one, of length zero if it does not exist."""
        with self._open(number) as file:
            return self._read(file, index, 1)

    def units(self) -> np.ndarray:
        """Returns all units, files joined; for SimpleCQ item i has queue offset `first_offset + i`."""
        parts = []
        for number in range(len(self.files)):
            part = self.units_of(number)
            if number < len(self.files) - 1 and not self.is_batch:
                part = _padded(part, self.files[number].size // self._unit.size)
            parts.append(part)
        return np.concatenate(parts) if parts else np.empty(0, self._unit.dtype)

    @property
    def first_offset(self) -> int:
        """Queue offset of the first unit on disk, pre-blank ones included (SimpleCQ)."""
        return self.files[0].base // self._unit.size if self.files else 0

    def _blocks(self, number: int, *, backward: bool = False) -> Iterator[tuple[int, np.ndarray]]:
        """Yields (index of the first unit, units) of blocks of a file."""
        step = BLOCK // self._unit.size
        with self._open(number) as file:
            room = self._room(number, file)
            starts = range(0, room, step)
            for first in reversed(starts) if backward else starts:
                yield first, self._read(file, first, min(step, room - first))

    def last_unit(self, test: "Test | None" = None) -> tuple[int, int, np.void] | None:
        """Returns (file number, index in it, unit) of the newest unit with a record that passes a test, if any."""
        for number in range(len(self.files) - 1, -1, -1):
            for first, units in self._blocks(number, backward=True):
                rows = np.flatnonzero(has_record(units) if test is None else has_record(units) & test(units))
                if len(rows):
                    return number, first + int(rows[-1]), units[rows[-1]]
        return None

    def first_unit(self, test: Test) -> tuple[int, int, np.void] | None:
        """Returns (file number, index in it, unit) of the oldest unit with a record that passes a test, if any."""
        for number in range(len(self.files)):
            for first, units in self._blocks(number):
                rows = np.flatnonzero(has_record(units) & test(units))
                if len(rows):
                    return number, first + int(rows[0]), units[rows[0]]
        return None

    @cached_property
    def _last(self) -> tuple[int, int, np.void] | None:
        limit = self._bounds()[1]
        return self.last_unit(lambda units: units["physical_offset"] < limit)

    @property
    def max_physical_offset(self) -> int:
        """Physical offset after the newest record that a unit names; for BatchCQ of its start, as in the broker."""
        if self._last is None:
            return 0
        unit = self._last[2]
        return int(unit["physical_offset"]) + (0 if self.is_batch else int(unit["size"]))

    @property
    def max_offset(self) -> int:
        """Queue offset after the last unit."""
        if self._last is None:
            return 0 if self.is_batch else self.first_offset
        number, index, unit = self._last
        if self.is_batch:
            return int(unit["base_queue_offset"]) + int(unit["batch_size"])
        return self.files[number].base // self._unit.size + index + 1

    @cached_property
    def min_offset(self) -> int:
        """Queue offset of the first message that the CommitLog still has; equal to max_offset if there is none."""
        limit = self._bounds()[0]
        if self.is_batch:
            return batch_min_offset(self.units_of(0), limit) if self.files else -1
        unit = self.first_unit(lambda units: units["physical_offset"] >= limit)
        if unit is None:
            return self.max_offset
        number, index, _ = unit
        return self.files[number].base // self._unit.size + index

    def find_file(self, queue_offset: int) -> int | None:
        """Returns the number of the file that holds a unit (SimpleCQ), None if none does."""
        position = queue_offset * self._unit.size
        number = bisect.bisect_right([file.base for file in self.files], position) - 1
        return number if number >= 0 and position < self.files[number].end else None

    def names(self, queue_offset: int, physical_offset: int) -> bool:
        """Whether the unit at a queue offset points to a record (SimpleCQ only)."""
        number = None if self.is_batch or queue_offset < 0 else self.find_file(queue_offset)
        if number is None:
            return False
        unit = self.unit_at(number, queue_offset - self.files[number].base // self._unit.size)
        return bool((has_record(unit) & (unit["physical_offset"] == physical_offset)).any())

    @property
    def unit_size(self) -> int:
        """Bytes of a unit."""
        return self._unit.size


def units_from(queue: Queue, start: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns queue offset and physical offset of each unit from a queue offset on, in order."""
    offsets, physical = [], []
    for number, file in enumerate(queue.files):
        if file.end // queue.unit_size <= start and not queue.is_batch:
            continue
        units = queue.units_of(number)
        if queue.is_batch:
            numbers = units["base_queue_offset"].astype(np.int64)
        else:
            numbers = np.arange(len(units), dtype=np.int64) + file.base // queue.unit_size
        selected = (numbers >= start) & (numbers < queue.max_offset) & (units["size"] > 0)
        offsets.append(numbers[selected])
        physical.append(units["physical_offset"][selected].astype(np.int64))
    empty = np.empty(0, np.int64)
    return np.concatenate(offsets or [empty]), np.concatenate(physical or [empty])


def _in_use(units: np.ndarray) -> np.ndarray:
    return (units["size"] > 0) & (units["physical_offset"] >= 0)


def has_record(units: np.ndarray) -> np.ndarray:
    """Returns which units name a record: neither empty nor pre-blank."""
    is_pre_blank = (units["physical_offset"] == 0) & (units["size"] == PRE_BLANK_SIZE_FIELD)
    return _in_use(units) & ~is_pre_blank


def _padded(units: np.ndarray, count: int) -> np.ndarray:
    if len(units) == count:
        return units
    padded = np.zeros(count, units.dtype)
    padded[: len(units)] = units
    return padded


def last_queue_offset(root: Path, topic: str, queue_id: int) -> int:
    """Returns the queue offset of the last message of a compacted queue, -1 if it has none; raises StoreError.

    The broker reads it from the last valid unit, and appends only messages after it (CompactionLog.asyncPutMessage,
    5.5.0).
    """
    for file in reversed(list_mapped_files(root / file_names.COMPACTION_CONSUME_QUEUE / topic / str(queue_id)).files):
        with ReadFile(file.path) as opened:
            valid = valid_units(opened.read(0, file.size))
        if len(valid):
            return int(valid["base_queue_offset"][-1])
    return -1


def valid_units(data: bytes) -> np.ndarray:
    """Returns the units of a compacted queue's file that a broker uses, as a structured array."""
    units = BATCH_CONSUME_QUEUE_UNIT.rows(data[: len(data) // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE])
    named = (units["physical_offset"] >= 0) & (units["base_queue_offset"] >= 0)
    return units[named & (units["size"] > 0) & (units["batch_size"] > 0)]


class Lag(Struct, frozen=True):
    """Lag of a consumer group in one queue."""

    group: str  # and topic, queue_id: names group and queue
    topic: str
    queue_id: int
    consumer_offset: int  # next queue offset that the group reads
    min_offset: int | None  # and max_offset: of the queue; None if the queue does not exist
    max_offset: int | None
    lag: int | None  # number of unread messages; None if the queue does not exist


def lags_of(positions: Positions, queue_of: Callable[[str, int], Queue | None]) -> list[Lag]:
    """Compares consumer offsets with the queues; returns lags by group, topic and queue id."""
    lags = []
    for group, topics in sorted(positions.items()):
        for topic, offsets in sorted(topics.items()):
            for queue_id, offset in sorted(offsets.items()):
                queue = queue_of(topic, queue_id)
                low, high = (queue.min_offset, queue.max_offset) if queue else (None, None)
                lag = None if high is None else max(0, high - offset)
                lags.append(Lag(group, topic, queue_id, offset, low, high, lag))
    return lags


def ext_units(file: ReadFile) -> Iterator[tuple[int, ConsumeQueueExtUnit]]:
    """Yields position and unit of each unit of a file; raises StoreError.

    Raises FormatError if the bytes at a position are no unit; the units before it have been yielded.
    """
    data, start, at = b"", 0, 0
    while file.size - at > EXT_END_BLANK_SIZE:
        if at + LONGEST_EXT_UNIT > start + len(data) < file.size:
            start, data = at, file.read(at, _PIECE)
        try:
            unit = parse_ext_unit(data, at - start)
        except FormatError as error:
            raise FormatError(error.reason, layout=error.layout, field=error.field, position=at) from error
        if unit is None:
            return
        yield at, unit
        at += unit.size


class ExtUnits:
    """The extension of one queue; read on the first use of an address."""

    def __init__(self, root: Path, topic: str, queue_id: int) -> None:
        self.path = root / file_names.CONSUME_QUEUE_EXT / topic / str(queue_id)

    @cached_property
    def _listed(self) -> tuple[tuple[MappedFile, ...], str]:
        """The files, and why they cannot be listed."""
        try:
            with recording_unlisted(None):
                return list_mapped_files(self.path).files, ""
        except UnreadableError as error:
            return (), str(error)

    @property
    def files(self) -> tuple[MappedFile, ...]:
        """The files by offset; none if they cannot be listed."""
        return self._listed[0]

    @cached_property
    def _units(self) -> tuple[np.ndarray, np.ndarray, list[str], str]:
        """Offsets and tags codes of all units by offset, what is malformed in words, and why some are unknown."""
        offsets: list[int] = []
        tags: list[int] = []
        problems: list[str] = []
        files, unread = self._listed
        for file in files:
            try:
                with ReadFile(file.path) as opened:
                    for position, unit in ext_units(opened):
                        offsets.append(file.base + position)
                        tags.append(unit.tags_code)
            except StoreError as error:
                unread = unread or str(error)
            except FormatError as error:
                problems.append(f"{file.path.name}: {error}")
        return np.array(offsets, np.int64), np.array(tags, np.int64), problems, unread

    @property
    def malformed(self) -> list[str]:
        """Units that cannot be decoded, in words."""
        return self._units[2]

    @property
    def unread(self) -> str:
        """Why a file or the directory cannot be read; "" if all of it can."""
        return self._units[3]

    def unit_at(self, address: int) -> ConsumeQueueExtUnit | None:
        """Returns the unit at an address as ConsumeQueue units store it, None if there is none."""
        offset = ext_offset(address)
        file = next((candidate for candidate in self.files if candidate.base <= offset < candidate.end), None)
        if file is None:
            return None
        try:
            with ReadFile(file.path) as opened:
                return parse_ext_unit(opened.read(offset - file.base, LONGEST_EXT_UNIT))
        except (StoreError, FormatError):
            return None

    def tags_of(self, addresses: np.ndarray, problems: list[tuple[int, str, str]]) -> np.ndarray:
        """Returns the tags codes at addresses in units; 0 and a problem without a unit. If files are unread, 0 alone.

        A problem is (offset, code, evidence).
        """
        offsets, tags, malformed, unread = self._units
        positions = addresses - LONG_MIN
        at = np.minimum(np.searchsorted(offsets, positions), max(0, len(offsets) - 1))
        is_present = offsets[at] == positions if len(offsets) else np.zeros(len(positions), bool)
        absent = [] if unread else np.flatnonzero(~is_present).tolist()
        for index in absent[: MAX_PROBLEMS - len(problems)]:
            where = int(positions[index])
            evidence = f"no unit at extension offset {where}" + (f"; {malformed[0]}" if malformed else "")
            problems.append((where, "ext-dangling-address", evidence))
        return np.where(is_present, tags[at] if len(tags) else 0, 0)
