"""ConsumeQueues in RocksDB: where a store has them, and how they are read like queues of files.

A broker with `useSeparateStorePathForRocksdbCQ` has the database in `consumequeue_rocksdb/`, others in `consumequeue/`;
it does not start if there is one in the other place. The end of a queue is the stored bound of its last unit. Where
recovery cut the log, a broker moves the bound back and leaves the units after it until new ones replace them; where all
messages have expired, compaction deletes the units and the bound stays. Source: RocksDBConsumeQueueStore,
StorePathConfigHelper, RocksDBConsumeQueueOffsetTable.getMaxCqOffset, truncateDirty, correctMinCqOffset (5.5.0).
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from mqtool.errors import FormatError, StoreError, UnavailableError
from mqtool.formats import file_names, java
from mqtool.formats.config_files import SIMPLE_QUEUES
from mqtool.formats.consume_queue import (
    CONSUME_QUEUE_UNIT,
    DEFAULT_FILE_SIZE,
    ROCKS_BOUND,
    ROCKS_BOUNDS,
    ROCKS_MAX,
    ROCKS_UNIT,
    ROCKS_UNITS,
    ConsumeQueueUnit,
    RocksBound,
    RocksUnit,
    parse_bound_key,
    parse_unit_key,
    queue_prefix,
    unit_key,
)
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.config.rocksdb import Database, is_database
from mqtool.store.files import MappedFile, MappedFileList, ReadFile, subdirectories
from mqtool.store.queues.consume_queue import Queue, UnitCache

PLACES = (file_names.CONSUME_QUEUE, file_names.CONSUME_QUEUE_ROCKSDB)
"""Directories below the root that may be the database."""

MAX_OFFSETS = 10**11
"""Between the first and the last unit of a queue: beyond that a key is damaged."""


def queue_database(root: Path, config: BrokerConfig) -> Path:
    """Returns a store's database of queues, or where a broker would create it; `config` decides between two."""
    is_separate = bool(config.flag("useSeparateStorePathForRocksdbCQ"))
    places = [root / name for name in (reversed(PLACES) if is_separate else PLACES)]
    return next((place for place in places if is_database(place)), places[0])


def has_queue_database(root: Path, config: BrokerConfig) -> bool:
    """Whether a store has a database of queues, with or without files of queues."""
    return is_database(queue_database(root, config))


def has_queues_only_in_database(root: Path, config: BrokerConfig) -> bool:
    """Whether a store has a database of queues, and no files of queues next to it.

    A broker can keep its queues in both (CombineConsumeQueueStore, 5.5.0).
    """
    place = queue_database(root, config)
    if not is_database(place):
        return False
    return place.name == file_names.CONSUME_QUEUE or not subdirectories(root / file_names.CONSUME_QUEUE)


class QueueDatabase(Database):
    """The database of a store's ConsumeQueues."""

    def queues(self) -> Iterator[tuple[str, int, int, int]]:
        """Yields topic, queue id, and queue offsets of the first and the last unit, of every queue that has units.

        Units after the stored end do not count. If there are no others, the last offset is less than the first. Raises
        StoreError if it is damaged, or has other keys.
        """
        start, ends = b"", self.ends()
        while (key := next((key for key, _ in self.items(ROCKS_UNITS, start)), None)) is not None:
            topic, queue_id, first = self._parsed(key)
            start = unit_key(topic, queue_id, -1)  # offsets are not negative, so this is behind all of them
            last = self._parsed(self.last_before(ROCKS_UNITS, start) or key)[2]
            if last - first > MAX_OFFSETS:
                raise StoreError(f"queue {topic!r}/{queue_id} cannot reach from {first} to {last}", self.path)
            name = (java.decode_utf8(topic), queue_id)
            yield *name, first, min(last, ends[name].queue_offset) if name in ends else last

    def ends(self) -> dict[tuple[str, int], RocksBound]:
        """Returns the stored last unit of each queue by topic and queue id; rows that are not bounds are left out."""
        bounds = {}
        for key, value in self.bounds():
            with contextlib.suppress(FormatError):  # verify reports it; the row with the log's end is one too
                topic, queue_id, which = parse_bound_key(key)
                if which == ROCKS_MAX:
                    bounds[java.decode_utf8(topic), queue_id] = ROCKS_BOUND.parse(value)
        return bounds

    def units(
        self, topic: str, queue_id: int, first: int, count: int, *, strict: bool = True
    ) -> Iterator[tuple[int, RocksUnit]]:
        """Yields queue offsets and units of a queue in [first, first + count); raises StoreError if it is damaged.

        A value that is not a unit is an error if `strict`; else it is left out.
        """
        name = topic.encode()
        prefix = queue_prefix(name, queue_id)
        for key, value in self.items(ROCKS_UNITS, unit_key(name, queue_id, max(first, 0))):
            if not key.startswith(prefix):
                return
            queue_offset = self._parsed(key)[2]
            if queue_offset >= first + count:
                return
            try:
                yield queue_offset, ROCKS_UNIT.parse(value)
            except FormatError as error:
                if not strict:
                    continue
                raise StoreError(f"queue {topic}/{queue_id} at {queue_offset}: {error}", self.path) from error

    def bases(self, topic: str, queue_id: int, first: int, last: int) -> Iterator[int]:
        """Yields the base of each file that the units from `first` to `last` would fill, as files of ConsumeQueues.

        The work follows the units that are there, not the queue offsets that their keys state. Raises StoreError.
        """
        prefix, size = queue_prefix(topic.encode(), queue_id), CONSUME_QUEUE_UNIT.size
        while first <= last:
            base = first * size - first * size % DEFAULT_FILE_SIZE
            yield base
            following = (base + DEFAULT_FILE_SIZE) // size
            key = next((key for key, _ in self.items(ROCKS_UNITS, unit_key(topic.encode(), queue_id, following))), b"")
            if not key.startswith(prefix):
                return
            first = self._parsed(key)[2]

    def bounds(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields the rows of the bounds as they are."""
        yield from self.items(ROCKS_BOUNDS)

    def _parsed(self, key: bytes) -> tuple[bytes, int, int]:
        try:
            parsed = parse_unit_key(key)
        except FormatError as error:
            raise StoreError(f"contains a key that is not a queue's: {error}", self.path) from error
        if parsed[2] < 0:
            raise StoreError(f"holds a key with queue offset {parsed[2]}", self.path)
        return parsed


class RocksQueue(Queue):
    """A queue whose units are in RocksDB: read like files of them, made when they are asked for."""

    def __init__(
        self,
        database: QueueDatabase,
        name: tuple[str, int],
        offsets: tuple[int, int],
        stored_end: RocksBound | None,
        bounds: Callable[[], tuple[int, int]],
        cache: UnitCache,
    ) -> None:
        """Takes a queue, the offsets of its first and last unit, (0, -1) if there is none, and its stored bound."""
        path = database.path / name[0] / str(name[1])  # only a name: a topic in a database need not be a directory's
        bases = database.bases(*name, *offsets)
        files = tuple(MappedFile(path / f"{base:020d}", base, DEFAULT_FILE_SIZE) for base in bases)
        super().__init__(*name, SIMPLE_QUEUES, path, bounds, cache, MappedFileList(files, ()))
        self._database = database
        self._end = offsets[1] + 1
        self._stored_end = stored_end

    @property
    def max_offset(self) -> int:
        """Queue offset after the last unit; after the stored end if all messages have expired."""
        low, last, end = self._bounds()[0], self._last, self._stored_end
        if end is None or end.physical_offset >= low or (last and last[2]["physical_offset"] >= low):
            return super().max_offset
        return max(super().max_offset, end.queue_offset + 1)

    def modified_ms(self, number: int) -> int:  # noqa: ARG002 - no file of it has a time of its own
        """Returns a time after all messages: units of a queue are looked at, not times of files."""
        return java.LONG_MAX

    def _open(self, number: int) -> ReadFile:
        file = self.files[number]
        return _RocksFile(self._database, (self.topic, self.queue_id), file, self._end * CONSUME_QUEUE_UNIT.size)


class _RocksFile(ReadFile):
    """A stretch of a queue in RocksDB, in the bytes of a ConsumeQueue's file."""

    def __init__(self, database: QueueDatabase, name: tuple[str, int], file: MappedFile, end: int) -> None:
        self.path, self.size = file.path, file.size
        self._database, self._name, self._base = database, name, file.base
        self._end = max(0, min(file.size, end - file.base))

    def read(self, position: int, count: int) -> bytes:
        """Returns units from a position that is a multiple of their size; zeros where there is none."""
        size = CONSUME_QUEUE_UNIT.size
        count = max(0, min(count, self.size - position)) // size
        data = np.zeros(count * size, np.uint8).tobytes()
        if position >= self._end:
            return data
        patched, first = bytearray(data), (self._base + position) // size
        used = min(count, (self._end - position) // size)
        for offset, unit in self._database.units(*self._name, first, used, strict=False):
            at = (offset - first) * size
            plain = ConsumeQueueUnit(unit.physical_offset, unit.size, unit.tags_code)
            patched[at : at + size] = CONSUME_QUEUE_UNIT.build(plain)
        return bytes(patched)

    def data_end(self) -> int:
        """Returns the position after the last unit."""
        return self._end

    def close(self) -> None:
        """Does nothing: the database stays open."""


class RocksQueues:
    """The ConsumeQueues that a store keeps in RocksDB.

    Attributes:
        queues: by topic and queue id.
        problem: why they cannot be read, "" if they can.
        exists: whether there is such a database.
    """

    def __init__(self, path: Path, bounds: Callable[[], tuple[int, int]]) -> None:
        """Opens the database in a directory, if there is one; never fails, see `problem`."""
        self.queues: dict[tuple[str, int], Queue] = {}
        self.problem = ""
        self.exists = is_database(path)
        self.database: QueueDatabase | None = None
        if not self.exists:
            return
        try:
            self.database, cache = QueueDatabase(path), UnitCache()
            ends = self.database.ends()
            offsets = dict.fromkeys(ends, (0, -1)) | {
                (t, q): (first, last) for t, q, first, last in self.database.queues()
            }
            for name, queue_offsets in sorted(offsets.items()):
                self.queues[name] = RocksQueue(self.database, name, queue_offsets, ends.get(name), bounds, cache)
        except (StoreError, UnavailableError) as error:
            self.problem = str(error)
            self.queues.clear()
            self.close()

    def close(self) -> None:
        """Closes the database."""
        if self.database is not None:
            self.database.close()
