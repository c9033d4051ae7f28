"""The append of messages of any kind, one by one or as a batch. `native.engine` does the same for plain messages.

A message is plain if its bytes depend on nothing but its arguments and its position. In an inner batch or with LMQ,
the properties depend on the queue offset; transactions decide whether there is one. `formats.commit_log` declares the
layout of records. Source: CommitLog.asyncPutMessage and asyncPutMessages, MessageExtEncoder,
CommitLog.DefaultAppendMessageCallback, DefaultMessageStore.assignOffset/increaseOffset,
BatchConsumeQueue.assignQueueOffset (4.9.7, 5.5.0).

Hooks are the checks and changes that a broker makes before the store; a store without hooks accepts any message. A hook
sees the message and returns a status that refuses it, or a message to store instead. Source:
HookUtils.checkBeforePutMessage/handleScheduleMessage, BrokerController.registerMessageStoreHook (4.9.7, 5.5.0).
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, repeat
from typing import NamedTuple

from mqtool.engine.options import StoreOptions
from mqtool.engine.statuses import AppendFailedError, AppendStatus, PutResult, PutStatus
from mqtool.engine.write.commit_log import LONGEST_PROPERTIES, CommitLog
from mqtool.engine.write.queue_offsets import QueueState, encode_properties, light_queues, with_light_offsets
from mqtool.errors import FormatError
from mqtool.formats import commit_log, java, message_batch, properties
from mqtool.formats.commit_log import SysFlag
from mqtool.formats.topics import RETRY_PREFIX, SCHEDULE_TOPIC, is_lmq
from mqtool.records.frames import body_crc

_LONGEST_TOPIC = 127
_LONGEST_RETRY_TOPIC = 255

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

_HOST_SIZE_V4 = 8
_HOSTS_V6 = [position - commit_log.BODY_POSITIONS[0] for position in commit_log.BODY_POSITIONS]
"""By how many bytes IPv6 hosts make a record longer, by host shape."""

_V6_BITS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)  # arithmetic with the enum costs a hundred times as much
_INNER_BATCH = int(SysFlag.INNER_BATCH)
_NEVER_IN_BATCHES = commit_log.TRANSACTION_MASK | SysFlag.INNER_BATCH
_INNER_MARK = properties.mark(properties.INNER_NUM)
_CRC_NAME = properties.CRC32.encode()

_OK, _APPENDED = PutStatus.PUT_OK, AppendStatus.PUT_OK  # looking a member up takes longer
_ILLEGAL = PutResult(PutStatus.MESSAGE_ILLEGAL)
_TOO_LONG = PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED)
_new_tuple = tuple.__new__  # takes half the time of a named tuple's own constructor
_pack_length = commit_log.PROPERTIES_LENGTH.pack

# -- hooks -------------------------------------------------------------------------------------------------------------


class OutgoingMessage(NamedTuple):
    """A message on its way into the store; the fields are the arguments of `MessageStore.put`, in their order."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int | None = None
    born_host: bytes | None = None
    store_host: bytes | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


Hook = Callable[[OutgoingMessage], OutgoingMessage | PutStatus]
"""Returns the message to store, or the status that refuses it."""


def check_before_put(page_cache_is_busy: Callable[[], bool]) -> Hook:
    """Returns the broker's first check: length of the topic, presence of a body, a busy page cache."""

    def check(message: OutgoingMessage) -> OutgoingMessage | PutStatus:
        size = len(java.encode_utf8(message.topic))
        is_retry = message.topic.startswith(RETRY_PREFIX)
        if size > (_LONGEST_RETRY_TOPIC if is_retry else _LONGEST_TOPIC):
            return PutStatus.MESSAGE_ILLEGAL
        return PutStatus.OS_PAGE_CACHE_BUSY if page_cache_is_busy() else message

    return check


def delay_message(options: StoreOptions) -> Hook:
    """Returns the broker's rewriting of delayed messages: into a queue of the schedule topic, by level."""
    levels = len(options.delays_ms)

    def rewrite(message: OutgoingMessage) -> OutgoingMessage | PutStatus:
        if properties.DELAY_LEVEL.encode() not in message.properties or not commit_log.is_queued(message.sys_flag):
            return message
        decoded = properties.decode(message.properties)
        try:
            level = min(java.parse_int(decoded.get(properties.DELAY_LEVEL, "0")), levels)
        except FormatError:
            return PutStatus.MESSAGE_ILLEGAL
        if level <= 0:
            return message
        decoded[properties.DELAY_LEVEL] = str(level)
        decoded[properties.REAL_TOPIC] = message.topic
        decoded[properties.REAL_QUEUE_ID] = str(message.queue_id)
        return message._replace(
            topic=SCHEDULE_TOPIC, queue_id=level - 1, properties=encode_properties(options, decoded)
        )

    return rewrite


# -- records -----------------------------------------------------------------------------------------------------------


def host_shape(born_host: bytes, store_host: bytes) -> int:
    """Returns which of the two are IPv6: 0 none, 1 born, 2 store, 3 both."""
    return (len(born_host) != _HOST_SIZE_V4) + 2 * (len(store_host) != _HOST_SIZE_V4)


class _Origin(NamedTuple):
    """The fields that the records of one put share."""

    sys_flag: int  # with the bits of IPv6 hosts
    born_timestamp: int | None  # ms since epoch; None for the store timestamp
    born_host: bytes  # and store_host: 8 or 20 bytes
    store_host: bytes
    reconsume_times: int  # how often a consumer sent the message back
    prepared_transaction_offset: int  # physical offset of the half message, for a committed one
    shape: int  # of the hosts, as `host_shape`


def _origin_of(
    sys_flag: int,
    born_timestamp: int | None,
    born_host: bytes,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
) -> _Origin:
    """Returns the shared fields, with the two IPv6 bits of the system flag set according to the hosts."""
    shape = host_shape(born_host, store_host)
    flags = sys_flag & ~_V6_BITS | shape << 4
    fields = flags, born_timestamp, born_host, store_host, reconsume_times, prepared_transaction_offset, shape
    return _new_tuple(_Origin, fields)


def _size(state: QueueState, shape: int, body: bytes, encoded: bytes) -> int:
    """Returns the bytes of a record with hosts of a shape."""
    return state.fixed_size + _HOSTS_V6[shape] + len(body) + len(encoded)


def _encode(
    state: QueueState,
    origin: _Origin,
    body: bytes,
    encoded: bytes,
    flag: int,
    crc: int,
    total: int,
    place: tuple[int, int, int],
    *,
    with_crc: bool,
) -> bytes:
    """Returns the bytes of a record.

    `origin` has the fields that it shares with others; body and properties are as they are stored. `place` is queue
    offset, physical offset and store timestamp (ms). With `with_crc` its properties end with room for the record's CRC,
    which is filled in.
    """
    number, physical, now = place
    sys_flag, born, born_host, store_host, reconsume_times, prepared_transaction_offset, shape = origin
    head = (
        total,
        state.magic_code,
        crc,
        state.queue_id,
        flag,
        number,
        physical,
        sys_flag,
        now if born is None else born,
        born_host,
        now,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        len(body),
    )
    data = commit_log.join_record(shape, head, body, state.topic_field, _pack_length(len(encoded)) + encoded)
    return properties.with_crc32(data) if with_crc else data


def _room_for_crc(encoded: bytes, *, single: bool = True) -> bytes:
    """Returns properties with 20 bytes at their end for the record's CRC.

    In a single message an older CRC is removed, and a missing final 0x02 is added; the broker leaves the properties of
    a message of a batch unchanged.
    """
    if single:
        encoded = properties.without(encoded, properties.CRC32) if _CRC_NAME in encoded else encoded
        encoded = properties.terminated(encoded)
    return encoded + bytes(properties.CRC32_TAIL_SIZE)


# -- single messages ---------------------------------------------------------------------------------------------------


class _Kind(NamedTuple):
    """What distinguishes a message from a plain one."""

    light_queues: list[str]  # the names of its light queues
    is_queued: bool  # whether it takes a queue offset
    messages: int  # how many it contains, by which it advances its queue
    inner: bool  # whether it is an inner batch


_PLAIN = _Kind([], True, 1, False)


def append(log: CommitLog, message: OutgoingMessage) -> PutResult:
    """Appends one message of any kind; without hosts, those of the log are stored. A flush makes it durable.

    In the page cache on return, or in a pool buffer if there is a pool.
    """
    origin = _origin_of(
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
            data = _encode(state, origin, body, encoded, message.flag, crc, total, place, with_crc=with_crc)
            log.write(file, data)
        except AppendFailedError as failed:
            return failed.result
        file.store_timestamp = now
        if kind.is_queued:
            state.next_offset = number + kind.messages
        log.offsets.advance_light_queues(kind.light_queues)
    return _new_tuple(PutResult, (_OK, _APPENDED, physical, total, number, now, origin.store_host, ()))


def refusal(log: CommitLog, message: OutgoingMessage) -> PutResult | None:
    """Returns the result for a message that would be refused; None if it would be accepted. Nothing is written."""
    state = log.offsets.state(message.topic, message.queue_id)
    kind = _kind(log, state, message)
    if kind is None:
        return PutResult(PutStatus.MESSAGE_ILLEGAL)
    shape = host_shape(message.born_host or log.born_host, message.store_host or log.store_host)
    try:
        _checked(log, state, message, shape, kind)
    except AppendFailedError as failed:
        return failed.result
    return None


def _kind(log: CommitLog, state: QueueState, message: OutgoingMessage) -> _Kind | None:
    """Returns what distinguishes a message from a plain one; None if its flags and properties conflict."""
    flags, encoded = message.sys_flag, message.properties
    if not flags & NOT_PLAIN and encoded.find(INNER) < 0:  # `in` takes twice as long
        return _PLAIN
    inner = bool(flags & _INNER_BATCH)
    names = light_queues(log.options, state.topic, encoded)
    try:
        count = _messages_in(state, encoded, inner=inner)
    except FormatError:
        return None
    if not all(map(is_lmq, names)):  # other names get an empty offset, at which the broker's dispatch hangs forever
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
    return java.parse_short(decoded.get(properties.INNER_NUM, ""))


def _checked(log: CommitLog, state: QueueState, message: OutgoingMessage, shape: int, kind: _Kind) -> tuple[bytes, int]:
    """Returns the properties as they are stored, and the size of the record; raises AppendFailedError."""
    encoded = message.properties
    if kind.inner:
        decoded = properties.decode(encoded)
        decoded[properties.INNER_BASE] = str(state.next_offset if kind.is_queued else 0)
        encoded = encode_properties(log.options, decoded)
    if kind.light_queues:
        encoded = with_light_offsets(log.options, log.offsets, encoded, kind.light_queues)
    if log.options.append_record_crc:
        encoded = _room_for_crc(encoded)
    total = _size(state, shape, message.body, encoded)
    if log.too_long(state, len(message.body), len(encoded), total):
        raise AppendFailedError(log.refusal(state, len(message.body), len(encoded), total))
    if kind.light_queues and total > log.longest_body:
        raise AppendFailedError(PutResult(PutStatus.MESSAGE_ILLEGAL, AppendStatus.MESSAGE_SIZE_EXCEEDED))
    return encoded, total


# -- batches -----------------------------------------------------------------------------------------------------------


class BatchMessage(NamedTuple):
    """One message of a batch."""

    body: bytes  # as it is stored
    properties: bytes = b""  # encoded (`formats.properties.encode`)
    flag: int = 0  # the application's


def _columns_of(batch: "bytes | Iterable[BatchMessage]") -> tuple[Sequence[bytes], Sequence[bytes], Sequence[int]]:
    """Returns bodies, properties and flags of a batch, also of one as a client encodes it; raises FormatError."""
    if isinstance(batch, bytes | bytearray | memoryview):
        batch = [BatchMessage(message.body, message.properties, message.flag) for message in message_batch.split(batch)]
    messages = list(batch)
    return tuple(zip(*messages, strict=True)) if messages else ((), (), ())  # type: ignore[return-value]


def append_batch(  # noqa: PLR0917 - the arguments of `MessageStore.put_batch`
    log: CommitLog,
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
    origin = _origin_of(
        sys_flag, born_timestamp, born_host or log.born_host, store_host or log.store_host, reconsume_times, 0
    )
    try:
        if sys_flag & _NEVER_IN_BATCHES or _is_delayed(shared):
            return _ILLEGAL
        bodies, texts, flags = _columns_of(batch)
    except FormatError:
        return _ILLEGAL
    if shared and log.options.release < (5, 4):
        texts = [properties.terminated(text) + shared for text in texts]
    # Only an inner batch may state a number of messages. The broker stores it in others too; if it is invalid, its
    # dispatch passes over all later records of the segment, and a start after a crash cuts the log there.
    if any(_INNER_MARK in text and properties.INNER_NUM in properties.decode(text) for text in texts):
        return _ILLEGAL
    if log.options.append_record_crc:
        texts = [_room_for_crc(text, single=False) for text in texts]
    sizes = [_size(state, origin.shape, body, text) for body, text in zip(bodies, texts, strict=True)]
    refused = _batch_refusal(log, state, bodies, texts, sum(sizes))
    if refused is not None:
        return refused
    columns = list(zip(bodies, texts, flags, map(body_crc, bodies), sizes, strict=True))
    with log.lock:
        # Again: since then the topic may have been deleted, and the store closed.
        state = log.offsets.state(topic, queue_id)
        return log.refusal(state, 0, 0, 0) if log.flags.refuses else _append_records(log, state, origin, columns)


def _is_delayed(shared: bytes) -> bool:
    """Whether a batch has a delay level; raises FormatError if it is not a number."""
    level = properties.decode(shared).get(properties.DELAY_LEVEL) if shared else None
    return bool(level) and java.parse_int(level or "0") > 0


def _batch_refusal(
    log: CommitLog, state: QueueState, bodies: Sequence[bytes], texts: Sequence[bytes], total: int
) -> PutResult | None:
    if not bodies:
        return _ILLEGAL
    for body, text in zip(bodies, texts, strict=True):  # the first that is too long decides
        if len(text) > LONGEST_PROPERTIES:
            return _TOO_LONG
        if len(body) > log.longest_body:
            return _ILLEGAL
    if log.too_long(state, 0, 0, total):
        return log.refusal(state, 0, 0, total)
    return None


def _append_records(
    log: CommitLog, state: QueueState, origin: _Origin, columns: list[tuple[bytes, bytes, int, int, int]]
) -> PutResult:
    """Appends records by their body, properties, flag, CRC of the body, and size."""
    now, sizes, with_crc = log.now(), [size for *_, size in columns], log.options.append_record_crc
    total, number = sum(sizes), state.next_offset
    try:
        file = log.make_room(total)
        start = file.file_from_offset + file.wrote
        offsets = tuple(accumulate(sizes[:-1], initial=start))
        places = zip(range(number, number + len(columns)), offsets, repeat(now))
        records = [
            _encode(state, origin, *column, place, with_crc=with_crc)
            for column, place in zip(columns, places, strict=True)
        ]
        log.write(file, b"".join(records))
    except AppendFailedError as failed:
        return failed.result
    file.store_timestamp = now
    state.next_offset = number + len(columns)
    return PutResult(_OK, _APPENDED, start, total, number, now, origin.store_host, offsets)
