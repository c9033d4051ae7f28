"""Appends rows to a store in bulk, and yields one result for every row.

A row that is not a valid message, or that the store refuses, gets a result with its number and the store's status;
the other rows are still stored. Messages that the store already has are detected first, so that a repeated command
does not store them twice unnoticed. Docs page: docs/engine.md.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from msgspec.structs import replace

from mqtool.engine.clock import SystemClock
from mqtool.engine.config_files import ConfigFiles
from mqtool.engine.disk.allocator import Allocator
from mqtool.engine.disk.files import Files
from mqtool.engine.disk.mapped_files import MappedFileQueue
from mqtool.engine.options import StoreOptions
from mqtool.engine.start.detect import is_new
from mqtool.engine.statuses import PutStatus, RunningFlags
from mqtool.engine.store import MessageStore
from mqtool.engine.write.columns import MessageColumns
from mqtool.engine.write.commit_log import CommitLog
from mqtool.engine.write.messages import OutgoingMessage, check_before_put, delay_message, refusal
from mqtool.engine.write.queue_offsets import QueueOffsets
from mqtool.errors import RefusedError, StoreError
from mqtool.formats import config_files, file_names, hosts, java, properties
from mqtool.formats.config_files import DataVersion, TopicConfig, Topics
from mqtool.formats.topics import SCHEDULE_TOPIC, is_lmq
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.index_file import query_message
from mqtool.store.store import Store, open_store

CHUNK = 1024
"""Maximum rows that are appended together, and with SYNC_FLUSH share a flush."""

CHUNK_BYTES = 32 << 20
"""Bytes of bodies after which a chunk ends: messages of some MB each would need as many GB."""

MAX_QUEUE_ID = java.INT_MAX - 1
"""Maximum queue id: the table of topics counts the queues in 32 bits, and no broker starts with a larger count."""

_MAX_PORT = 65535

_DELAYED_ONCE = properties.REAL_TOPIC.encode() + b"\1"

_NO_MORE = (PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.CREATE_MAPPED_FILE_FAILED, PutStatus.UNKNOWN_ERROR)
"""Statuses that concern the store rather than the message, so that all further messages would get them too."""

SAMPLE = 1024
"""Maximum messages whose unique keys are looked up before anything is written."""

_MARK = properties.mark(properties.UNIQUE_KEY)


class HasMessage(Protocol):
    """A row, or a message of another store."""

    @property
    def message(self) -> OutgoingMessage | None:
        """The message; None if the row is not valid."""


_T = TypeVar("_T", bound=HasMessage)


def take(items: Iterator[_T], limit: int) -> list[_T]:
    """Returns the next items, at most `limit`, and fewer if their bodies exceed `CHUNK_BYTES`; empty at the end."""
    taken: list[_T] = []
    left = CHUNK_BYTES
    for item in islice(items, limit):
        taken.append(item)
        left -= 0 if item.message is None else len(item.message.body)
        if left <= 0:
            break
    return taken


class Row(NamedTuple):
    """A row of the input."""

    number: int  # line of text, or row of a table, counted from 1
    message: OutgoingMessage | None  # the parsed message; None if the row is invalid
    reason: str = ""  # why it is invalid
    # The row itself, if it was kept; contains the fields that its original store set.
    given: Mapping[str, Any] | None = None


class Ack(NamedTuple):
    """Result of a row."""

    number: int  # of the row
    status: PutStatus | None  # the store's answer; None for a row that is not a valid message
    reason: str = ""  # why it was not stored; "" if it was
    topic: str | None = None  # and queue_id: where it was stored; for a delayed message a queue of the schedule topic
    queue_id: int | None = None
    queue_offset: int | None = None  # and physical_offset: its position; None if it was not stored
    physical_offset: int | None = None
    offset_message_id: str = ""  # its id; "" if it was not stored
    sent_to: tuple[str, int] = ("", 0)  # topic and queue id that the row states

    @property
    def stored(self) -> bool:
        """Whether the message is in the log."""
        return self.physical_offset is not None


class PutValidator:
    """Computes the status with which a store would answer a message, without opening or writing anything."""

    def __init__(self, options: StoreOptions, batch_topics: frozenset[str] = frozenset()) -> None:
        """Validates for a store that is opened with these options."""
        files = Files()
        queue = MappedFileQueue(files, (Path("none"),), options.commit_log_file_size)
        offsets = QueueOffsets(release=options.release, batch_topics=batch_topics)
        plain = replace(options, pool_buffers=0)
        self._log = CommitLog(plain, queue, Allocator(files, queue, 0), offsets, RunningFlags(), SystemClock())
        self._hooks = (check_before_put(lambda: False), delay_message(options))

    def prepared(self, message: OutgoingMessage) -> OutgoingMessage | PutStatus:
        """Returns the message as a broker passes it to its store, or the status with which the broker refuses it."""
        if _unreadable(message):
            return PutStatus.MESSAGE_ILLEGAL
        # A message that was delayed once carries its real topic; its level must not delay it again.
        hooks = self._hooks[:1] if _DELAYED_ONCE in message.properties else self._hooks
        for hook in hooks:
            answer = hook(message)
            if isinstance(answer, PutStatus):
                return answer
            message = answer
        refused = refusal(self._log, message)
        return message if refused is None else refused.status

    def stored_form(self, message: OutgoingMessage | None) -> OutgoingMessage | None:
        """Returns a message as the log will contain it; None if the store refuses it or `message` is None."""
        stored = None if message is None else self.prepared(message)
        return None if isinstance(stored, PutStatus) else stored

    def reason(self, message: OutgoingMessage) -> str:
        """Returns an explanation of why a message is refused."""
        state = self._log.offsets.state(message.topic, message.queue_id)
        return (
            _unreadable(message)
            or state.refused
            or f"topic of {len(message.topic)} characters, body of {len(message.body)} bytes, "
            f"properties of {len(message.properties)} bytes"
        )


def _unreadable(message: OutgoingMessage) -> str:
    """Returns what a start of the broker could not read of a message or its topic's entry; "" if there is nothing.

    A start reads hosts with InetSocketAddress, which refuses other ports, and the table of topics with integers.
    """
    if message.queue_id > MAX_QUEUE_ID:
        return f"queue_id: expected at most {MAX_QUEUE_ID}, found {message.queue_id}"
    for name, host in (("born_host", message.born_host), ("store_host", message.store_host)):
        if host is not None and not 0 <= (port := hosts.parse(host).port) <= _MAX_PORT:
            return f"{name}: expected a port from 0 to {_MAX_PORT}, found {port}"
    return ""


def check(rows: Iterable[Row], validator: PutValidator) -> Iterator[Ack]:
    """Yields the store's answer to each row; writes nothing."""
    for row in rows:
        yield _checked(row, validator)[1]


def append(store: MessageStore, rows: Iterable[Row], validator: PutValidator) -> Iterator[Ack]:
    """Appends rows; yields their results in order.

    With SYNC_FLUSH a message is durable when its result is yielded. Otherwise it is in the log, and becomes durable at
    the latest when the store is closed. The store has no hooks, and its options are the validator's. Raises StoreError
    if the store accepts no more messages; the rows whose results were yielded are stored.
    """
    iterator = iter(rows)
    while chunk := take(iterator, CHUNK):
        messages: list[tuple[Row, OutgoingMessage]] = []
        for row in chunk:
            message, answer = _checked(row, validator)
            if message is None:
                yield from _put(store, messages)
                messages = []
                yield answer
            else:
                messages.append((row, message))
        yield from _put(store, messages)


def _checked(row: Row, validator: PutValidator) -> tuple[OutgoingMessage | None, Ack]:
    if row.message is None:
        return None, Ack(row.number, None, row.reason)
    prepared = validator.prepared(row.message)
    if isinstance(prepared, PutStatus):
        reason = validator.reason(row.message)
        return None, Ack(row.number, prepared, reason, row.message.topic, row.message.queue_id)
    return prepared, Ack(row.number, PutStatus.PUT_OK, "", prepared.topic, prepared.queue_id)


def _put(store: MessageStore, messages: list[tuple[Row, OutgoingMessage]]) -> Iterator[Ack]:
    """Appends messages, grouping those with the same born and store host."""
    done = 0
    while done < len(messages):
        given = messages[done][1].born_host, messages[done][1].store_host
        end = next(
            (
                at
                for at in range(done, len(messages))
                if (messages[at][1].born_host, messages[at][1].store_host) != given
            ),
            len(messages),
        )
        part = messages[done:end]
        result = store.put_many(_columns([message for _, message in part]))
        host = given[1] or store.default_store_host
        count = len(result.physical_offsets)
        late = result.status if result.status is PutStatus.FLUSH_DISK_TIMEOUT else PutStatus.PUT_OK
        places = zip(result.physical_offsets.tolist(), result.queue_offsets.tolist(), strict=True)
        for (row, message), (physical, queue_offset) in zip(part, places, strict=False):
            assert row.message is not None
            yield Ack(
                row.number,
                late,
                "",
                message.topic,
                message.queue_id,
                queue_offset,
                physical,
                hosts.format_offset_id(host, physical),
                (row.message.topic, row.message.queue_id),
            )
        done += count
        if count < len(part) and late is PutStatus.PUT_OK:
            row, message = part[count]
            if result.status in _NO_MORE:
                reason = (
                    f"row {row.number} was rejected with {result.status.name}: check the disk, then continue from "
                    "that row"
                )
                raise StoreError(reason, store.path)
            yield Ack(row.number, result.status, "refused by the store", message.topic, message.queue_id)
            done += 1


def _columns(messages: list[OutgoingMessage]) -> MessageColumns:
    topics = list(dict.fromkeys(message.topic for message in messages))
    number = {topic: at for at, topic in enumerate(topics)}

    def numbers(of: Callable[[OutgoingMessage], int]) -> Any:
        return np.fromiter(map(of, messages), np.int64, len(messages))

    times = [message.born_timestamp for message in messages]
    now = SystemClock.now()
    return MessageColumns(
        topics,
        numbers(lambda item: number[item.topic]),
        numbers(lambda item: item.queue_id),
        [message.body for message in messages],
        [message.properties for message in messages],
        numbers(lambda item: item.flag),
        numbers(lambda item: item.sys_flag),
        None
        if not any(time is not None for time in times)
        else np.array([now if time is None else time for time in times], np.int64),
        messages[0].born_host,
        messages[0].store_host,
        numbers(lambda item: item.reconsume_times),
        numbers(lambda item: item.prepared_transaction_offset),
    )


def batch_topics(root: Path, options: StoreOptions) -> frozenset[str]:
    """Returns the topics of a store whose queues are BatchConsumeQueues; raises the errors of `ConfigFiles.load`."""
    return ConfigFiles(root, Files(), release=options.release).batch_topics()


def count_queue(queues: dict[str, int], ack: Ack) -> None:
    """Raises the number of queues of a topic, for `add_topics`, to what a stored row needs."""
    topic, queue_id = ack.sent_to
    queues[topic] = max(queues.get(topic, 0), queue_id + 1)


def add_topics(store: MessageStore, queues: dict[str, int]) -> list[str]:
    """Adds missing topics to topics.json and increases queue counts that are too small; returns what it changed.

    Without a topic entry a broker has the messages, but clients get no route to them. Raises ConfigFileError or OSError
    if the file cannot be read or written.
    """
    tables = ConfigFiles(store.path, Files(), release=store.options.release)
    known = tables.topics()
    table = dict(known.topic_config_table)
    changed = []
    for topic, count in sorted(queues.items()):
        old = table.get(topic)
        if topic == SCHEDULE_TOPIC or is_lmq(topic) or (old is not None and old.read_queue_nums >= count):
            continue
        new = old or TopicConfig(topic, count, count, attributes=None if store.options.release < (5, 0) else {})
        table[topic] = replace(new, read_queue_nums=count, write_queue_nums=max(count, new.write_queue_nums))
        changed.append(topic)
    if changed:
        before = known.data_version or DataVersion(0, 0, None if store.options.release < (5, 0) else 0)
        version = replace(before, counter=before.counter + 1, timestamp=SystemClock.now())
        data = config_files.build_topics(Topics(table, version, known.extra), tables.style)
        tables.save(file_names.TOPICS, data)
    return changed


def refuse_duplicates(root: Path, config: BrokerConfig, messages: Iterable[OutgoingMessage | None]) -> None:
    """Refuses an input whose first messages are already in the store.

    A message is recognised by its unique key (UNIQ_KEY, which every client sets), looked up in the store's index within
    microseconds. Messages without a unique key are not recognised; the first `SAMPLE` are looked up. Raises
    RefusedError if a message is already stored.
    """
    if is_new(root):
        return
    with open_store(root, config) as store:
        for number, message in enumerate(islice(messages, SAMPLE), 1):
            key = None if message is None else _unique_key(message)
            if message is None or not key:
                continue
            place = _place(store, message.topic, key)
            if place is not None:
                raise RefusedError(
                    "duplicate",
                    f"message {number} of the input (unique key {key}) is already stored at physical offset {place}; "
                    "nothing was written. Use --duplicates append to store the messages once more",
                    root,
                )


def peeked(items: Iterable[_T]) -> tuple[list[_T], Iterator[_T]]:
    """Returns the first items, at most `SAMPLE` and as many as `take` returns, and an iterator over all of them."""
    iterator = iter(items)
    head = take(iterator, SAMPLE)
    return head, chain(head, iterator)


def _unique_key(message: OutgoingMessage) -> str | None:
    if _MARK not in message.properties:
        return None
    return properties.decode(message.properties).get(properties.UNIQUE_KEY)


def _place(store: Store, topic: str, key: str) -> int | None:
    """Returns the physical offset of the message with a unique key; None if the index finds none."""
    messages = query_message(store.commit_log, store.index_files(), topic, key)
    return next(
        (message.physical_offset for message in messages if message.unique_key == key and message.topic == topic), None
    )
