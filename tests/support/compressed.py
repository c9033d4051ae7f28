"""Bodies compressed as clients do it."""

import zlib

import lz4.frame
import zstandard

from mqtool.formats.compression import CompressionType


def compress(data: bytes, kind: CompressionType) -> bytes:
    """Returns compressed data; a reader of any release decodes it."""
    if kind is CompressionType.ZLIB:
        return zlib.compress(data)
    if kind is CompressionType.LZ4:
        return bytes(lz4.frame.compress(data))
    return zstandard.ZstdCompressor().compress(data)
