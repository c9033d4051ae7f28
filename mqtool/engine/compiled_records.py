"""Records of plain messages that come as columns, made by kernels: the bytes that `plain_records` makes, sooner.

They are laid out in one buffer, from which a system call takes them into the file: that makes the file's pages, too,
and costs less than faults on mapped ones. While they are in the processor's cache, what dispatch will want to know of
them is worked out and handed over (`handover`).
"""

import numpy as np

from mqtool.engine.commit_log import CommitLog
from mqtool.engine.handover import Written
from mqtool.engine.mapped_file import MappedFile
from mqtool.engine.plain_records import HEAD, Plain
from mqtool.formats import commit_log
from mqtool.kernels import Kernels

PIECE = 2 << 20
"""Bytes of records that are written together; a longer record is written alone."""

_COLUMNS = 6
"""That `kernels.records.encode` fills."""


def numbered(compiled: Kernels, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers distinct keys in the order in which they come.

    Args:
        compiled: the kernels.
        keys: int64.

    Returns:
        The first row of each number; int32, the number of each row.
    """
    slots = np.full(1 << (2 * len(keys)).bit_length(), -1, np.int32)
    firsts, numbers = np.empty(len(keys), np.int64), np.empty(len(keys), np.int32)
    count = compiled.number(keys, slots, numbers, firsts)
    return firsts[:count], numbers


class CompiledRecords:
    """As `plain_records.ArrayRecords`."""

    def __init__(self, plain: Plain, compiled: Kernels) -> None:
        """Makes what does not depend on the records' place.

        Args:
            plain: the messages, with their addresses.
            compiled: the kernels.
        """
        self._plain = plain
        self._compiled = compiled
        columns, states = plain.columns, plain.states
        given = (
            columns.flag,
            columns.sys_flag,
            columns.reconsume_times,
            columns.prepared_transaction_offset,
            columns.born_timestamp,
        )
        is_one = all(one is None or isinstance(one, int) for one in given)
        heads = plain.heads(1 if is_one else len(columns)).view(np.uint8)
        topics = b"".join(state.topic_field for state in states)
        topic_sizes = [len(state.topic_field) for state in states]
        self._bodies = (plain.bodies.addresses, plain.bodies.sizes)
        self._held = (plain.held.addresses, plain.held.sizes)
        self._heads = (heads, 0 if is_one else HEAD.itemsize)
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
        """Appends messages as `ArrayRecords.append` does; it may be fewer than the file has room for."""
        plain = self._plain
        file = log.make_room(int(plain.sizes[first]), mapped=log.options.lock_memory)
        before = int(self._ends[first] - plain.sizes[first])
        most = min(file.size - commit_log.BLANK_SIZE - file.wrote, max(PIECE, int(plain.sizes[first])))
        count = int(np.searchsorted(self._ends, before + most, side="right")) - first
        total = int(self._ends[first + count - 1]) - before
        file = log.make_room(total, mapped=log.options.lock_memory)
        now = log.now()
        target, at = _target(log, file, total)
        next_offsets = np.array([state.next_offset for state in plain.states], np.int64)
        base = file.file_from_offset + file.wrote - at
        made = tuple(np.empty((_COLUMNS, count), np.int64))
        place = (at, base, now, plain.columns.born_timestamp is None)
        self._compiled.encode(
            target, place, (first, count), self._bodies, self._held, self._heads, self._queues, next_offsets, made
        )
        if file.pool_buffer is None:
            log.write_through(file, target.data[:total])
        if log.handover is not None:
            rows = slice(first, first + count)
            queue_ids = self._queue_ids[plain.state_of[rows]]
            written = Written(target.data, base, now, plain.sizes[rows], plain.held.sizes[rows], queue_ids, *made)
            log.handover.note(self._compiled, written)
        file.wrote += total
        file.store_timestamp = now
        for state, offset in zip(plain.states, next_offsets.tolist(), strict=True):
            state.next_offset = offset
        return made[1], made[2]


def _target(log: CommitLog, file: MappedFile, total: int) -> tuple[np.ndarray, int]:
    """Returns where records are laid out, and the position of the first."""
    if file.pool_buffer is not None:
        return np.frombuffer(file.pool_buffer, np.uint8), file.wrote
    return np.frombuffer(log.stage(total), np.uint8), 0


def _length_size(magic_code: int) -> int:
    """Returns bytes of the field that says how long the topic is."""
    return (commit_log.TOPIC_LENGTH_V2 if magic_code == commit_log.MAGIC_V2 else commit_log.TOPIC_LENGTH_V1).size
