"""Header blocks of HTTP/2 (HPACK, RFC 7541): the decoder of a connection, and blocks that use no dynamic table.

Static table and Huffman code are those of the library `hpack`. Its decoder is correct too, but slower, and a small gRPC
call is mostly headers (docs/decisions/0009-grpc.md).
"""

import functools
from collections import deque
from collections.abc import Sequence

import hpack
from hpack.exceptions import HPACKDecodingError, InvalidTableIndex, InvalidTableSizeError, OversizedHeaderListError
from hpack.huffman_table import HUFFMAN_COMPLETE, HUFFMAN_EMIT_SYMBOL, HUFFMAN_FAIL, HUFFMAN_TABLE
from hpack.table import HeaderTable

Header = tuple[bytes, bytes]

TABLE_SIZE = 4096
"""Maximum size of the dynamic table in bytes (SETTINGS_HEADER_TABLE_SIZE, its default)."""
EMPTY_TABLE = b"\x20"
"""A size update that sets the dynamic table to 0 bytes; allowed only at the start of a block."""
_STATIC: tuple[Header, ...] = ((b"", b""), *HeaderTable.STATIC_TABLE)
_STATIC_END = len(_STATIC)
_ENTRY_SIZE = 32
"""Bytes counted for an entry in addition to name and value (RFC 7541, 4.1)."""


class HeaderDecoder:
    """Decodes the header blocks of one connection, which must be passed in the order of arrival."""

    def __init__(self, max_list_size: int) -> None:
        """Creates a decoder that accepts lists of up to `max_list_size` bytes, with 32 more counted for each header."""
        self.entries: deque[Header] = deque()
        self._max_list_size = max_list_size
        self._size, self._max_size = 0, TABLE_SIZE

    def decode(self, data: bytes) -> list[Header]:
        """Returns the headers of a block.

        Raises OversizedHeaderListError if the headers are larger than allowed; HPACKError if the block is invalid.
        """
        dynamic, headers = self.entries, list[Header]()
        position, end = 0, len(data)
        try:
            while position < end and data[position] & 0xE0 == 0x20:
                size, position = _integer(data, position + 1, data[position], 0x1F)
                self._resize(size)
            while position < end:
                first = data[position]
                position += 1
                if first & 0x80:
                    index = first & 0x7F
                    if index == 0x7F:
                        index, position = _integer(data, position, first, 0x7F)
                    entry = _STATIC[index] if index < _STATIC_END else dynamic[index - _STATIC_END]
                    if not index:
                        raise InvalidTableIndex(f"Invalid table index {index}")
                else:
                    if first & 0xE0 == 0x20:
                        raise HPACKDecodingError("Table size update not at the start of the block")
                    index, position = _integer(data, position, first, 0x3F if first & 0x40 else 0x0F)
                    if index:
                        name = (_STATIC[index] if index < _STATIC_END else dynamic[index - _STATIC_END])[0]
                    else:
                        name, position = _text(data, position)
                    stop = position + 1 + data[position]
                    if data[position] < 0x7F and stop <= end:
                        value, position = data[position + 1 : stop], stop
                    else:
                        value, position = _text(data, position)
                    entry = name, value
                    if first & 0x40:
                        self._add(entry)
                headers.append(entry)
        except IndexError as error:
            raise HPACKDecodingError("Truncated header block, or an entry that is not in the table") from error
        if sum([len(name) + len(value) for name, value in headers]) + len(headers) * _ENTRY_SIZE > self._max_list_size:
            raise OversizedHeaderListError(f"A header list larger than {self._max_list_size}")
        return headers

    def _add(self, entry: Header) -> None:
        self.entries.appendleft(entry)
        self._size += len(entry[0]) + len(entry[1]) + _ENTRY_SIZE
        self._shrink()

    def _resize(self, size: int) -> None:
        if size > TABLE_SIZE:
            raise InvalidTableSizeError(f"A table of {size} bytes; at most {TABLE_SIZE} are allowed")
        self._max_size = size
        self._shrink()

    def _shrink(self) -> None:
        while self._size > self._max_size:
            name, value = self.entries.pop()
            self._size -= len(name) + len(value) + _ENTRY_SIZE


def constant_block(headers: Sequence[Header]) -> bytes:
    """Encodes headers without the dynamic table, so that the bytes are the same at any point of a connection."""
    return bytes(hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(*header) for header in headers]))


def _integer(data: bytes, position: int, first: int, mask: int) -> tuple[int, int]:
    """Decodes an integer whose first byte has been read; returns it with the position after it."""
    value = first & mask
    if value != mask:
        return value, position
    for shift in (0, 7, 14, 21):
        byte = data[position]
        position += 1
        value += (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, position
    raise HPACKDecodingError("an integer of more than five bytes")


def _text(data: bytes, position: int) -> tuple[bytes, int]:
    first = data[position]
    size, position = _integer(data, position + 1, first, 0x7F)
    text = data[position : position + size]
    if len(text) != size:
        raise HPACKDecodingError("Truncated header block")
    if first & 0x80:
        text = decode_huffman(text)
    return text, position + size


def decode_huffman(text: bytes) -> bytes:
    """Decodes a Huffman-coded text, a byte per step (the library: two); raises HPACKError if the text is invalid."""
    state, flags, parts = 0, HUFFMAN_COMPLETE, []
    for byte in text:
        state, flags, letters = _huffman_step(state, byte)
        if letters:
            parts.append(letters)
    if not flags & HUFFMAN_COMPLETE:
        raise HPACKDecodingError("Invalid Huffman string")
    return b"".join(parts)


@functools.cache  # at most one entry for each of 256 states and 256 bytes
def _huffman_step(state: int, byte: int) -> tuple[int, int, bytes]:
    """Returns the decoder's state after a byte, its flags, and the decoded characters."""
    letters, flags = b"", 0
    for nibble in (byte >> 4, byte & 0x0F):
        state, flags, letter = HUFFMAN_TABLE[state * 16 + nibble]
        if flags & HUFFMAN_FAIL:
            raise HPACKDecodingError("Invalid Huffman string")
        if flags & HUFFMAN_EMIT_SYMBOL:
            letters += bytes([letter])
    return state, flags, letters
