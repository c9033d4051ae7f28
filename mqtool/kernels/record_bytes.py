"""The bytes of one record, for other kernels; the compiled form of `formats.commit_log.join_record`."""

from typing import Any

import numpy as np
from numba import types

from mqtool.formats import commit_log
from mqtool.kernels.body_crc import body_crc32
from mqtool.kernels.compiling import array_at, called, external, keep_order
from mqtool.kernels.machine_code import CRC32
from mqtool.kernels.numbers import put_i16, put_i32, put_i64

LIBRARY = (CRC32, "@memcpy")
"""Addresses that `put_record` needs, in a tuple that begins with them."""

HEAD = commit_log.BODY_POSITIONS[0]
ROOM = commit_log.PROPERTIES_LENGTH.size
(
    _SIZE,
    _MAGIC,
    _CRC,
    _QUEUE,
    FLAG,
    _OFFSET,
    _PHYSICAL,
    SYS_FLAG,
    BORN,
    BORN_HOST,
    _STORED,
    STORE_HOST,
    RECONSUMED,
    PREPARED,
    _LENGTH,
) = (field.offset for field in commit_log.HEADS[0])
_HOST = np.uint64(8)

_copy = external(types.uint64, types.uint64, types.uint64, types.uint64)


@called
def put_record(library: Any, to: Any, queue: Any, pieces: Any, fields: Any, hosts: Any) -> Any:
    """Writes one record with IPv4 hosts and returns its size: variable parts first, then the fixed fields.

    So a record cut short by a kill has no magic code, or fails its other checks, and is not read as a record.

    Args:
        library: see `LIBRARY`.
        to: address of the record; there must be room.
        queue: magic code, queue id, address and length of the topic field.
        pieces: address and length of the body and of the properties.
        fields: flag, queue offset, physical offset, system flag, born and store timestamp, reconsume times, offset of
            the prepared message.
        hosts: addresses of born host and store host.
    """
    magic_code, queue_id, topic, topic_size = queue
    body, size, properties, room = pieces
    flag, number, physical, sys_flag, born, now, reconsumed, prepared = fields
    topic_at = HEAD + size
    room_at = topic_at + topic_size
    total = room_at + ROOM + room
    target = array_at(to, (total,), np.uint8)
    _copy(library[1], to + np.uint64(HEAD), body, np.uint64(size))
    _copy(library[1], to + np.uint64(topic_at), topic, np.uint64(topic_size))
    _copy(library[1], to + np.uint64(room_at + ROOM), properties, np.uint64(room))
    put_i16(target, room_at, room)
    _copy(library[1], to + np.uint64(BORN_HOST), hosts[0], _HOST)
    _copy(library[1], to + np.uint64(STORE_HOST), hosts[1], _HOST)
    crc = body_crc32(library[0], target, HEAD, size)
    put_i32(target, _LENGTH, size)
    put_i64(target, PREPARED, prepared)
    put_i32(target, RECONSUMED, reconsumed)
    put_i64(target, _STORED, now)
    put_i64(target, BORN, born)
    put_i32(target, SYS_FLAG, sys_flag)
    put_i64(target, _PHYSICAL, physical)
    put_i64(target, _OFFSET, number)
    put_i32(target, FLAG, flag)
    put_i32(target, _QUEUE, queue_id)
    put_i32(target, _CRC, np.int64(crc))
    keep_order()
    put_i32(target, _MAGIC, magic_code)
    put_i32(target, _SIZE, total)
    return total
