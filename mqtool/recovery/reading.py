"""What consumers get after a start: one pull of one message at every queue offset, decoded as a client does.

The form of `store.queues.get_message` for whole queues, as columns, over the positions that the start left. Bytes of
proven records are not read again. Source: DefaultMessageStore.getMessage, CommitLog.getMessage, MessageDecoder.decode,
MessageVersion (4.9.7, 5.5.0); 4.9 does not check the magic code.
"""

import struct
from collections.abc import Iterator
from enum import StrEnum

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mqtool.errors import FormatError
from mqtool.formats import commit_log, hosts, java, properties
from mqtool.formats.commit_log import Record
from mqtool.formats.consume_queue import BATCH_UNIT_SIZE, CONSUME_QUEUE_UNIT, UNIT_SIZE
from mqtool.formats.release import Release
from mqtool.recovery.mapped_files import F, MappedFiles, SimulatedFile
from mqtool.recovery.proof import Proof
from mqtool.recovery.queues import BatchQueue, SimpleQueue
from mqtool.recovery.state import AnyQueue, StoreState
from mqtool.store.queues.get_message import DEFAULT_LIMITS, next_file

_HIGHEST_PORT = 0xFFFF
_SCAN_UNITS = DEFAULT_LIMITS.filter_bytes // UNIT_SIZE
"""A pull looks at that many units at most."""
_NONE = -1


class Delivery(StrEnum):
    """Result of a pull at a queue offset. The names are stable: they appear in output."""

    OK = "ok"
    SKIPPED = "skipped"
    """A pull here delivers a later record."""
    BAD_CRC = "bad-crc"
    """Delivered, with a body that is not what was written."""
    ZEROS = "zeros"
    """Delivered: zero bytes."""
    UNDECODABLE = "undecodable"
    """Delivered: bytes that no client can decode."""
    OTHER_TOPIC = "other-topic"
    """Delivered: a message of another topic."""
    OTHER_QUEUE = "other-queue"
    """Delivered: a message of another queue."""
    REMOVED = "MESSAGE_WAS_REMOVING"
    """Nothing: the log has no bytes there, nor a later record in this queue file."""
    NO_FILE = "OFFSET_FOUND_NULL"
    """Nothing: the queue file is missing."""
    NOT_COMPACTED = "not-compacted"
    """Nothing: the topic is compacted, and its own log ends before the message."""
    ERROR = "error"
    """The pull ends with an exception in the broker."""


class Decoded(Struct, frozen=True):
    """Result of decoding: its state, and the place that the record states."""

    delivery: Delivery
    queue_offset: int = 0


def decode(raw: bytes, topic: str, queue_id: int, *, release: Release) -> Decoded:
    """Decodes the bytes of one unit of a queue as a client of a release does."""
    if not any(raw):
        return Decoded(Delivery.ZEROS)
    try:
        record = _parse(raw, release)
    except (struct.error, FormatError):
        return Decoded(Delivery.UNDECODABLE)
    offset: int | None = record.queue_offset
    if java.decode_utf8(record.topic) != topic:
        offset = _offset_in(topic, properties.decode(record.properties))
        if offset is None:
            return Decoded(Delivery.OTHER_TOPIC)
    elif record.queue_id != queue_id:
        return Decoded(Delivery.OTHER_QUEUE)
    if record.body and commit_log.body_crc(record.body) != record.body_crc:
        return Decoded(Delivery.BAD_CRC)
    return Decoded(Delivery.OK, offset or 0)


def _offset_in(topic: str, values: dict[str, str]) -> int | None:
    """Returns the queue offset of a record in a further queue, None if the record does not name that queue."""
    names = java.split_drop_trailing(values.get(properties.INNER_MULTI_DISPATCH, ""), ",")
    offsets = java.split_drop_trailing(values.get(properties.INNER_MULTI_QUEUE_OFFSET, ""), ",")
    stated = dict(zip(names, offsets, strict=False)).get(topic)
    try:
        return java.parse_long(stated or "")
    except FormatError:
        return None


def _parse(raw: bytes, release: Release) -> Record:
    """Reads the record; the client checks neither its size nor, in 4.9, its magic code."""
    is_5 = release >= (5, 0)
    magic_code = commit_log.magic_code(raw)
    record = commit_log.read_fields(raw, is_v2=is_5 and magic_code == commit_log.MAGIC_V2)
    if is_5 and magic_code not in commit_log.RECORD_MAGICS:
        raise FormatError("no magic code", layout="record")
    for host in (record.born_host, record.store_host):
        if not 0 <= hosts.parse(host).port <= _HIGHEST_PORT:
            raise FormatError("no port", layout="record")
    if len(record.properties) != max(0, record.properties_length):
        raise FormatError("the bytes end", layout="record")
    return record


STATES = tuple(Delivery)
_NUMBER = {state: number for number, state in enumerate(STATES)}
OK = _NUMBER[Delivery.OK]
NOT_COMPACTED = _NUMBER[Delivery.NOT_COMPACTED]


class QueueReading(Struct, frozen=True):
    """One queue as consumers read it; every array has one item per queue offset."""

    offsets: np.ndarray  # int64, queue offsets
    states: np.ndarray  # int8, number in STATES
    physical: np.ndarray  # int64, start of the delivered record; -1 if there is none
    stated: np.ndarray  # int64, queue offset that the delivered record states
    records: np.ndarray  # int64, index of the record in the proof; -1 if it is not proven
    # Number of offsets whose message a pull there delivers, but no pull that begins earlier: a unit before them points
    # to no record.
    passed_over: int = 0

    def runs(self) -> Iterator[tuple[int, int, str]]:
        """Yields (first, last, state) of equal neighbours; `stored-offset+N` if the record states another offset."""
        if not len(self.offsets):
            return
        shift = np.where(self.states == OK, self.stated - self.offsets, 0)
        changes = (np.diff(self.states) != 0) | (np.diff(shift) != 0)
        starts = np.concatenate([[0], np.flatnonzero(changes) + 1])
        ends = np.concatenate([starts[1:], [len(self.offsets)]]) - 1
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            state = str(STATES[self.states[start]])
            named = f"stored-offset{int(shift[start]):+d}" if shift[start] else state
            yield int(self.offsets[start]), int(self.offsets[end]), named


class Reader:
    """Pulls from every queue of a state."""

    def __init__(self, state: StoreState, proof: Proof) -> None:
        self._state = state
        self._proof = proof
        self._numbers = {file.path: number for number, file in enumerate(proof.segments)}
        self._queues = {key: number for number, key in enumerate(proof.queues)}

    def read(self, queue: AnyQueue) -> QueueReading:
        """Pulls at every queue offset from the minimum to the maximum."""
        if isinstance(queue, BatchQueue):
            return self._read_batches(queue)
        offsets, file, units = _simple_units(queue)
        reading = self._pull(queue, offsets, units)
        absent = file == _NONE
        reading.states[absent] = _NUMBER[Delivery.NO_FILE]
        reading.physical[absent] = _NONE
        passed = self._passed_over(reading, file, units)
        self._look_ahead(reading, file, units)
        return replace(reading, passed_over=int(np.count_nonzero(passed & (reading.states == OK))))

    def _read_batches(self, queue: BatchQueue) -> QueueReading:
        units = [file.units()[: file.wrote // BATCH_UNIT_SIZE] for file in queue.files.files]
        joined = np.concatenate(units) if units else None
        if joined is None or not len(joined):
            return _empty_reading()
        inside = joined["base_queue_offset"] + joined["batch_size"] > queue.min_offset
        joined = joined[inside]
        return self._pull(queue, joined["base_queue_offset"].astype(np.int64), joined)

    def _pull(self, queue: AnyQueue, offsets: np.ndarray, units: np.ndarray) -> QueueReading:
        physical, size = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
        segment, position = _locate(self._state.log, physical, or_first=True)
        states = np.full(len(offsets), _NUMBER[Delivery.REMOVED], np.int8)
        start = np.full(len(offsets), _NONE)
        stated = np.full(len(offsets), _NONE)
        wrote = np.array([_NONE if file.is_new else file.wrote for file in self._state.log.files] + [_NONE])[segment]
        readable = (segment != _NONE) & (position + size <= wrote)
        states[(segment != _NONE) & ((size < 0) | (position + size > java.INT_MAX))] = _NUMBER[Delivery.ERROR]
        readable &= size >= 0
        bases = np.array([file.base for file in self._state.log.files] + [0])
        start[readable] = bases[segment[readable]] + position[readable]
        records = self._match(queue, segment, position, size, readable)
        proven = records != _NONE
        states[proven] = OK
        stated[proven] = self._proof.queue_offset[records[proven]]
        for at in np.flatnonzero(readable & ~proven).tolist():
            states[at], stated[at] = self._decode(queue, int(segment[at]), int(position[at]), int(size[at]))
        return QueueReading(offsets, states, start, stated, records)

    def _match(
        self, queue: AnyQueue, segment: np.ndarray, position: np.ndarray, size: np.ndarray, readable: np.ndarray
    ) -> np.ndarray:
        """Returns the proven record of this queue that each unit names exactly, -1 for none."""
        numbers = np.array([self._numbers.get(file.path, _NONE) for file in self._state.log.files] + [_NONE])[segment]
        records = np.where(readable, self._proof.at(numbers, position), _NONE)
        hit = np.flatnonzero(records != _NONE)
        record = records[hit]
        mine = self._queues.get((queue.topic, queue.queue_id), _NONE)
        same = (self._proof.size[record] == size[hit]) & (self._proof.queue[record] == mine)
        records[hit[~(same & self._proof.decodable[record])]] = _NONE
        return records

    def _decode(self, queue: AnyQueue, segment: int, position: int, size: int) -> tuple[int, int]:
        file = self._state.log.files[segment]
        raw = self._state.segments.reader(file)(position, size)
        decoded = decode(raw, queue.topic, queue.queue_id, release=self._state.settings.release)
        return _NUMBER[decoded.delivery], decoded.queue_offset

    def _look_ahead(self, reading: QueueReading, file: np.ndarray, units: np.ndarray) -> None:
        """Finds the record with which a pull continues that gets nothing at its own offset.

        It skips units up to the next segment and delivers the first one after that, in the same queue file.
        """
        waiting = np.flatnonzero((reading.states == _NUMBER[Delivery.REMOVED]) | (units["size"] == 0) & (file != _NONE))
        landing = np.full(len(file), _NONE)
        for at in waiting[::-1].tolist():
            following = self._next(reading, file, units, at)
            if following is not None:
                readable = reading.physical[following] != _NONE and units["size"][following] > 0
                landing[at] = following if readable else landing[following]
            empty = following is not None and units["size"][at] == 0
            if empty or (landing[at] != _NONE and landing[at] - at < _SCAN_UNITS):
                reading.states[at] = _NUMBER[Delivery.SKIPPED]
                reading.physical[at] = _NONE

    def _passed_over(self, reading: QueueReading, file: np.ndarray, units: np.ndarray) -> np.ndarray:
        """Returns a bool for each offset: whether a pull that comes from before passes over it.

        After a unit that points to no record, it passes over the units that point before the next segment.
        """
        passed = np.zeros(len(file), bool)
        for at in np.flatnonzero((reading.states == _NUMBER[Delivery.REMOVED]) & (units["size"] > 0)).tolist():
            following = self._next(reading, file, units, at)
            end = min(len(file), at + _SCAN_UNITS) if following is None else following
            passed[at + 1 : end] |= file[at + 1 : end] == file[at]
        return passed

    def _next(self, reading: QueueReading, file: np.ndarray, units: np.ndarray, at: int) -> int | None:
        roll = next_file(int(units["physical_offset"][at]), self._state.settings.segment_size)
        floor = roll if reading.physical[at] == _NONE else np.iinfo(np.int64).min
        end = min(len(file), at + _SCAN_UNITS)
        ahead = np.flatnonzero((units["physical_offset"][at + 1 : end] >= floor) & (file[at + 1 : end] == file[at]))
        return at + 1 + int(ahead[0]) if len(ahead) else None


def _simple_units(queue: SimpleQueue) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns queue offsets, the index of the file with each unit (-1: none), and the units."""
    first, last = queue.min_offset, queue.max_offset
    offsets = np.arange(first, max(first, last))
    file = np.full(len(offsets), _NONE)
    units = np.zeros(len(offsets), CONSUME_QUEUE_UNIT.dtype)
    where, position = _locate(queue.files, offsets * UNIT_SIZE)
    for number, queue_file in enumerate(queue.files.files):
        mine = np.flatnonzero(
            (where == number) & (position < queue_file.wrote) & (offsets * UNIT_SIZE >= queue.min_logic)
        )
        if len(mine):
            file[mine] = number
            units[mine] = queue_file.units()[position[mine] // UNIT_SIZE]
    return offsets, file, units


def _locate(files: MappedFiles[F], offsets: np.ndarray, *, or_first: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Returns the index of the file that `find` returns for each offset (-1: none), and the position in it."""
    size = files.file_size
    numbers = {id(member): number for number, member in enumerate(files.files)}

    def number_of(file: SimulatedFile | None) -> int:
        return _NONE if file is None else numbers[id(file)]

    edges = sorted({edge for member in files.files for edge in _edges(member.base, size)})
    places = np.array([_NONE] + [number_of(files.find(edge)) for edge in edges])
    where = places[np.searchsorted(np.array(edges, np.int64), offsets, side="right")]
    if or_first:  # the log's first segment answers for offset 0, whatever its base
        where[offsets == 0] = number_of(files.find(0, or_first=True))
    return where, np.fmod(offsets, size)


def _edges(base: int, size: int) -> tuple[int, ...]:
    """Returns the offsets around one file at which the result of `find` may change."""
    return base, base + size, base - base % size, base - base % size + size


def _empty_reading() -> QueueReading:
    none = np.empty(0, np.int64)
    return QueueReading(none, np.empty(0, np.int8), none, none, none)
