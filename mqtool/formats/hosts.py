"""Host addresses as records and message ids store them: 4 or 16 address bytes and a port i32.

Source: MessageExt.socketAddress2ByteBuffer, MessageDecoder.decode (4.9.7, 5.5.0).
"""

import ipaddress
import struct
from functools import lru_cache
from typing import NamedTuple

from mqtool.errors import FormatError, TruncatedError

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
    """Parses the 8 or 20 bytes of a host; an IPv4-mapped IPv6 address remains IPv6.

    Raises:
        TruncatedError: neither 8 nor 20 bytes.
    """
    if len(data) not in SIZES:
        raise TruncatedError(f"expected 8 or 20 bytes, found {len(data)}", layout="host")
    address = data[: -_PORT.size]
    text = str(ipaddress.IPv4Address(address) if len(address) == 4 else ipaddress.IPv6Address(address))
    return Host(text, _PORT.unpack_from(data, len(address))[0])


def build(host: Host) -> bytes:
    """Returns the 8 or 20 bytes of a host.

    Raises:
        FormatError: the address or the port is invalid.
    """
    try:
        return ipaddress.ip_address(host.address).packed + _PORT.pack(host.port)
    except (ValueError, struct.error) as error:
        raise FormatError(f"cannot be written: {error}", layout="host") from error


def parse_text(text: str) -> Host:
    """Reads "1.2.3.4:5" or "[::1]:5".

    Raises:
        FormatError: neither of them.
    """
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
