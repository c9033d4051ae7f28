"""CommitLog: the log of all topics, as its writer sees it: allocating room for the next record, writing, reading.

`messages`, `columns` and, for plain messages, `native.engine.Appender` append to it. `WrittenRecords` has positions and
fields of the records that were just appended as columns: dispatch uses it instead of looking for them in the log, and
reads the log if it is missing or late. Docs page: docs/engine.md. Source: CommitLog,
DefaultAppendMessageCallback.doAppend (4.9.7, 5.5.0).
"""

import logging
import mmap
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mqtool.engine.clock import Clock
from mqtool.engine.disk.allocator import Allocator
from mqtool.engine.disk.files import zeroed_memory
from mqtool.engine.disk.mapped_files import MappedFile, MappedFileQueue
from mqtool.engine.options import StoreOptions
from mqtool.engine.statuses import AppendFailedError, AppendStatus, PutResult, PutStatus, RunningFlags
from mqtool.engine.write.queue_offsets import QueueOffsets, QueueState
from mqtool.formats import commit_log, hosts
from mqtool.records.frames import Frames

MAX_WRITTEN = 1 << 18
"""Maximum number of records kept; a dispatcher that lags more than that reads the log."""

_AT_ONCE = 1 << 13
"""Records after which no further ones are taken with them: their columns stay in the processor's second cache."""


_LOG = logging.getLogger(__name__)

LONGEST_PROPERTIES = (1 << 15) - 1

_ROOM_BESIDE_BODY = 64 << 10
"""Maximum bytes of a record besides its body."""

_NOT_LOCKED_MS = 10_000_000
"""The broker treats longer times as a lock that is not held."""


class WrittenColumns(NamedTuple):
    """Records that were written together, as columns, one row a record."""

    base: int  # physical offset of the first byte of the buffer to which positions refer
    store_timestamp: int  # of all, ms
    sizes: np.ndarray  # bytes of each record
    sys_flag: np.ndarray  # and queue_id, queue_offset: of each
    queue_id: np.ndarray
    queue_offset: np.ndarray
    positions: np.ndarray  # of each record in the buffer
    topic_start: np.ndarray  # and topic_length, properties_start, properties_length: positions in the buffer, and bytes
    topic_length: np.ndarray
    properties_start: np.ndarray
    properties_length: np.ndarray

    @property
    def start(self) -> int:
        """Physical offset of the first record."""
        return self.base + int(self.positions[0])

    @property
    def end(self) -> int:
        """Physical offset after the last record."""
        return self.base + int(self.positions[-1] + self.sizes[-1])


class WrittenRecords:
    """Records noted under the append lock, and taken by the dispatcher.

    Every access is a single atomic queue operation, so no other lock is needed.
    """

    def __init__(self) -> None:
        self._parts: deque[WrittenColumns] = deque()

    def note(self, written: WrittenColumns) -> None:
        """Keeps the next records of the log, up to the maximum."""
        if sum(len(part.sizes) for part in tuple(self._parts)) > MAX_WRITTEN:
            self._parts.clear()
        self._parts.append(written)

    def upcoming(self, start: int) -> int | None:
        """Discards parts that start below a physical offset; returns the start of the first part left."""
        while (part := self._first()) is not None:
            if part.start >= start:
                return part.start
            self._pop()
        return None

    def take(self, view: memoryview, base: int) -> Frames | None:
        """Returns the noted records with which a view of the log at `base` begins, in full; None if there are none."""
        parts: list[WrittenColumns] = []
        start, records = base, 0
        while records < _AT_ONCE and (part := self._first()) is not None:
            if part.start != start or part.end > base + len(view):
                break
            parts.append(part)
            start = part.end
            records += len(part.sizes)
            self._pop()
        return _frames(parts, view, base) if parts else None

    def _first(self) -> WrittenColumns | None:
        try:
            return self._parts[0]
        except IndexError:  # none, or the writer has just cleared it
            return None

    def _pop(self) -> None:
        with suppress(IndexError):
            self._parts.popleft()


def _frames(parts: list[WrittenColumns], view: memoryview, base: int) -> Frames:
    def joined(column_of: Callable[[WrittenColumns], np.ndarray]) -> np.ndarray:
        return np.concatenate([column_of(part) for part in parts])

    positions, sizes = joined(lambda part: part.positions + (part.base - base)), joined(lambda part: part.sizes)
    columns = {
        "total_size": sizes.astype(np.int32),
        "queue_id": joined(lambda part: part.queue_id).astype(np.int32),
        "sys_flag": joined(lambda part: part.sys_flag),
        "queue_offset": joined(lambda part: part.queue_offset),
        "physical_offset": positions + base,
        "store_timestamp": np.repeat([part.store_timestamp for part in parts], [len(part.sizes) for part in parts]),
        "topic_start": joined(lambda part: part.topic_start + (part.base - base)),
        "topic_length": joined(lambda part: part.topic_length),
        "properties_start": joined(lambda part: part.properties_start + (part.base - base)),
        "properties_length": joined(lambda part: part.properties_length),
    }
    frames = Frames(view, base, positions, sizes, columns)
    frames.valid = np.ones(len(frames), bool)
    return frames


class BufferPool:
    """A fixed number of buffers, each as long as a CommitLog file; allocated when first needed, and reused."""

    def __init__(self, count: int, size: int) -> None:
        self._left = count
        self._size = size
        self._free: list[mmap.mmap] = []
        self._guard = threading.Lock()

    def lend(self, file: MappedFile) -> None:
        """Attaches a buffer to a new file; if none is free, the file is written through its mapping."""
        with self._guard:
            if self._free:
                file.pool_buffer = self._free.pop()
            elif self._left:
                self._left -= 1
                file.pool_buffer = zeroed_memory(self._size)

    def reclaim(self, files: tuple[MappedFile, ...]) -> None:
        """Returns buffers of full and completely committed segments to the pool."""
        for file in files:
            buffer = file.pool_buffer
            if buffer is not None and file.committed == file.size:
                file.pool_buffer = None
                with self._guard:
                    self._free.append(buffer)

    @property
    def free(self) -> int:
        """Number of buffers that are available."""
        return self._left + len(self._free)


class CommitLog:
    """The log. Any thread may append; the append lock serialises them.

    Attributes:
        queue: its segments.
        offsets: next queue offsets; changed under `lock` only.
        lock: the append lock.
        file: the segment that is appended to; None until the first append.
        buffer: the segment's bytes, indexed by position; None with `positional_writes`.
        limit: position up to which records may be written into `buffer` without `make_room`.
        pool: the transient store pool, if there is one.
        longest_body, longest: maximum bytes of a body, and of a record or of all records of a batch.
        written: records appended as columns, for dispatch; None if it does not use them.
        before_roll: called under the lock before a new segment is started; may raise OSError to refuse it.
        store_host, born_host: hosts of records whose caller gives none; 8 or 20 bytes.
    """

    def __init__(
        self,
        options: StoreOptions,
        queue: MappedFileQueue,
        allocator: Allocator,
        offsets: QueueOffsets,
        flags: RunningFlags,
        clock: Clock,
    ) -> None:
        self.options = options
        self.queue = queue
        self.allocator = allocator
        self.offsets = offsets
        self.flags = flags
        self.lock = threading.Lock()
        self.now = clock.now
        self.pool = BufferPool(options.pool_buffers, options.commit_log_file_size)
        self.store_host = hosts.build(options.store_host)
        self.born_host = hosts.build(hosts.Host(options.store_host.address, 0))
        self.file: MappedFile | None = None
        self.buffer: Any = None
        self.limit = -1
        self.written: WrittenRecords | None = None
        self._stage = bytearray()
        self.change_limits(options)
        self.before_roll: Callable[[], None] = lambda: None
        self._lock_held = (0, -1)
        self._logged_failure: tuple[Path, int, int | None] | None = None

    def change_limits(self, options: StoreOptions) -> None:
        """Applies the `max_message_size` of other options from now on (CommitLog.updateMaxMessageSize)."""
        self.longest_body = options.max_message_size
        self.longest = options.max_message_size + _ROOM_BESIDE_BODY
        if options.refuse_oversize:
            self.longest = min(self.longest, options.commit_log_file_size - commit_log.BLANK_SIZE)

    def refusal(self, state: QueueState, body_size: int, properties_size: int, total: int) -> PutResult:
        """Returns the result for a message that is refused; `body_size` and `properties_size` are sizes as stored."""
        if self.flags.refuses:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
        if properties_size > LONGEST_PROPERTIES:
            return PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED)
        _LOG.debug("refused topic=%.80s body=%d total=%d reason=%s", state.topic, body_size, total, state.refused)
        return PutResult(PutStatus.MESSAGE_ILLEGAL)

    def too_long(self, state: QueueState, body_size: int, properties_size: int, total: int) -> bool:
        """Whether `refusal` would return a result."""
        return bool(
            properties_size > LONGEST_PROPERTIES
            or body_size > self.longest_body
            or total > self.longest
            or state.refused
            or self.flags.refuses
        )

    def is_busy(self) -> bool:
        """Whether a writer has held the append lock for longer than `page_cache_busy_ms` without progress.

        The broker stores the time when the lock is taken. Here the lock is sampled at each call, which costs the
        writer nothing: the time counts from the first call that found it held at the same position.
        Source: DefaultMessageStore.isOSPageCacheBusy (4.9.7, 5.5.0).
        """
        if not self.lock.locked():
            self._lock_held = (0, -1)
            return False
        now, place = self.now(), self.queue.wrote_offset
        since, held_at = self._lock_held
        if held_at != place:
            self._lock_held = (now, place)
            return False
        return self.options.page_cache_busy_ms < now - since < _NOT_LOCKED_MS

    def make_room(self, total: int, *, mapped: bool = True) -> MappedFile:
        """Returns the segment for the next `total` bytes; ends the current one with a BLANK if they do not fit.

        Call it under the lock. `mapped` is False for records that `write_through` writes, not into `buffer`. Raises
        AppendFailedError if no segment can be created, the disk is full, or no segment is long enough.
        """
        file = self.file
        if file is None:
            last = self.queue.last
            file = self.file = self._next_file() if last is None or last.is_full else last
        if file.wrote + total + commit_log.BLANK_SIZE > file.size:
            self._blank(file)
            file = self.file = self._next_file()
            if total + commit_log.BLANK_SIZE > file.size:
                end = AppendStatus.END_OF_FILE
                blank = PutResult(PutStatus.PUT_OK, end, file.file_from_offset, file.size, 0, self.now())
                self._blank(file)
                raise AppendFailedError(blank)
        self.buffer = self._buffer_of(file)
        self.limit = file.size - commit_log.BLANK_SIZE
        if self.buffer is not None and file.pool_buffer is None:
            try:
                self.limit = min(self.limit, self.allocator.reserve(file, file.wrote + total, mapped=mapped))
            except OSError as error:
                self.limit = -1
                raise self._failed(file, error) from error
        return file

    def _next_file(self) -> MappedFile:
        try:
            self.before_roll()
            file = self.allocator.next_file()
        except OSError as error:
            _LOG.error("no file for the CommitLog error=%s", error)
            raise AppendFailedError(PutResult(PutStatus.CREATE_MAPPED_FILE_FAILED)) from error
        self.pool.lend(file)
        return file

    def _buffer_of(self, file: MappedFile) -> Any:
        if file.pool_buffer is not None:
            return file.pool_buffer
        return None if self.options.positional_writes else file.file.mapping

    def _blank(self, file: MappedFile) -> None:
        """Ends a segment: a BLANK covers the rest of it."""
        left = file.size - file.wrote
        if left >= commit_log.BLANK_SIZE:
            data = commit_log.build_blank(left)
            if file.pool_buffer is not None:
                data += bytes(left - len(data))  # a buffer that was used before holds old records there
            else:
                self._reserve_for(file, len(data))
            self.write(file, data)
        file.wrote = file.size

    def _reserve_for(self, file: MappedFile, size: int) -> None:
        if not self.options.positional_writes:
            try:
                file.reserve(file.wrote + size)
            except OSError as error:
                raise self._failed(file, error) from error

    def write(self, file: MappedFile, data: bytes) -> None:
        """Copies complete records, or a BLANK, after the last one and advances `wrote`; there must be room.

        If it raises AppendFailedError, `wrote` is unchanged.
        """
        start = file.wrote
        buffer = self._buffer_of(file)
        if buffer is not None:
            buffer[start : start + len(data)] = data
        else:
            try:
                file.file.write(start, data)
            except OSError as error:
                raise self._failed(file, error) from error
        file.wrote = start + len(data)

    def stage(self, size: int) -> bytearray:
        """Returns a buffer of at least `size` bytes to build records for `write_through`; use it under the lock."""
        if len(self._stage) < size:
            self._stage = bytearray(1 << size.bit_length())
        return self._stage

    def write_through(self, file: MappedFile, data: memoryview) -> None:
        """Writes records as `write` does, but by a system call; the caller advances `wrote`."""
        try:
            file.file.write(file.wrote, data)
        except OSError as error:
            raise self._failed(file, error) from error

    def _failed(self, file: MappedFile, error: OSError) -> AppendFailedError:
        failure = file.file.path, file.wrote, error.errno
        if failure != self._logged_failure:  # once, not for every message that is sent while the disk is full
            self._logged_failure = failure
            _LOG.error("append failed path=%s position=%d error=%s", *failure[:2], error)
        return AppendFailedError(PutResult(PutStatus.UNKNOWN_ERROR, AppendStatus.UNKNOWN_ERROR))

    def read(self, physical_offset: int, size: int) -> memoryview | None:
        """Returns a view of bytes of the log; None if the log does not contain all of them.

        The view stays valid even after the segment is deleted.
        """
        file = self.queue.find(physical_offset)
        if file is None or not file.available:
            return None
        position = physical_offset - file.file_from_offset
        if size < 0 or position + size > file.read_position:
            return None
        view = file.view()
        return None if view is None else view[position : position + size]
