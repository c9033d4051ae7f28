"""Reads the messages to replay from a store, JSON Lines or Parquet, and keeps their old positions."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mqtool.engine.options import StoreOptions
from mqtool.engine.write.hooks import OutgoingMessage
from mqtool.errors import FormatError, StoreError
from mqtool.export.published import holds_tables, message_files
from mqtool.export.schema import RecordClass, class_of
from mqtool.formats import compression, file_names, hosts, properties
from mqtool.formats.commit_log import COMPRESSION_MASK, TRANSACTION_MASK, SysFlag
from mqtool.ingest import row_source
from mqtool.ingest.row_parser import Row
from mqtool.records.damage import Damage, DamageKind
from mqtool.replay.resend import ORDINARY, Resend
from mqtool.store import Message, Store, open_store
from mqtool.store.globs import Globs
from mqtool.store.log.message import explode
from mqtool.store.log.selection import Selection

_BATCH = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
_HOSTS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_PACKED = int(SysFlag.COMPRESSED) | COMPRESSION_MASK
_OF_THE_OLD_STORE = (properties.CRC32, properties.INNER_MULTI_QUEUE_OFFSET)
_OF_A_BATCH = (properties.INNER_NUM, properties.INNER_BASE)

Position = tuple[int, int]
"""Position of a message in the source: (physical offset, index in the inner batch), or (row number, 0) in a table."""


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
        """Opens a source that is a store.

        Raises:
            StoreError: it has no log, but files that are derived from one.
        """
        return open_store(self.path, self.config, needs_log=True)

    def originals(
        self, options: StoreOptions, after: Position | None, skipped: SkippedCounts, *, known: int | None = None
    ) -> Iterator[Original]:
        """Yields the messages in the source's order.

        Args:
            options: options of the target store.
            after: position of the last message that was handled; None to start from the beginning.
            skipped: counts what is read and not yielded; updated in place.
            known: physical offset up to which earlier runs have read the log; None if there was none.

        Raises:
            StoreError, FormatError: the source cannot be read.
        """
        originals = self._of_store(options, after, skipped, known) if self.is_store else self._of_rows(options, skipped)
        for original in originals:
            if after is None or original.position > after:
                yield original

    # -- a store -------------------------------------------------------------------------------------------------

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
                elif not resend.is_wanted(item.topic, item.sys_flag):
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
            yield Original(where, None, f"the inner batch cannot be taken apart: {error}", _place(record))
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

    # -- rows ----------------------------------------------------------------------------------------------------

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
            properties=properties.encode(values.items(), trailing_separator=options.release >= (5, 5)),
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
        0,
        0,
        message.topic,
        message.queue_id,
        0,
        message.flag,
        message.sys_flag,
        0,
        0,
        "",
        "",
        0,
        0,
        values,
        0,
        body,
        "",
        message.body,
        0,
    )
    time = given.get("store_timestamp")
    return replace(empty, store_timestamp=time) if isinstance(time, int) else empty
