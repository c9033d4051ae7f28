"""Encodes columns of messages as contiguous records."""

from typing import Any

import numpy as np

from mqtool.kernels.compiling import compiled
from mqtool.kernels.machine_code import BYTES, I32, I64, U64
from mqtool.kernels.numbers import i32_at, i64_at
from mqtool.kernels.record_bytes import (
    BORN,
    BORN_HOST,
    FLAG,
    HEAD,
    LIBRARY,
    PREPARED,
    RECONSUMED,
    STORE_HOST,
    SYS_FLAG,
    put_record,
)

_PLACE = ("int64", "int64", "int64", "bool")
_ROWS = ("int64", "int64")
_PIECES = (U64, I64)
_HEADS = (BYTES, "int64")
_QUEUES = (I32, BYTES, I64, I64, I64, I64)
_MADE = (I64,) * 6


@compiled("none", *LIBRARY, BYTES, _PLACE, _ROWS, _PIECES, _PIECES, _HEADS, _QUEUES, I64, _MADE)
def encode(
    crc32: Any,
    memcpy: Any,
    target: Any,
    place: Any,
    rows: Any,
    bodies: Any,
    properties: Any,
    heads: Any,
    queues: Any,
    next_offsets: Any,
    columns: Any,
) -> None:
    """Writes the records of some messages contiguously; there must be room for them.

    Args:
        crc32: of isal.
        memcpy: of the C library.
        target: output.
        place: position of the first record; physical offset of the target's first byte; store timestamp, and whether
            it is also the born timestamp.
        rows: the first message and the number of messages; the following columns contain all messages.
        bodies, properties: address and size of each body, and of each message's encoded properties.
        heads: the fixed fields of each message, or of one for all, and the step to the next (0: one for all). Those
            that depend on queue, position and body are not read.
        queues: the queue number of each message; for the queues: topic length and topic, concatenated, their starts
            and the end of the last; bytes of the topic length; magic code; queue id.
        next_offsets: queue offset of each queue's next message; updated.
        columns: outputs for each record: its position in the target, physical offset, queue offset, position and length
            of the topic, position of the properties.
    """
    at, base, now, born_now = place
    head_bytes, head_step = heads
    queue_of, topics, topic_starts, length_sizes, magic_codes, queue_ids = queues
    positions, physical, offsets, topic_at, topic_lengths, properties_at = columns
    to, head_data, topic_data = target.ctypes.data, head_bytes.ctypes.data, topics.ctypes.data
    for count in range(rows[1]):
        row = rows[0] + count
        queue = queue_of[row]
        head = row * head_step
        size, room = bodies[1][row], properties[1][row]
        topic, topic_size = topic_starts[queue], topic_starts[queue + 1] - topic_starts[queue]
        born = now if born_now else i64_at(head_bytes, head + BORN)
        fields = (
            i32_at(head_bytes, head + FLAG),
            next_offsets[queue],
            base + at,
            i32_at(head_bytes, head + SYS_FLAG),
            born,
            now,
            i32_at(head_bytes, head + RECONSUMED),
            i64_at(head_bytes, head + PREPARED),
        )
        hosts = np.uint64(head_data + head + BORN_HOST), np.uint64(head_data + head + STORE_HOST)
        pieces = bodies[0][row], size, properties[0][row], room
        of_queue = magic_codes[queue], queue_ids[queue], np.uint64(topic_data + topic), topic_size
        total = put_record((crc32, memcpy), np.uint64(to + at), of_queue, pieces, fields, hosts)
        positions[count], physical[count], offsets[count] = at, base + at, next_offsets[queue]
        topic_at[count] = at + HEAD + size + length_sizes[queue]
        topic_lengths[count], properties_at[count] = topic_size - length_sizes[queue], at + total - room
        next_offsets[queue] += 1
        at += total
