"""Ranges of a buffer that hold the same bytes: the topics of many records, of which few are distinct."""

from typing import Any

import numpy as np

from mqtool.kernels.compiling import compiled, inlined
from mqtool.kernels.machine_code import BYTES, I32, I64
from mqtool.kernels.trailers import hash_of_topic, is_equal


@inlined
def _is_same(data: Any, start: int, length: int, other: int, other_length: int) -> bool:
    return length == other_length and is_equal(data, start, data, other, length)


@compiled("int64", BYTES, I64, I64, I32, I64, I32)
def group(data: Any, starts: Any, lengths: Any, table: Any, firsts: Any, codes: Any) -> int:
    """Numbers the distinct ranges of a buffer in the order in which they appear.

    Args:
        data: uint8.
        starts, lengths: of the ranges, inside the buffer.
        table: a power of two of items, all -1; overwritten.
        firsts: output: number of the first range of each kind; at most half as long as the table.
        codes: output: for each range the number of its kind.

    Returns:
        How many kinds there are; -1 if they are more than `firsts` has room for.
    """
    known, mask = 0, len(table) - 1
    for at in range(len(starts)):
        start, length = starts[at], lengths[at]
        code = codes[at - 1] if at > 0 else np.int32(-1)  # often that of the one before
        if code < 0 or not _is_same(data, start, length, starts[firsts[code]], lengths[firsts[code]]):
            place = np.int64(hash_of_topic(data, start, length)) & mask
            code = table[place]
            while code >= 0 and not _is_same(data, start, length, starts[firsts[code]], lengths[firsts[code]]):
                place = (place + 1) & mask
                code = table[place]
            if code < 0:
                if known == len(firsts):
                    return -1
                code = np.int32(known)
                table[place], firsts[known] = code, at
                known += 1
        codes[at] = code
    return known
