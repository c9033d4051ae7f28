"""One pass over records: their positions, whether they are valid, their fields, the CRC of their bodies."""

from typing import Any

import numpy as np

from mqtool.formats import commit_log
from mqtool.formats.commit_log import SysFlag
from mqtool.kernels.body_crc import body_crc32
from mqtool.kernels.compiling import compiled, inlined
from mqtool.kernels.machine_code import BYTES, CRC32, I32, I32_TABLE, I64, I64_TABLE
from mqtool.kernels.numbers import i16_at, i32_at, i64_at

V1, V2 = commit_log.MAGIC_V1, commit_log.MAGIC_V2
AT = {field.name: field.offset for field in commit_log.HEADS[0]}
"""Positions of the fields of a record with IPv4 hosts."""
_CRC_AT, _QUEUE_AT, _FLAGS_AT = AT["body_crc"], AT["queue_id"], AT["sys_flag"]
_PLACE_AT, _OFFSET_AT, _BORN_AT = AT["queue_offset"], AT["physical_offset"], AT["born_timestamp"]
_STORED_AT, _RETRIES_AT = AT["store_timestamp"], AT["reconsume_times"]
BODY_AT = commit_log.BODY_POSITIONS[0]
_LONGER = commit_log.BODY_POSITIONS[1] - BODY_AT  # an IPv6 host
_BORN_V6, _STORE_V6 = int(SysFlag.BORN_HOST_V6), int(SysFlag.STORE_HOST_V6)
V6_HOSTS = _BORN_V6 | _STORE_V6
MIN_SIZE, PORTS = commit_log.MIN_RECORD_SIZE, 1 << 16


@inlined
def places(data: Any, body: Any, end: Any, is_v2: bool) -> Any:
    """Returns whether the inner lengths of a record add up to its end, and `tables.PLACES` after the first."""
    body_length = topic = topic_length = properties = properties_length = np.int64(0)
    wide = 2 if is_v2 else 1
    adds_up = body + wide + 2 <= end
    if adds_up:
        body_length = max(i32_at(data, body - 4), np.int64(0))
        topic = body + body_length + wide
        adds_up = topic + 2 <= end
    if adds_up:
        topic_length = i16_at(data, topic - 2) if is_v2 else np.int64(np.int8(data[topic - 1]))
        properties = topic + topic_length + 2
        adds_up = topic_length >= 0 and properties <= end
    if adds_up:
        properties_length = max(i16_at(data, properties - 2), np.int64(0))
        adds_up = properties + properties_length == end
    return adds_up, body_length, topic, topic_length, properties, properties_length


@compiled(("int64", "bool", "bool"), CRC32, BYTES, "int64", "int64", "bool", I64, I32_TABLE, I64_TABLE, I32)
def scan(
    crc32: Any, data: Any, start: int, base: int, with_crc: bool, positions: Any, ints: Any, longs: Any, crcs: Any
) -> Any:
    """Follows total_size from record to record, as `records.frame_scan` does, and reads each record in the same pass.

    Args:
        crc32: of isal.
        data: uint8.
        start: position of the first frame.
        base: physical offset of the first byte.
        with_crc: whether to compute CRCs.
        positions, ints, longs, crcs: outputs: positions, the tables of `tables`, CRC-32 of bodies without the
            highest bit; with room for the maximum number of frames.

    Returns:
        The number of records; whether all are valid, otherwise fields of some are meaningless; whether all ports are
        16-bit numbers of IPv4 hosts.
    """
    count, at, size = 0, start, len(data)
    all_valid = plain_ports = True
    while at + 8 <= size and count < len(positions):
        total, magic = i32_at(data, at), i32_at(data, at + 4)
        if (magic != V1 and magic != V2) or total < MIN_SIZE or total > size - at:
            break
        flags, offset = i32_at(data, at + _FLAGS_AT), i64_at(data, at + _OFFSET_AT)
        stored_at = at + _STORED_AT + (_LONGER if flags & _BORN_V6 else 0)
        retries_at = stored_at + _RETRIES_AT - _STORED_AT + (_LONGER if flags & _STORE_V6 else 0)
        body = retries_at + BODY_AT - _RETRIES_AT
        adds_up, body_length, topic, topic_length, properties, length = places(data, body, at + total, magic == V2)
        if adds_up and offset == base + at:
            ints[0, count], ints[1, count], ints[2, count] = total, magic, i32_at(data, at + _CRC_AT)
            ints[3, count], ints[4, count] = i32_at(data, at + _QUEUE_AT), flags
            longs[0, count], longs[1, count] = i64_at(data, at + _PLACE_AT), offset
            longs[2, count], longs[3, count] = i64_at(data, at + _BORN_AT), i64_at(data, stored_at)
            longs[4, count], longs[5, count], longs[6, count], longs[7, count] = body, body_length, topic, topic_length
            longs[8, count], longs[9, count] = properties, length
            ports = i32_at(data, stored_at - 4) | i32_at(data, retries_at - 4)
            plain_ports = plain_ports and flags & V6_HOSTS == 0 and 0 <= ports < PORTS
            if with_crc:
                crcs[count] = body_crc32(crc32, data, body, body_length)
        else:
            all_valid = False
        positions[count] = at
        count += 1
        at += total
    return count, all_valid, plain_ports
