"""Batches: many messages for one queue, appended together into one file.

Source: CommitLog.asyncPutMessages, MessageExtEncoder.encode(MessageExtBatch),
DefaultAppendMessageCallback.doAppend(MessageExtBatch) (4.9.7, 5.5.0).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from mqtool.engine import record
from mqtool.engine.queue_offsets import QueueState
from mqtool.engine.statuses import AppendFailedError, AppendStatus, PutResult, PutStatus
from mqtool.errors import FormatError
from mqtool.formats import commit_log, message_batch, properties

if TYPE_CHECKING:
    from mqtool.engine.commit_log import CommitLog

_ILLEGAL = PutResult(PutStatus.MESSAGE_ILLEGAL)
_TOO_LONG = PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED)


class BatchMessage(NamedTuple):
    """One message of a batch.

    Attributes:
        body: as it is stored.
        properties: encoded (`formats.properties.encode`).
        flag: the application's.
    """

    body: bytes
    properties: bytes = b""
    flag: int = 0


class _Prepared(NamedTuple):
    """A batch as far as it can be made before its place is known; the last six are the same for all messages."""

    messages: list[BatchMessage]
    sizes: list[int]
    crcs: list[int]
    sys_flag: int
    born_timestamp: int | None
    born_host: bytes
    store_host: bytes
    reconsume_times: int
    shape: int


def messages_of(batch: "bytes | Iterable[BatchMessage]") -> list[BatchMessage]:
    """Returns the messages of a batch, also of one as a client encodes it.

    Raises:
        FormatError: the bytes are no batch.
    """
    if isinstance(batch, bytes | bytearray | memoryview):
        return [BatchMessage(one.body, one.properties, one.flag) for one in message_batch.split(batch)]
    return list(batch)


def append_batch(  # noqa: PLR0917 - the arguments of `MessageStore.put_batch`
    log: "CommitLog",
    topic: str,
    queue_id: int,
    batch: "bytes | Iterable[BatchMessage]",
    shared: bytes = b"",
    sys_flag: int = 0,
    born_timestamp: int | None = None,
    born_host: bytes | None = None,
    store_host: bytes | None = None,
    reconsume_times: int = 0,
) -> PutResult:
    """Appends a batch; arguments and result are those of `MessageStore.put_batch`.

    In the page cache on return, all of it or nothing: a flush makes it durable.
    """
    state = log.offsets.state(topic, queue_id)
    born, host = born_host or log.born_host, store_host or log.store_host
    shape = record.host_shape(born, host)
    if sys_flag & commit_log.TRANSACTION_MASK or properties.decode(shared).get(properties.DELAY_LEVEL, "0") != "0":
        return _ILLEGAL
    try:
        messages = messages_of(batch)
    except FormatError:
        return _ILLEGAL
    if log.options.v4 and shared:
        messages = [one._replace(properties=_joined(one.properties, shared)) for one in messages]
    if log.options.append_record_crc:
        messages = [one._replace(properties=record.room_for_crc(one.properties, single=False)) for one in messages]
    sizes = [state.fixed_size + len(born) + len(host) - 2 * record.HOST_SIZE_V4 + len(one.body) + len(one.properties)
             for one in messages]  # fmt: skip
    refused = _refusal(log, state, messages, sizes)
    if refused is not None:
        return refused
    crcs = [record.body_crc(one.body) for one in messages]
    prepared = _Prepared(messages, sizes, crcs, record.shaped(sys_flag, shape), born_timestamp, born, host,
                         reconsume_times, shape)  # fmt: skip
    with log.lock:
        return _append(log, state, prepared)


def _joined(own: bytes, shared: bytes) -> bytes:
    """Appends the batch's properties to a message's, as brokers before 5.4 do."""
    gap = b"\x02" if own and own[-1] != properties.VALUE_END else b""
    return own + gap + shared


def _refusal(log: "CommitLog", state: QueueState, messages: list[BatchMessage], sizes: list[int]) -> PutResult | None:
    if not messages:
        return _ILLEGAL
    for one in messages:
        if len(one.properties) > record.LONGEST_PROPERTIES:
            return _TOO_LONG
        if len(one.body) > log.options.max_message_size:
            return _ILLEGAL
    total = sum(sizes)
    if log.too_long(state, 0, 0, total):
        return log.refusal(state, 0, 0, total)
    return None


def _append(log: "CommitLog", state: QueueState, prepared: _Prepared) -> PutResult:
    now, total = log.now(), sum(prepared.sizes)
    try:
        file = log.make_room(total)
        start = file.file_from_offset + file.wrote
        data, offsets = _encode(log, state, prepared, start, now)
        log.write(file, data)
    except AppendFailedError as failed:
        return failed.result
    file.store_timestamp = now
    number = state.next_offset
    state.next_offset = number + len(offsets)
    return PutResult(
        PutStatus.PUT_OK, AppendStatus.PUT_OK, start, total, number, now, prepared.store_host, tuple(offsets)
    )


def _encode(
    log: "CommitLog", state: QueueState, prepared: _Prepared, start: int, now: int
) -> tuple[bytes, list[int]]:
    """Returns the records one behind the other, and their physical offsets."""
    pack, with_crc = record.HEAD_PACKERS[prepared.shape].pack, log.options.append_record_crc
    born = now if prepared.born_timestamp is None else prepared.born_timestamp
    pieces, offsets, at = [], [], start
    columns = zip(prepared.messages, prepared.sizes, prepared.crcs, strict=True)
    for number, (message, size, crc) in enumerate(columns, state.next_offset):
        head = pack(
            size, state.magic_code, crc, state.queue_id, message.flag, number, at, prepared.sys_flag, born,
            prepared.born_host, now, prepared.store_host, prepared.reconsume_times, 0, len(message.body),
        )  # fmt: skip
        parts = (head, message.body, state.topic_field, record.pack_length(len(message.properties)), message.properties)
        pieces.append(record.with_crc(b"".join(parts)) if with_crc else b"".join(parts))
        offsets.append(at)
        at += size
    return b"".join(pieces), offsets
