"""Converts ConsumeQueues from RocksDB to files and back; the rest of the store is copied.

A broker that keeps its queues in RocksDB (`storeType=defaultRocksDB`) keeps topics, groups and consumer offsets there
too. Both conversions write these tables as the JSON files of an ordinary broker, and copy everything else. With
RocksDB, on startup the broker imports the JSON files whose data version is above 0
(RocksDBConsumerOffsetManager.merge, 5.5.0).
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from mqtool.convert.staging import ConversionResult, staging_directory
from mqtool.errors import FormatError, StoreError, UnsupportedFormatError, UsageError
from mqtool.formats import config_json, file_names
from mqtool.formats.consume_queue import (
    CHECKPOINT_TOPIC,
    CONSUME_QUEUE_UNIT,
    MAX_EXT_ADDRESS,
    PRE_BLANK,
    ROCKS_BOUND,
    ROCKS_BOUNDS,
    ROCKS_MAX,
    ROCKS_MIN,
    ROCKS_UNIT,
    ROCKS_UNITS,
    UNIT_SIZE,
    ConsumeQueueUnit,
    RocksBound,
    RocksUnit,
    bound_key,
    unit_key,
)
from mqtool.rebuild.files import FileSequence, OutputFiles
from mqtool.rebuild.queue_writer import QueueName, expired_queues, write_expired
from mqtool.rebuild.settings import settings_of
from mqtool.records.damage import Damage
from mqtool.records.dispatch import STORED_FIELDS, Dispatcher
from mqtool.store.config.metadata import require_readable
from mqtool.store.config.rocksdb import TABLES, is_database, reason_of, rocksdict
from mqtool.store.files import copy_file, copy_tree, list_directory, read_file
from mqtool.store.paths import is_inside
from mqtool.store.queues.consume_queue import ExtUnits, Queue, has_record
from mqtool.store.queues.rocksdb_queues import PLACES, QueueDatabase, has_queue_database, queue_database
from mqtool.store.store import Store

_LEFT_OUT = (*PLACES, file_names.LOCK, file_names.ABORT, file_names.ABORT_BACKUP, file_names.ABORT_NEW)
_BATCH = 10_000
_FORMAT_VERSION = 5
"""Format version of RocksDB tables that the RocksDB 8 of RocketMQ 5.5.0 reads."""


def into_files(store: Store, target: Path) -> ConversionResult:
    """Copies a store whose ConsumeQueues are in RocksDB into one whose ConsumeQueues are files.

    The source, opened with its configuration (mappedFileSizeConsumeQueue), is only read. Raises UnsupportedFormatError
    if the queues are not in RocksDB, the log is outside of the root, or topics, groups and positions are in a database
    that is not read; UnavailableError if rocksdict is not installed; FormatError; and as `staging_directory`.
    """
    place = queue_database(store.path, store.config)
    if not is_database(place):
        raise UnsupportedFormatError(f"{store.path}: its queues are not in RocksDB")
    _check(store)
    settings = settings_of(store)
    result = ConversionResult(start=store.commit_log.min_offset, end=store.commit_log.max_offset)
    with staging_directory(store.path, target) as staging, QueueDatabase(place) as database:
        _copy(store, staging)
        with OutputFiles(staging) as output:
            existing: set[QueueName] = set()
            for topic, queue_id, first, last in database.queues():
                if not file_names.is_directory_name(topic):
                    result.differences.add(f"queue {topic!r}/{queue_id}: the topic is not a valid directory name")
                    continue
                if last < first:  # only units after the stored end
                    continue
                queue = QueueName(topic, queue_id)
                sequence = FileSequence(output, queue.below(file_names.CONSUME_QUEUE), settings.consume_queue_size)
                units = database.units(topic, queue_id, first, last - first + 1)
                result.units += _write_queue(sequence, units, (topic, queue_id), result)
                result.queues += 1
                existing.add(queue)
            for expired in expired_queues(store, existing, store.commit_log.min_offset):
                write_expired(expired, output, settings)
                result.queues += 1
    return result


def _write_queue(
    sequence: FileSequence, units: Iterator[tuple[int, RocksUnit]], name: tuple[str, int], result: ConversionResult
) -> int:
    """Writes the files of one queue and returns the number of units.

    The first file begins with pre-blank units up to the first unit, as a broker writes them.
    """
    count, following = 0, -1
    for offset, unit in units:
        if following < 0:
            filling = offset % (sequence.file_size // UNIT_SIZE)
            sequence.start((offset - filling) * UNIT_SIZE)
            sequence.append(CONSUME_QUEUE_UNIT.build(PRE_BLANK) * filling)
        elif offset != following:
            result.differences.add(f"queue {name[0]}/{name[1]}: no unit from {following} to {offset - 1}")
            sequence.skip_to(offset * UNIT_SIZE)
        plain = ConsumeQueueUnit(unit.physical_offset, unit.size, unit.tags_code)
        sequence.append(CONSUME_QUEUE_UNIT.build(plain))
        count, following = count + 1, offset + 1
    sequence.flush()
    return count


def _refuse_batch_queues(store: Store) -> None:
    batch = next((queue for queue in store.disk_queues() if queue.is_batch), None)
    if batch is not None:
        reason = "a broker keeps one unit for each record in RocksDB, so offsets inside a batch would be invalid"
        raise UnsupportedFormatError(f"{batch.path}: is a BatchConsumeQueue; {reason}")


def _require_utf8(target: Path) -> None:
    try:
        str(target).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{target}: expected a path in UTF-8, because RocksDB accepts no other") from error


def into_rocksdb(store: Store, target: Path) -> ConversionResult:
    """Copies a store into one whose ConsumeQueues are in RocksDB, built from the log.

    The source is only read. The new queues are compared with the old files; `differences` reports the result.

    Raises as `into_files`, and UnsupportedFormatError if the queues are in RocksDB already, or one of them is a
    BatchConsumeQueue. RocketMQ does not support those in RocksDB: RocksDBConsumeQueueTable.buildAndPutCQByteBuffer
    writes one unit at the first queue offset of a record, without the number of messages, whatever the topic's queue
    type is (5.5.0).
    """
    if has_queue_database(store.path, store.config):
        raise UnsupportedFormatError(f"{store.path}: its queues are already in RocksDB")
    _refuse_batch_queues(store)
    _check(store)
    rocksdict()
    log, result = store.commit_log, ConversionResult(start=store.commit_log.min_offset)
    _require_utf8(target)
    with staging_directory(store.path, target) as staging:
        _copy(store, staging)
        _raise_versions(staging / file_names.CONFIG)
        place = queue_database(staging, store.config)
        with _Writer(place) as writer:
            dispatcher = Dispatcher(store.dispatch_rules)
            for item in log.walk(crc=False):
                if isinstance(item, Damage):
                    result.damage.add(item)
                    continue
                units, topics = dispatcher.dispatch(item).units, dispatcher.topics.names
                for topic, queue_id, offset, *rest in units.tuples("topic", "queue_id", "queue_offset", *STORED_FIELDS):
                    writer.add((topics[topic], queue_id), offset, RocksUnit(*rest))
            for expired in expired_queues(store, {QueueName(*name) for name in writer.bounds}, log.min_offset):
                plain = CONSUME_QUEUE_UNIT.parse(expired.unit)
                unit = RocksUnit(plain.physical_offset, plain.size, plain.tags_code, 0)
                writer.add((expired.name.topic, expired.name.queue_id), expired.queue_offset, unit)
            result.end = log.max_offset
            writer.finish(result.end)
            result.units, result.queues = writer.units, len(writer.bounds)
        with QueueDatabase(place) as database:
            for queue in store.disk_queues():
                _differences(queue, ExtUnits(store.path, queue.topic, queue.queue_id), database, log.min_offset, result)
    return result


def _raise_versions(config: Path) -> None:
    """Sets the data version of tables that have none to 1; a broker ignores tables of version 0."""
    for name in TABLES:
        path = config / name
        try:
            stored = dict(config_json.parse(read_file(path))) if path.is_file() else {}
        except FormatError:
            continue  # the broker reports what is wrong with it
        version = stored.get("dataVersion")
        known = version if isinstance(version, dict) else {}
        if stored and not known.get("counter"):
            document = {**stored, "dataVersion": {"stateVersion": 0, "timestamp": 0, **known, "counter": 1}}
            path.write_text(json.dumps(document), "utf-8")


class _Writer:
    """Writes queues to a new RocksDB. Each method raises StoreError if it cannot be written."""

    def __init__(self, path: Path) -> None:
        library = rocksdict()
        options = library.Options(raw_mode=True)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        options.set_compression_type(library.DBCompressionType.none())
        tables = library.BlockBasedOptions()
        tables.set_format_version(_FORMAT_VERSION)
        options.set_block_based_table_factory(tables)
        path.mkdir()
        self._path = path
        self._library = library
        with _writing_database(path):
            self._database: Any = library.Rdict(
                str(path), options, column_families={ROCKS_UNITS: options, ROCKS_BOUNDS: options}
            )
        self._handle = self._database.get_column_family_handle(ROCKS_UNITS)
        self._batch = library.WriteBatch(raw_mode=True)
        self._waiting = 0
        self.units = 0
        self.bounds: dict[tuple[str, int], list[RocksBound]] = {}

    def add(self, name: tuple[str, int], offset: int, unit: RocksUnit) -> None:
        """Adds a unit; units are written in batches."""
        bound = RocksBound(unit.physical_offset, offset)
        ends = self.bounds.setdefault(name, [bound, bound])
        ends[0] = min(ends[0], bound, key=lambda item: item.queue_offset)
        ends[1] = max(ends[1], bound, key=lambda item: item.queue_offset)
        self._batch.put(unit_key(name[0].encode(), name[1], offset), ROCKS_UNIT.build(unit), self._handle)
        self.units += 1
        self._waiting += 1
        if self._waiting == _BATCH:
            self._write()

    def _write(self) -> None:
        with _writing_database(self._path):
            self._database.write(self._batch)
        self._batch, self._waiting = self._library.WriteBatch(raw_mode=True), 0

    def finish(self, end: int) -> None:
        """Writes the bounds of all queues and the physical offset up to which the log is dispatched."""
        self._write()
        with _writing_database(self._path):
            bounds = self._database.get_column_family(ROCKS_BOUNDS)
            for (topic, queue_id), ends in self.bounds.items():
                for which, bound in zip((ROCKS_MIN, ROCKS_MAX), ends, strict=True):
                    bounds[bound_key(topic.encode(), queue_id, which)] = ROCKS_BOUND.build(bound)
            bounds[bound_key(CHECKPOINT_TOPIC, 0, ROCKS_MAX)] = end.to_bytes(8, "big")
            bounds.flush()
            self._database.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            with _writing_database(self._path):
                self._database.close()
        except StoreError:
            if kind is None:  # else the first error says why
                raise
        for name in ("rocksdict-config.json", "LOG"):  # written by the library; a broker has no such files
            (self._path / name).unlink(missing_ok=True)


@contextmanager
def _writing_database(path: Path) -> Iterator[None]:
    """Turns the library's errors, such as those of a full disk, into a StoreError."""
    try:
        yield
    except Exception as error:
        if type(error) is not Exception:  # the library raises nothing more precise
            raise
        raise StoreError(f"cannot be written: {reason_of(error)}", path) from error


def _differences(
    queue: Queue, extension: ExtUnits, database: QueueDatabase, min_offset: int, result: ConversionResult
) -> None:
    """Compares the files of a queue with the units built from the log, and adds each difference to `result`.

    Tags codes that are addresses in the ConsumeQueueExt are replaced by the tags codes stored there.
    """
    name = f"queue {queue.topic}/{queue.queue_id}"
    for number, file in enumerate(queue.files):
        units = queue.units_of(number)
        rows = np.flatnonzero(has_record(units) & (units["physical_offset"] >= min_offset))
        if not len(rows):
            continue
        first = file.base // UNIT_SIZE
        low, high = int(rows[0]) + first, int(rows[-1]) + first
        new = {
            offset: (unit.physical_offset, unit.size, unit.tags_code)
            for offset, unit in database.units(queue.topic, queue.queue_id, low, high - low + 1)
        }
        units = units[rows].copy()
        addressed = np.flatnonzero(units["tags_code"] <= MAX_EXT_ADDRESS)
        if len(addressed):
            units["tags_code"][addressed] = extension.tags_of(units["tags_code"][addressed].astype(np.int64), [])
        for row, values in zip(rows.tolist(), units.tolist(), strict=True):
            if new.get(row + first) != values:
                result.differences.add(f"{name} at {row + first}: file {values}, log {new.get(row + first)}")


def _check(store: Store) -> None:
    """Checks that everything which belongs to the store can be copied.

    Raises UnsupportedFormatError if the log is outside of the root, or topics, groups and positions are in a database
    that is not read.
    """
    for directory in store.layout.commit_log_dirs:
        if not is_inside(directory, store.path):
            raise UnsupportedFormatError(
                f"{directory}: this log is outside of {store.path}; only files below the root are converted. First "
                "copy the log into a copy of the store"
            )
    require_readable(store.path / file_names.CONFIG, store.config, "nothing was written")


def _copy(store: Store, staging: Path) -> None:
    """Copies everything except queues. Databases of topics, groups and positions become files."""
    for entry in list_directory(store.path):
        if entry.name == file_names.CONFIG:
            _copy_config(store, staging / entry.name)
        elif entry.name not in _LEFT_OUT:
            _copy_entry(entry, staging)


def _copy_config(store: Store, target: Path) -> None:
    """Copies config/; writes the file of a table in a RocksDB with what a broker reads from both; raises StoreError."""
    source, tables = store.path / file_names.CONFIG, store.metadata
    unread = {**tables.unread, file_names.CONSUMER_OFFSETS: tables.offset_tables.unread}
    databases = {directory: name for name, (directory, _) in TABLES.items() if is_database(source / directory)}
    for directory, name in databases.items():
        if unread.get(name):
            raise StoreError(f"cannot be read, so its table cannot be converted: {unread[name]}", source / directory)
    written = dict(tables.files_of_databases())
    for entry in list_directory(source):
        if entry.name not in databases and entry.name not in written:
            _copy_entry(entry, target)
    for name, data in written.items():
        target.mkdir(exist_ok=True)
        (target / name).write_bytes(data)


def _copy_entry(entry: "os.DirEntry[str]", target: Path) -> None:
    """Copies a file or a directory into another directory."""
    if entry.is_dir(follow_symlinks=False):
        (target / entry.name).mkdir(parents=True)
        copy_tree(Path(entry.path), target / entry.name)
    elif entry.is_file():
        copy_file(Path(entry.path), target / entry.name)
    else:
        raise StoreError("is neither a file nor a directory", Path(entry.path))
