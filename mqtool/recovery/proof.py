"""The messages that a store provably has now: complete records in its segments, before anything is cut.

Stricter than the broker's test: a record counts if magic code, lengths, CRC and its own physical offset agree.
"""

import contextlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property

import numpy as np
from msgspec import Struct, structs

from mqtool.formats import commit_log, properties
from mqtool.formats.topics import TopicQueue
from mqtool.records.damage import Damage
from mqtool.records.dispatch import Dispatcher, is_queued, rules_for
from mqtool.records.frames import Frames
from mqtool.records.number_sets import distinct
from mqtool.recovery.dispatch import by_queue
from mqtool.recovery.mapped_files import SimulatedFile
from mqtool.recovery.settings import RecoverySettings
from mqtool.store.files import MappedFile, ReadFile
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.log.log_walk import walk_file
from mqtool.store.log.misplaced_bytes import DisplacedRecords

_HIGHEST_PORT = 0xFFFF
_KINDS = (np.int32, np.int32, np.int32, np.int64, np.int32, np.bool_, np.bool_)
"""Of the columns: a log of 100 GiB may hold a hundred million records."""


class _Columns(Struct, frozen=True):
    """Proven records; every array has one item per record."""

    position: np.ndarray  # int32, in the file
    size: np.ndarray  # int32
    queue: np.ndarray  # int32, number in `queues`
    queue_offset: np.ndarray  # int64, of the first message
    messages: np.ndarray  # int32; more than 1 only in batches
    queued: np.ndarray  # bool, gets a unit: no transaction, or a committed one
    decodable: np.ndarray  # bool, a client can decode it
    # int64, three columns: a record, the number of a further queue that it was given an offset in
    # (INNER_MULTI_DISPATCH), and that queue offset.
    further: np.ndarray
    damages: np.ndarray  # int64, two columns: physical offsets of the ranges without a record
    displaced: np.ndarray  # int64, physical offsets of the records that belong there and are in displaced blocks
    queues: tuple[TopicQueue, ...]  # topic and queue id of each number


def _joined(
    windows: Iterable[tuple[np.ndarray, ...]],
    further: Iterable[np.ndarray],
    damages: Iterable[np.ndarray],
    displaced: Iterable[np.ndarray],
    queues: tuple[TopicQueue, ...],
) -> _Columns:
    """Returns columns whose parts are the items of some windows."""
    none = [np.empty(0, kind) for kind in _KINDS]
    position, size, queue, offset, messages, queued, decodable = (
        np.concatenate(column) for column in zip(none, *windows, strict=True)
    )
    return _Columns(
        position,
        size,
        queue,
        offset,
        messages,
        queued,
        decodable,
        np.concatenate([np.empty((0, 3), np.int64), *further]),
        np.concatenate([np.empty((0, 2), np.int64), *damages]),
        np.concatenate([np.empty(0, np.int64), *displaced]),
        queues,
    )


class Proof(_Columns, frozen=True, dict=True):
    """Proven records in the order of segments and positions."""

    segments: tuple[SimulatedFile, ...]  # the files, numbered
    edges: np.ndarray  # int64, number of the first record of each segment, and of all records

    @cached_property
    def physical(self) -> np.ndarray:
        """int64, physical offset of each record."""
        bases = np.array([file.base for file in self.segments], np.int64)
        return np.asarray(np.repeat(bases, np.diff(self.edges)) + self.position)

    def read(self, physical_offset: int, count: int) -> bytes:
        """Returns bytes of one segment; fewer at its end, none without a segment."""
        at = bisect_right(self.segments, physical_offset, key=lambda file: file.base) - 1
        if at < 0:
            return b""
        with ReadFile(self.segments[at].path) as file:
            position = physical_offset - self.segments[at].base
            return file.read(position, max(0, min(count, file.size - position)))

    def at(self, segment: np.ndarray, position: np.ndarray) -> np.ndarray:
        """Returns the number of the record at each place, -1 if none is proven."""
        numbers = np.full(len(segment), -1)
        for number in distinct(segment[segment >= 0]).tolist():
            first, end = self.edges[number : number + 2].tolist()
            if first == end:
                continue
            rows = np.flatnonzero(segment == number)
            row = first + np.minimum(np.searchsorted(self.position[first:end], position[rows]), end - first - 1)
            hit = self.position[row] == position[rows]
            numbers[rows[hit]] = row[hit]
        return numbers


_PROVEN: ContextVar[dict[tuple[object, ...], _Columns] | None] = ContextVar("proven", default=None)
"""Files that were read before in the same context, by what they are and whose start it was for."""


@contextmanager
def read_once() -> Iterator[None]:
    """Within the context, `prove` reads no file twice, under whatever names; a changed file counts as another one.

    A repair is judged by four proofs of nearly the same log. The cache takes 26 bytes for each record.
    """
    known = _PROVEN.get()
    token = _PROVEN.set({} if known is None else known)
    try:
        yield
    finally:
        _PROVEN.reset(token)


class _FileColumns:
    """The columns of one file, which grow by a window at a time."""

    def __init__(self, settings: RecoverySettings) -> None:
        rules = rules_for(
            settings.release, multi_dispatch=settings.has_further_queues, delay_levels=settings.delay_levels_ms
        )
        self._dispatcher = Dispatcher(rules)
        self._release = settings.release
        self._queues: dict[TopicQueue, int] = {}
        self._windows: list[tuple[np.ndarray, ...]] = []
        self._further: list[np.ndarray] = []
        self._damages: list[np.ndarray] = []
        self._count = 0

    def add(self, base: int, frames: Frames) -> None:
        """Adds the valid frames of one window."""
        dispatched = self._dispatcher.dispatch(frames, keys=False)
        columns = (
            frames.positions + (frames.base - base),
            frames.sizes,
            self._queue_numbers(dispatched.topic, frames.column("queue_id")),
            frames.column("queue_offset"),
            _messages(frames),
            is_queued(frames),
            self._decodable(frames),
        )
        self._windows.append(tuple(column.astype(kind) for column, kind in zip(columns, _KINDS, strict=True)))
        units = dispatched.units
        further = units.select(units.topic != dispatched.topic[units.row])
        queues = self._queue_numbers(further.topic, further.queue_id)
        self._further.append(np.stack([further.row + self._count, queues, further.queue_offset], axis=1))
        self._count += len(frames)

    def add_damage(self, damage: Damage) -> None:
        """Adds a range without a record."""
        self._damages.append(np.array([[damage.start, damage.end]], np.int64))

    def joined(self, file: MappedFile) -> _Columns:
        """Returns all columns of a file, concatenated."""
        displaced = _displaced(file, ((start, end) for part in self._damages for start, end in part.tolist()))
        return _joined(self._windows, self._further, self._damages, [displaced], tuple(self._queues))

    def _queue_numbers(self, topic: np.ndarray, queue_id: np.ndarray) -> np.ndarray:
        numbers = np.empty(len(topic), np.int64)
        for name, number, rows in by_queue(topic, queue_id, self._dispatcher.topics.names):
            numbers[rows] = self._queues.setdefault((name, number), len(self._queues))
        return numbers

    def _decodable(self, frames: Frames) -> np.ndarray:
        ports = np.maximum(_port(frames, "born_host", 0x10), _port(frames, "store_host", 0x20))
        fine = (ports <= _HIGHEST_PORT) & (
            (frames.column("magic_code") == commit_log.MAGIC_V1) | (self._release >= (5, 0))
        )
        unknown = np.flatnonzero(frames.column("body_crc") == 0)  # the walk lets these through, consumers do not
        if len(unknown):
            fine[unknown] &= frames.select(unknown).crc_matches
        return np.asarray(fine)


def prove(settings: RecoverySettings, segments: Sequence[SimulatedFile]) -> Proof:
    """Walks all segments in the order of their names, except those already read in a context of `read_once`."""
    parts = [_proven(settings, file) for file in segments]
    queues: dict[TopicQueue, int] = {}
    windows, further, count = [], [], 0
    for part in parts:
        numbers = np.array([queues.setdefault(key, len(queues)) for key in part.queues], np.int32)
        queue = numbers[part.queue]
        windows.append((part.position, part.size, queue, part.queue_offset, part.messages, part.queued, part.decodable))
        record, named, offset = part.further.T
        further.append(np.stack([record + count, numbers[named], offset], axis=1))
        count += len(part.position)
    ends = [file.base + settings.segment_size for file in segments]
    gaps = [np.array([[end, file.base]]) for end, file in zip(ends, segments[1:], strict=False) if end < file.base]
    damages, displaced = (*(part.damages for part in parts), *gaps), (part.displaced for part in parts)
    columns = _joined(windows, further, damages, displaced, tuple(queues))
    edges = np.cumsum([0, *(len(part.position) for part in parts)])
    return Proof(**structs.asdict(columns), segments=tuple(segments), edges=edges)


def _proven(settings: RecoverySettings, file: SimulatedFile) -> _Columns:
    """Returns what one file proves, from the cache if it has not changed."""
    known = _PROVEN.get()
    with ReadFile(file.path) as opened:
        at = file.path.stat()
        same = at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns
        key = (*same, file.base, file.entries, settings.release, settings.has_further_queues)
        if known is not None and key in known:
            return known[key]
        columns = _FileColumns(settings)
        segment = MappedFile(file.path, file.base, opened.size, file.entries)
        for item in walk_file(opened, segment):
            if isinstance(item, Frames):
                columns.add(file.base, item)
            else:
                columns.add_damage(item)
    part = columns.joined(segment)
    if known is not None:
        known[key] = part
    return part


def _displaced(segment: MappedFile, damages: Iterable[tuple[int, int]]) -> np.ndarray:
    """Returns the physical offsets of the records of one file that are in displaced blocks of it."""
    inside = [(start, end) for start, end in damages if end <= segment.end]
    log = CommitLog(() if segment.entries or not inside else (segment,))
    with contextlib.closing(log):
        by_segment = (DisplacedRecords(log, number, inside) for number in range(len(log.segments)))
        places = [record.base for records in by_segment for record in records.between(segment.base, segment.end)]
    return np.array(places, np.int64)


def _messages(frames: Frames) -> np.ndarray:
    """Returns how many messages each record holds."""
    counts = np.ones(len(frames), np.int64)
    inner = frames.column("sys_flag") & commit_log.SysFlag.INNER_BATCH
    for row in np.flatnonzero(inner).tolist():
        number = properties.decode(frames.properties_of([row])[0]).get(properties.INNER_NUM, "1")
        counts[row] = int(number) if number.isascii() and number.isdigit() else 1
    return counts


def _port(frames: Frames, host: str, wide: int) -> np.ndarray:
    """Returns the unsigned port that follows a host's address; Java refuses one above 65535."""
    start = np.empty(len(frames), np.int64)
    flags = frames.column("sys_flag")
    for shape in range(4):
        chosen = frames.host_shape == shape
        start[chosen] = commit_log.field_offset(host, shape)
    at = frames.positions + start + np.where(flags & wide, 16, 4)
    data = frames.data
    ports = np.zeros(len(frames), np.int64)
    for index in range(4):
        ports = (ports << 8) | data[at + index]
    return ports
