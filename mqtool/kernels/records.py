"""Encodes columns of messages as contiguous records, as `engine.write.columns` does with array operations."""

from typing import Any

import numpy as np
from numba import types

from mqtool.formats import commit_log
from mqtool.kernels.body_crc import body_crc32
from mqtool.kernels.compiling import compiled, external, inlined
from mqtool.kernels.machine_code import BYTES, CRC32, I32, I64, U64
from mqtool.kernels.numbers import put_i16, put_i32, put_i64

_HEAD = commit_log.BODY_POSITIONS[0]
_FIELDS = (
    "total_size",
    "magic_code",
    "body_crc",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "born_timestamp",
    "store_timestamp",
    "body_length",
)
_SIZE, _MAGIC, _CRC, _QUEUE, _OFFSET, _PHYSICAL, _BORN, _STORED, _LENGTH = map(commit_log.field_offset, _FIELDS)
_ROOM = commit_log.PROPERTIES_LENGTH.size

_copy = external(types.uint64, types.uint64, types.uint64, types.uint64)
"""The C library's: (to, from, bytes)."""


@inlined
def _address(data: Any) -> Any:
    return np.uint64(data.ctypes.data)


@inlined
def _put_fields(crc32: Any, target: Any, at: Any, total: Any, magic_code: Any, queue_id: Any, size: Any) -> None:
    put_i32(target, at + _SIZE, total)
    put_i32(target, at + _MAGIC, magic_code)
    put_i32(target, at + _CRC, np.int64(body_crc32(crc32, target, at + _HEAD, size)))
    put_i32(target, at + _QUEUE, queue_id)
    put_i32(target, at + _LENGTH, size)


@inlined
def _put_place(target: Any, at: Any, offset: Any, physical: Any, now: Any, born_now: Any) -> None:
    put_i64(target, at + _OFFSET, offset)
    put_i64(target, at + _PHYSICAL, physical)
    put_i64(target, at + _STORED, now)
    if born_now:
        put_i64(target, at + _BORN, now)


_PLACE = ("int64", "int64", "int64", "bool")
_ROWS = ("int64", "int64")
_PIECES = (U64, I64)
_HEADS = (BYTES, "int64")
_QUEUES = (I32, BYTES, I64, I64, I64, I64)
_MADE = (I64,) * 6


@compiled("none", CRC32, "@memcpy", BYTES, _PLACE, _ROWS, _PIECES, _PIECES, _HEADS, _QUEUES, I64, _MADE)
def encode(
    crc32: Any,
    memcpy: Any,
    target: Any,
    place: Any,
    rows: Any,
    bodies: Any,
    held: Any,
    heads: Any,
    queues: Any,
    next_offsets: Any,
    made: Any,
) -> None:
    """Writes the records of some messages contiguously; there must be room for them.

    Args:
        crc32: of isal.
        memcpy: of the C library.
        target: output.
        place: position of the first record; physical offset of the target's first byte; store timestamp, and whether
            it is also the born timestamp.
        rows: the first message and the number of messages; the following columns contain all messages.
        bodies, held: address and size of each body, and of each message's encoded properties.
        heads: the fixed fields of each message, or of one for all, and the step to the next (0: one for all). Fields
            that depend on position and body are overwritten.
        queues: the queue number of each message; for the queues: topic length and topic, concatenated, their starts
            and the end of the last; bytes of the topic length; magic code; queue id.
        next_offsets: queue offset of each queue's next message; updated.
        made: outputs for each record: its position in the target, physical offset, queue offset, position and length of
            the topic, position of the properties.
    """
    at, base, now, born_now = place
    head_bytes, head_step = heads
    queue_of, topics, topic_starts, length_sizes, magic_codes, queue_ids = queues
    positions, physical, offsets, topic_at, topic_lengths, properties_at = made
    target_data, head_data, topic_data = _address(target), _address(head_bytes), _address(topics)
    for count in range(rows[1]):
        row = rows[0] + count
        queue = queue_of[row]
        size, room = bodies[1][row], held[1][row]
        topic_size = topic_starts[queue + 1] - topic_starts[queue]
        to = target_data + np.uint64(at)
        _copy(memcpy, to, head_data + np.uint64(row * head_step), np.uint64(_HEAD))
        _copy(memcpy, to + np.uint64(_HEAD), bodies[0][row], np.uint64(size))
        middle = at + _HEAD + size
        _copy(
            memcpy, target_data + np.uint64(middle), topic_data + np.uint64(topic_starts[queue]), np.uint64(topic_size)
        )
        tail = middle + topic_size + _ROOM
        _copy(memcpy, target_data + np.uint64(tail), held[0][row], np.uint64(room))
        put_i16(target, tail - _ROOM, room)
        _put_fields(crc32, target, at, tail + room - at, magic_codes[queue], queue_ids[queue], size)
        _put_place(target, at, next_offsets[queue], base + at, now, born_now)
        positions[count], physical[count], offsets[count] = at, base + at, next_offsets[queue]
        topic_at[count] = middle + length_sizes[queue]
        topic_lengths[count], properties_at[count] = topic_size - length_sizes[queue], tail
        next_offsets[queue] += 1
        at = tail + room
