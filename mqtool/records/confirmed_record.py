"""Records that the unit of their queue confirms, although fields without a checksum are damaged.

Consumers get such messages: a pull reads as many bytes as the unit says and decodes them. No client checks the
physical offset, and 4.9 not even the magic code (MessageDecoder.decode, 4.9.7 and 5.5.0). A record counts if its
lengths add up, its body matches its CRC, and topic, queue and queue offset are those of the unit. So its message is not
lost: where consumers do not get it, salvage brings it back.
"""

from msgspec.structs import replace

from mqtool.errors import FormatError
from mqtool.formats import commit_log, properties
from mqtool.formats.commit_log import FRAME, MIN_RECORD_SIZE, RECORD_MAGICS, TRANSACTION_MASK, SysFlag
from mqtool.formats.topics import TopicQueue

UNQUEUED = (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK)
"""Kinds of records that have no unit."""

_OFFSET_AT = commit_log.field_offset("physical_offset")
_FLAG_AT = commit_log.field_offset("sys_flag")


def confirmed_record(raw: bytes, physical_offset: int, queue: TopicQueue, queue_offset: int) -> bytes | None:
    """Returns the record that a unit confirms, corrected; None if it is not the record that was written.

    Args:
        raw: as many bytes as the unit says.
        physical_offset: that the unit states.
        queue, queue_offset: of the unit.
    """
    if len(raw) < MIN_RECORD_SIZE:
        return None
    magic, place = commit_log.magic_code(raw), (queue[0].encode(), queue[1], queue_offset)
    magics = (magic,) if magic in RECORD_MAGICS else RECORD_MAGICS
    return next(filter(None, (_corrected(raw, chosen, physical_offset, place) for chosen in magics)), None)


def _corrected(raw: bytes, magic: int, physical_offset: int, place: tuple[bytes, int, int]) -> bytes | None:
    data = bytearray(raw)
    data[: FRAME.size] = FRAME.pack(len(raw), magic)
    data[_OFFSET_AT : _OFFSET_AT + 8] = physical_offset.to_bytes(8, "big")
    flags = int.from_bytes(data[_FLAG_AT : _FLAG_AT + 4], "big")
    if flags & TRANSACTION_MASK in UNQUEUED:  # one bit away: ROLLBACK from COMMIT, PREPARED from none
        flags &= ~int(SysFlag.TRANSACTION_PREPARED)
        data[_FLAG_AT : _FLAG_AT + 4] = flags.to_bytes(4, "big")
    try:
        record = commit_log.parse_record(bytes(data))
    except FormatError:
        return None
    stated = record.topic, record.queue_id, record.queue_offset
    if stated != place or not record.body or record.body_crc != commit_log.body_crc(record.body):
        return None
    corrected = commit_log.build_record(replace(record, total_size=len(raw)))
    return corrected if corrected == properties.renew_crc32(corrected) else None
