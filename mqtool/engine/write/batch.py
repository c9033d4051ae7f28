"""Batches: many messages for one queue, appended together into one file.

Source: CommitLog.asyncPutMessages, MessageExtEncoder.encode(MessageExtBatch),
DefaultAppendMessageCallback.doAppend(MessageExtBatch) (4.9.7, 5.5.0).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from mqtool.engine.statuses import AppendFailedError, AppendStatus, PutResult, PutStatus
from mqtool.engine.write import record
from mqtool.engine.write.queue_offsets import QueueState
from mqtool.errors import FormatError
from mqtool.formats import commit_log, java, message_batch, properties
from mqtool.formats.commit_log import SysFlag
from mqtool.records.crc import body_crc

if TYPE_CHECKING:
    from mqtool.engine.write.commit_log import CommitLog

_ILLEGAL = PutResult(PutStatus.MESSAGE_ILLEGAL)
_TOO_LONG = PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED)
_NEVER = commit_log.TRANSACTION_MASK | SysFlag.INNER_BATCH
_INNER_MARK = properties.mark(properties.INNER_NUM)


class BatchMessage(NamedTuple):
    """One message of a batch."""

    body: bytes  # as it is stored
    properties: bytes = b""  # encoded (`formats.properties.encode`)
    flag: int = 0  # the application's


class _Prepared(NamedTuple):
    """The part of a batch that does not depend on its position: columns, and what all messages share."""

    bodies: Sequence[bytes]
    properties: Sequence[bytes]
    flags: Sequence[int]
    crcs: Sequence[int]
    sizes: Sequence[int]
    origin: record.Origin


def columns_of(batch: "bytes | Iterable[BatchMessage]") -> tuple[Sequence[bytes], Sequence[bytes], Sequence[int]]:
    """Returns bodies, properties and flags of a batch, also of one as a client encodes it.

    Raises:
        FormatError: the bytes are not a batch.
    """
    if isinstance(batch, bytes | bytearray | memoryview):
        batch = [BatchMessage(message.body, message.properties, message.flag) for message in message_batch.split(batch)]
    messages = list(batch)
    return tuple(zip(*messages, strict=True)) if messages else ((), (), ())  # type: ignore[return-value]


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
    origin = record.origin(
        sys_flag, born_timestamp, born_host or log.born_host, store_host or log.store_host, reconsume_times, 0
    )
    try:
        if sys_flag & _NEVER or _is_delayed(shared):
            return _ILLEGAL
        bodies, properties, flags = columns_of(batch)
    except FormatError:
        return _ILLEGAL
    if shared and log.options.release < (5, 5):
        properties = [_joined(text, shared) for text in properties]
    if any(_INNER_MARK in text and _has_inner_count(text) for text in properties):
        return _ILLEGAL
    if log.options.append_record_crc:
        properties = [record.room_for_crc(text, single=False) for text in properties]
    sizes = [record.size(state, origin.shape, body, encoded) for body, encoded in zip(bodies, properties, strict=True)]
    refused = _refusal(log, state, bodies, properties, sum(sizes))
    if refused is not None:
        return refused
    prepared = _Prepared(bodies, properties, flags, list(map(body_crc, bodies)), sizes, origin)
    with log.lock:
        # Again: since then the topic may have been deleted, and the store closed.
        state = log.offsets.state(topic, queue_id)
        return log.refusal(state, 0, 0, 0) if log.flags.refuses else _append(log, state, prepared)


def _is_delayed(shared: bytes) -> bool:
    """Whether a batch has a delay level; raises FormatError if it is not a number."""
    level = properties.decode(shared).get(properties.DELAY_LEVEL) if shared else None
    return bool(level) and java.parse_int(level or "0") > 0


def _has_inner_count(encoded: bytes) -> bool:
    """Whether a message states the number of messages in it, which only an inner batch may.

    The broker stores it. If the number is invalid, its dispatch passes over all later records of the segment, and a
    start after a crash cuts the log there.
    """
    return properties.INNER_NUM in properties.decode(encoded)


def _joined(own: bytes, shared: bytes) -> bytes:
    """Appends the batch's properties to a message's, as brokers before 5.4 do."""
    return properties.terminated(own) + shared


def _refusal(
    log: "CommitLog", state: QueueState, bodies: Sequence[bytes], properties: Sequence[bytes], total: int
) -> PutResult | None:
    if not bodies:
        return _ILLEGAL
    for body, encoded in zip(bodies, properties, strict=True):  # the first that is too long decides
        if len(encoded) > record.LONGEST_PROPERTIES:
            return _TOO_LONG
        if len(body) > log.longest_body:
            return _ILLEGAL
    if log.too_long(state, 0, 0, total):
        return log.refusal(state, 0, 0, total)
    return None


def _append(log: "CommitLog", state: QueueState, prepared: _Prepared) -> PutResult:
    now, total = log.now(), sum(prepared.sizes)
    try:
        file = log.make_room(total)
        start = file.file_from_offset + file.wrote
        offsets = tuple(accumulate(prepared.sizes[:-1], initial=start))
        log.write(file, b"".join(_records(log, state, prepared, offsets, now)))
    except AppendFailedError as failed:
        return failed.result
    file.store_timestamp = now
    number = state.next_offset
    state.next_offset = number + len(offsets)
    host = prepared.origin.store_host
    return PutResult(PutStatus.PUT_OK, AppendStatus.PUT_OK, start, total, number, now, host, offsets)


def _records(
    log: "CommitLog", state: QueueState, prepared: _Prepared, offsets: Sequence[int], now: int
) -> Iterator[bytes]:
    """Yields the records, which start at some physical offsets."""
    with_crc = log.options.append_record_crc
    columns = zip(
        prepared.bodies, prepared.properties, prepared.flags, prepared.crcs, prepared.sizes, offsets, strict=True
    )
    for number, (body, encoded, flag, crc, total, physical) in enumerate(columns, state.next_offset):
        place = number, physical, now
        yield record.encode(state, prepared.origin, body, encoded, flag, crc, total, place, with_crc=with_crc)
