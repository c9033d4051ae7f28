"""Bulk append: what `put` does message by message, done for columns of messages at once by an extension module.

The records are byte-identical to those of as many puts within one millisecond; a property test compares them. Columns
with a message that needs the slow path go through `put`, as do all of them without it. Source of the rules:
see `messages`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeGuard, cast

import numpy as np
from msgspec import Struct

from mqtool import native
from mqtool.engine.disk.mapped_files import MappedFile
from mqtool.engine.statuses import AppendFailedError, PutResult, PutStatus
from mqtool.engine.write.commit_log import CommitLog, WrittenColumns
from mqtool.engine.write.messages import INNER, NOT_PLAIN, OutgoingMessage, host_shape
from mqtool.engine.write.queue_offsets import QueueState
from mqtool.formats import codec, commit_log

_BETWEEN = b"\2"
"""Separates the properties of messages, so that no property name spans two messages."""

HEAD = codec.dtype_of(commit_log.HEADS[0])

PIECE = 2 << 20
"""Bytes of records that are written together; a longer record is written alone."""

_COLUMNS = 6
"""Columns that `native.engine.encode` fills."""


class ArrowBytes(Protocol):
    """What is used of `pyarrow.BinaryArray`; the engine does not import pyarrow."""

    type: Any
    null_count: int

    def __len__(self) -> int: ...

    def __getitem__(self, row: int) -> Any: ...

    def buffers(self) -> Sequence[Any]:
        """Validity, int32 offsets, and the bytes of all values."""
        ...


class MessageColumns(Struct, frozen=True):
    """Messages as columns of one length."""

    topics: Sequence[str]  # distinct topics
    topic: np.ndarray  # number in `topics` of each message
    queue_id: "np.ndarray | int"  # of each message, or one for all
    # As they are stored: bytes objects, or an Arrow array of binary values without nulls, which is faster.
    bodies: Sequence[bytes] | ArrowBytes
    properties: Sequence[bytes] | ArrowBytes | None = None  # encoded, in either form; None for none
    # flag, sys_flag, reconsume_times, prepared_transaction_offset: of each message, or one for all.
    flag: "np.ndarray | int" = 0
    sys_flag: "np.ndarray | int" = 0
    born_timestamp: "np.ndarray | int | None" = None  # ms since epoch; None for now
    born_host: bytes | None = None  # and store_host: for all; None for those of the options
    store_host: bytes | None = None
    reconsume_times: "np.ndarray | int" = 0
    prepared_transaction_offset: "np.ndarray | int" = 0

    def __len__(self) -> int:
        return len(self.bodies)

    def message(self, row: int) -> OutgoingMessage:
        """Returns one of them."""

        def of(column: "np.ndarray | int") -> int:
            return column if isinstance(column, int) else int(column[row])

        return OutgoingMessage(
            self.topics[int(self.topic[row])],
            of(self.queue_id),
            _value(self.bodies, row),
            _value(self.properties, row) if self.properties is not None else b"",
            of(self.flag),
            of(self.sys_flag),
            None if self.born_timestamp is None else of(self.born_timestamp),
            self.born_host,
            self.store_host,
            of(self.reconsume_times),
            of(self.prepared_transaction_offset),
        )


class PutManyResult(NamedTuple):
    """Result of storing columns of messages."""

    status: PutStatus  # of the first message that was not stored; PUT_OK if all were
    physical_offsets: np.ndarray  # int64, of each message that was stored: the first rows of the columns
    queue_offsets: np.ndarray  # int64, of each
    end: int  # physical offset after the last; -1 if none was stored

    @property
    def ok(self) -> bool:
        """Whether all messages are in the log."""
        return self.status is PutStatus.PUT_OK


def _is_arrow(values: Sequence[bytes] | ArrowBytes) -> TypeGuard[ArrowBytes]:
    return hasattr(values, "buffers")  # isinstance of a Protocol takes 18 us


def _value(values: Sequence[bytes] | ArrowBytes, row: int) -> bytes:
    value: bytes = values[row].as_py() if _is_arrow(values) else values[row]
    return value


def _parts(values: ArrowBytes) -> tuple[np.ndarray, np.ndarray]:
    """Returns the start of each value of an array and the end of the last, and the bytes in which they are."""
    from mqtool.records.columns import data_of, offsets_of  # noqa: PLC0415 - pyarrow takes long to import

    return offsets_of(values), data_of(values)


class BytesColumn(NamedTuple):
    """A column of values of bytes, for `native.engine`."""

    items: Sequence[bytes] | ArrowBytes  # bytes objects, or an Arrow array; they keep the bytes where they are
    sizes: np.ndarray  # length of each
    addresses: np.ndarray  # address of the bytes of each


def bytes_column(items: Sequence[bytes] | ArrowBytes) -> BytesColumn | None:
    """Returns values with their sizes and addresses; None unless they are an Arrow array or exact `bytes`."""
    if _is_arrow(items):
        offsets, data = _parts(items)
        return BytesColumn(items, np.diff(offsets), (offsets[:-1] + data.ctypes.data).astype(np.uint64))
    kept = tuple(cast("Sequence[bytes]", items))  # a copy of the references keeps the objects alive
    addresses, sizes = np.empty(len(kept), np.uint64), np.empty(len(kept), np.int64)
    return BytesColumn(kept, sizes, addresses) if native.engine.find_bytes(kept, addresses, sizes) else None


def _check(columns: MessageColumns) -> None:
    """Raises TypeError for an Arrow array of anything but bytes."""
    for values in (columns.bodies, columns.properties):
        if values is not None and _is_arrow(values) and (str(values.type) != "binary" or values.null_count):
            nulls = f" with {values.null_count} null(s)" if values.null_count else ""
            raise TypeError(
                f"column of messages: expected an Arrow array of binary without nulls, found {values.type}{nulls}"
            )


class PlainMessages(NamedTuple):
    """Messages that need no slow path, and what can be computed before their positions are known."""

    columns: MessageColumns  # the messages
    states: list[QueueState]  # and state_of: the distinct queues, and the index into `states` for each message
    state_of: np.ndarray
    bodies: BytesColumn  # and properties: bodies and encoded properties
    properties: BytesColumn
    sizes: np.ndarray  # bytes of each record
    born_host: bytes  # and store_host: of all
    store_host: bytes

    def is_current(self, log: CommitLog) -> bool:
        """Whether none of their topics was deleted since; call it under the append lock."""
        return all(log.offsets.states.get((state.topic, state.queue_id)) is state for state in self.states)

    def heads(self, count: int) -> np.ndarray:
        """Returns the fixed fields that the caller set: one row per message, or a single row if all are the same."""
        columns = self.columns
        heads = np.zeros(count, HEAD)
        heads["flag"] = columns.flag
        heads["sys_flag"] = columns.sys_flag
        heads["born_host"] = np.void(self.born_host)
        heads["store_host"] = np.void(self.store_host)
        heads["reconsume_times"] = columns.reconsume_times
        heads["prepared_transaction_offset"] = columns.prepared_transaction_offset
        if columns.born_timestamp is not None:
            heads["born_timestamp"] = columns.born_timestamp
        return heads


class CompiledRecords:
    """Builds records with `native.engine`.

    The records are laid out in one buffer and written by one system call, which costs less than page faults on a
    mapping. Their positions are passed on to dispatch (`WrittenRecords`).
    """

    def __init__(self, plain: PlainMessages) -> None:
        self._plain = plain
        columns, states = plain.columns, plain.states
        given = (
            columns.flag,
            columns.sys_flag,
            columns.reconsume_times,
            columns.prepared_transaction_offset,
            columns.born_timestamp,
        )
        is_one = all(column is None or isinstance(column, int) for column in given)
        heads = plain.heads(1 if is_one else len(columns)).view(np.uint8)
        topics = b"".join(state.topic_field for state in states)
        topic_sizes = [len(state.topic_field) for state in states]
        self._bodies = (plain.bodies.addresses, plain.bodies.sizes)
        self._properties = (plain.properties.addresses, plain.properties.sizes)
        self._heads = (heads, 0 if is_one else HEAD.itemsize)
        # a copy: the caller may change its array before the records are dispatched
        self._sys_flag = np.full(len(columns), columns.sys_flag, np.int32)
        self._queue_ids = np.array([state.queue_id for state in states], np.int64)
        self._queues = (
            plain.state_of,
            np.frombuffer(topics, np.uint8),
            np.cumsum([0, *topic_sizes], dtype=np.int64),
            np.array([_length_size(state.magic_code) for state in states], np.int64),
            np.array([state.magic_code for state in states], np.int64),
            self._queue_ids,
        )
        self._ends = np.cumsum(plain.sizes)

    def append(self, log: CommitLog, first: int) -> tuple[np.ndarray, np.ndarray]:
        """Appends messages, starting with number `first`, at most as many as the segment has room for, under the lock.

        Returns their physical and queue offsets; raises AppendFailedError if none was stored.
        """
        plain = self._plain
        file = log.make_room(int(plain.sizes[first]), mapped=log.options.lock_memory)
        before = int(self._ends[first] - plain.sizes[first])
        room = min(file.size - commit_log.BLANK_SIZE - file.wrote, max(PIECE, int(plain.sizes[first])))
        count = int(np.searchsorted(self._ends, before + room, side="right")) - first
        total = int(self._ends[first + count - 1]) - before
        file = log.make_room(total, mapped=log.options.lock_memory)
        now = log.now()
        target, at = _target(log, file, total)
        next_offsets = np.array([state.next_offset for state in plain.states], np.int64)
        base = file.file_from_offset + file.wrote - at
        columns = np.empty((_COLUMNS, count), np.int64)
        born_now = plain.columns.born_timestamp is None
        rows = (first, count, *self._bodies, *self._properties, *self._heads, *self._queues)
        native.engine.encode(target, at, base, now, born_now, *rows, next_offsets, columns)
        if file.pool_buffer is None:
            log.write_through(file, target.data[:total])
        if log.written is not None:
            log.written.note(self._written(slice(first, first + count), base, now, columns))
        file.wrote += total
        file.store_timestamp = now
        for state, offset in zip(plain.states, next_offsets.tolist(), strict=True):
            state.next_offset = offset
        return columns[1], columns[2]

    def _written(self, rows: slice, base: int, now: int, columns: np.ndarray) -> WrittenColumns:
        plain = self._plain
        positions, _, queue_offset, topic_start, topic_length, properties_start = columns
        return WrittenColumns(
            base=base,
            sys_flag=self._sys_flag[rows],
            store_timestamp=now,
            sizes=plain.sizes[rows],
            queue_id=self._queue_ids[plain.state_of[rows]],
            queue_offset=queue_offset,
            positions=positions,
            topic_start=topic_start,
            topic_length=topic_length,
            properties_start=properties_start,
            properties_length=plain.properties.sizes[rows],
        )


def _target(log: CommitLog, file: MappedFile, total: int) -> tuple[np.ndarray, int]:
    """Returns the buffer for the records, and the position of the first one in it."""
    if file.pool_buffer is not None:
        return np.frombuffer(file.pool_buffer, np.uint8), file.wrote
    return np.frombuffer(log.stage(total), np.uint8), 0


def _length_size(magic_code: int) -> int:
    """Returns the size in bytes of the topic length field."""
    return (commit_log.TOPIC_LENGTH_V2 if magic_code == commit_log.MAGIC_V2 else commit_log.TOPIC_LENGTH_V1).size


def append_columns(
    log: CommitLog, columns: MessageColumns, put: Callable[[OutgoingMessage], PutResult], *, may_compile: bool
) -> PutManyResult:
    """Appends columns of messages; `put` stores them one by one if one is not plain, or without extension modules.

    In the page cache on return, or in a pool buffer if there is a pool: a flush makes it durable. Raises TypeError if
    bodies or properties are an Arrow array of another type, or with nulls.
    """
    _check(columns)
    plain = _plain(log, columns) if may_compile and native.in_use() else None
    if plain is None:
        return _append_one_by_one(columns, put)
    records = CompiledRecords(plain)
    physical, offsets, done = [], [], 0
    status = PutStatus.PUT_OK
    with log.lock:
        is_current = plain.is_current(log)
        while is_current and done < len(columns):
            if log.flags.refuses:
                status = PutStatus.SERVICE_NOT_AVAILABLE
                break
            try:
                part = records.append(log, done)
            except AppendFailedError as failed:
                status = failed.result.status
                break
            physical.append(part[0])
            offsets.append(part[1])
            done += len(part[0])
    if not is_current:
        return _append_one_by_one(columns, put)
    if not physical:
        return PutManyResult(status, np.empty(0, np.int64), np.empty(0, np.int64), -1)
    places = np.concatenate(physical)
    return PutManyResult(status, places, np.concatenate(offsets), int(places[-1] + plain.sizes[done - 1]))


def _append_one_by_one(columns: MessageColumns, put: Callable[[OutgoingMessage], PutResult]) -> PutManyResult:
    """Puts the messages one by one until one is refused; durable as after `put`."""
    physical, offsets, end = [], [], -1
    status = PutStatus.PUT_OK
    for row in range(len(columns)):
        result = put(columns.message(row))
        if not result.ok:
            status = result.status
            break
        physical.append(result.physical_offset)
        offsets.append(result.queue_offset)
        end = result.end
    return PutManyResult(status, np.array(physical, np.int64), np.array(offsets, np.int64), end)


def _plain(log: CommitLog, columns: MessageColumns) -> PlainMessages | None:
    """Checks the messages; None if they are not all plain."""
    born, host = columns.born_host or log.born_host, columns.store_host or log.store_host
    properties = columns.properties if columns.properties is not None else [b""] * len(columns)
    flags = np.asarray(columns.sys_flag)
    if (
        not len(columns)
        or log.options.append_record_crc
        or log.options.positional_writes
        or host_shape(born, host)
        or (flags & NOT_PLAIN).any()
        or INNER in _joined(properties)
    ):
        return None
    bodies, pieces = bytes_column(columns.bodies), bytes_column(properties)
    if bodies is None or pieces is None:
        return None
    states, state_of = _states(log, columns)
    fixed = np.array([state.fixed_size for state in states], np.int64)
    sizes = fixed[state_of] + bodies.sizes + pieces.sizes
    longest = int(np.argmax(sizes))
    if not all(state.is_plain for state in states) or log.too_long(
        states[int(state_of[longest])], int(bodies.sizes.max()), int(pieces.sizes.max()), int(sizes[longest])
    ):
        return None
    return PlainMessages(columns, states, state_of, bodies, pieces, sizes, born, host)


def _joined(properties: Sequence[bytes] | ArrowBytes) -> bytes:
    """Returns the properties of all messages, to search them; those of an Arrow array have nothing between them."""
    if not _is_arrow(properties):
        return _BETWEEN.join(cast("Sequence[bytes]", properties))
    offsets, data = _parts(properties)
    return data[offsets[0] : offsets[-1]].tobytes()


def _states(log: CommitLog, columns: MessageColumns) -> tuple[list[QueueState], np.ndarray]:
    """Returns the topic-queues of the columns, and which of them each message is for: int32."""
    topic, queue_id = np.asarray(columns.topic, np.int64), np.asarray(columns.queue_id, np.int64)
    lowest = int(queue_id.min())
    span = int(queue_id.max()) - lowest + 1
    key = topic * span + (queue_id - lowest)
    if len(columns.topics) * span <= len(key):  # few queues: counting is faster than sorting
        counts = np.bincount(key)
        distinct = np.flatnonzero(counts)
        state_of = (np.cumsum(counts > 0) - 1)[key]
    else:
        distinct, state_of = np.unique(key, return_inverse=True)
    states = [log.offsets.state(columns.topics[code // span], lowest + code % span) for code in distinct.tolist()]
    return states, state_of.astype(np.int32)
