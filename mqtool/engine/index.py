"""Index: all IndexFiles of a store. Keys are appended to the current file, queries look into all of them.

Header, slots and entries are written through a mapping whose blocks were reserved before. An index that a crash left
half full is dropped and built again, so nothing here is durable before `flush`. After a crash the broker deletes every
IndexFile that is not full, and indexes only the records that it scans; older keys of such a file are lost. `reindex`
reads the log again from where the deleted files began. Docs page: docs/engine.md. Source: IndexService, IndexFile,
IndexHeader (4.9.7, 5.5.0).
"""

import logging
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from msgspec.structs import astuple, replace

from mqtool.engine.clock import Clock
from mqtool.engine.disk.files import ClosedFileError, File, Files
from mqtool.engine.disk.mapped_files import MappedFileQueue
from mqtool.engine.options import StoreOptions
from mqtool.errors import FormatError
from mqtool.formats import commit_log, file_names, index_file
from mqtool.formats.index_file import ENTRY, HEADER, IndexHeader
from mqtool.records.dispatch import Dispatcher, DispatchRequest, DispatchRules, IndexKeys, key_hashes, request_of
from mqtool.records.frames import Frames
from mqtool.records.index_chains import Entry, append, offsets_in_chain, query_offsets, spread
from mqtool.records.walk import intact_run
from mqtool.store.files import list_directory

_ENTRY = index_file.ENTRY.struct
_SLOT = index_file.SLOT
STEP = 1 << 22
"""Bytes of entries that are reserved at a time."""


_LOG = logging.getLogger(__name__)


class IndexWriter:
    """One IndexFile, mapped. Only the dispatcher puts; any thread may query.

    Attributes:
        file: the file.
        header: as it is in the file.
        slots, entries: capacity; entry 0 is never used.
    """

    def __init__(self, file: File, slots: int, entries: int, header: IndexHeader) -> None:
        self.file = file
        self.slots = slots
        self.entries = entries
        self.header = replace(header, index_count=max(1, header.index_count))
        self._entries_at = index_file.entry_position(0, slots)
        file.reserve(0, min(file.size, self._entries_at + STEP))
        self._reserved = min(file.size, self._entries_at + STEP)
        self._map, _ = file.mapping, file.pin  # compiled queries read files that are pinned
        self._populated = 0

    @property
    def room(self) -> int:
        """How many more entries fit."""
        return max(0, self.entries - self.header.index_count)

    def put(self, key_hash: int, physical_offset: int, store_timestamp: int) -> bool:
        """Adds an entry (IndexFile.putKey); returns False if the file is full: then put it into the next one."""
        header = self.header
        number = header.index_count
        if number >= self.entries:
            return False
        self._reserve(number + 1)
        at = index_file.slot_position(key_hash % self.slots)
        newest = index_file.newest_before(_SLOT.unpack_from(self._map, at)[0], number)
        diff = index_file.time_diff(store_timestamp, header.begin_timestamp)
        place = self._entries_at + number * index_file.ENTRY_SIZE
        _ENTRY.pack_into(self._map, place, key_hash, physical_offset, diff, newest)
        _SLOT.pack_into(self._map, at, number)
        bounds = store_timestamp, physical_offset
        self._set_header(header.after(bounds, bounds, 1, newest == 0))
        return True

    def put_many(self, keys: IndexKeys) -> None:
        """Adds entries in order, as repeated calls of `put` would; there must be room for them."""
        first, count = self.header.index_count, len(keys)
        if not count:
            return
        self._reserve(first + count)
        if self._populated < self._reserved:  # where entries come in numbers, all of that part will be written
            self.file.populate(self._populated, self._reserved)
            self._populated = self._reserved
        heads = np.frombuffer(self._map, index_file.SLOT_TYPE, self.slots, index_file.HEADER_SIZE)
        entries = np.frombuffer(self._map, ENTRY.dtype, count, self._entries_at + first * ENTRY.size)
        self._set_header(append(self.header, heads, entries, keys))

    def _reserve(self, numbers: int) -> None:
        end = self._entries_at + numbers * index_file.ENTRY_SIZE
        if end > self._reserved:
            until = min(self.file.size, end + STEP)
            self.file.reserve(self._reserved, until)
            self._reserved = until

    def _set_header(self, header: IndexHeader) -> None:
        self.header = header
        self.write_header()

    def write_header(self) -> None:
        """Writes the header into the mapping."""
        HEADER.struct.pack_into(self._map, 0, *astuple(self.header))

    def lookup(self, key_hash: int, begin: int, end: int, max_num: int) -> list[int]:
        """Returns physical offsets of entries with a hash and a time in [begin, end], newest first."""
        header = self.header
        if header.is_empty:
            return []
        (newest,) = _SLOT.unpack_from(self._map, index_file.slot_position(key_hash % self.slots))
        query = key_hash, begin, end
        return offsets_in_chain(self._entry, newest, header, header.index_count, query, max_num)

    def _entry(self, number: int) -> Entry:
        return _ENTRY.unpack_from(self._map, self._entries_at + number * index_file.ENTRY_SIZE)

    def flush(self) -> None:
        """Flushes the file to disk. Durable on return."""
        self.write_header()
        self.file.sync()

    def close(self) -> None:
        """Closes the file; nothing is flushed."""
        self.file.close()


class Index:
    """All IndexFiles, by name. Only the dispatcher puts; any thread may query.

    Attributes:
        files: oldest first. Replaced, never changed in place; empty once it is closed.
        when_full: called with the end timestamp of each full file once it is on disk.
    """

    def __init__(self, options: StoreOptions, files: Files, directory: Path, clock: Clock, *, background: bool) -> None:
        """Reads nothing; `load` does. The clock names new files; `background` flushes full ones in another thread."""
        self.files: tuple[IndexWriter, ...] = ()
        self._options = options
        self._files = files
        self._directory = directory
        self._clock = clock
        self.when_full: Callable[[int], None] = lambda _end: None
        self._background = background
        self._flushing: list[threading.Thread] = []
        self._changing = threading.Lock()  # while `files` is read, changed and replaced

    def load(self) -> None:
        """Opens the existing files; recovery has already removed the invalid ones."""
        for entry in list_directory(self._directory):
            if file_names.is_index_file_name(entry.name) and entry.is_file():
                self._open(Path(entry.path), None)

    def _open(self, path: Path, header: IndexHeader | None) -> IndexWriter:
        options = self._options
        file = self._files.create(path, index_file.file_size(options.index_slots, options.index_entries))
        stored = header or index_file.HEADER.parse(file.read(0, index_file.HEADER_SIZE))
        try:
            writer = IndexWriter(file, options.index_slots, options.index_entries, stored)
        except OSError:
            file.close()
            if header is not None:  # each try makes a file of another name
                self._files.remove(path)
            raise
        with self._changing:
            self.files = (*self.files, writer)
        return writer

    @property
    def end_physical_offset(self) -> int:
        """Physical offset of the record that was indexed last; 0 if there is none."""
        return self.files[-1].header.end_physical_offset if self.files else 0

    def current(self) -> IndexWriter:
        """Returns the file for the next key, a new one if the last is full.

        It is called for every dispatched record, so that a store without keys has one IndexFile too, as in the broker.
        """
        last = self.files[-1] if self.files else None
        if last is not None and last.room:
            return last
        begin = index_file.header_after(None if last is None else last.header)
        self._files.make_directory(self._directory)
        writer = self._open(self._new_path(), begin)
        if last is not None:
            self._flush_full(last)
        return writer

    def _new_path(self) -> Path:
        """Returns a name above all others; the broker would overwrite a file created in the same millisecond."""
        moment = datetime.fromtimestamp(self._clock.now() / 1000, self._options.zone)
        if self.files:
            newest = file_names.parse_index_file_name(self.files[-1].file.path.name, self._options.zone)  # type: ignore[arg-type]
            moment = max(moment, newest + timedelta(milliseconds=1)) if newest else moment
        path = self._directory / file_names.index_file_name(moment)
        while path.exists():
            moment += timedelta(milliseconds=1)
            path = self._directory / file_names.index_file_name(moment)
        return path

    def _flush_full(self, writer: IndexWriter) -> None:
        if not self._background:
            self._flush_now(writer)
            return
        thread = threading.Thread(
            target=self._flush_in_background, args=(writer,), name="mqtool-index-flush", daemon=True
        )
        self._flushing = [running for running in self._flushing if running.is_alive()]
        self._flushing.append(thread)
        thread.start()

    def _flush_in_background(self, writer: IndexWriter) -> None:
        try:
            self._flush_now(writer)
        except OSError as error:  # of the log: the checkpoint does not confirm the file, so a crash rebuilds it
            _LOG.error("log not flushed for index file path=%s error=%s", writer.file.path, error)

    def _flush_now(self, writer: IndexWriter) -> None:
        try:
            self._flush(writer)
        except OSError as error:  # the file is rebuilt after a crash, since the checkpoint does not confirm it
            _LOG.error("index file not flushed path=%s error=%s", writer.file.path, error)
            return
        self.when_full(writer.header.end_timestamp)

    def _flush(self, writer: IndexWriter) -> None:
        """Flushes one file, unless it is deleted meanwhile."""
        try:
            writer.flush()
        except ClosedFileError:
            if writer in self.files:
                raise

    def flush_full_files(self, flushed: int) -> None:
        """Flushes full files that end after the checkpoint's index timestamp, as if they had just become full."""
        for thread in self._flushing:
            thread.join()
        for writer in self.files[:-1]:
            if not writer.room and writer.header.end_timestamp > flushed:
                self._flush_now(writer)

    def put(self, request: DispatchRequest, *, with_tags: bool) -> None:
        """Adds the keys of one record (IndexService.buildIndex); skips a record that is already indexed."""
        writer = self.current()
        if not request.is_indexed or request.physical_offset < writer.header.end_physical_offset:
            return
        for key_hash in key_hashes(request.topic, request.properties, with_tags=with_tags):
            while not writer.put(key_hash, request.physical_offset, request.store_timestamp):
                writer = self.current()

    def put_many(self, keys: IndexKeys, records: int) -> None:
        """Puts the keys of this number of records, with and without keys, as repeated calls of `put` would."""
        for file, part in spread(self.current, keys, records):
            file.put_many(part)

    def query(self, key_hash: int, max_num: int, begin: int, end: int) -> list[int]:
        """Returns physical offsets of entries of a key hash, newest first (IndexService.queryOffset)."""
        return query_offsets(self.files, key_hash, max_num, begin, end)

    def delete_before(self, min_physical_offset: int) -> list[Path]:
        """Deletes leading files whose last record is deleted from the log, never the last file; returns them."""
        removed = []
        while len(self.files) > 1 and self.files[0].header.end_physical_offset < min_physical_offset:
            with self._changing:
                oldest, self.files = self.files[0], self.files[1:]
            oldest.close()
            self._files.remove(oldest.file.path)
            removed.append(oldest.file.path)
        return removed

    def flush(self) -> None:
        """Flushes every file to disk. Durable on return."""
        for thread in self._flushing:
            thread.join()
        for writer in self.files:
            self._flush(writer)

    def reclaim(self) -> None:
        """Restores index files that a broker has removed, and removes those that it created; durable on return.

        A broker that is started on an open store does this to the index before it finds the store locked.
        Source: IndexService.load, DefaultMessageStore.load/start (4.9.7, 5.5.0).
        """
        for writer in self.files:
            if not writer.file.is_in_place:
                _LOG.error("index file was removed by another process; restored path=%s", writer.file.path)
                self._files.put_back(writer.file)
        ours = {writer.file.path.name for writer in self.files}
        for entry in list_directory(self._directory):
            if entry.name not in ours and file_names.is_index_file_name(entry.name) and entry.is_file():
                _LOG.error("index file was created by another process; removed path=%s", entry.path)
                self._files.remove(Path(entry.path))
        if self.files:
            self._files.sync_directory(self._directory)

    def close(self) -> None:
        """Closes every file; nothing is flushed."""
        for thread in self._flushing:
            thread.join()
        with self._changing:
            files, self.files = self.files, ()
        for writer in files:
            writer.close()


def reindex(log: MappedFileQueue, index: Index, start: int, rules: DispatchRules) -> int:
    """Indexes every record from a physical offset on that is after the end of the index; returns how many were read.

    In the page cache on return. `log` and `index` are as recovery left them; at `start` there is a record, or at a
    higher offset in the same segment.
    """
    columns, done = Dispatcher(rules), 0
    start = max(start, index.end_physical_offset)
    for window in _frames(log, start):
        frames = window.between(start, None)
        if not len(frames):
            continue
        done += len(frames)
        dispatched = columns.dispatch(frames)
        if dispatched.oddities:
            _one_by_one(frames, index, rules)
            continue
        index.put_many(dispatched.keys, len(frames))
    return done


def _frames(log: MappedFileQueue, start: int) -> Iterator[Frames]:
    """Yields the records of the segment that contains `start` and of those after it, up to the first invalid one."""
    for file in log.files:
        if file.end <= start:
            continue
        yield from intact_run(file.file.read, file.file_from_offset, 0, file.read_position)


def _one_by_one(frames: Frames, index: Index, rules: DispatchRules) -> None:
    for position in frames.positions.tolist():
        try:
            request = request_of(commit_log.parse_record(frames.view, position), rules)
        except FormatError:  # the broker does not dispatch such a record
            continue
        index.put(request, with_tags=rules.index_tags)
