"""Compressed bodies: zlib, LZ4 frames, zstd frames; the record's sys_flag states which.

Output is produced incrementally and limited by the caller, so that a few bytes cannot fill the memory.
Source: CompressionType, CompressorFactory, MessageSysFlag (4.9.7, 5.5.0).
"""

import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any

from mqtool.errors import FormatError, TruncatedError
from mqtool.formats.codec import Buffer
from mqtool.formats.commit_log import COMPRESSION_MASK, SysFlag

DEFAULT_MAX_SIZE = 64 * 1024 * 1024
"""Bytes of a decoded body beyond which decoding stops; the broker's own limit for a body is 4 MiB."""

_PIECE = 64 * 1024
_COMPRESSED = int(SysFlag.COMPRESSED)  # arithmetic of flags costs ten times that of integers
_INPUT = 1024
"""zstd cannot be stopped early; a block takes 4 bytes and gives at most 128 KiB, so this gives at most 32 MiB."""

_MAX_ZSTD_WINDOW = 1 << 27


class CompressionType(IntEnum):
    """Values of the three type bits, `(sys_flag & 0x700) >> 8`."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def compression_type(sys_flag: int) -> CompressionType | None:
    """Returns how a body is compressed; None if it is not, FormatError if the type is unknown.

    Type 0 means zlib, because clients before 4.9.4 do not set the type (CompressionType.findByValue).
    """
    if not sys_flag & _COMPRESSED:
        return None
    number = (sys_flag & COMPRESSION_MASK) >> 8
    if number > CompressionType.ZLIB:
        raise FormatError(f"expected compression type 0 to 3, found {number}", layout="body", field="sys_flag")
    return CompressionType(number or CompressionType.ZLIB)


def decode(body: Buffer, sys_flag: int, max_size: int = DEFAULT_MAX_SIZE) -> bytes:
    """Returns the body that the producer sent.

    Raises TruncatedError if the compressed data is incomplete, FormatError if it is malformed, of an unknown type, or
    decodes to more than `max_size` bytes.
    """
    kind = compression_type(sys_flag)
    if kind is None:
        return bytes(body)
    return decompress(body, kind, max_size)


def decompress(data: Buffer, kind: CompressionType, max_size: int = DEFAULT_MAX_SIZE) -> bytes:
    """Returns decompressed data; raises as `decode`."""
    pieces: list[bytes] = []
    size = 0
    for piece in _DECODERS[kind](bytes(data), max_size + 1):
        size += len(piece)
        if size > max_size:
            raise FormatError(f"decodes to more than {max_size} bytes", layout=f"{kind.name.lower()} body")
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _zlib_pieces(data: bytes, bound: int) -> Iterator[bytes]:
    decoder = zlib.decompressobj()
    try:
        yield decoder.decompress(data, bound)  # where that leaves input over, it is more than the maximum
    except zlib.error as error:
        raise FormatError(str(error), layout="zlib body") from error
    if not decoder.eof:
        raise TruncatedError("the compressed data ends too early", layout="zlib body")


def _lz4_pieces(data: bytes, _bound: int) -> Iterator[bytes]:
    import lz4.frame  # noqa: PLC0415 - only who meets such a body needs it

    return _frames(data, lz4.frame.LZ4FrameDecompressor, _lz4_output, RuntimeError, "lz4 body")


def _lz4_output(decoder: Any, piece: bytes) -> Iterator[bytes]:
    yield decoder.decompress(piece, _PIECE)
    while not (decoder.eof or decoder.needs_input):
        yield decoder.decompress(b"", _PIECE)


def _zstd_pieces(data: bytes, _bound: int) -> Iterator[bytes]:
    import zstandard  # noqa: PLC0415 - only who meets such a body needs it

    make = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW).decompressobj
    return _frames(data, make, _zstd_output, zstandard.ZstdError, "zstd body")


def _zstd_output(decoder: Any, piece: bytes) -> Iterator[bytes]:
    yield decoder.decompress(piece)


def _frames(
    data: bytes,
    make: Callable[[], Any],
    output: Callable[[Any, bytes], Iterator[bytes]],
    failure: type[Exception],
    name: str,
) -> Iterator[bytes]:
    """Decodes one frame after another, as the Java streams do, with input in small pieces."""
    position = 0
    while position < len(data) or position == 0:
        decoder = make()
        while not decoder.eof:
            piece = data[position : position + _INPUT]
            if not piece:
                raise TruncatedError("the compressed data ends too early", layout=name)
            try:
                yield from output(decoder, piece)
            except failure as error:
                raise FormatError(str(error), layout=name) from error
            position += len(piece)
        position -= len(decoder.unused_data or b"")


_DECODERS: dict[CompressionType, Callable[[bytes, int], Iterator[bytes]]] = {
    CompressionType.LZ4: _lz4_pieces,
    CompressionType.ZSTD: _zstd_pieces,
    CompressionType.ZLIB: _zlib_pieces,
}
