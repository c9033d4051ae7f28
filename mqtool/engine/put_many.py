"""Many messages at once, as columns: what `put` does one by one, with most of the work done for all together.

The records are the same as those of so many puts within one millisecond. Anything but plain messages goes
through `put`. Source of the rules: as `append` and `batch`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mqtool.engine import record, special
from mqtool.engine.commit_log import CommitLog
from mqtool.engine.hooks import OutgoingMessage
from mqtool.engine.queue_offsets import QueueState
from mqtool.engine.statuses import AppendFailedError, PutResult, PutStatus
from mqtool.formats import codec, commit_log
from mqtool.scan.crc import crc32

_HEAD = codec.dtype_of(commit_log.HEADS[0])
_HEAD_SIZE = _HEAD.itemsize
_OPAQUE = np.dtype(f"V{_HEAD_SIZE}")
_NO_BYTES = b"\0\0"
_BETWEEN = b"\2"
_ROOM_BITS = record.LONGEST_PROPERTIES.bit_length()


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """Messages as columns of one length.

    Attributes:
        topics: distinct topics.
        topic: number in `topics` of each message.
        queue_id: of each message, or one for all.
        bodies: as they are stored.
        properties: encoded; None for none.
        flag, sys_flag, reconsume_times, prepared_transaction_offset: of each message, or one for all.
        born_timestamp: ms since epoch; None for now.
        born_host, store_host: for all; None for those of the options.
    """

    topics: Sequence[str]
    topic: np.ndarray
    queue_id: "np.ndarray | int"
    bodies: Sequence[bytes]
    properties: Sequence[bytes] | None = None
    flag: "np.ndarray | int" = 0
    sys_flag: "np.ndarray | int" = 0
    born_timestamp: "np.ndarray | int | None" = None
    born_host: bytes | None = None
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
            self.topics[int(self.topic[row])], of(self.queue_id), self.bodies[row],
            self.properties[row] if self.properties is not None else b"", of(self.flag), of(self.sys_flag),
            None if self.born_timestamp is None else of(self.born_timestamp), self.born_host, self.store_host,
            of(self.reconsume_times), of(self.prepared_transaction_offset),
        )  # fmt: skip


class PutManyResult(NamedTuple):
    """What became of columns of messages.

    Attributes:
        status: of the first message that was not stored; PUT_OK if all were.
        physical_offsets: int64, of each message that was stored; they are the first of the columns.
        queue_offsets: int64, of each.
        end: physical offset after the last; -1 if none was stored.
    """

    status: PutStatus
    physical_offsets: np.ndarray
    queue_offsets: np.ndarray
    end: int

    @property
    def ok(self) -> bool:
        """Whether all messages are in the log."""
        return self.status is PutStatus.PUT_OK


class _Prepared(NamedTuple):
    """Columns as far as they can be made before their place is known."""

    columns: MessageColumns
    states: list[QueueState]
    state_of: np.ndarray
    pieces: list[bytes]
    heads: np.ndarray
    sizes: np.ndarray
    store_host: bytes


def append_columns(
    log: CommitLog, columns: MessageColumns, put: Callable[[OutgoingMessage], PutResult]
) -> PutManyResult:
    """Appends columns of messages.

    In the page cache on return, or in a pool buffer if there is a pool: a flush makes it durable.

    Args:
        log: where to.
        columns: the messages.
        put: stores one message that is not plain.
    """
    prepared = _prepare(log, columns)
    if prepared is None:
        return append_one_by_one(columns, put)
    physical, offsets, done = [], [], 0
    status = PutStatus.PUT_OK
    with log.lock:
        while done < len(columns):
            try:
                part = _append_part(log, prepared, done)
            except AppendFailedError as failed:
                status = failed.result.status
                break
            physical.append(part[0])
            offsets.append(part[1])
            done += len(part[0])
    if not physical:
        return PutManyResult(status, np.empty(0, np.int64), np.empty(0, np.int64), -1)
    places = np.concatenate(physical)
    return PutManyResult(status, places, np.concatenate(offsets), int(places[-1] + prepared.sizes[done - 1]))


def append_one_by_one(columns: MessageColumns, put: Callable[[OutgoingMessage], PutResult]) -> PutManyResult:
    """Puts one message after the other until one is refused; durable as `put` makes it."""
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


def _prepare(log: CommitLog, columns: MessageColumns) -> _Prepared | None:
    """Checks the messages and makes what does not depend on their place; None if they are not all plain."""
    born, host = columns.born_host or log.born_host, columns.store_host or log.store_host
    held = columns.properties if columns.properties is not None else [b""] * len(columns)
    flags = np.asarray(columns.sys_flag)
    if (
        log.options.append_record_crc or log.options.positional_writes or record.host_shape(born, host)
        or (flags & special.BITS).any() or b"INNER_" in _BETWEEN.join(held) or not len(columns)
    ):  # fmt: skip
        return None
    states, state_of = _states(log, columns)
    body_sizes = np.fromiter(map(len, columns.bodies), np.int64, len(columns))
    room = np.fromiter(map(len, held), np.int64, len(columns))
    fixed = np.array([state.fixed_size for state in states], np.int64)
    sizes = fixed[state_of] + body_sizes + room
    longest = int(np.argmax(sizes))
    if (
        not all(state.is_plain for state in states)
        or log.too_long(states[int(state_of[longest])], int(body_sizes.max()), int(room.max()), int(sizes[longest]))
    ):  # fmt: skip
        return None
    heads = np.zeros(len(columns), _HEAD)
    heads["total_size"] = sizes
    heads["magic_code"] = np.array([state.magic_code for state in states])[state_of]
    heads["body_crc"] = np.fromiter(map(crc32, columns.bodies), np.uint32, len(columns)) & np.uint32(0x7FFFFFFF)
    heads["queue_id"] = columns.queue_id
    heads["flag"] = columns.flag
    heads["sys_flag"] = flags
    heads["born_host"] = np.void(born)
    heads["store_host"] = np.void(host)
    heads["reconsume_times"] = columns.reconsume_times
    heads["prepared_transaction_offset"] = columns.prepared_transaction_offset
    heads["body_length"] = body_sizes
    pieces = [_NO_BYTES] * (4 * len(columns))
    pieces[1::4] = columns.bodies
    pieces[2::4] = _prefixes(states, state_of, room)
    pieces[3::4] = held
    return _Prepared(columns, states, state_of, pieces, heads, sizes, host)


def _states(log: CommitLog, columns: MessageColumns) -> tuple[list[QueueState], np.ndarray]:
    """Returns the topic-queues of the columns, and which of them each message is for."""
    key = (np.asarray(columns.topic, np.int64) << 32) | np.asarray(columns.queue_id, np.int64)
    distinct, state_of = np.unique(key, return_inverse=True)
    states = [log.offsets.state(columns.topics[one >> 32], one & 0xFFFFFFFF) for one in distinct.tolist()]
    return states, state_of


def _prefixes(states: list[QueueState], state_of: np.ndarray, room: np.ndarray) -> "map[bytes]":
    """Returns what stands between body and properties of each message: few different ones."""
    kinds, kind_of = np.unique((state_of << _ROOM_BITS) | room, return_inverse=True)
    pairs = zip((kinds >> _ROOM_BITS).tolist(), (kinds & ((1 << _ROOM_BITS) - 1)).tolist(), strict=True)
    made = [states[number].prefixes.get(size) or states[number].prefix(size) for number, size in pairs]
    return map(made.__getitem__, kind_of.tolist())


def _append_part(log: CommitLog, prepared: _Prepared, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Appends as many messages as the file has room for, from one on; returns their physical and queue offsets."""
    file = log.make_room(int(prepared.sizes[first]))
    ends = np.cumsum(prepared.sizes[first:])
    count = int(np.searchsorted(ends, file.size - commit_log.BLANK_SIZE - file.wrote, side="right"))
    file = log.make_room(int(ends[count - 1]))  # reserves what the mapping needs
    now, rows = log.now(), slice(first, first + count)
    heads = prepared.heads[rows]
    physical = ends[:count] - prepared.sizes[rows] + (file.file_from_offset + file.wrote)
    numbers = _queue_offsets(prepared.states, prepared.state_of[rows])
    heads["physical_offset"] = physical
    heads["queue_offset"] = numbers
    heads["store_timestamp"] = now
    born = prepared.columns.born_timestamp
    heads["born_timestamp"] = now if born is None else born if isinstance(born, int) else born[rows]
    pieces = prepared.pieces[4 * first : 4 * (first + count)]
    pieces[0::4] = heads.view(_OPAQUE).tolist()
    log.write(file, b"".join(pieces), physical.tolist())
    file.store_timestamp = now
    moved = np.bincount(prepared.state_of[rows], minlength=len(prepared.states))
    for state, by in zip(prepared.states, moved.tolist(), strict=True):
        state.next_offset += by
    return physical, numbers


def _queue_offsets(states: list[QueueState], state_of: np.ndarray) -> np.ndarray:
    """Returns the queue offset of each message: its queue's next one, and so on."""
    order = np.argsort(state_of, kind="stable")
    ordered = state_of[order]
    starts = np.searchsorted(ordered, np.arange(len(states)))
    rank = np.empty(len(state_of), np.int64)
    rank[order] = np.arange(len(state_of)) - starts[ordered]
    return rank + np.array([state.next_offset for state in states], np.int64)[state_of]
