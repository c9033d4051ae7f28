"""`Store`: one store directory, read and never written.

Read first: `messages` (walks the log), `batches` (the same as Arrow columns), `get_message` (as a consumer),
`query_message` (by key), `offset_in_queue_by_time`. Everything else describes the store.
"""

import contextlib
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mqtool.errors import LayoutError, NotAStoreError, StoreClosedError, StoreError, UnreadableError
from mqtool.formats import commit_log as commit_log_format
from mqtool.formats import file_names, java
from mqtool.formats.checkpoint import Checkpoint
from mqtool.formats.commit_log import Record
from mqtool.formats.config_files import BATCH_QUEUES, SIMPLE_QUEUES
from mqtool.formats.release import assumed_release
from mqtool.jobs.atomic import UNFINISHED, is_marked
from mqtool.records.damage import Damage
from mqtool.records.dispatch import DispatchRules
from mqtool.store import layout, remote, version
from mqtool.store.config import broker_config, metadata
from mqtool.store.config.rules import delay_levels_of, recovery_rules, rules_of
from mqtool.store.files import Closing, recording_unlisted
from mqtool.store.index_file import (
    DEFAULT_MAX_QUERY,
    DEFAULT_SHAPE,
    IndexFile,
    list_index_files,
    query_message,
    shape_of,
)
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.log.log_walk import QueueStartIndex
from mqtool.store.log.message import Message, from_record
from mqtool.store.log.selection import Selection
from mqtool.store.queues.by_time import Boundary, offset_in_queue_by_time
from mqtool.store.queues.consume_queue import Lag, Queue, UnitCache, lags_of
from mqtool.store.queues.pull import GetResult, get_message
from mqtool.store.queues.rocksdb_queues import RocksQueues, queue_database
from mqtool.store.recovered import recovered_index, recovered_queues, recovery_start

_NEWEST = 64
"""Records that are tried, from the newest on, to see which release wrote one of them."""
_LOG_MISSING = "expected a CommitLog, found no segment, although queues, index or checkpoint refer to one"
_ITS_CONFIGURATION = (
    "give the configuration of the store's broker (--config; replay: --source-config; Python and Spark: config)"
)


def open_store(path: str | Path, config: broker_config.ConfigSource = None, *, needs_log: bool = False) -> "Store":
    """Opens a store directory for reading. Writes nothing, takes no lock, is safe while a broker is running.

    Args:
        path: the store's root (storePathRootDir).
        config: a broker.conf, or the broker's keys as a mapping; overrules what is detected.
        needs_log: refuse a store whose log is missing, for callers to whom it would look like one without messages.

    Raises:
        NotAStoreError: nothing of a store is there.
        LayoutError, ConfigFileError: the configuration does not fit; or `needs_log`, and there is no segment, but
            files that are derived from one.
    """
    with contextlib.ExitStack() as opened:
        store = opened.enter_context(Store(remote.store_root(path), config))
        if needs_log:
            store.require_log()
        opened.pop_all()
    return store


@contextlib.contextmanager
def open_readable(path: str | Path, config: broker_config.ConfigSource = None) -> Iterator["Store"]:
    """Opens a store like `open_store`, even if some of its directories cannot be listed; raises the same errors.

    Within the context these count as empty and are in `Store.unlisted`. The caller must report them, and must not
    conclude anything from what they do not show. NotAStoreError is raised also for the unfinished result of a command.
    """
    if is_marked(Path(path).parent):
        raise NotAStoreError(f"is {UNFINISHED}", path)
    unlisted: dict[Path, str] = {}
    with recording_unlisted(unlisted), open_store(path, config) as store:
        store.unlisted = unlisted
        yield store


class Store(Closing):
    """A store open for reading; a context manager.

    It shows the files that existed when it was opened; a broker may append meanwhile.
    """

    rocksdb: RocksQueues | None = None
    """The queues that are in RocksDB, once queues have been asked for."""

    def __init__(self, path: Path, config: broker_config.ConfigSource = None) -> None:
        self.path = path
        self.unlisted: dict[Path, str] = {}
        """Directories that cannot be listed, with the reason; only of a store from `open_readable`."""
        self.config = broker_config.load(config)
        self.layout = layout.detect(path, self.config)
        self.commit_log = CommitLog(self.layout.log_segments, self.newest_records)
        self.commit_log.start_index = QueueStartIndex(self.disk_queues)
        self.commit_log.is_named = self._is_named
        self._closed = False

    def close(self) -> None:
        """Closes all files."""
        self.commit_log.close()
        if self.rocksdb:
            self.rocksdb.close()
        self._closed = True

    @property
    def is_remote(self) -> bool:
        """Whether it is in object storage, where no broker starts on it."""
        return remote.is_remote(self.path)

    @property
    def clean_stop(self) -> bool:
        """Whether the last broker was shut down cleanly: there is no abort file."""
        return not (self.path / file_names.ABORT).exists()

    @cached_property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint, None if it cannot be read."""
        return version.read_checkpoint(self.path / file_names.CHECKPOINT)

    @cached_property
    def metadata(self) -> metadata.Metadata:
        """Topics, groups and offsets from config/."""
        return metadata.load(self.path / file_names.CONFIG, self.config)

    @cached_property
    def version(self) -> version.Version:
        """The release that wrote it last."""
        newest = (self.record_at(place) for place in sorted(self.newest_records(), reverse=True)[:_NEWEST])
        first = self.record_at(self.commit_log.first_record)
        record = next((record for record in (*newest, first) if record is not None), None)
        return version.detect(self.path, self.metadata, self.checkpoint, record, self.record_at)

    def record_at(self, physical_offset: int) -> Record | None:
        """Returns the record at a physical offset, None if there is none that can be read."""
        with contextlib.suppress(StoreError):
            return self.commit_log.record(physical_offset)
        return None

    @cached_property
    def _disk_queues(self) -> dict[tuple[str, int], Queue]:
        self.rocksdb = RocksQueues(queue_database(self.path, self.config), self._bounds)
        queues, cache = dict(self.rocksdb.queues), UnitCache()
        for name, kind in ((file_names.CONSUME_QUEUE, SIMPLE_QUEUES), (file_names.BATCH_CONSUME_QUEUE, BATCH_QUEUES)):
            for topic, queue_id, directory in layout.queue_directories(self.path / name):
                queues[topic, queue_id] = Queue(topic, queue_id, kind, directory, self._bounds, cache)
        return queues

    def _bounds(self) -> tuple[int, int]:
        return self.commit_log.min_offset, self.commit_log.max_offset

    def newest_records(self) -> list[int]:
        """Returns the physical offset of the newest record that each readable queue names."""
        newest = []
        try:
            queues = self.disk_queues()
        except UnreadableError:  # a hint less: the end is found without it
            return []
        for queue in queues:
            with contextlib.suppress(StoreError):
                last = queue.last_unit()
                newest += [] if last is None else [int(last[2]["physical_offset"])]
        return newest

    def _is_named(self, record: Record) -> bool:
        """Whether the unit at the queue offset that a record states points to the record."""
        queue = self._disk_queues.get((java.decode_utf8(record.topic), record.queue_id))
        return queue is not None and queue.names(record.queue_offset, record.physical_offset)

    @cached_property
    def dispatch_rules(self) -> DispatchRules:
        """The rules by which the broker dispatched records to queues and index."""
        batch_topics = {queue.topic for queue in self.disk_queues() if queue.is_batch}
        levels = delay_levels_of(self.config, self.version.release, self.disk_queues(), self.commit_log)
        topics = {queue.topic for queue in self.disk_queues()}
        return rules_of(self.version.release, self.config, self.metadata, levels, topics, batch_topics)

    @cached_property
    def _queues(self) -> dict[tuple[str, int], Queue]:
        log, disk = self.commit_log, self._disk_queues
        start = self.recovery_start
        if start is None or (self.rocksdb and self.rocksdb.exists):
            return disk
        return disk | recovered_queues(log, disk, self.dispatch_rules, self.layout, start)

    @cached_property
    def recovery_start(self) -> int | None:
        """Physical offset at which a start begins to dispatch again; None after a clean stop or without a log.

        The rules are those of the detected release, see `Version.release`.
        """
        if self.clean_stop or not self.commit_log.segments:
            return None
        size = self.layout.commit_log_size
        rules = recovery_rules(self.config, self.version.release)
        segment_size = size.value if size else self.commit_log.segments[0].size
        return recovery_start(self.commit_log, segment_size, self.checkpoint or Checkpoint(), rules)

    @property
    def unread_queues(self) -> str:
        """Why the queues in RocksDB cannot be read and are missing among the others; "" if none is missing."""
        _ = self._disk_queues
        problem = self.rocksdb.problem if self.rocksdb else ""
        return f"the queues are in RocksDB and cannot be read: {problem}" if problem else ""

    def require_queues(self) -> None:
        """Checks that all queues can be read; raises StoreError if those in RocksDB cannot be."""
        if self.unread_queues:
            raise StoreError(self.unread_queues, self.path)

    @property
    def is_log_missing(self) -> bool:
        """Whether there is no segment, although checkpoint, queues or index show that there was one."""
        if self.commit_log.segments or self.layout.has_unread_ledger:
            return False
        derived = any(queue.files for queue in self.disk_queues()) or bool(self.disk_index_files())
        return version.had_log(self.checkpoint, has_derived_files=derived)

    def require_log(self) -> None:
        """Checks that the log is not missing; a store that never had a message passes.

        Raises LayoutError if there is no segment, but files that are derived from one.
        """
        if self.is_log_missing:
            raise LayoutError(f"{_LOG_MISSING}; if it is elsewhere, {_ITS_CONFIGURATION}", self.path)

    def disk_queues(self) -> list[Queue]:
        """Returns all queues by topic and queue id, as they are on disk."""
        return [self._disk_queues[key] for key in sorted(self._disk_queues)]

    def queues(self) -> list[Queue]:
        """Returns all queues by topic and queue id; after a crash as a broker's start will complete them."""
        return [self._queues[key] for key in sorted(self._queues)]

    def skip_unreadable(self) -> list[str]:
        """Answers from the readable parts if an unreadable segment decides the log's end or what a start adds.

        The log then ends at the end of its last file, the queues are those on disk, and walks yield unreadable parts as
        damage. This is for descriptions only; code that changes or deletes files must stop instead. Returns what is
        unknown, in sentences.
        """
        unknown = []
        if self.is_log_missing:
            unknown.append(
                f"which messages there are is unknown: {_LOG_MISSING}; if it is elsewhere, {_ITS_CONFIGURATION}"
            )
        if failure := self.commit_log.accept_unreadable_end():
            unknown.append(f"the end of the log is unknown: {failure}")
        try:
            _ = self._queues
        except StoreClosedError:
            raise
        except StoreError as error:
            self._queues = self._disk_queues
            unknown.append(f"what a start adds to the queues is unknown: {error}")
        self.commit_log.skip_unreadable()
        return unknown

    def skip_unreadable_queues(self) -> list[str]:
        """Leaves out the queues whose bounds cannot be read, for descriptions only; see `skip_unreadable`.

        It reads a part of each queue. Returns a sentence for each queue that is left out.
        """
        unknown = []
        for topic, queue_id in sorted(self._queues):
            queue = self._queues[topic, queue_id]
            try:
                _ = queue.min_offset, queue.max_offset
            except UnreadableError as error:
                unknown.append(f"queue {topic}/{queue_id} is left out, because its bounds are unknown: {error}")
                for queues in (self._queues, self._disk_queues):
                    queues.pop((topic, queue_id), None)
        return unknown

    def unlisted_parts(self, *, of_log: bool = False) -> list[str]:
        """Returns a sentence for each directory found so far that cannot be listed: those of the log, or all."""
        outermost = {path: why for path, why in self.unlisted.items() if self.unlisted.keys().isdisjoint(path.parents)}
        return [
            f"{path} cannot be listed: {why}; run this as a user who can read it"
            for path, why in sorted(outermost.items())
            if not of_log or self.layout.is_of_log(path)
        ]

    def queue(self, topic: str, queue_id: int) -> Queue | None:
        """Returns one queue, None if there is none."""
        return self._queues.get((topic, queue_id))

    @cached_property
    def _index_directory(self) -> tuple[list[IndexFile], list[Path]]:
        return list_index_files(self.path / file_names.INDEX, self.config.integer("maxHashSlotNum"))

    @property
    def _disk_index(self) -> list[IndexFile]:
        return self._index_directory[0]

    @property
    def unread_index_files(self) -> list[str]:
        """Names of index files that cannot be opened, with the reason."""
        unread = []
        for path in self._index_directory[1]:
            if file_names.is_index_file_name(path.name):
                try:
                    IndexFile(path)
                except StoreError as error:
                    unread.append(f"{path.name}: {error.reason}")
        return unread

    def disk_index_files(self) -> list[IndexFile]:
        """Returns the index files, oldest first, as they are on disk."""
        return self._disk_index

    @cached_property
    def _index(self) -> list[IndexFile]:
        start = self.recovery_start
        if start is None:
            return self._disk_index
        known_until = self.checkpoint.index_msg_timestamp if self.checkpoint else 0
        shape = shape_of(self._disk_index, self.config) or DEFAULT_SHAPE
        return recovered_index(self.commit_log, self._disk_index, known_until, self.dispatch_rules, shape, start)

    def index_files(self) -> list[IndexFile]:
        """Returns the index files, oldest first; after a crash those that a broker's start will leave.

        The first call then reads the end of the log.
        """
        return self._index

    def lags(self) -> list[Lag]:
        """Compares consumer offsets with the queues; returns lags by group, topic and queue id."""
        return lags_of(self.metadata.consumer_offsets, self.queue)

    def messages(self, **conditions: object) -> Iterator[Message | Damage]:
        """Yields messages in CommitLog order, and damage between them; conditions are those of `Selection`.

        `check_crc=False` accepts records with a wrong body too. With `inner_batches=True`, tags, keys, properties and
        bodies are those of each message of an inner batch, which is yielded alone.
        """
        check_crc, inner = bool(conditions.pop("check_crc", True)), bool(conditions.pop("inner_batches", False))
        selection = Selection.of(**conditions)
        left = selection.limit
        if left == 0:
            return
        for item in self._frames(selection, check_crc=check_crc):
            if isinstance(item, Damage):
                yield item
                continue
            frames = selection.narrow(item, inner_batches=inner)
            for position in frames.positions.tolist():
                record = from_record(commit_log_format.parse_record(frames.view, position))
                matching = selection.matching(record) if inner else [record] if selection.matches(record) else []
                for message in matching:
                    yield message
                    if left is not None:
                        left -= 1
                        if left == 0:
                            return

    def batches(
        self, columns: Iterable[str] | None = None, *, damage: "list[Damage] | None" = None, **conditions: object
    ) -> Iterator[Any]:
        """Yields messages as `pa.RecordBatch` of some ten thousand rows.

        Args:
            columns: names of `records.columns.COLUMNS`; None for all but raw_body.
            damage: list that receives damage found on the way.
            conditions: as for `messages`.
        """
        from mqtool.records import columns as scan_columns  # noqa: PLC0415 - pyarrow costs 100 ms at import

        names = scan_columns.DEFAULT_COLUMNS if columns is None else tuple(columns)
        scan_columns.schema(names)
        check_crc = bool(conditions.pop("check_crc", True))
        selection = Selection.of(**conditions)
        left = selection.limit
        for item in self._frames(selection, check_crc=check_crc):
            if isinstance(item, Damage):
                if damage is not None:
                    damage.append(item)
                continue
            frames = selection.narrow(item)
            if selection.needs_properties and len(frames):
                exact = (from_record(commit_log_format.parse_record(frames.view, p)) for p in frames.positions.tolist())
                frames = frames.select(np.array([selection.matches(message) for message in exact], bool))
            if left is not None:
                frames = frames.select(slice(0, left))
                left -= len(frames)
            if len(frames):
                yield scan_columns.record_batch(frames, names)
            if left == 0:
                return

    def to_arrow(
        self, columns: Iterable[str] | None = None, *, damage: "list[Damage] | None" = None, **conditions: object
    ) -> Any:
        """Returns messages as one `pa.Table`; arguments as for `batches`."""
        import pyarrow as pa  # noqa: PLC0415 - costs 100 ms at import

        from mqtool.records import columns as scan_columns  # noqa: PLC0415

        names = scan_columns.DEFAULT_COLUMNS if columns is None else tuple(columns)
        return pa.Table.from_batches(
            self.batches(names, damage=damage, **conditions), schema=scan_columns.schema(names)
        )

    def _frames(self, selection: Selection, *, check_crc: bool) -> Iterator[Any]:
        if self._closed:
            raise StoreClosedError("used after close", self.path)
        return self.commit_log.walk(selection.start, selection.end, crc=check_crc)

    def message_at(self, physical_offset: int) -> Message:
        """Returns the message whose record starts at a physical offset.

        Raises CorruptionError if no record starts there; a body may hold what looks like one.
        """
        return from_record(self.commit_log.record_at(physical_offset))

    def get_message(
        self, topic: str, queue_id: int, queue_offset: int, max_msg_nums: int = 32, tags: str | None = None
    ) -> GetResult:
        """Returns what the broker would answer to a pull; see `pull.get_message`."""
        queue = self.queue(topic, queue_id)
        return get_message(self.commit_log, queue, queue_offset, max_msg_nums, tags)

    def query_message(
        self, topic: str, key: str, max_num: int = DEFAULT_MAX_QUERY, begin: int = 0, end: int = (1 << 63) - 1
    ) -> list[Message]:
        """Returns messages by key or unique key, in the broker's order; see `query.query_message`.

        Never more than the configuration's maxMsgsNumBatch, or 64.
        """
        limit = self.config.integer("maxMsgsNumBatch")
        count = min(max_num, DEFAULT_MAX_QUERY if limit is None else limit)
        return query_message(self.commit_log, self.index_files(), topic, key, count, begin, end)

    def offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: str = "LOWER", *, version: str | None = None
    ) -> int:
        """Returns the queue offset for a store time in ms since the epoch; the boundary is "LOWER" or "UPPER".

        `version` is "4.9" or "5.5", to overrule the store's own.
        """
        release = self.version.release if version is None else assumed_release(version)
        queue = self.queue(topic, queue_id)
        return offset_in_queue_by_time(self.commit_log, queue, timestamp, Boundary(boundary), release=release)
