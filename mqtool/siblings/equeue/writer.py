"""Writes EQueue's store as the real broker does: recovers, appends messages, starts and completes chunks.

Such a store has no lock file, so nothing prevents a second writer: stop the broker first.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec import Struct

from mqtool.errors import MessageRejectedError, NotAStoreError, StoreError
from mqtool.formats import equeue, equeue_message, file_names
from mqtool.formats.equeue import ENTRY_SIZE, QueueEntry
from mqtool.formats.equeue_message import EPOCH_TICKS, MessageId, MessageRecord, Shape
from mqtool.jobs.atomic import make_directory, replace_file, write_new
from mqtool.siblings.equeue.appender import ChunkAppender
from mqtool.siblings.equeue.settings import EQueueSettings
from mqtool.siblings.equeue.start import Start, start
from mqtool.store.files import list_directory

DEFAULT_SETTING = b'{"ProducerVisible":true,"ConsumerVisible":true,"IsDeleted":false}'


def now_ticks() -> int:
    """Returns the local time in ticks, with daylight saving, as the broker stores it (DateTime.Now)."""
    now = time.time_ns()
    return EPOCH_TICKS + (now + time.localtime(now // 1_000_000_000).tm_gmtoff * 1_000_000_000) // 100


class AppendResult(Struct, frozen=True):
    """Where a message was stored.

    Attributes:
        position: global position of its frame.
        queue_offset: its ordinal in the queue.
        message_id: its id.
    """

    position: int
    queue_offset: int
    message_id: str


class EQueueWriter:
    """A store opened for writing. Use it as a context manager.

    Attributes:
        root: the store's root.
        settings: sizes of chunks and records.
    """

    def __init__(
        self,
        root: Path,
        settings: EQueueSettings,
        shape: Shape = equeue_message.CURRENT,
        clock: Callable[[], int] = now_ticks,
    ) -> None:
        """Recovers an existing store, or creates a new one in an empty or absent directory.

        Args:
            root: the root directory.
            settings: settings of the broker whose store it is.
            shape: record layout to write.
            clock: returns the stored time in ticks.

        Raises:
            StoreError: the broker would not start on the store, or would delete it. Nothing is written in either case.
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
        """Stores one message: its record, then its queue's entry.

        Args:
            topic, queue_id: the queue; created if it is new.
            body: the message.
            tag: "" for none.
            code: the application's message code, above 0.
            producer_address: "" if unknown.
            created_time: ticks, local time; by default the stored time.

        Raises:
            MessageRejectedError: the record is larger than the settings allow.
        """
        stored = self._clock()
        record = MessageRecord(
            0,
            equeue_message.build_id(MessageId(self.settings.broker_name, 0)),
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

        Args:
            record: the record; it keeps its queue offset.
            entry: also add the entry at the end of the queue. The broker adds it in another thread, so entries of
                messages that were sent at the same time may be in another order; use `append_entry` to do the same.

        Raises:
            MessageRejectedError: the record is larger than the settings allow, or its topic cannot be a folder's name.
        """
        # The broker reads invalid UTF-8 as replacement characters (Encoding.UTF8.GetString).
        tag_code = equeue.tag_code(record.tag.decode("utf-8", "replace")) if entry else 0
        topic, queue_id = record.topic.decode("utf-8", "replace"), record.queue_id
        self._directory(topic, queue_id)  # refuses the name before anything is written
        position = self._messages.append(lambda place: self._frame(record, place))
        if entry:
            self.append_entry(topic, queue_id, position, tag_code)
        self._next_offsets[topic, queue_id] = max(self.next_offset(topic, queue_id), record.queue_offset + 1)
        message_id = equeue_message.moved(record, position).message_id.decode("utf-8", "replace")
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _frame(self, record: MessageRecord, position: int) -> bytes:
        data = self._shape.build(equeue_message.moved(record, position))
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
