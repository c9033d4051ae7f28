"""ConsumeQueueExt: units of variable length that a ConsumeQueue unit's tags code points to.

Docs page: docs/formats/consume-queue-ext.md. Source: ConsumeQueueExt, BitsArray (4.9.7, 5.5.0).
"""

import construct as cs
from msgspec import Struct, structs

from mqtool.errors import FormatError, TruncatedError
from mqtool.formats import codec, java
from mqtool.formats.codec import Buffer
from mqtool.formats.fields import i16, i64, sized

MAX_EXT_ADDRESS = java.INT_MIN - 1
"""A tags code up to here is an address; above it is the hash of a tag."""

END_BLANK_SIZE = 4
"""Bytes that stay free at the end of a file: a unit needs `size <= file size - position - 4`."""

END_OF_FILE = -1
"""Size field that closes a file to its end."""

DEFAULT_FILE_SIZE = 48 * 1024 * 1024

UNIT = cs.Struct(
    i16("size", "bytes of the unit, this field included: 20 + bit_map_size; -1 closes the file"),
    i64("tags_code", "Java hash of TAGS, which the address displaced in the ConsumeQueue unit"),
    i64("store_timestamp", "ms since epoch, the record's"),
    i16("bit_map_size", "bytes of the bit map"),
    sized("bit_map", "bit_map_size", "Bloom filter of the consumer filters that accept the message, LSB first"),
)

HEAD = codec.leading_fields(UNIT)
_HEAD = codec.struct_of(HEAD)
_SIZE = codec.struct_of(HEAD[:1])
HEAD_SIZE = _HEAD.size


class ConsumeQueueExtUnit(Struct, frozen=True):
    """One unit of the extension."""

    size: int
    tags_code: int
    store_timestamp: int
    bit_map_size: int
    bit_map: bytes


LONGEST_UNIT = (1 << 15) - 1
"""The size of a unit is a Java short."""


def parse_ext_unit(data: Buffer, position: int = 0) -> ConsumeQueueExtUnit | None:
    """Parses the unit at a position of a file.

    Returns:
        The unit; None at the end of the file's data: a size of 0 (not written) or negative (end of file mark).

    Raises:
        TruncatedError: the unit does not end inside `data`.
        FormatError: its size and that of its bit map do not agree.
    """
    view = memoryview(data)
    _require(view, position, _SIZE.size)
    (size,) = _SIZE.unpack_from(view, position)
    if size <= 0:
        return None
    if size < HEAD_SIZE:
        raise FormatError(f"size {size} is below {HEAD_SIZE}", layout="ext unit", field="size", position=position)
    _require(view, position, size)
    _, tags_code, store_timestamp, bit_map_size = _HEAD.unpack_from(view, position)
    taken = HEAD_SIZE + max(0, bit_map_size)
    if taken != size:
        raise FormatError(f"size is {size}, the fields take {taken} bytes", layout="ext unit", position=position)
    bit_map = bytes(view[position + HEAD_SIZE : position + size])
    return ConsumeQueueExtUnit(size, tags_code, store_timestamp, bit_map_size, bit_map)


def _require(view: memoryview, position: int, size: int) -> None:
    if position + size > len(view):
        available = max(0, len(view) - position)
        raise TruncatedError(f"expected {size} bytes, found {available}", layout="ext unit", position=position)


def build_ext_unit(unit: ConsumeQueueExtUnit) -> bytes:
    """Returns the bytes of a unit exactly as its fields state.

    Raises:
        FormatError: a value does not fit its field.
    """
    return codec.build(UNIT, structs.asdict(unit), name="ext unit")


def make_ext_unit(tags_code: int, store_timestamp: int, bit_map: bytes) -> ConsumeQueueExtUnit:
    """Returns a unit whose sizes fit its bit map."""
    return ConsumeQueueExtUnit(HEAD_SIZE + len(bit_map), tags_code, store_timestamp, len(bit_map), bit_map)


def is_ext_address(tags_code: int) -> bool:
    """Whether a ConsumeQueue unit's tags code is an address in the extension."""
    return tags_code <= MAX_EXT_ADDRESS


def ext_offset(address: int) -> int:
    """Returns the byte offset of an address, counted over all files of the extension."""
    return address - java.LONG_MIN if is_ext_address(address) else address


def ext_address(offset: int) -> int:
    """Returns the address that a ConsumeQueue unit stores for an offset."""
    return offset if is_ext_address(offset) else offset + java.LONG_MIN
