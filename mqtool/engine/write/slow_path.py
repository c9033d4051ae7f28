"""The slow path of a put: transactions, IPv6 hosts, inner batches, LMQ, and a CRC of the complete record.

Some bytes of these records depend on the queue offset or on other bytes of the record, so that the record is built
under the append lock. Source: CommitLog.asyncPutMessage,
DefaultMessageStore.assignOffset/increaseOffset, BatchConsumeQueue.assignQueueOffset (4.9.7, 5.5.0).
"""

from typing import TYPE_CHECKING

from mqtool.engine.dispatch import multi_dispatch
from mqtool.engine.statuses import AppendFailedError, AppendStatus, PutResult, PutStatus
from mqtool.engine.write import record
from mqtool.engine.write.hooks import OutgoingMessage
from mqtool.engine.write.queue_offsets import QueueState
from mqtool.errors import FormatError
from mqtool.formats import commit_log, properties
from mqtool.formats.commit_log import SysFlag
from mqtool.records.crc import body_crc

if TYPE_CHECKING:
    from mqtool.engine.write.commit_log import CommitLog

BITS = int(
    SysFlag.TRANSACTION_ROLLBACK
    | SysFlag.BORN_HOST_V6
    | SysFlag.STORE_HOST_V6
    | SysFlag.NEED_UNWRAP
    | SysFlag.INNER_BATCH
)
"""A message with one of these bits in its sys_flag needs the slow path."""

_INNER_BATCH = int(SysFlag.INNER_BATCH)
_INNER_MARK = properties.INNER_NUM.encode()
_ILLEGAL = PutResult(PutStatus.MESSAGE_ILLEGAL)


def append_slowly(log: "CommitLog", state: QueueState, message: OutgoingMessage) -> PutResult:
    """Appends one message of any kind.

    In the page cache on return, or in a pool buffer if there is a pool: a flush makes it durable.

    Args:
        log: to append to.
        state: of its topic-queue.
        message: with both hosts.
    """
    born_host, store_host = message.born_host or log.born_host, message.store_host or log.store_host
    shape = record.host_shape(born_host, store_host)
    sys_flag = record.shaped(message.sys_flag, shape)
    names = multi_dispatch.light_queues(log.options, state.topic, message.properties)
    try:
        count = _messages_in(state, sys_flag, message.properties)
    except FormatError:
        return _ILLEGAL
    if names and multi_dispatch.refusal(names):
        return _ILLEGAL
    visible = commit_log.is_queued(sys_flag)
    crc, body = body_crc(message.body), message.body
    with log.lock:
        now = log.now()
        number = state.next_offset if visible else 0
        try:
            encoded, total = _sized(log, state, message, sys_flag, names, number)
            file = log.make_room(total)
            physical = file.file_from_offset + file.wrote
            head = record.HEAD_PACKERS[shape].pack(
                total,
                state.magic_code,
                crc,
                state.queue_id,
                message.flag,
                number,
                physical,
                sys_flag,
                now if message.born_timestamp is None else message.born_timestamp,
                born_host,
                now,
                store_host,
                message.reconsume_times,
                message.prepared_transaction_offset,
                len(body),
            )
            data = b"".join((head, body, state.topic_field, record.pack_length(len(encoded)), encoded))
            log.write(file, properties.with_crc32(data) if log.options.append_record_crc else data)
        except AppendFailedError as failed:
            return failed.result
        file.store_timestamp = now
        if visible:
            state.next_offset = number + count
        multi_dispatch.advance(log.offsets, names)
    return PutResult(PutStatus.PUT_OK, AppendStatus.PUT_OK, physical, total, number, now, store_host)


def refusal(log: "CommitLog", state: QueueState, message: OutgoingMessage) -> PutResult | None:
    """Returns the result for a message that would be refused; None if it would be accepted. Nothing is written.

    Args:
        log: whose options and limits apply.
        state: of the message's topic-queue.
        message: of any kind; hosts may be missing.
    """
    born_host, store_host = message.born_host or log.born_host, message.store_host or log.store_host
    sys_flag = record.shaped(message.sys_flag, record.host_shape(born_host, store_host))
    names = multi_dispatch.light_queues(log.options, state.topic, message.properties)
    try:
        _messages_in(state, sys_flag, message.properties)
        if names and multi_dispatch.refusal(names):
            return _ILLEGAL
        _sized(log, state, message, sys_flag, names, state.next_offset)
    except FormatError:
        return _ILLEGAL
    except AppendFailedError as failed:
        return failed.result
    return None


def _messages_in(state: QueueState, sys_flag: int, encoded: bytes) -> int:
    """Returns by how much the message advances its queue; raises FormatError if its flags and properties conflict."""
    inner = bool(sys_flag & _INNER_BATCH)
    found = properties.decode(encoded) if inner or _INNER_MARK in encoded else {}
    if properties.INNER_NUM in found and not inner:
        raise FormatError(f"{properties.INNER_NUM} without the inner batch flag", layout="message")
    if not inner:
        return 1
    if not state.is_batch:
        raise FormatError("an inner batch for a topic whose queues are not BatchCQ", layout="message")
    return multi_dispatch.inner_count(found)


def _sized(
    log: "CommitLog", state: QueueState, message: OutgoingMessage, sys_flag: int, names: list[str], number: int
) -> tuple[bytes, int]:
    """Returns the properties as they are stored, and the size of the record.

    Raises:
        AppendFailedError: something is too long.
    """
    encoded = message.properties
    if state.is_batch and sys_flag & _INNER_BATCH:
        found = properties.decode(encoded)
        found[properties.INNER_BASE] = str(number)
        encoded = multi_dispatch.encode(log.options, found)
    if names:
        encoded = multi_dispatch.with_light_offsets(log.options, log.offsets, encoded, names)
    if log.options.append_record_crc:
        encoded = record.room_for_crc(encoded)
    body_at = commit_log.BODY_POSITIONS[commit_log.host_shape(sys_flag)]
    total = body_at + len(message.body) + len(state.topic_field) + 2 + len(encoded)
    if log.too_long(state, len(message.body), len(encoded), total):
        raise AppendFailedError(log.refusal(state, len(message.body), len(encoded), total))
    if names and total > log.options.max_message_size:
        raise AppendFailedError(PutResult(PutStatus.MESSAGE_ILLEGAL, AppendStatus.MESSAGE_SIZE_EXCEEDED))
    return encoded, total
