"""Hosts as records store them (4 or 16 address bytes and a port i32), and the message ids that contain them.

A broker assigns the offset message id, a client creates the unique key. The two have equal lengths, and nothing in
them distinguishes them. Docs page: docs/formats/message-id.md. Source: MessageExt.socketAddress2ByteBuffer,
MessageDecoder.decode, createMessageId and decodeMessageId, MessageClientIDSetter (4.9.7, 5.5.0).
"""

import ipaddress
import struct
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from mqtool.errors import FormatError, TruncatedError
from mqtool.formats import codec
from mqtool.formats.codec import Unit, i32, i64, raw, u16

_PORT = struct.Struct(">i")
_ADDRESS_SIZES = (4, 16)
SIZES = tuple(size + _PORT.size for size in _ADDRESS_SIZES)
"""Bytes of a host: 8 for IPv4, 20 for IPv6."""


class Host(NamedTuple):
    """An address and a port."""

    address: str  # "1.2.3.4" or the shortest IPv6 text, without brackets
    port: int  # as stored, a signed 32-bit integer

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


@lru_cache(maxsize=4096)
def parse(data: bytes) -> Host:
    """Parses the 8 or 20 bytes (else TruncatedError) of a host; an IPv4-mapped IPv6 address remains IPv6."""
    if len(data) not in SIZES:
        raise TruncatedError(f"expected 8 or 20 bytes, found {len(data)}", layout="host")
    address = data[: -_PORT.size]
    text = str(ipaddress.IPv4Address(address) if len(address) == 4 else ipaddress.IPv6Address(address))
    return Host(text, _PORT.unpack_from(data, len(address))[0])


def build(host: Host) -> bytes:
    """Returns the 8 or 20 bytes of a host; raises FormatError if the address or the port is invalid."""
    try:
        return ipaddress.ip_address(host.address).packed + _PORT.pack(host.port)
    except (ValueError, struct.error) as error:
        raise FormatError(f"cannot be written: {error}", layout="host") from error


def parse_text(text: str) -> Host:
    """Reads "1.2.3.4:5" or "[::1]:5"; raises FormatError if the text is neither."""
    address, colon, port = text.rpartition(":")
    bracketed = address.startswith("[") and address.endswith("]")
    try:
        parsed = ipaddress.ip_address(address[1:-1] if bracketed else address)
        number = int(port)
    except ValueError as error:
        raise FormatError(f"expected address:port, found {text[:80]!r}", layout="host") from error
    if not colon or bracketed != (parsed.version == 6):
        raise FormatError(f"expected 1.2.3.4:5 or [::1]:5, found {text[:80]!r}", layout="host")
    return Host(str(parsed), number)


@lru_cache(maxsize=4096)
def text_of(data: bytes) -> str:
    """Returns "1.2.3.4:5" or "[::1]:5" of 8 or 20 bytes."""
    return str(parse(data))


class OffsetMessageId(Struct, frozen=True):
    """The location of a message: the broker that stored it and the physical offset there."""

    address: bytes
    port: int
    physical_offset: int


class UniqueKey(Struct, frozen=True):
    """The contents of UNIQ_KEY, as a client creates it."""

    address: bytes
    process_id: int
    class_loader_hash: int
    month_millis: int
    counter: int


def _offset_id(size: int) -> Unit[OffsetMessageId]:
    return Unit(
        f"offset message id (IPv{4 if size == 4 else 6})",
        OffsetMessageId,
        raw("address", size, "store host's address"),
        i32("port", "store host's port"),
        i64("physical_offset", "where the record starts in that broker's CommitLog"),
    )


def _unique_key(size: int) -> Unit[UniqueKey]:
    return Unit(
        f"unique key (IPv{4 if size == 4 else 6})",
        UniqueKey,
        raw("address", size, "client's address"),
        u16("process_id", "client's process id, low 16 bits"),
        i32("class_loader_hash", "hashCode of the client's class loader"),
        i32("month_millis", "ms since the month began in the client's time zone"),
        u16("counter", "messages that the process has made ids for, low 16 bits"),
    )


OFFSET_ID_V4 = _offset_id(4)
OFFSET_ID_V6 = _offset_id(16)
UNIQUE_KEY_V4 = _unique_key(4)
UNIQUE_KEY_V6 = _unique_key(16)

_OFFSET = codec.struct_of(OFFSET_ID_V4.fields[-1:])

TEXT_LENGTHS = (2 * OFFSET_ID_V4.size, 2 * OFFSET_ID_V6.size)
"""Hexadecimal digits of either kind: 32 for IPv4, 56 for IPv6."""


def parse_offset_id(text: str) -> OffsetMessageId:
    """Reads an offset message id; raises FormatError if it is not 32 or 56 hexadecimal digits."""
    data = _bytes_of(text, "offset message id")
    return (OFFSET_ID_V4 if len(data) == OFFSET_ID_V4.size else OFFSET_ID_V6).parse(data)


def format_offset_id(store_host: bytes, physical_offset: int) -> str:
    """Returns the id as upper-case hexadecimal digits; raises FormatError if the host has not 8 or 20 bytes."""
    if len(store_host) not in SIZES:
        raise FormatError(f"expected a host of 8 or 20 bytes, found {len(store_host)}", layout="offset message id")
    try:
        return (store_host + _OFFSET.pack(physical_offset)).hex().upper()
    except struct.error as error:
        raise FormatError(f"cannot be written: {error}", layout="offset message id") from error


def _bytes_of(text: str, name: str) -> bytes:
    try:
        data = bytes.fromhex(text) if len(text) in TEXT_LENGTHS and text.isalnum() else b""
    except ValueError:
        data = b""
    if not data:
        raise FormatError(f"expected 32 or 56 hexadecimal digits, found {text[:80]!r}", layout=name)
    return data
