"""Fields of plain records read from a file in one pass without the interpreter, for questions that need no more."""

from typing import Any

import numpy as np

from mqtool.formats.commit_log import SysFlag
from mqtool.kernels.body_crc import body_crc32
from mqtool.kernels.compiling import compiled
from mqtool.kernels.frame_scan import AT, BODY_AT, MIN_SIZE, V1
from mqtool.kernels.heads import FILE, head, record_in, topic_of
from mqtool.kernels.machine_code import BYTES, CRC32, I32, I32_TABLE, I64, I64_TABLE, PREAD
from mqtool.kernels.numbers import i32_at, i64_at
from mqtool.kernels.trailers import TOPICS

_CRC_AT, _PLACE_AT, _BORN_AT = AT["body_crc"], AT["queue_offset"], AT["born_timestamp"]
_INNER_BATCH = int(SysFlag.INNER_BATCH)
_RESULT = ("int64", "int64", "int64", "int64", "int64")


@compiled(_RESULT, CRC32, PREAD, FILE, BYTES, I64, TOPICS, "int64", "int64", I64, I32_TABLE, I64_TABLE, I32)
def field_records(
    crc32: Any,
    pread: Any,
    file: Any,
    window: Any,
    last_window: Any,
    topics: Any,
    latest: Any,
    taken: Any,
    positions: Any,
    ints: Any,
    longs: Any,
    codes: Any,
) -> Any:
    """Reads records until one is not plain, as many bytes as are asked for, or as many records as there is room for.

    Args:
        crc32: of isal.
        pread: of the C library.
        file: see `heads.FILE`.
        window: memory for the bytes: the size of what is read at a time, and `tables.SPARE`.
        last_window: position of the window's first byte in the file, and how many bytes it holds; updated.
        topics: as for `trailers.dispatch`.
        latest: maximum of a timestamp in milliseconds.
        taken: records that the outputs hold already.
        positions, ints, longs, codes: outputs: position in the file; rows of `tables.INTS` and `tables.LONGS`;
            number of the topic.

    Returns:
        How many records the outputs hold; the position after the last one; bytes read. If the topic of the record
        there is not known, its position in the window, and its length; otherwise -1 and 0.
    """
    base, position = file[1], file[2]
    start, filled = (last_window[0], last_window[1]) if last_window[0] <= position else (position, np.int64(0))
    count, bytes_read = taken, np.int64(0)
    entry = np.int64(-1)
    unknown_at, unknown_length = np.int64(-1), np.int64(0)
    while count < len(codes):
        before = start, filled
        start, filled, total = record_in(pread, file, window, position, start, filled)
        if (start, filled) != before:
            bytes_read += filled
        at = position - start
        if total < MIN_SIZE or i32_at(window, at + 4) != V1:
            break
        physical = base + position
        is_plain, flags, queue_id, stored, body, topic_at, topic_length, _, _ = head(
            window, at, total, physical, _INNER_BATCH
        )
        born, crc = i64_at(window, at + _BORN_AT), i32_at(window, at + _CRC_AT)
        if not is_plain or stored > latest or born > latest:
            break
        if body > 0 and body_crc32(crc32, window, at + BODY_AT, body) != crc:
            break
        entry = topic_of(window, topic_at, topic_length, topics, entry)
        if entry < 0:
            unknown_at, unknown_length = np.int64(topic_at), np.int64(topic_length)
            break
        positions[count], codes[count] = position, topics[4][entry]
        ints[0, count], ints[1, count], ints[2, count], ints[3, count], ints[4, count] = total, V1, crc, queue_id, flags
        longs[0, count], longs[1, count] = i64_at(window, at + _PLACE_AT), physical
        longs[2, count], longs[3, count] = born, stored
        count += 1
        position += total
    last_window[0], last_window[1] = start, filled
    return count, position, bytes_read, unknown_at, unknown_length
