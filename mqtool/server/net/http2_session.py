"""The server side of one HTTP/2 connection (RFC 9113): received bytes become events, answers become bytes.

It has no socket and knows nothing of gRPC. It covers what a server of gRPC needs: no push, no upgrade from HTTP/1.1, no
priorities. An offence against the protocol ends its stream with RST_STREAM or the connection with GOAWAY, as the RFC
says. `tests/interop/test_http2_conformance.py` runs the conformance suite h2spec. Why this is not the library h2:
docs/decisions/0009-grpc.md.
"""

import struct
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

from hpack.exceptions import HPACKError, OversizedHeaderListError

from mqtool.errors import RemoteProtocolError
from mqtool.server.net.header_blocks import EMPTY_TABLE, TABLE_SIZE, Header, HeaderDecoder

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
"""Frame types."""
ACK = END_STREAM = 0x1
END_HEADERS, PADDED, HAS_PRIORITY = 0x4, 0x8, 0x20
"""Flags of frames."""

STREAM_WINDOW = 1 << 20
CONNECTION_WINDOW = 16 << 20
"""Bytes that a client may send on a stream and on the connection before it has to wait for a WINDOW_UPDATE."""
MAX_STREAMS = 4096
MAX_HEADERS = 64 << 10
MAX_FRAME = 16_384
"""Maximum size of the payload of a received frame in bytes; the default, which no client exceeds."""
_MAX_CONTINUATIONS = 64
_REMEMBERED = 1024
"""Number of closed streams of each kind that are remembered, to judge frames that arrive after the end."""
_DEFAULT_WINDOW = 65_535
_31_BITS = _MAX_WINDOW = 2**31 - 1
_FRAME = struct.Struct(">HBBBI")
_SETTING = struct.Struct(">HI")
_HEADER = 9
_HEADER_TABLE_SIZE, _ENABLE_PUSH, _MAX_CONCURRENT, _INITIAL_WINDOW, _FRAME_SIZE, _LIST_SIZE = range(1, 7)
_MAX_FRAME_SIZES = range(16_384, 1 << 24)
_PSEUDO = frozenset({b":method", b":scheme", b":path", b":authority"})
_REQUIRED = frozenset({b":method", b":scheme", b":path"})
_OF_HTTP_1 = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})


class ErrorCode(IntEnum):
    """Reasons in RST_STREAM and GOAWAY (RFC 9113, 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class StreamEvents(Protocol):
    """The owner of a session. The methods may send on the session."""

    def requested(self, stream_id: int, headers: dict[bytes, bytes]) -> None:
        """A client has opened a stream."""

    def data_received(self, stream_id: int, data: bytes, is_end: bool) -> None:
        """A piece of a request; with `is_end` the last one, which may be empty."""

    def reset(self, stream_id: int) -> None:
        """A stream has ended before its answer; nothing can be sent on it."""

    def widened(self, stream_id: int) -> None:
        """More may be sent on a stream; 0 means on every stream."""

    def terminated(self, code: int) -> None:
        """The client begins no more streams and will close the connection; `code` is an `ErrorCode`."""


class _OffenceError(Exception):
    """An offence after which the connection cannot continue."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class _Stream:
    """A stream that is open, or that the client has ended."""

    __slots__ = ("expected", "in_window", "is_ended", "out_window", "unconfirmed")

    def __init__(self, out_window: int, expected: int | None) -> None:
        self.out_window, self.in_window = out_window, STREAM_WINDOW
        self.unconfirmed = 0  # received bytes that no WINDOW_UPDATE has returned yet
        self.expected = expected  # bytes of content-length that are still to come
        self.is_ended = False


class Http2Session:
    """The protocol state of one connection."""

    def __init__(self, owner: StreamEvents) -> None:
        self._owner = owner
        self._decoder = HeaderDecoder(MAX_HEADERS)
        self._streams: dict[int, _Stream] = {}
        self._highest = 0
        self._ended: deque[int] = deque(maxlen=_REMEMBERED)  # by both sides, or reset by the client
        self._refused: deque[int] = deque(maxlen=_REMEMBERED)  # reset by us; the client may not know it yet
        self._kept = b""
        self._has_preface = self._has_settings = self._is_closed = False
        self._block: tuple[int, int, list[bytes]] | None = (
            None  # stream, flags and pieces of an incomplete header block
        )
        self._block_start = b""
        self._in_window, self._unconfirmed = CONNECTION_WINDOW, 0
        self._out_window = self._initial_window = _DEFAULT_WINDOW
        self._max_frame = MAX_FRAME
        settings = ((_MAX_CONCURRENT, MAX_STREAMS), (_INITIAL_WINDOW, STREAM_WINDOW), (_LIST_SIZE, MAX_HEADERS))
        self._output = [
            frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*setting) for setting in settings)),
            frame(WINDOW_UPDATE, 0, 0, (CONNECTION_WINDOW - _DEFAULT_WINDOW).to_bytes(4, "big")),
        ]

    @property
    def kept(self) -> int:
        """Number of buffered bytes of incomplete frames and header blocks."""
        return len(self._kept) + (sum(map(len, self._block[2])) if self._block else 0)

    def take_output(self) -> bytes:
        """Removes and returns the bytes to be sent."""
        output, self._output = self._output, []
        return b"".join(output)

    # -- received ------------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Handles bytes from the client; ignores them after the end of the connection.

        Raises RemoteProtocolError if the bytes are not valid HTTP/2; the output ends with the reason.
        """
        if self._is_closed:
            return
        try:
            self._receive(self._kept + data if self._kept else bytes(data))
        except _OffenceError as offence:
            self.close(offence.code)
            raise RemoteProtocolError(f"HTTP/2: {offence}") from offence

    def _receive(self, data: bytes) -> None:
        position, size = 0, len(data)
        if not self._has_preface:
            if not PREFACE.startswith(data[: len(PREFACE)]):
                raise _OffenceError(ErrorCode.PROTOCOL_ERROR, "the connection does not start with the preface")
            if size < len(PREFACE):
                self._kept = data
                return
            self._has_preface, position = True, len(PREFACE)
        while size - position >= _HEADER:
            high, low, kind, flags, stream_id = _FRAME.unpack_from(data, position)
            length = high << 8 | low
            if length > MAX_FRAME:
                raise _OffenceError(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes; at most {MAX_FRAME}")
            end = position + _HEADER + length
            if end > size:
                break
            self._take(kind, flags, stream_id & _31_BITS, data[position + _HEADER : end])
            position = end
        self._kept = data[position:]

    def _take(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if self._block and (kind != CONTINUATION or stream_id != self._block[0]):
            raise _OffenceError(ErrorCode.PROTOCOL_ERROR, "a frame within a header block")
        if not self._has_settings and kind != SETTINGS:
            raise _OffenceError(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        handle = _HANDLERS.get(kind)
        if handle is not None:  # unknown types are to be ignored
            handle(self, flags, stream_id, payload)

    def _take_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        self._in_window -= size
        if self._in_window < 0:
            raise _OffenceError(ErrorCode.FLOW_CONTROL_ERROR, "more data than the connection's window allows")
        self._unconfirmed += size
        if self._unconfirmed >= CONNECTION_WINDOW // 2:
            self._widen(0, self._unconfirmed)
            self._in_window += self._unconfirmed
            self._unconfirmed = 0
        stream = self._streams.get(stream_id)
        if stream is None or stream.is_ended:
            self._require_known(stream_id, "DATA")
            if stream_id not in self._refused:
                self._fail(stream_id, ErrorCode.STREAM_CLOSED)
            return
        data = _unpadded(payload) if flags & PADDED else payload
        stream.in_window -= size
        if stream.in_window < 0:
            self._fail(stream_id, ErrorCode.FLOW_CONTROL_ERROR)
            return
        if stream.expected is not None:
            stream.expected -= len(data)
        if flags & END_STREAM:
            self._end(stream_id, stream, data)
            return
        stream.unconfirmed += size
        if stream.unconfirmed >= STREAM_WINDOW // 2:
            self._widen(stream_id, stream.unconfirmed)
            stream.in_window += stream.unconfirmed
            stream.unconfirmed = 0
        if data:
            self._owner.data_received(stream_id, data, False)

    def _take_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id & 1:
            raise _OffenceError(ErrorCode.PROTOCOL_ERROR, f"HEADERS on stream {stream_id}")
        block = _unpadded(payload) if flags & PADDED else payload
        if flags & HAS_PRIORITY:  # Netty clients send one without a dependency in each call
            if len(block) < 5:
                raise _OffenceError(ErrorCode.FRAME_SIZE_ERROR, "HEADERS shorter than its priority")
            if int.from_bytes(block[:4], "big") & _31_BITS == stream_id:
                raise _OffenceError(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} depends on itself")
            block = block[5:]
        if flags & END_HEADERS:
            self._take_block(flags, stream_id, block)
        else:
            self._block = stream_id, flags, [block]

    def _take_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if self._block is None:
            raise _OffenceError(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        pieces = self._block[2]
        pieces.append(payload)
        if self.kept > MAX_HEADERS or len(pieces) > _MAX_CONTINUATIONS:
            raise _OffenceError(ErrorCode.ENHANCE_YOUR_CALM, "a header block that does not end")
        if flags & END_HEADERS:
            first, self._block = self._block[1], None
            self._take_block(first, stream_id, b"".join(pieces))

    def _take_block(self, flags: int, stream_id: int, block: bytes) -> None:
        try:
            headers = self._decoder.decode(block)  # of a refused stream too, for the decoder's table
        except OversizedHeaderListError as error:
            raise _OffenceError(ErrorCode.ENHANCE_YOUR_CALM, str(error)) from error
        except HPACKError as error:
            raise _OffenceError(ErrorCode.COMPRESSION_ERROR, str(error)) from error
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._take_trailers(flags, stream_id, stream, headers)
        elif stream_id > self._highest:
            self._open(flags, stream_id, headers)
        elif stream_id in self._ended:
            raise _OffenceError(ErrorCode.STREAM_CLOSED, f"HEADERS on closed stream {stream_id}")
        elif stream_id not in self._refused:
            raise _OffenceError(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} after {self._highest}")

    def _open(self, flags: int, stream_id: int, headers: list[Header]) -> None:
        self._highest = stream_id
        if len(self._streams) >= MAX_STREAMS:
            self._refuse(stream_id, ErrorCode.REFUSED_STREAM)
            return
        request = _request_of(headers)
        length = None if request is None else request.get(b"content-length")
        if request is None or (length is not None and not length.isdigit()):
            self._refuse(stream_id, ErrorCode.PROTOCOL_ERROR)
            return
        stream = _Stream(self._initial_window, None if length is None else int(length))
        self._streams[stream_id] = stream
        self._owner.requested(stream_id, request)
        if flags & END_STREAM and stream_id in self._streams:
            self._end(stream_id, stream, b"")

    def _take_trailers(self, flags: int, stream_id: int, stream: _Stream, headers: list[Header]) -> None:
        if stream.is_ended:
            self._fail(stream_id, ErrorCode.STREAM_CLOSED)
        elif not flags & END_STREAM or any(name[:1] == b":" or name != name.lower() for name, _ in headers):
            self._fail(stream_id, ErrorCode.PROTOCOL_ERROR)
        else:
            self._end(stream_id, stream, b"")

    def _end(self, stream_id: int, stream: _Stream, data: bytes) -> None:
        """Handles the end of a request."""
        if stream.expected:
            self._fail(stream_id, ErrorCode.PROTOCOL_ERROR)
            return
        stream.is_ended = True
        self._owner.data_received(stream_id, data, True)

    def _take_priority(self, _flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id:
            raise _OffenceError(ErrorCode.PROTOCOL_ERROR, "PRIORITY on stream 0")
        if len(payload) != 5:
            self._fail(stream_id, ErrorCode.FRAME_SIZE_ERROR)
        elif int.from_bytes(payload[:4], "big") & _31_BITS == stream_id:
            self._fail(stream_id, ErrorCode.PROTOCOL_ERROR)

    def _take_reset(self, _flags: int, stream_id: int, payload: bytes) -> None:
        self._require_known(stream_id, "RST_STREAM")
        _require_size(payload, 4, "RST_STREAM")
        if self._streams.pop(stream_id, None) is not None:
            self._ended.append(stream_id)
            self._owner.reset(stream_id)

    def _take_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise _OffenceError(ErrorCode.PROTOCOL_ERROR, f"SETTINGS on stream {stream_id}")
        if len(payload) % _SETTING.size or (flags & ACK and payload):
            raise _OffenceError(ErrorCode.FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes")
        self._has_settings = True
        if flags & ACK:
            return
        window = self._initial_window
        for key, value in _SETTING.iter_unpack(payload):
            self._apply(key, value)
        self._output.append(frame(SETTINGS, ACK, 0, b""))
        if self._initial_window != window:
            for stream in self._streams.values():
                stream.out_window += self._initial_window - window
                if stream.out_window > _MAX_WINDOW:
                    raise _OffenceError(ErrorCode.FLOW_CONTROL_ERROR, "a window above 2^31 - 1 bytes")
            self._owner.widened(0)

    def _apply(self, key: int, value: int) -> None:
        if key == _INITIAL_WINDOW:
            if value > _MAX_WINDOW:
                raise _OffenceError(ErrorCode.FLOW_CONTROL_ERROR, f"a window of {value} bytes")
            self._initial_window = value
        elif (key == _ENABLE_PUSH and value > 1) or (key == _FRAME_SIZE and value not in _MAX_FRAME_SIZES):
            raise _OffenceError(ErrorCode.PROTOCOL_ERROR, f"setting {key} is {value}")
        elif key == _FRAME_SIZE:
            self._max_frame = value
        elif key == _HEADER_TABLE_SIZE and value < TABLE_SIZE:
            self._block_start = EMPTY_TABLE  # blocks use no table, but the client has to be told once

    def _take_push(self, _flags: int, _stream_id: int, _payload: bytes) -> None:
        raise _OffenceError(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE from a client")

    def _take_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Answers a ping. Java clients send one after nearly every answer, to find the best size of their windows."""
        if stream_id:
            raise _OffenceError(ErrorCode.PROTOCOL_ERROR, f"PING on stream {stream_id}")
        _require_size(payload, 8, "PING")
        if not flags & ACK:
            self._output.append(frame(PING, ACK, 0, payload))

    def _take_goaway(self, _flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id or len(payload) < 8:
            raise _OffenceError(ErrorCode.PROTOCOL_ERROR, f"GOAWAY of {len(payload)} bytes on stream {stream_id}")
        self._owner.terminated(int.from_bytes(payload[4:8], "big"))

    def _take_window(self, _flags: int, stream_id: int, payload: bytes) -> None:
        _require_size(payload, 4, "WINDOW_UPDATE")
        more = int.from_bytes(payload, "big") & _31_BITS
        if not stream_id:
            self._out_window += more
            if not more or self._out_window > _MAX_WINDOW:
                code = ErrorCode.FLOW_CONTROL_ERROR if more else ErrorCode.PROTOCOL_ERROR
                raise _OffenceError(code, f"the connection's window grows by {more} to {self._out_window} bytes")
            self._owner.widened(0)
            return
        stream = self._streams.get(stream_id)
        if stream is None:
            self._require_known(stream_id, "WINDOW_UPDATE")  # late ones of a closed stream are to be ignored
            return
        stream.out_window += more
        if not more or stream.out_window > _MAX_WINDOW:
            self._fail(stream_id, ErrorCode.FLOW_CONTROL_ERROR if more else ErrorCode.PROTOCOL_ERROR)
        else:
            self._owner.widened(stream_id)

    def _require_known(self, stream_id: int, kind: str) -> None:
        if not stream_id & 1 or stream_id > self._highest:
            raise _OffenceError(ErrorCode.PROTOCOL_ERROR, f"{kind} on stream {stream_id}, which was never opened")

    # -- sent ----------------------------------------------------------------------------------------------------

    def room(self, stream_id: int) -> int:
        """Returns how many bytes of data the next frame of an open stream may have; 0 or less if it has to wait."""
        return min(self._out_window, self._streams[stream_id].out_window, self._max_frame)

    def send_headers(self, stream_id: int, block: bytes) -> None:
        """Sends the headers of an answer on an open stream; `block` comes from `constant_block`."""
        self._write_block(stream_id, block, 0)

    def send_data(self, stream_id: int, data: bytes) -> None:
        """Sends at most `room` bytes on an open stream."""
        self._out_window -= len(data)
        self._streams[stream_id].out_window -= len(data)
        self._output.append(frame(DATA, 0, stream_id, data))

    def end(self, stream_id: int, block: bytes) -> None:
        """Sends the trailers of an open stream and closes it; a client that still sends is asked to stop."""
        self._write_block(stream_id, block, END_STREAM)
        if self._streams[stream_id].is_ended:
            del self._streams[stream_id]
            self._ended.append(stream_id)
        else:
            self.reset_stream(stream_id, ErrorCode.NO_ERROR)

    def send_answer(self, stream_id: int, first: bytes, data: bytes, last: bytes) -> bool:
        """Sends headers, data and trailers and closes the stream; returns False, sending nothing, if windows are full.

        The request of the stream is complete, and nothing was sent on it. `first` and `last` are header blocks from
        `constant_block`, less than 16 KiB each.
        """
        size = len(data)
        if size > self._out_window or size > self._streams[stream_id].out_window or self._block_start:
            return False
        limit, pack = self._max_frame, _FRAME.pack
        pieces = [pack(0, len(first), HEADERS, END_HEADERS, stream_id), first]
        if 0 < size <= limit:
            pieces += pack(size >> 8, size & 0xFF, DATA, 0, stream_id), data
        else:
            pieces += [frame(DATA, 0, stream_id, data[start : start + limit]) for start in range(0, size, limit)]
        pieces += pack(0, len(last), HEADERS, END_HEADERS | END_STREAM, stream_id), last
        self._output += pieces
        self._out_window -= size
        del self._streams[stream_id]
        self._ended.append(stream_id)
        return True

    def reset_stream(self, stream_id: int, code: ErrorCode) -> None:
        """Closes an open stream before its end; the owner is not told."""
        del self._streams[stream_id]
        self._refuse(stream_id, code)

    def close(self, code: ErrorCode = ErrorCode.NO_ERROR) -> None:
        """Sends GOAWAY and ignores what arrives later."""
        if not self._is_closed:
            self._is_closed = True
            self._output.append(frame(GOAWAY, 0, 0, struct.pack(">II", self._highest, code)))

    def _refuse(self, stream_id: int, code: ErrorCode) -> None:
        self._refused.append(stream_id)
        self._output.append(frame(RST_STREAM, 0, stream_id, code.to_bytes(4, "big")))

    def _fail(self, stream_id: int, code: ErrorCode) -> None:
        """Ends a stream because of an offence of the client."""
        is_open = self._streams.pop(stream_id, None) is not None
        self._refuse(stream_id, code)
        if is_open:
            self._owner.reset(stream_id)

    def _widen(self, stream_id: int, size: int) -> None:
        self._output.append(frame(WINDOW_UPDATE, 0, stream_id, size.to_bytes(4, "big")))

    def _write_block(self, stream_id: int, block: bytes, flags: int) -> None:
        block, self._block_start = self._block_start + block, b""
        kind, limit = HEADERS, self._max_frame
        while len(block) > limit:
            self._output.append(frame(kind, flags, stream_id, block[:limit]))
            kind, flags, block = CONTINUATION, 0, block[limit:]
        self._output.append(frame(kind, flags | END_HEADERS, stream_id, block))


_HANDLERS: dict[int, Callable[[Http2Session, int, int, bytes], None]] = {
    DATA: Http2Session._take_data,
    HEADERS: Http2Session._take_headers,
    PRIORITY: Http2Session._take_priority,
    RST_STREAM: Http2Session._take_reset,
    SETTINGS: Http2Session._take_settings,
    PUSH_PROMISE: Http2Session._take_push,
    PING: Http2Session._take_ping,
    GOAWAY: Http2Session._take_goaway,
    WINDOW_UPDATE: Http2Session._take_window,
    CONTINUATION: Http2Session._take_continuation,
}


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    """Returns a frame with its header of nine bytes."""
    size = len(payload)
    return _FRAME.pack(size >> 8, size & 0xFF, kind, flags, stream_id) + payload


def _unpadded(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise _OffenceError(ErrorCode.PROTOCOL_ERROR, "padding longer than its frame")
    return payload[1 : len(payload) - payload[0]]


def _require_size(payload: bytes, size: int, kind: str) -> None:
    if len(payload) != size:
        raise _OffenceError(ErrorCode.FRAME_SIZE_ERROR, f"{kind} of {len(payload)} bytes; expected {size}")


def _request_of(headers: list[Header]) -> dict[bytes, bytes] | None:
    """Returns the headers of a request; None if they are malformed (RFC 9113, 8.2 and 8.3)."""
    pseudo, is_regular = 0, False
    for name, _ in headers:
        if name[:1] == b":":
            if is_regular or name not in _PSEUDO:
                return None
            pseudo += 1
        else:
            is_regular = True
            if name in _OF_HTTP_1 or name != name.lower():
                return None
    request = dict(headers)
    if not request.keys() >= _REQUIRED or pseudo != len(request.keys() & _PSEUDO) or not request[b":path"]:
        return None
    return request if request.get(b"te", b"trailers") == b"trailers" else None
