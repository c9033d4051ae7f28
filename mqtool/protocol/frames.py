"""Splits a byte stream into commands, and encodes commands as bytes; no sockets.

The protocol has no answer to an invalid frame: the connection is closed (NettyDecoder, 4.9.7 and 5.5.0). Limits are
checked before bytes are buffered. A stated length never causes an allocation; it only determines when a frame is
complete. The header of a `PreparedAnswer` is encoded once. Docs page: docs/protocol.md.
"""

from collections.abc import Mapping

from mqtool.errors import LocalProtocolError, RemoteProtocolError
from mqtool.protocol.command import FLAG_RESPONSE, Command, Serialization
from mqtool.protocol.headers import PREFIX, read_binary, read_json, write_binary, write_json

MAX_FRAME = 16 << 20
"""Maximum size of a frame in bytes, including its length field (com.rocketmq.remoting.frameMaxLength)."""

_LENGTH_SIZE = PREFIX.offset("header_word")
HEADER_WORD_SIZE = PREFIX.size - _LENGTH_SIZE
_MAX_HEADER = (1 << 24) - 1
_JOINED_BODY = 16 << 10
"""Bodies of at most this many bytes are copied after their header; longer ones are sent without a copy."""

_unpack_prefix = PREFIX.struct.unpack_from
pack_prefix = PREFIX.struct.pack


class ForeignProtocolError(RemoteProtocolError):
    """The peer uses another protocol; the text names it and says what to do."""


_HTTP = "an HTTP request: this port speaks RocketMQ's remoting protocol; pages and metrics are on --admin-port"
_FOREIGN = {
    b"PRI ": (
        "an HTTP/2 connection, as gRPC clients of RocketMQ 5 make it: this port speaks the remoting protocol only; "
        "give them the broker's port of mqtool serve, or one of a RocketMQ proxy (mqproxy) with this name server"
    ),
    **dict.fromkeys((b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI"), _HTTP),
}
"""Error texts by the first four bytes of other protocols.

Read as a length these are over 1000 MB, so no frame has them.
"""


class Framer:
    """Splits one direction of a connection into commands.

    Attributes:
        error: why the rest of the stream cannot be read; None if it can. All commands before the error have been
            returned. The caller closes the connection.
    """

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self.error: RemoteProtocolError | None = None
        self._max_length = max_frame - _LENGTH_SIZE
        self._kept = bytearray()
        self._needed = 0

    @property
    def buffered(self) -> int:
        """Number of buffered bytes of an incomplete frame."""
        return len(self._kept)

    def feed(self, data: bytes) -> list[Command]:
        """Adds received bytes; returns the commands that are now complete, in order.

        The result does not depend on how the stream is split into reads. After an `error`, no more commands are
        returned.
        """
        if self._kept:
            self._kept += data
            if len(self._kept) < self._needed:
                return []
            data = bytes(self._kept)
            self._kept = bytearray()
        commands: list[Command] = []
        if self.error is None:
            try:
                self._cut(data, commands)
            except RemoteProtocolError as error:
                self.error = error
        return commands

    def _cut(self, data: bytes, commands: list[Command]) -> None:
        position, end = 0, len(data)
        while end - position >= PREFIX.size:
            length, word = _unpack_prefix(data, position)
            if not HEADER_WORD_SIZE <= length <= self._max_length:
                advice = _FOREIGN.get(data[position : position + _LENGTH_SIZE])
                if advice is not None:
                    raise ForeignProtocolError(advice)
                raise RemoteProtocolError(f"frame of {length} bytes: expected {HEADER_WORD_SIZE} to {self._max_length}")
            body = position + PREFIX.size + (word & _MAX_HEADER)
            following = position + _LENGTH_SIZE + length
            if body > following:
                raise RemoteProtocolError(f"header of {word & _MAX_HEADER} bytes in a frame of {length}")
            if following > end:
                break
            kind = word >> 24
            if kind == Serialization.JSON:
                commands.append(read_json(data[position + PREFIX.size : body], data[body:following]))
            elif kind == Serialization.ROCKETMQ:
                commands.append(read_binary(data[position + PREFIX.size : body], data[body:following]))
            else:
                raise RemoteProtocolError(f"header written in way {kind & 0xFF}: expected 0 (JSON) or 1 (ROCKETMQ)")
            position = following
        if position < end:
            self._kept += data[position:]
            self._needed = following - position if end - position >= PREFIX.size else PREFIX.size


def encode(command: Command) -> list[bytes | memoryview]:
    """Returns the frame of a command as one buffer, or as two if the body is long.

    Raises:
        LocalProtocolError: the command cannot be encoded: a field is not text, or a number exceeds its size.
    """
    header = write_json(command) if command.serialization == Serialization.JSON else write_binary(command)
    body = command.body
    size = len(body) if isinstance(body, bytes) else body.nbytes
    if len(header) > _MAX_HEADER:
        raise LocalProtocolError(f"header of {len(header)} bytes: the frame has room for {_MAX_HEADER}")
    prefix = pack_prefix(HEADER_WORD_SIZE + len(header) + size, command.serialization << 24 | len(header))
    if size <= _JOINED_BODY:
        return [b"".join((prefix, header, body))]
    return [prefix + header, body]


_OPAQUE = 0x7FFF_FFFE
"""Placeholder for the request's opaque."""


class PreparedAnswer:
    """A JSON answer without body and remark, whose header is encoded once.

    Args:
        code: response code.
        fields: text by name. A value that changes is a placeholder of `bytes.__mod__` (`%d`, `%b`); a percent sign is
            `%%`.
    """

    __slots__ = ("_template",)

    def __init__(self, code: int, fields: Mapping[str, str]) -> None:
        header = write_json(Command(code, FLAG_RESPONSE, _OPAQUE, None, dict(fields)))
        before, opaque, after = header.rpartition(b"%d" % _OPAQUE)
        self._template = before + b"%d" + after if opaque else header

    def frame(self, *values: "int | bytes") -> bytes:
        """Returns the frame in one buffer; it equals `encode` of the same command.

        Args:
            values: values of the placeholders in the order of the fields, then the request's opaque. Texts must not
                need JSON escapes: digits and letters only.
        """
        header = self._template % values
        size = len(header)
        return pack_prefix(HEADER_WORD_SIZE + size, size) + header
