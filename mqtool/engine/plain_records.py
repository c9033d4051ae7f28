"""Records of plain messages that come as columns: what is the same whoever makes them, and made by array arithmetic."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mqtool.engine import record
from mqtool.engine.commit_log import CommitLog
from mqtool.engine.queue_offsets import QueueState
from mqtool.formats import codec, commit_log
from mqtool.kernels import Kernels
from mqtool.scan.crc import crc32

if TYPE_CHECKING:
    from mqtool.engine.put_many import MessageColumns

HEAD = codec.dtype_of(commit_log.HEADS[0])
_OPAQUE = np.dtype(f"V{HEAD.itemsize}")
_NO_BYTES = b"\0\0"
_ROOM_BITS = record.LONGEST_PROPERTIES.bit_length()


class Pieces(NamedTuple):
    """Bytes objects in a row.

    Attributes:
        items: the objects.
        sizes: of each.
        addresses: of each one's bytes, for kernels; None if that was not asked for.
    """

    items: Sequence[bytes]
    sizes: np.ndarray
    addresses: np.ndarray | None


def pieces_of(items: Sequence[bytes], compiled: Kernels | None) -> Pieces:
    """Returns what is to know of bytes objects; their addresses only with kernels, and if they are nothing else."""
    if compiled is not None:
        kept = tuple(items)  # nobody takes one out meanwhile
        addresses, sizes = np.empty(len(kept), np.uint64), np.empty(len(kept), np.int64)
        if compiled.find_bytes(id(kept), id(bytes), addresses, sizes):
            return Pieces(kept, sizes, addresses)
    return Pieces(items, np.fromiter(map(len, items), np.int64, len(items)), None)


class Plain(NamedTuple):
    """Messages that need nothing but plain records, and what is known before their place is.

    Attributes:
        columns: the messages.
        states, state_of: their topic-queues, and the number of each message's.
        bodies, held: bodies and encoded properties.
        sizes: bytes of each record.
        born_host, store_host: of all.
    """

    columns: "MessageColumns"
    states: list[QueueState]
    state_of: np.ndarray
    bodies: Pieces
    held: Pieces
    sizes: np.ndarray
    born_host: bytes
    store_host: bytes

    def heads(self, count: int) -> np.ndarray:
        """Returns fixed fields as far as the caller gave them, of each message, or of one that stands for all."""
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


class ArrayRecords:
    """Records made by array arithmetic and joined."""

    def __init__(self, plain: Plain) -> None:
        """Makes what does not depend on the records' place."""
        self._plain = plain
        columns, states, state_of = plain.columns, plain.states, plain.state_of
        self._heads = heads = plain.heads(len(columns))
        heads["total_size"] = plain.sizes
        heads["magic_code"] = np.array([state.magic_code for state in states])[state_of]
        heads["body_crc"] = np.fromiter(map(crc32, columns.bodies), np.uint32, len(columns)) & np.uint32(0x7FFFFFFF)
        heads["queue_id"] = columns.queue_id
        heads["body_length"] = plain.bodies.sizes
        self._pieces = [_NO_BYTES] * (4 * len(columns))
        self._pieces[1::4] = plain.bodies.items
        self._pieces[2::4] = _prefixes(states, state_of, plain.held.sizes)
        self._pieces[3::4] = plain.held.items

    def append(self, log: CommitLog, first: int) -> tuple[np.ndarray, np.ndarray]:
        """Appends as many messages as the file has room for, from one on; call it under the lock.

        Args:
            log: where to.
            first: number of the first message.

        Returns:
            Their physical and queue offsets.

        Raises:
            AppendFailedError: none was stored.
        """
        states, state_of, sizes = self._plain.states, self._plain.state_of, self._plain.sizes
        file = log.make_room(int(sizes[first]))
        ends = np.cumsum(sizes[first:])
        count = int(np.searchsorted(ends, file.size - commit_log.BLANK_SIZE - file.wrote, side="right"))
        file = log.make_room(int(ends[count - 1]))  # reserves what the mapping needs
        now, rows = log.now(), slice(first, first + count)
        heads = self._heads[rows]
        physical = ends[:count] - sizes[rows] + (file.file_from_offset + file.wrote)
        numbers = _queue_offsets(states, state_of[rows])
        heads["physical_offset"] = physical
        heads["queue_offset"] = numbers
        heads["store_timestamp"] = now
        if self._plain.columns.born_timestamp is None:
            heads["born_timestamp"] = now
        pieces = self._pieces[4 * first : 4 * (first + count)]
        pieces[0::4] = heads.view(_OPAQUE).tolist()
        log.write(file, b"".join(pieces), physical.tolist())
        file.store_timestamp = now
        moved = np.bincount(state_of[rows], minlength=len(states))
        for state, by in zip(states, moved.tolist(), strict=True):
            state.next_offset += by
        return physical, numbers


def _prefixes(states: list[QueueState], state_of: np.ndarray, room: np.ndarray) -> "map[bytes]":
    """Returns what stands between body and properties of each message: few different ones."""
    kinds, kind_of = np.unique((state_of.astype(np.int64) << _ROOM_BITS) | room, return_inverse=True)
    pairs = zip((kinds >> _ROOM_BITS).tolist(), (kinds & ((1 << _ROOM_BITS) - 1)).tolist(), strict=True)
    made = [states[number].prefixes.get(size) or states[number].prefix(size) for number, size in pairs]
    return map(made.__getitem__, kind_of.tolist())


def _queue_offsets(states: list[QueueState], state_of: np.ndarray) -> np.ndarray:
    """Returns the queue offset of each message: its queue's next one, and so on."""
    order = np.argsort(state_of, kind="stable")
    ordered = state_of[order]
    starts = np.searchsorted(ordered, np.arange(len(states)))
    rank = np.empty(len(state_of), np.int64)
    rank[order] = np.arange(len(state_of)) - starts[ordered]
    return rank + np.array([state.next_offset for state in states], np.int64)[state_of]
