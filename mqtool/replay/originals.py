"""Reads the messages to replay from a store, JSON Lines or Parquet, keeps their old positions, and changes them.

`Resend` changes messages before they are sent again: other topics, dead letters, and half messages the broker gave up
on. A dead letter states the topic that it was sent to (RETRY_TOPIC, or DLQ_ORIGIN_TOPIC of 5.x). A half message that
was checked too often states its topic and queue (REAL_TOPIC, REAL_QID). Properties that only the broker's retries and
transactions use are removed: with TRAN_MSG a broker would treat the message as a new half message, with DELAY as a
delayed one. Source: AbstractSendMessageProcessor.consumerSendMsgBack, TransactionalMessageServiceImpl,
DefaultTransactionalMessageCheckListener (5.5.0).
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mqtool.engine.options import StoreOptions
from mqtool.engine.write.messages import OutgoingMessage
from mqtool.errors import FormatError, StoreError
from mqtool.export.published import holds_tables, message_files
from mqtool.export.schema import RecordClass, class_of
from mqtool.formats import compression, file_names, hosts, properties, service_records, topics
from mqtool.formats.commit_log import COMPRESSION_MASK, TRANSACTION_MASK, SysFlag
from mqtool.formats.config_files import TopicConfig
from mqtool.ingest import row_source
from mqtool.ingest.bulk_ingest import Row
from mqtool.records.damage import Damage, DamageKind
from mqtool.store import Message, Store, open_store
from mqtool.store.log.message import explode
from mqtool.store.log.selection import Globs, Selection

DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"

_OF_RETRIES = (
    properties.RETRY_TOPIC,
    properties.ORIGIN_MESSAGE_ID,
    properties.DELAY_LEVEL,
    properties.REAL_TOPIC,
    properties.REAL_QUEUE_ID,
    properties.RECONSUME_TIME,
    properties.MAX_RECONSUME_TIMES,
    DLQ_ORIGIN_TOPIC,
    "DLQ_ORIGIN_MESSAGE_ID",
    properties.ORIGIN_GROUP,
    properties.FIRST_POP_TIME,
    properties.POP_CHECK_POINT,
)

_OF_TRANSACTIONS = (
    properties.TRANSACTION_PREPARED,
    properties.TRANSACTION_ID,
    properties.REAL_TOPIC,
    properties.REAL_QUEUE_ID,
    service_records.CHECK_TIMES,
    service_records.IMMUNITY,
    properties.TRANSACTION_PREPARED_QUEUE_OFFSET,
)

_BATCH = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)

_HOSTS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)

_PACKED = int(SysFlag.COMPRESSED) | COMPRESSION_MASK

_OF_THE_OLD_STORE = (properties.CRC32, properties.INNER_MULTI_QUEUE_OFFSET)

_OF_A_BATCH = (properties.INNER_NUM, properties.INNER_BASE)

Position = tuple[int, int]
"""Position of a message in the source: (physical offset, index in the inner batch), or (row number, 0) in a table."""


class Kind(StrEnum):
    """Which messages of a store are sent again."""

    VISIBLE = "visible"
    """Messages that consumers could see."""
    DEAD_LETTERS = "dead-letters"
    """Dead letters of one consumer group."""
    HALF = "half"
    """Half messages that the broker gave up on after too many checks."""


class Resend(Struct, frozen=True):
    """Which messages are sent again, and where to."""

    kind: Kind = Kind.VISIBLE  # the kind of messages
    group: str = ""  # consumer group whose dead letters are sent again
    to_topic: str | None = None  # topic for all messages; None to use the topic of each message
    # Topic configurations of the source store, which give the number of queues for dead letters.
    topics: Mapping[str, TopicConfig] | None = None

    @property
    def stored_topics(self) -> tuple[str, ...] | None:
        """Topics in which the messages are stored; None if the selection names the topics."""
        if self.kind is Kind.DEAD_LETTERS:
            return (topics.DEAD_LETTER_PREFIX + self.group,)
        return (topics.CHECKED_TOO_OFTEN_TOPIC,) if self.kind is Kind.HALF else None

    def matches_topic(self, message: Message, globs: Globs) -> bool:
        """Whether the selection includes the topic that a message was originally sent to.

        The topic in which a dead letter or half message is stored does not count.
        """
        return self.kind is Kind.VISIBLE or globs.matches(self._origin(message)[0] or "")

    def changed(self, message: Message) -> Message:
        """Returns a message as it is sent; raises FormatError if neither it nor `to_topic` states a topic."""
        topic, queue_id = self._origin(message)
        topic = self.to_topic or topic
        if topic is None:
            raise FormatError("expected the topic that it was sent to, found none; name one with --to-topic")
        if self.kind is Kind.VISIBLE:
            return message if topic == message.topic else replace(message, topic=topic)
        removed = _OF_RETRIES if self.kind is Kind.DEAD_LETTERS else _OF_TRANSACTIONS
        kept = {name: value for name, value in message.properties.items() if name not in removed}
        return replace(message, topic=topic, queue_id=queue_id, properties=kept, reconsume_times=0)

    def _origin(self, message: Message) -> tuple[str | None, int]:
        """Returns (original topic, queue id to send to); the topic is None if the message does not state it."""
        values = message.properties
        if self.kind is Kind.DEAD_LETTERS:
            topic = values.get(DLQ_ORIGIN_TOPIC) or values.get(properties.RETRY_TOPIC)
            if topic is None or topic.startswith(topics.RETRY_PREFIX):
                return None, 0
            config = (self.topics or {}).get(topic)
            return topic, message.queue_offset % max(1, config.write_queue_nums if config else 1)
        if self.kind is Kind.HALF:
            try:
                return service_records.destination(values)
            except FormatError:
                return None, 0
        return message.topic, message.queue_id

    def shape(self) -> dict[str, str]:
        """Returns the settings that must not change between the runs of one replay; empty for an ordinary replay."""
        given = {"resend": self.kind.value, "group": self.group, "to_topic": self.to_topic or ""}
        return given if self.kind is not Kind.VISIBLE or self.to_topic else {}


ORDINARY = Resend()
"""An ordinary replay: messages that consumers could see, sent to their own topics."""


class Original(Struct, frozen=True):
    """A message to replay."""

    position: Position  # position in the source; ascending
    message: OutgoingMessage | None  # the message to put; None if the row is invalid
    reason: str  # why the row is invalid; "" if it is valid
    # Its old topic, queue_id, queue_offset, physical_offset, offset_message_id and unique_key; None where unknown.
    place: dict[str, Any]


class SkippedCounts(Struct):
    """Counts of what was read but not replayed."""

    # Records that consumers cannot see: half messages, rolled-back messages, records of system topics.
    not_committed: int
    not_selected: int  # messages that were read and that the selection excludes
    damage: list[Damage]  # ranges of the log without a valid record, or that expired before they were read
    read_to: int = 0  # physical offset up to which the log has been read; 0 until it has been read to its end


def is_store(path: Path) -> bool:
    """Whether a source is a store; any other directory is a Parquet export."""
    return path.is_dir() and ((path / file_names.COMMIT_LOG).is_dir() or not holds_tables(path))


class Source(Struct, frozen=True, dict=True):
    """The messages to replay."""

    path: Path  # a store's root, a file of JSON Lines, a Parquet file, or the directory of an export
    selection: Selection  # which messages to replay
    keep_times: bool = False  # keep the born timestamps; otherwise use the time of the replay
    config: Path | None = None  # broker configuration of a source store; None if there is none
    resend: Resend = ORDINARY  # which kind of messages to replay, and where to send them

    @property
    def is_store(self) -> bool:
        """Whether the source is a store."""
        return is_store(self.path)

    @cached_property
    def files(self) -> list[Path]:
        """The Parquet files of a source of tables; found once, so that the saved state is of what is read.

        Raises the errors of `message_files`.
        """
        return message_files(self.path)

    def open(self) -> Store:
        """Opens a source that is a store; raises StoreError if it has no log, but files that are derived from one."""
        return open_store(self.path, self.config, needs_log=True)

    def originals(
        self, options: StoreOptions, after: Position | None, skipped: SkippedCounts, *, known: int | None = None
    ) -> Iterator[Original]:
        """Yields the messages after a position in the source's order, None for all; `skipped` counts the others.

        Earlier runs have read the log up to the physical offset `known`; None if there was none. Raises StoreError or
        FormatError if the source cannot be read.
        """
        originals = self._of_store(options, after, skipped, known) if self.is_store else self._of_rows(options, skipped)
        for original in originals:
            if after is None or original.position > after:
                yield original

    def _of_store(
        self, options: StoreOptions, after: Position | None, skipped: SkippedCounts, known: int | None
    ) -> Iterator[Original]:
        selection = self.selection
        start = max(selection.start or 0, after[0] if after else 0) or None
        with self.open() as store:
            end = store.commit_log.max_offset
            if known is not None:
                skipped.damage.extend(self._expired(store, known))
            resend = replace(self.resend, topics=store.metadata.topics)
            for item in store.messages(
                start=start,
                end=selection.end,
                topics=selection.topics if resend.stored_topics is None else resend.stored_topics,
                queue_id=selection.queue_id,
                begin_time=selection.begin_time,
                end_time=selection.end_time,
            ):
                if isinstance(item, Damage):
                    skipped.damage.append(item)
                elif resend.kind is Kind.VISIBLE and class_of(item.topic, item.sys_flag) is not RecordClass.COMMITTED:
                    skipped.not_committed += 1
                else:
                    yield from self._of_record(item, resend, options, skipped)
            skipped.read_to = end

    def _expired(self, store: Store, known: int) -> Iterator[Damage]:
        """Yields the range of the log that was deleted before an earlier run had read it."""
        first, selection = store.commit_log.min_offset, self.selection
        low = max(known, selection.start or 0)
        high = first if selection.end is None else min(first, selection.end)
        if low < high:
            yield Damage(
                low, high, DamageKind.MISSING, f"expired before it was replayed: the log begins at {first} now"
            )

    def _of_record(
        self, record: Message, resend: Resend, options: StoreOptions, skipped: SkippedCounts
    ) -> Iterator[Original]:
        """Yields the messages of a record; the messages of an inner batch are yielded one by one."""
        try:
            messages = explode(record)
        except FormatError as error:
            where = record.physical_offset, 0
            yield Original(where, None, f"the inner batch cannot be decoded: {error}", _place(record))
            return
        for message in messages:
            if not self.selection.matches(message) or not resend.matches_topic(message, Globs(self.selection.topics)):
                skipped.not_selected += 1
                continue
            where = message.physical_offset, message.batch_index or 0
            try:
                outgoing = _outgoing(resend.changed(message))
            except FormatError as error:
                yield Original(where, None, str(error), _place(message))
                continue
            yield Original(where, self._renewed(outgoing, options), "", _place(message))

    def _of_rows(self, options: StoreOptions, skipped: SkippedCounts) -> Iterator[Original]:
        if row_source.is_parquet(self.path):
            rows = row_source.rows_of_parquet(self.files, options, keep_times=self.keep_times)
            yield from self._selected(rows, options, skipped)
            return
        try:
            lines = self.path.open("rb")
        except OSError as error:
            raise StoreError(f"cannot be read: {error.strerror}", self.path) from error
        with lines:
            yield from self._selected(row_source.rows_of_lines(lines, options), options, skipped)

    def _selected(self, rows: Iterator[Row], options: StoreOptions, skipped: SkippedCounts) -> Iterator[Original]:
        for row in rows:
            given = row.given or {}
            if row.message is None:
                yield Original((row.number, 0), None, row.reason, {"topic": None})
                continue
            message = _shown(row.message, given)
            if class_of(message.topic, message.sys_flag) is not RecordClass.COMMITTED:
                skipped.not_committed += 1
            elif not self._is_selected(message, timed=given.get("store_timestamp") is not None):
                skipped.not_selected += 1
            else:
                place = {name: given.get(name) for name in ("queue_offset", "physical_offset", "offset_message_id")}
                named = {"topic": message.topic, "queue_id": message.queue_id, "unique_key": message.unique_key}
                sent = row.message._replace(topic=self.resend.to_topic or row.message.topic)
                yield Original((row.number, 0), self._renewed(sent, options), "", named | place)

    def _is_selected(self, message: Message, *, timed: bool) -> bool:
        """Whether a row is selected; a row without a store timestamp matches no time range."""
        selection = self.selection
        begin, end = selection.begin_time, selection.end_time
        if (begin is not None or end is not None) and not (
            timed and (begin or 0) <= message.store_timestamp and (end is None or message.store_timestamp < end)
        ):
            return False
        queue_fits = selection.queue_id is None or selection.queue_id == message.queue_id
        return queue_fits and selection.matches_topic(message.topic) and selection.matches(message)

    def _renewed(self, message: OutgoingMessage, options: StoreOptions) -> OutgoingMessage:
        """Returns a message without the fields that its old store had set."""
        values = properties.decode(message.properties)
        for name in _OF_THE_OLD_STORE:
            values.pop(name, None)
        return message._replace(
            properties=properties.encode(values.items(), trailing_separator=options.release >= (5, 0)),
            sys_flag=message.sys_flag & ~(TRANSACTION_MASK | _BATCH | _HOSTS),
            prepared_transaction_offset=0,
            born_timestamp=message.born_timestamp if self.keep_times else None,
            store_host=None,
        )


def _outgoing(message: Message) -> OutgoingMessage:
    """Converts a message of a store to one that can be put, with its body as stored."""
    values, body, flag = message.properties, message.raw_body, message.sys_flag
    if message.batch_index is not None:
        values = {name: value for name, value in values.items() if name not in _OF_A_BATCH}
        body, flag = message.body, flag & ~_PACKED
    return OutgoingMessage(
        message.topic,
        message.queue_id,
        body,
        properties.encode(values.items()),
        message.flag,
        flag,
        message.born_timestamp,
        hosts.build(hosts.parse_text(message.born_host)),
        None,
        message.reconsume_times,
    )


def _place(message: Message) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "offset_message_id": message.offset_message_id,
        "unique_key": message.unique_key,
    }


def _shown(message: OutgoingMessage, given: Mapping[str, Any]) -> Message:
    """Converts a row to a message to which a selection can be applied."""
    try:
        body = compression.decode(message.body, message.sys_flag)
    except FormatError:
        body = message.body
    values = properties.decode(message.properties)
    empty = Message(
        physical_offset=0,
        store_size=0,
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=0,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp=0,
        store_timestamp=0,
        born_host="",
        store_host="",
        reconsume_times=0,
        prepared_transaction_offset=0,
        properties=values,
        body_crc=0,
        body=body,
        offset_message_id="",
        raw_body=message.body,
        magic_code=0,
    )
    time = given.get("store_timestamp")
    return replace(empty, store_timestamp=time) if isinstance(time, int) else empty
