"""Writes EQueue's store as the real broker does: recovers, appends messages, starts and completes chunks.

Such a store has no lock file, so nothing prevents a second writer: stop the broker first. Chunk files have the same
bytes as those of ECommon 2.6.5 (Chunk.InitNew, Chunk.TryAppend, Chunk.Complete, ChunkWriter.Write).
"""

import json
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from mqtool.errors import MessageRejectedError, NotAStoreError, StoreError
from mqtool.formats import equeue, file_names
from mqtool.formats.equeue import (
    ENTRY_SIZE,
    EPOCH_TICKS,
    FOOTER_SIZE,
    HEADER_SIZE,
    ChunkFooter,
    ChunkHeader,
    MessageId,
    MessageRecord,
    QueueEntry,
    Shape,
)
from mqtool.jobs.atomic import make_directory, replace_file, sync_directory, write_all, write_new
from mqtool.siblings.equeue.listing import EQueueSettings
from mqtool.siblings.equeue.start import LoadedChunk, Start, start
from mqtool.store.files import Closing, list_directory

DEFAULT_SETTING = b'{"ProducerVisible":true,"ConsumerVisible":true,"IsDeleted":false}'


class ChunkAppender:
    """Appends records to the last chunk of a folder.

    A record is in the page cache when `append` returns. It is on disk after `flush(sync=True)`, and once its chunk is
    completed.
    """

    def __init__(self, directory: Path, prefix: str, capacity: int) -> None:
        """Creates an appender for chunks of `capacity` data bytes in a folder, which is created; opens no file."""
        self._directory = directory
        self._prefix = prefix
        self._capacity = capacity
        self._descriptor: int | None = None
        self._header = ChunkHeader(-1, capacity)
        self._next_number = 0
        self._data_end = 0

    @property
    def position(self) -> int:
        """Global position of the next record, if it fits into the current chunk."""
        return self._header.start + self._data_end

    def resume(self, chunk: LoadedChunk) -> None:
        """Continues a chunk at the data end that the start model found; bytes after it are not changed."""
        self._next_number = chunk.number + 1
        if chunk.file is None:
            self.begin(chunk.number)
        elif not chunk.completed:
            self._descriptor = os.open(chunk.file.path, os.O_RDWR | os.O_CLOEXEC)
            self._header = ChunkHeader(chunk.number, chunk.capacity)
            self._data_end = chunk.data_end

    def begin(self, number: int) -> None:
        """Creates a chunk of full length under a temporary name, and renames it once its header is on disk.

        Raises StoreError if a file of this name exists. The broker would delete it.
        """
        path = self._directory / equeue.chunk_name(self._prefix, number)
        if path.exists():
            raise StoreError("exists already, though it is the next chunk to create; salvage the store", path)
        self._header = ChunkHeader(number, self._capacity)
        self._data_end = 0
        self._next_number = number + 1
        make_directory(self._directory)
        temporary = path.with_name(f"{path.name}.{uuid.uuid4()}{equeue.TEMPORARY_SUFFIX}")
        self._descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        os.truncate(self._descriptor, HEADER_SIZE + self._capacity + FOOTER_SIZE)
        write_all(self._descriptor, equeue.HEADER.build(self._header), 0)
        os.fsync(self._descriptor)
        temporary.rename(path)
        sync_directory(self._directory)

    def append(self, build: Callable[[int], bytes]) -> int:
        """Writes one record, in the next chunk if the current one has no room for it; returns its global position.

        `build` returns the record's bytes for a position, and is called again if the record moves to the next chunk.
        Raises MessageRejectedError if the record does not fit into an empty chunk, StoreError as `begin`.
        """
        if self._descriptor is None:
            self.begin(self._next_number)
        data = build(self.position)
        if not self._fits(data):
            if len(data) > self._capacity:
                raise MessageRejectedError(f"{len(data)} bytes do not fit into a chunk of {self._capacity}")
            self._complete()
            self.begin(self._next_number)
            data = build(self.position)
        assert self._descriptor is not None
        position = self.position
        write_all(self._descriptor, data, HEADER_SIZE + self._data_end)
        self._data_end += len(data)
        return position

    def flush(self, *, sync: bool = False) -> None:
        """Flushes written bytes to disk if `sync` is true; otherwise does nothing."""
        if sync and self._descriptor is not None:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Closes the last chunk without writing a footer, as on a shutdown of the broker."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _fits(self, data: bytes) -> bool:
        return self._data_end + len(data) <= self._header.capacity

    def _complete(self) -> None:
        """Writes the footer after the data, truncates the file there, and makes it durable: `flush` cannot later.

        A power cut that took the end of a completed chunk would keep the broker from starting
        (Chunk.CheckCompletedFileChunk).
        """
        assert self._descriptor is not None
        end = HEADER_SIZE + self._data_end
        write_all(self._descriptor, equeue.FOOTER.build(ChunkFooter(self._data_end)), end)
        os.truncate(self._descriptor, end + FOOTER_SIZE)
        os.fsync(self._descriptor)
        self.close()


def now_ticks() -> int:
    """Returns the local time in ticks, with daylight saving, as the broker stores it (DateTime.Now)."""
    now = time.time_ns()
    return EPOCH_TICKS + (now + time.localtime(now // 1_000_000_000).tm_gmtoff * 1_000_000_000) // 100


class AppendResult(Struct, frozen=True):
    """Where a message was stored."""

    position: int  # global position of its frame
    queue_offset: int  # its ordinal in the queue
    message_id: str  # its id


class EQueueWriter(Closing):
    """A store opened for writing."""

    def __init__(
        self,
        root: Path,
        settings: EQueueSettings,
        shape: Shape = equeue.CURRENT,
        clock: Callable[[], int] = now_ticks,
    ) -> None:
        """Recovers an existing store, or creates a new one in an empty or absent directory; `clock` returns ticks.

        Raises StoreError, before anything is written, if the broker would not start on the store, or would delete it.
        """
        self.root = root
        self.settings = settings
        self._shape = shape
        self._clock = clock
        self._messages = ChunkAppender(root / equeue.MESSAGE_CHUNKS, equeue.MESSAGE_PREFIX, settings.message_chunk_size)
        self._queues: dict[tuple[str, int], ChunkAppender] = {}
        self._next_offsets: dict[tuple[str, int], int] = {}
        try:
            recovered = start(root, settings, shape)
        except NotAStoreError:
            if root.exists() and list_directory(root):
                raise
            recovered = Start()
        self._recover(recovered)

    def put(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        *,
        tag: str = "",
        code: int = 1,
        producer_address: str = "",
        created_time: int | None = None,
    ) -> AppendResult:
        """Stores one message: its record, then its queue's entry; creates the queue if it is new.

        `code` is the application's message code, above 0; `created_time` is in ticks of local time, by default the
        stored time. Raises MessageRejectedError if the record is larger than the settings allow.
        """
        stored = self._clock()
        record = MessageRecord(
            0,
            equeue.build_id(MessageId(self.settings.broker_name, 0)),
            topic.encode(),
            tag.encode(),
            producer_address.encode(),
            code,
            body,
            queue_id,
            self.next_offset(topic, queue_id),
            stored if created_time is None else created_time,
            stored,
        )
        return self.append(record)

    def append(self, record: MessageRecord, *, entry: bool = True) -> AppendResult:
        """Stores a complete record unchanged, except for its global position, which also changes its id.

        `entry` is whether to add the entry at the end of the queue too. The broker adds it in another thread, so
        entries of messages that were sent at the same time may be in another order; use `append_entry` to do the same.
        Raises MessageRejectedError if the record is larger than the settings allow, or its topic cannot be a folder's
        name.
        """
        # The broker reads invalid UTF-8 as replacement characters (Encoding.UTF8.GetString).
        tag_code = equeue.tag_code(record.tag.decode("utf-8", "replace")) if entry else 0
        topic, queue_id = record.topic.decode("utf-8", "replace"), record.queue_id
        self._directory(topic, queue_id)  # refuses the name before anything is written
        position = self._messages.append(lambda place: self._frame(record, place))
        if entry:
            self.append_entry(topic, queue_id, position, tag_code)
        self._next_offsets[topic, queue_id] = max(self.next_offset(topic, queue_id), record.queue_offset + 1)
        message_id = equeue.moved(record, position).message_id.decode("utf-8", "replace")
        return AppendResult(position, record.queue_offset, message_id)

    def append_entry(self, topic: str, queue_id: int, position: int, tag_code: int) -> None:
        """Adds an entry to the end of a queue."""
        data = equeue.QUEUE_ENTRY.build(QueueEntry(position + 1, tag_code))
        self._queue(topic, queue_id).append(lambda _: data)

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Returns the queue offset that the next message of a queue gets."""
        return self._next_offsets.get((topic, queue_id), 0)

    def flush(self, *, sync: bool = True) -> None:
        """Flushes appended messages to disk, then the entries."""
        self._messages.flush(sync=sync)
        for queue in self._queues.values():
            queue.flush(sync=sync)

    def close(self) -> None:
        """Closes the store; the last chunks keep no footer, as after a shutdown of the broker."""
        self._messages.close()
        for queue in self._queues.values():
            queue.close()

    def _frame(self, record: MessageRecord, position: int) -> bytes:
        data = self._shape.build(equeue.moved(record, position))
        if len(data) > self.settings.max_record_size:
            raise MessageRejectedError(
                f"the record has {len(data)} bytes, the limit is {self.settings.max_record_size}"
            )
        return equeue.build_frame(data)

    def _queue(self, topic: str, queue_id: int) -> ChunkAppender:
        key = (topic, queue_id)
        if key not in self._queues:
            directory = self._directory(topic, queue_id)
            self._queues[key] = self._appender(directory)
            write_setting(directory)
        return self._queues[key]

    def _directory(self, topic: str, queue_id: int) -> Path:
        if not file_names.is_directory_name(topic):
            raise MessageRejectedError(f"expected a topic that can be a folder's name, found {topic!r}")
        return self.root / equeue.QUEUE_CHUNKS / topic / str(queue_id)

    def _appender(self, directory: Path) -> ChunkAppender:
        return ChunkAppender(directory, equeue.QUEUE_PREFIX, self.settings.queue_chunk_entries * ENTRY_SIZE)

    def _recover(self, start: Start) -> None:
        """Continues with the state that the start model found; this is the first write."""
        try:
            if start.refusal is not None:
                reason = f"the broker does not start on it ({start.refusal.exception}: {start.refusal.message})"
                raise StoreError(f"{reason}; {start.refusal.remedy}", start.refusal.path)
            if start.clears_root:
                raise StoreError(f"{start.notes[-1]}; nothing was written", self.root)
            self._delete_temporary()
            if start.current is not None:
                self._messages.resume(start.current)
            for (topic, queue_id), queue in start.queues.items():
                directory = self._directory(topic, queue_id)
                appender = self._appender(directory)
                appender.resume(queue.current)
                self._queues[topic, queue_id] = appender
                self._next_offsets[topic, queue_id] = queue.next_offset
                write_setting(directory)
        finally:
            start.close()

    def _delete_temporary(self) -> None:
        """Deletes temporary files of chunks whose creation was interrupted, as the broker does (ChunkManager.Load)."""
        folders = [(self.root / equeue.MESSAGE_CHUNKS, equeue.MESSAGE_PREFIX)]
        folders += [(path, equeue.QUEUE_PREFIX) for path in (self.root / equeue.QUEUE_CHUNKS).glob("*/*")]
        for folder, prefix in folders:
            for entry in list_directory(folder):
                if equeue.is_chunk_name(entry.name, prefix) and entry.name.endswith(equeue.TEMPORARY_SUFFIX):
                    Path(entry.path).unlink()


def write_setting(directory: Path) -> None:
    """Writes the default queue.setting file of a queue, if it has none, as the broker does (Queue.Load)."""
    path = directory / equeue.QUEUE_SETTING
    make_directory(directory)
    if not path.is_file() or not path.stat().st_size:
        replace_file(path, DEFAULT_SETTING)


def write_offsets(root: Path, offsets: dict[str, dict[str, dict[str, int]]]) -> None:
    """Writes consumed offsets and their backup to a store that has neither: group → topic → queue → queue offset."""
    data = json.dumps(offsets, separators=(",", ":")).encode()
    for name in (equeue.CONSUME_OFFSETS, equeue.CONSUME_OFFSETS_BACKUP):
        write_new(root / name, data)
