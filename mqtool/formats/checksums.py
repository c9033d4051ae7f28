"""CRC-32 as the broker computes it: without the highest bit, so that it fits a Java int (UtilAll.crc32)."""

import zlib

from mqtool.formats.codec import Buffer

CRC_MASK = 0x7FFFFFFF


def crc32(data: Buffer) -> int:
    """Returns the CRC-32 of some bytes, 31 bits."""
    return zlib.crc32(data) & CRC_MASK
