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
from mqtool.engine.compiled_records import CompiledRecords, numbered
from mqtool.engine.hooks import OutgoingMessage
from mqtool.engine.plain_records import ArrayRecords, Plain, pieces_of
from mqtool.engine.queue_offsets import QueueState
from mqtool.engine.statuses import AppendFailedError, PutResult, PutStatus
from mqtool.kernels import Kernels, kernels

_BETWEEN = b"\2"
"""Between the properties of messages, so that no name begins in one and ends in the next."""


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
            self.topics[int(self.topic[row])],
            of(self.queue_id),
            self.bodies[row],
            self.properties[row] if self.properties is not None else b"",
            of(self.flag),
            of(self.sys_flag),
            None if self.born_timestamp is None else of(self.born_timestamp),
            self.born_host,
            self.store_host,
            of(self.reconsume_times),
            of(self.prepared_transaction_offset),
        )


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
    compiled = kernels()
    plain = _plain(log, columns, compiled)
    if plain is None:
        return append_one_by_one(columns, put)
    is_found = plain.bodies.addresses is not None and plain.held.addresses is not None
    records = CompiledRecords(plain, compiled) if compiled is not None and is_found else ArrayRecords(plain)
    physical, offsets, done = [], [], 0
    status = PutStatus.PUT_OK
    with log.lock:
        while done < len(columns):
            try:
                part = records.append(log, done)
            except AppendFailedError as failed:
                status = failed.result.status
                break
            physical.append(part[0])
            offsets.append(part[1])
            done += len(part[0])
    if not physical:
        return PutManyResult(status, np.empty(0, np.int64), np.empty(0, np.int64), -1)
    places = np.concatenate(physical)
    return PutManyResult(status, places, np.concatenate(offsets), int(places[-1] + plain.sizes[done - 1]))


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


def _plain(log: CommitLog, columns: MessageColumns, compiled: Kernels | None) -> Plain | None:
    """Checks the messages; None if they are not all plain."""
    born, host = columns.born_host or log.born_host, columns.store_host or log.store_host
    held = columns.properties if columns.properties is not None else [b""] * len(columns)
    flags = np.asarray(columns.sys_flag)
    if (
        log.options.append_record_crc
        or log.options.positional_writes
        or record.host_shape(born, host)
        or (flags & special.BITS).any()
        or b"INNER_" in _BETWEEN.join(held)
        or not len(columns)
    ):
        return None
    states, state_of = _states(log, columns, compiled)
    bodies, pieces = pieces_of(columns.bodies, compiled), pieces_of(held, compiled)
    fixed = np.array([state.fixed_size for state in states], np.int64)
    sizes = fixed[state_of] + bodies.sizes + pieces.sizes
    longest = int(np.argmax(sizes))
    if not all(state.is_plain for state in states) or log.too_long(
        states[int(state_of[longest])], int(bodies.sizes.max()), int(pieces.sizes.max()), int(sizes[longest])
    ):
        return None
    return Plain(columns, states, state_of, bodies, pieces, sizes, born, host)


def _states(log: CommitLog, columns: MessageColumns, compiled: Kernels | None) -> tuple[list[QueueState], np.ndarray]:
    """Returns the topic-queues of the columns, and which of them each message is for."""
    key = (np.asarray(columns.topic, np.int64) << 32) | np.asarray(columns.queue_id, np.int64)
    if compiled is None:
        distinct, state_of = np.unique(key, return_inverse=True)
    else:
        firsts, state_of = numbered(compiled, key)
        distinct = key[firsts]
    states = [log.offsets.state(columns.topics[one >> 32], one & 0xFFFFFFFF) for one in distinct.tolist()]
    return states, state_of
