"""Encoding of records for the append path: sizes and limits, the bytes of a record, room for its CRC.

`formats.commit_log` declares the layout. Source: MessageExtEncoder, CommitLog.DefaultAppendMessageCallback (4.9.7,
5.5.0).
"""

from typing import NamedTuple

from mqtool.engine.write.queue_offsets import QueueState
from mqtool.formats import commit_log, properties
from mqtool.formats.commit_log import SysFlag

HOST_SIZE_V4 = 8
LONGEST_PROPERTIES = (1 << 15) - 1
ROOM_BESIDE_BODY = 64 << 10
"""Maximum bytes of a record besides its body."""

_V6_BITS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)  # arithmetic with the enum costs a hundred times as much
_CRC_NAME = properties.CRC32.encode()
_HOSTS_V6 = [position - commit_log.BODY_POSITIONS[0] for position in commit_log.BODY_POSITIONS]
"""By how many bytes IPv6 hosts make a record longer, by host shape."""

_new_tuple = tuple.__new__  # takes half the time of a named tuple's own constructor
_pack_length = commit_log.PROPERTIES_LENGTH.pack


def host_shape(born_host: bytes, store_host: bytes) -> int:
    """Returns which of the two are IPv6: 0 none, 1 born, 2 store, 3 both."""
    return (len(born_host) != HOST_SIZE_V4) + 2 * (len(store_host) != HOST_SIZE_V4)


class Origin(NamedTuple):
    """The fields that the records of one put share."""

    sys_flag: int  # with the bits of IPv6 hosts
    born_timestamp: int | None  # ms since epoch; None for the store timestamp
    born_host: bytes  # and store_host: 8 or 20 bytes
    store_host: bytes
    reconsume_times: int  # how often a consumer sent the message back
    prepared_transaction_offset: int  # physical offset of the half message, for a committed one
    shape: int  # of the hosts, as `host_shape`


def origin(
    sys_flag: int,
    born_timestamp: int | None,
    born_host: bytes,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
) -> Origin:
    """Returns the shared fields, with the two IPv6 bits of the system flag set according to the hosts."""
    shape = host_shape(born_host, store_host)
    flags = sys_flag & ~_V6_BITS | shape << 4
    fields = flags, born_timestamp, born_host, store_host, reconsume_times, prepared_transaction_offset, shape
    return _new_tuple(Origin, fields)


def size(state: QueueState, shape: int, body: bytes, encoded: bytes) -> int:
    """Returns the bytes of a record with hosts of a shape."""
    return state.fixed_size + _HOSTS_V6[shape] + len(body) + len(encoded)


def encode(
    state: QueueState,
    origin: Origin,
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

    Args:
        state: of its topic-queue.
        origin: the fields that it shares with others.
        body, encoded: body and properties, as they are stored.
        flag: the application's.
        crc: of the body.
        total: `size` of the record.
        place: queue offset, physical offset, store timestamp in ms.
        with_crc: whether its properties end with room for the record's CRC, which is filled in.
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


def room_for_crc(encoded: bytes, *, single: bool = True) -> bytes:
    """Returns properties with 20 bytes at their end for the record's CRC.

    Args:
        encoded: the properties; in a single message an older CRC is removed, and a missing final 0x02 is added.
        single: False for a message of a batch, whose properties the broker leaves unchanged.
    """
    if single:
        encoded = properties.without(encoded, properties.CRC32) if _CRC_NAME in encoded else encoded
        encoded = properties.terminated(encoded)
    return encoded + bytes(properties.CRC32_TAIL_SIZE)
