"""Fast handling of plain HTTP/2 frames: headers, data, window updates, and answers that fit into the windows.

`h2` processes every frame through objects and state machines, which is most of the cost of a small call. This module
reads and writes plain frames directly, and sets the state in the streams and windows of `h2` that `h2` would have set.
All other frames (padding, priorities, continuations, resets, settings, pings, a stream in another state, a frame that
is not allowed) are passed to `h2`, in the order of arrival. The objects are private ones of h2 4.4. With a release in
which `is_supported` finds different ones, or with which this module cannot be imported, `http2` passes all frames to
`h2`. Decision: docs/decisions/0009-grpc.md.
"""

import functools
import logging
import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import hpack
from h2 import connection as h2_connection
from h2.config import H2Configuration
from h2.connection import AllowedStreamIDs, ConnectionState, H2Connection
from h2.events import DataReceived, PingAckReceived, StreamEnded
from h2.exceptions import ProtocolError as H2ProtocolError
from h2.stream import StreamClosedBy, StreamState
from hpack.exceptions import HPACKDecodingError, InvalidTableIndex, OversizedHeaderListError
from hpack.huffman_table import (
    HUFFMAN_COMPLETE,
    HUFFMAN_EMIT_SYMBOL,
    HUFFMAN_FAIL,
    HUFFMAN_TABLE,
)
from hpack.table import HeaderTable

_LOG = logging.getLogger(__name__)

_HEADER = 9
DATA, HEADERS, PING, WINDOW_UPDATE = 0, 1, 6, 8
"""Frame types."""
_ACK = 1
_PING_SIZE = 8
_END_STREAM, _END_HEADERS, _PRIORITY = 1, 4, 0x20
_PRIORITY_SIZE = 5
_31_BITS = _LARGEST_WINDOW = 2**31 - 1
_SENDING = frozenset({StreamState.OPEN, StreamState.HALF_CLOSED_REMOTE})
_FRAME = struct.Struct(">HBBBI")
_STATIC: tuple[tuple[bytes, bytes], ...] = ((b"", b""), *HeaderTable.STATIC_TABLE)
_STATIC_END = len(_STATIC)
_ENTRY_SIZE = 32
"""Bytes counted for an entry of the dynamic table, in addition to name and value (RFC 7541, 4.1)."""

Headers = list[tuple[bytes, bytes]]


class HeaderDecoder(hpack.Decoder):
    """Decodes header blocks in one loop, with the library's dynamic table; rare cases are left to the library."""

    def decode(self, data: bytes, raw: bool = False) -> Iterable[Any]:  # noqa: ARG002
        """Returns (name, value) of each header, as bytes.

        Raises:
            HPACKError: the block is invalid.
        """
        if data and data[0] & 0xE0 == 0x20:  # starts with a dynamic table size update
            return super().decode(data, raw=True)
        table = self.header_table
        dynamic, headers = table.dynamic_entries, cast("Headers", [])
        position, end = 0, len(data)
        try:
            while position < end:
                first = data[position]
                position += 1
                if first & 0x80:
                    index = first & 0x7F
                    if index == 0x7F:
                        index, position = _index(data, position, first, 0x7F)
                    entry = _STATIC[index] if index < _STATIC_END else dynamic[index - _STATIC_END]
                    if not index:
                        raise InvalidTableIndex(f"Invalid table index {index}")
                else:
                    if first & 0xE0 == 0x20:
                        raise HPACKDecodingError("Table size update not at the start of the block")
                    index, position = _index(data, position, first, 0x3F if first & 0x40 else 0x0F)
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
                        _add(table, entry)
                headers.append(entry)
        except IndexError as error:
            raise HPACKDecodingError("Truncated header block, or an entry that is not in the table") from error
        if (
            sum([len(name) + len(value) for name, value in headers]) + len(headers) * _ENTRY_SIZE
            > self.max_header_list_size
        ):
            raise OversizedHeaderListError(f"A header list larger than {self.max_header_list_size}")
        self._assert_valid_table_size()
        return headers


def _add(table: HeaderTable, entry: tuple[bytes, bytes]) -> None:
    """Adds an entry to a dynamic table; the table's own method writes a log record for each entry that it drops."""
    entries, longest = table.dynamic_entries, table._maxsize
    size = len(entry[0]) + len(entry[1]) + _ENTRY_SIZE
    if size > longest:
        table.add(*entry)
        return
    entries.appendleft(entry)
    size += table._current_size
    while size > longest:
        name, value = entries.pop()
        size -= len(name) + len(value) + _ENTRY_SIZE
    table._current_size = size


def _index(data: bytes, position: int, first: int, mask: int) -> tuple[int, int]:
    """Decodes an HPACK integer whose first byte has been read; returns it with the position after it."""
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
    size, position = _index(data, position + 1, first, 0x7F)
    text = data[position : position + size]
    if len(text) != size:
        raise HPACKDecodingError("Truncated header block")
    if first & 0x80:
        text = decode_huffman(text)
    return text, position + size


def decode_huffman(text: bytes) -> bytes:
    """Decodes a Huffman-coded text with the library's table, a byte per step; the library needs two steps per byte.

    Raises:
        HPACKError: the text is invalid.
    """
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


class Frame(NamedTuple):
    """A frame, or other bytes that are passed to `h2`."""

    # kind, flags: type and flags in the frame's header; kind is -1 for other bytes
    kind: int
    flags: int
    stream_id: int  # id of its stream
    data: bytes  # bytes of the frame, including its header


class FrameCutter:
    """Splits the bytes received on a connection into frames."""

    def __init__(self, h2: H2Connection) -> None:
        self._h2 = h2
        self._kept = b""

    @property
    def kept(self) -> int:
        """Number of buffered bytes of an incomplete frame."""
        return len(self._kept)

    def feed(self, data: bytes) -> list[Frame]:
        """Adds received bytes; returns the frames that are now complete."""
        h2 = self._h2
        buffer = h2.incoming_buffer
        if buffer._data or buffer._preamble_len:  # `h2` is inside a frame
            return [Frame(-1, 0, 0, data)]
        data = self._kept + data if self._kept else bytes(data)
        frames: list[Frame] = []
        position, size, longest = 0, len(data), h2.max_inbound_frame_size
        while size - position >= _HEADER:
            high, low, kind, flags, stream_id = _FRAME.unpack_from(data, position)
            length = high << 8 | low
            end = position + _HEADER + length
            if length > longest:  # `h2` refuses it
                frames.append(Frame(-1, 0, 0, data[position:]))
                position = size
                break
            if end > size:
                break
            frames.append(Frame(kind, flags, stream_id & _31_BITS, data[position:end]))
            position = end
        self._kept = data[position:]
        return frames


def open_stream(h2: H2Connection, frame: Frame, max_streams: int) -> dict[bytes, bytes] | None:
    """Opens a stream for a HEADERS frame.

    Returns:
        The headers; None if the frame must be passed to `h2`.

    Raises:
        H2ProtocolError: the headers are not allowed; the connection must be closed.
    """
    stream_id, block = frame.stream_id, _HEADER
    if frame.flags & _PRIORITY:  # Netty clients send a priority without a dependency in each call
        block += _PRIORITY_SIZE
        if int.from_bytes(frame.data[_HEADER : _HEADER + 4], "big") & _31_BITS == stream_id:
            return None
    if (
        frame.flags & ~_PRIORITY != _END_HEADERS
        or len(frame.data) < block
        or not stream_id & 1
        or stream_id <= h2.highest_inbound_stream_id
        or len(h2.streams) >= max_streams
        or h2.state_machine.state is not ConnectionState.SERVER_OPEN
        or h2.incoming_buffer._headers_buffer
    ):
        return None
    try:
        headers = dict(h2_connection._decode_headers(h2.decoder, frame.data[block:]))
    except H2ProtocolError as error:
        h2.close_connection(error.error_code)
        raise
    stream = h2._begin_new_stream(stream_id, AllowedStreamIDs.ODD)
    machine = stream.state_machine
    machine.client, machine.headers_received, machine.state = False, True, StreamState.OPEN
    return headers


def take_data(h2: H2Connection, frame: Frame) -> bytes | None:
    """Handles a DATA frame and restores the flow-control windows.

    Returns:
        The data; None if the frame must be passed to `h2`.

    Raises:
        H2ProtocolError: the data exceeds a window; the connection must be closed.
    """
    stream = h2.streams.get(frame.stream_id)
    if (
        stream is None
        or frame.flags & ~_END_STREAM
        or stream.state_machine.state is not StreamState.OPEN
        or stream._expected_content_length is not None
        or h2.incoming_buffer._headers_buffer
    ):
        return None
    data = frame.data[_HEADER:]
    window = h2._inbound_flow_control_window_manager
    try:
        window.window_consumed(len(data))
        stream._inbound_window_manager.window_consumed(len(data))
    except H2ProtocolError as error:
        h2.close_connection(error.error_code)
        raise
    if frame.flags:
        stream.state_machine.state = StreamState.HALF_CLOSED_REMOTE
    elif more := stream._inbound_window_manager.process_bytes(len(data)):
        h2._data_to_send += _frame(WINDOW_UPDATE, 0, frame.stream_id, more.to_bytes(4, "big"))
    if more := window.process_bytes(len(data)):
        h2._data_to_send += _frame(WINDOW_UPDATE, 0, 0, more.to_bytes(4, "big"))
    return data


def take_window(h2: H2Connection, frame: Frame) -> bool:
    """Handles a WINDOW_UPDATE frame; returns False if it must be passed to `h2`."""
    more = int.from_bytes(frame.data[_HEADER:], "big") & _31_BITS
    if len(frame.data) != _HEADER + 4 or not more or h2.incoming_buffer._headers_buffer:
        return False
    if h2.state_machine.state is not ConnectionState.SERVER_OPEN:
        return False
    if not frame.stream_id:
        if h2.outbound_flow_control_window + more > _LARGEST_WINDOW:
            return False
        h2.outbound_flow_control_window += more
        return True
    stream = h2.streams.get(frame.stream_id)
    if stream is None:  # ignore frames of a stream that was already answered
        return h2._closed_streams.get(frame.stream_id) is StreamClosedBy.SEND_END_STREAM
    if stream.state_machine.state not in _SENDING or stream.outbound_flow_control_window + more > _LARGEST_WINDOW:
        return False
    stream.outbound_flow_control_window += more
    return True


def take_ping(h2: H2Connection, frame: Frame) -> bool:
    """Answers a PING frame; returns False if it must be passed to `h2`.

    Java clients send one after nearly every answer, to determine how large their windows should be.
    """
    if (
        frame.flags
        or frame.stream_id
        or len(frame.data) != _HEADER + _PING_SIZE
        or h2.state_machine.state is not ConnectionState.SERVER_OPEN
        or h2.incoming_buffer._headers_buffer
    ):
        return False
    h2._data_to_send += _frame(PING, _ACK, 0, frame.data[_HEADER:])
    return True


def constant_block(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Encodes headers without the dynamic table, so that the bytes are the same at any point of a connection."""
    return bytes(hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(*header) for header in headers]))


def write_answer(h2: H2Connection, stream_id: int, first: bytes, framed: bytes, last: bytes) -> bool:
    """Writes a complete answer and closes its stream.

    Args:
        h2: the connection.
        stream_id: id of a stream that the client has half-closed, and on which nothing was sent.
        first, last: header blocks from `constant_block`, less than 256 bytes each.
        framed: the data between them.

    Returns:
        False if the windows do not allow it; nothing was written.
    """
    stream, size = h2.streams.get(stream_id), len(framed)
    if (
        stream is None
        or stream.state_machine.state is not StreamState.HALF_CLOSED_REMOTE
        or size > h2.outbound_flow_control_window
        or size > stream.outbound_flow_control_window
    ):
        return False
    longest, pack = h2.max_outbound_frame_size, _FRAME.pack
    pieces = [pack(0, len(first), HEADERS, _END_HEADERS, stream_id), first]
    if 0 < size <= longest:
        pieces += pack(size >> 8, size & 0xFF, DATA, 0, stream_id), framed
    else:
        pieces += [_frame(DATA, 0, stream_id, framed[place : place + longest]) for place in range(0, size, longest)]
    pieces += pack(0, len(last), HEADERS, _END_HEADERS | _END_STREAM, stream_id), last
    h2._data_to_send += b"".join(pieces)
    h2.outbound_flow_control_window -= size
    del h2.streams[stream_id]
    h2._closed_streams[stream_id] = StreamClosedBy.SEND_END_STREAM
    return True


def _frame(kind: int, flags: int, stream_id: int, data: bytes) -> bytes:
    size = len(data)
    return _FRAME.pack(size >> 8, size & 0xFF, kind, flags, stream_id) + data


@functools.cache
def is_supported() -> bool:
    """Whether the installed libraries have the objects that this module uses; calls each function once to find out."""
    try:
        rehearsed = _rehearse()
    except Exception:  # noqa: BLE001 - whatever differs, `h2` alone works too
        rehearsed = False
    if not rehearsed:
        _LOG.warning("this release of h2 is not known: gRPC calls take more processor time. Install h2 4.4.")
    return rehearsed


def _rehearse() -> bool:
    """Passes a call through every function of this module; returns whether both sides received what was sent."""
    client = H2Connection(H2Configuration(client_side=True, header_encoding=None))
    server = H2Connection(H2Configuration(client_side=False, header_encoding=None))
    server.decoder = HeaderDecoder()
    client.initiate_connection()
    server.initiate_connection()
    server.receive_data(client.data_to_send())
    client.receive_data(server.data_to_send())
    server.receive_data(client.data_to_send())
    headers = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/s/M"), (b":authority", b"a")]
    server.state_machine.state = ConnectionState.SERVER_OPEN  # the state after the first call of a connection
    client.send_headers(1, headers)
    client.send_data(1, b"asked", end_stream=True)
    client.increment_flow_control_window(1000)
    client.ping(b"12345678")
    taken: list[object] = []
    for frame in FrameCutter(server).feed(client.data_to_send()):
        if frame.kind == HEADERS:
            taken.append(open_stream(server, frame, 1))
        elif frame.kind == PING:
            taken.append(take_ping(server, frame))
        else:
            taken.append(take_data(server, frame) if frame.kind == DATA else take_window(server, frame))
    first, last = constant_block([(b":status", b"200")]), constant_block([(b"grpc-status", b"0")])
    if taken != [dict(headers), b"asked", True, True] or not write_answer(server, 1, first, b"answered", last):
        return False
    events = client.receive_data(server.data_to_send())
    answered = [bytes(event.data or b"") for event in events if isinstance(event, DataReceived)]
    kinds = {type(event) for event in events}
    return answered == [b"answered"] and kinds >= {StreamEnded, PingAckReceived}
