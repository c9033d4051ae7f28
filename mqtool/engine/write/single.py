"""The append of a single message, of any kind. `native.engine` does the same for plain messages.

A message is plain if its bytes depend on nothing but its arguments and its position. In an inner batch or with LMQ,
the properties depend on the queue offset; transactions decide whether there is one. Source: CommitLog.asyncPutMessage,
DefaultMessageStore.assignOffset/increaseOffset, BatchConsumeQueue.assignQueueOffset (4.9.7, 5.5.0).
"""

from typing import TYPE_CHECKING, NamedTuple

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

NOT_PLAIN = int(
    SysFlag.TRANSACTION_ROLLBACK
    | SysFlag.BORN_HOST_V6
    | SysFlag.STORE_HOST_V6
    | SysFlag.NEED_UNWRAP
    | SysFlag.INNER_BATCH
)
"""A message with one of these bits in its sys_flag is not plain."""

INNER = b"INNER_"
"""Prefix of the property names of multi-dispatch and of inner batches; a message with one of them is not plain."""

_OK, _APPENDED = PutStatus.PUT_OK, AppendStatus.PUT_OK  # looking a member up takes longer
_new_tuple = tuple.__new__
_INNER_BATCH = int(SysFlag.INNER_BATCH)
_INNER_MARK = properties.INNER_NUM.encode()


class _Kind(NamedTuple):
    """What distinguishes a message from a plain one."""

    light_queues: list[str]  # the names of its light queues
    is_queued: bool  # whether it takes a queue offset
    messages: int  # how many it contains, by which it advances its queue
    inner: bool  # whether it is an inner batch


_PLAIN = _Kind([], True, 1, False)


def append(log: "CommitLog", message: OutgoingMessage) -> PutResult:
    """Appends one message; a flush makes it durable.

    In the page cache on return, or in a pool buffer if there is a pool.

    Args:
        log: to append to.
        message: of any kind; without hosts, those of the log are stored.
    """
    origin = record.origin(
        message.sys_flag,
        message.born_timestamp,
        message.born_host or log.born_host,
        message.store_host or log.store_host,
        message.reconsume_times,
        message.prepared_transaction_offset,
    )
    crc, body, with_crc = body_crc(message.body), message.body, log.options.append_record_crc
    with log.lock:
        state = log.offsets.state(message.topic, message.queue_id)
        kind = _kind(log, state, message)
        if kind is None:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        now = log.now()
        number = state.next_offset if kind.is_queued else 0
        try:
            encoded, total = _checked(log, state, message, origin.shape, kind)
            file = log.file
            if file is None or file.wrote + total > log.limit:
                file = log.make_room(total)
            physical = file.file_from_offset + file.wrote
            place = number, physical, now
            data = record.encode(state, origin, body, encoded, message.flag, crc, total, place, with_crc=with_crc)
            log.write(file, data)
        except AppendFailedError as failed:
            return failed.result
        file.store_timestamp = now
        if kind.is_queued:
            state.next_offset = number + kind.messages
        multi_dispatch.advance(log.offsets, kind.light_queues)
    return _new_tuple(PutResult, (_OK, _APPENDED, physical, total, number, now, origin.store_host, ()))


def refusal(log: "CommitLog", message: OutgoingMessage) -> PutResult | None:
    """Returns the result for a message that would be refused; None if it would be accepted. Nothing is written.

    Args:
        log: whose options and limits apply.
        message: of any kind; hosts may be missing.
    """
    state = log.offsets.state(message.topic, message.queue_id)
    kind = _kind(log, state, message)
    if kind is None:
        return PutResult(PutStatus.MESSAGE_ILLEGAL)
    shape = record.host_shape(message.born_host or log.born_host, message.store_host or log.store_host)
    try:
        _checked(log, state, message, shape, kind)
    except AppendFailedError as failed:
        return failed.result
    return None


def _kind(log: "CommitLog", state: QueueState, message: OutgoingMessage) -> _Kind | None:
    """Returns what distinguishes a message from a plain one; None if its flags and properties conflict."""
    flags, encoded = message.sys_flag, message.properties
    if not flags & NOT_PLAIN and encoded.find(INNER) < 0:  # `in` takes twice as long
        return _PLAIN
    inner = bool(flags & _INNER_BATCH)
    names = multi_dispatch.light_queues(log.options, state.topic, encoded)
    try:
        count = _messages_in(state, encoded, inner=inner)
    except FormatError:
        return None
    if names and multi_dispatch.refusal(names):
        return None
    return _Kind(names, commit_log.is_queued(flags), count, inner)


def _messages_in(state: QueueState, encoded: bytes, *, inner: bool) -> int:
    """Returns how many messages a message contains; raises FormatError if its flags and properties conflict."""
    decoded = properties.decode(encoded) if inner or _INNER_MARK in encoded else {}
    if properties.INNER_NUM in decoded and not inner:
        raise FormatError(f"{properties.INNER_NUM} without the inner batch flag", layout="message")
    if not inner:
        return 1
    if not state.is_batch:
        raise FormatError("an inner batch for a topic whose queues are not BatchCQ", layout="message")
    return multi_dispatch.inner_count(decoded)


def _checked(
    log: "CommitLog", state: QueueState, message: OutgoingMessage, shape: int, kind: _Kind
) -> tuple[bytes, int]:
    """Returns the properties as they are stored, and the size of the record.

    Raises:
        AppendFailedError: something is too long, or the store refuses messages.
    """
    encoded = message.properties
    if kind.inner:
        decoded = properties.decode(encoded)
        decoded[properties.INNER_BASE] = str(state.next_offset if kind.is_queued else 0)
        encoded = multi_dispatch.encode(log.options, decoded)
    if kind.light_queues:
        encoded = multi_dispatch.with_light_offsets(log.options, log.offsets, encoded, kind.light_queues)
    if log.options.append_record_crc:
        encoded = record.room_for_crc(encoded)
    total = record.size(state, shape, message.body, encoded)
    if log.too_long(state, len(message.body), len(encoded), total):
        raise AppendFailedError(log.refusal(state, len(message.body), len(encoded), total))
    if kind.light_queues and total > log.longest_body:
        raise AppendFailedError(PutResult(PutStatus.MESSAGE_ILLEGAL, AppendStatus.MESSAGE_SIZE_EXCEEDED))
    return encoded, total
