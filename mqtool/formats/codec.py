"""Declares the fields of layouts, parses and builds layouts, and derives their fast readers.

All integers of the store are big-endian and signed, as `java.nio.ByteBuffer` writes them. Stores of .NET programs
are little-endian, as `BinaryWriter` writes them: `le32` and similar functions.

A layout is declared once, as a construct `Struct` of such fields. From that declaration this module derives what hot
code needs (`struct.Struct`, numpy dtype, offsets) and what readers of the docs need (the offset table in
docs/formats). It is the only module that catches construct's errors. construct itself never runs in a loop over
records, because it takes 5 to 40 µs for each: `Unit` reads values of fixed size, `Sequence` values with counted bytes.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import construct as cs
from msgspec import Struct

from mqtool.errors import FormatError, TruncatedError

if TYPE_CHECKING:
    import numpy as np

Buffer = bytes | bytearray | memoryview
T = TypeVar("T", bound=Struct)
CRC_MASK = 0x7FFFFFFF

_LONGEST_VARINT = 5
"""Bytes of the longest ULEB128 that is a 32-bit length."""


def _integer(kind: cs.Construct) -> Callable[[str, str], cs.Construct]:
    """Returns the function that declares a field of a kind, by its name and docs text."""
    return lambda name, docs: name / kind * docs


i16 = _integer(cs.Int16sb)
"""A Java short."""
u16 = _integer(cs.Int16ub)
"""A Java short whose 16 bits are interpreted as unsigned."""
i32 = _integer(cs.Int32sb)
"""A Java int."""
i64 = _integer(cs.Int64sb)
"""A Java long."""
u8 = _integer(cs.Int8ub)
"""A .NET byte."""
le16u = _integer(cs.Int16ul)
"""A .NET ushort, little-endian."""
le32 = _integer(cs.Int32sl)
"""A .NET int, little-endian."""
le64 = _integer(cs.Int64sl)
"""A .NET long, little-endian."""


def raw(name: str, size: int, docs: str) -> cs.Construct:
    """Bytes that are not interpreted."""
    return name / cs.Bytes(size) * docs


def either(
    name: str, test: Callable[[Any], Any], then: cs.Construct, otherwise: cs.Construct, docs: str
) -> cs.Construct:
    """A field whose layout depends on an earlier field."""
    return name / cs.IfThenElse(test, then, otherwise) * docs


def sized(name: str, length_field: str, docs: str) -> cs.Construct:
    """Bytes whose length is in an earlier field; a negative length means none, as in the broker."""
    return name / cs.Bytes(lambda context: max(0, context[length_field])) * docs


def bytes32(name: str, docs: str) -> cs.Construct:
    """Bytes with a length prefix: an i32, little-endian."""
    return name / cs.Prefixed(cs.Int32sl, cs.GreedyBytes) * docs


def bytes_leb(name: str, docs: str) -> cs.Construct:
    """Bytes with a length prefix: a ULEB128, as BinaryWriter writes strings."""
    return name / cs.Prefixed(cs.VarInt, cs.GreedyBytes) * docs


class Field(Struct, frozen=True):
    """One field of a layout at a fixed offset."""

    name: str  # field name, the broker's own in snake_case
    offset: int  # bytes from the start of the layout
    size: int  # in bytes
    code: str  # format character of the struct module, or "Ns" for N raw bytes
    docs: str  # what the field means
    order: str = ">"  # ">" for big-endian, "<" for little-endian; irrelevant for single bytes


def leading_fields(layout: cs.Struct, **context: int) -> tuple[Field, ...]:
    """Returns the fields before the first one of variable size.

    The context determines conditional fields, e.g. `sys_flag` the width of host addresses.
    """
    fields: list[Field] = []
    offset = 0
    for member in layout.subcons:
        name, docs, plain = _unwrap(member)
        code = _code_of(plain, context)
        if code is None:
            break
        size = struct.calcsize(">" + code)
        fields.append(Field(name, offset, size, code, docs, _order_of(plain)))
        offset += size
    return tuple(fields)


def all_fields(layout: cs.Struct) -> tuple[tuple[str, str, str], ...]:
    """Returns (name, size as text, docs) of every field, including variable ones, for the format pages."""
    rows = []
    for member in layout.subcons:
        name, docs, plain = _unwrap(member)
        code = _code_of(plain, {})
        rows.append((name, _alternatives(plain) if code is None else _words(code), docs))
    return tuple(rows)


def struct_of(chosen: tuple[Field, ...]) -> struct.Struct:
    """Returns a `struct.Struct` for consecutive fields, in their declared byte order."""
    orders = {field.order for field in chosen if field.size > 1 and not field.code.endswith("s")}
    if len(orders) > 1:
        raise TypeError(f"fields of two byte orders: {[field.name for field in chosen]}")
    return struct.Struct((orders.pop() if orders else ">") + "".join(field.code for field in chosen))


def dtype_of(chosen: tuple[Field, ...]) -> "np.dtype[np.void]":
    """Returns the numpy record type of consecutive fields, in their byte order and unpadded."""
    import numpy as np  # noqa: PLC0415 - `mqtool --help` must not load numpy

    kinds = {"b": "i1", "h": "i2", "i": "i4", "q": "i8", "B": "u1", "H": "u2"}
    return np.dtype([(f.name, f.order + kinds[f.code] if f.code in kinds else f"V{f.size}") for f in chosen])


def parse(layout: cs.Struct, data: Buffer, position: int = 0, *, name: str = "") -> dict[str, Any]:
    """Parses one layout with construct to values by field name: complete, but slow.

    Raises TruncatedError if the bytes end before the layout does, FormatError if they do not fit for another reason.
    """
    label = name or str(layout.name or "layout")
    try:
        values = layout.parse(bytes(memoryview(data)[position:]))
    except cs.StreamError as error:
        raise TruncatedError(_reason(error), layout=label, field=_path(error), position=position) from error
    except cs.ConstructError as error:
        raise FormatError(_reason(error), layout=label, field=_path(error), position=position) from error
    return {key: value for key, value in values.items() if not key.startswith("_")}


def build(layout: cs.Struct, values: dict[str, Any], *, name: str = "") -> bytes:
    """Builds one layout with construct; raises FormatError if a value does not fit its field."""
    try:
        return bytes(layout.build(values))
    except (cs.ConstructError, struct.error, KeyError) as error:
        raise FormatError(_reason(error), layout=name or str(layout.name or "layout"), field=_path(error)) from error


class Unit(Generic[T]):
    """A fixed-size layout together with its value class and derived readers.

    The value class is a `msgspec.Struct` whose field names are the layout's, in order.
    """

    def __init__(self, name: str, view: type[T], *members: cs.Construct) -> None:
        self.name = name
        self.view = view
        self.layout = cs.Struct(*members)
        self.fields = leading_fields(self.layout)
        if len(self.fields) != len(members):
            raise TypeError(f"{name}: field {len(self.fields)} has no fixed size")
        declared = [field.name for field in self.fields]
        if declared != list(view.__struct_fields__):
            raise TypeError(f"{name}: fields of {view.__name__} are not those of the layout: {declared}")
        self.struct = struct_of(self.fields)
        self.size = self.struct.size
        self._values: Callable[[T], tuple[Any, ...]] = (
            attrgetter(*declared) if len(declared) > 1 else lambda item: (getattr(item, declared[0]),)
        )

    @cached_property
    def dtype(self) -> "np.dtype[np.void]":
        """The numpy record type; see `rows`."""
        return dtype_of(self.fields)

    def offset(self, name: str) -> int:
        """Returns the byte offset of a field."""
        return next(field.offset for field in self.fields if field.name == name)

    def parse(self, data: Buffer, position: int = 0) -> T:
        """Parses one unit; raises TruncatedError if fewer than `size` bytes are available."""
        try:
            return self.view(*self.struct.unpack_from(data, position))
        except struct.error as error:
            raise TruncatedError(
                f"expected {self.size} bytes, found {max(0, len(data) - position)}", layout=self.name, position=position
            ) from error

    def rows(self, data: Buffer) -> "np.ndarray[Any, np.dtype[np.void]]":
        """Returns the complete units of some bytes as a structured array."""
        import numpy as np  # noqa: PLC0415 - `mqtool --help` must not load numpy

        return np.frombuffer(data, self.dtype, len(data) // self.size)

    def parse_start(self, data: Buffer) -> T:
        """Parses the unit at the start of a file; bytes that a short file lacks are zeros."""
        return self.parse(bytes(memoryview(data)[: self.size]).ljust(self.size, b"\0"))

    def build(self, value: T) -> bytes:
        """Returns the `size` bytes of one unit; raises FormatError if a value does not fit its field."""
        try:
            return self.struct.pack(*self._values(value))
        except struct.error as error:
            raise FormatError(f"cannot be written: {error}; value {value!r}", layout=self.name) from error


def _unwrap(member: cs.Construct) -> tuple[str, str, cs.Construct]:
    name, docs = "", ""
    while isinstance(member, cs.Renamed):
        name = name or str(member.name or "")
        docs = docs or str(member.docs or "")
        member = member.subcon
    return name, docs, member


def _code_of(plain: cs.Construct, context: dict[str, int]) -> str | None:
    """Returns the struct code of a field whose size depends on the context, else None."""
    if isinstance(plain, cs.FormatField):
        return str(plain.fmtstr)[1:].replace("l", "i")
    if isinstance(plain, cs.Bytes) and isinstance(plain.length, int):
        return f"{plain.length}s"
    if isinstance(plain, cs.IfThenElse):
        try:
            chosen = plain.thensubcon if plain.condfunc(cs.Container(context)) else plain.elsesubcon
        except (KeyError, AttributeError):
            return None
        return _code_of(_unwrap(chosen)[2], context)
    return None


def _order_of(plain: cs.Construct) -> str:
    """Returns the byte order of a field; raw bytes have none and count as big-endian."""
    if isinstance(plain, cs.FormatField):
        return str(plain.fmtstr)[0]
    return ">"


def _words(code: str) -> str:
    return {"b": "i8", "h": "i16", "i": "i32", "q": "i64", "B": "u8", "H": "u16"}.get(code) or f"{code[:-1]} bytes"


def _alternatives(plain: cs.Construct) -> str:
    """Returns, as text, the sizes of a field that has one of two sizes or states its size, else "variable"."""
    if isinstance(plain, cs.Prefixed):
        return "ULEB128 and bytes" if plain.lengthfield is cs.VarInt else "i32 and bytes"
    if not isinstance(plain, cs.IfThenElse):
        return "variable"
    codes = [_code_of(_unwrap(chosen)[2], {}) for chosen in (plain.elsesubcon, plain.thensubcon)]
    return " or ".join("variable" if code is None else _words(code) for code in codes)


def _path(error: Exception) -> str:
    path = str(getattr(error, "path", "") or "")
    return path.removeprefix("(parsing) -> ").removeprefix("(building) -> ").replace(" -> ", ".")


def _reason(error: Exception) -> str:
    return str(error).splitlines()[-1] if str(error) else type(error).__name__


class FieldBytes(Struct, frozen=True):
    """One field with its bytes."""

    name: str  # of the field
    offset: int  # from the start of the layout
    data: bytes  # its bytes
    value: Any  # decoded: an integer, or the bytes unchanged
    docs: str  # description of the field


def annotate(layout: cs.Struct, data: Buffer, *, name: str = "") -> list[FieldBytes]:
    """Returns every field of a layout in order; the concatenation of their `data` is the layout. Raises as `parse`."""
    values = parse(layout, data, name=name)
    docs = {field: text for field, _, text in all_fields(layout)}
    view = memoryview(data)
    fields: list[FieldBytes] = []
    offset = 0
    for member in layout.subcons:
        value = values[member.name]
        size = len(member.build(value, **values))
        fields.append(FieldBytes(member.name, offset, bytes(view[offset : offset + size]), value, docs[member.name]))
        offset += size
    return fields


def crc32(data: Buffer) -> int:
    """Returns the CRC-32 of some bytes without the highest bit, so that it fits a Java int (UtilAll.crc32)."""
    return zlib.crc32(data) & CRC_MASK


class Step(Struct, frozen=True):
    """A run of fixed fields, and the variable field after it."""

    head: struct.Struct  # reads the fixed fields, and the length of the bytes after them if that is an i32
    fields: tuple[Field, ...]  # of the head
    names: tuple[str, ...]  # of the fixed fields
    counted: str = ""  # name of the bytes that follow; "" if none do
    varint: bool = False  # their length is a ULEB128 after the head

    @property
    def dtype(self) -> "np.dtype[np.void]":
        """The numpy record type of the head."""
        return dtype_of(self.fields)


class Sequence(Generic[T]):
    """A layout together with its value class and derived reader.

    The value class is a `msgspec.Struct` whose field names are the layout's, in order. `minimum` is the size in bytes
    if all variable fields are empty; `steps` are the runs of fixed fields with the variable field after each, for
    readers of many values at once.
    """

    def __init__(self, name: str, view: type[T], *members: cs.Construct) -> None:
        self.name = name
        self.view = view
        self.layout = cs.Struct(*members)
        self._names = [member.name for member in members]
        if list(view.__struct_fields__) != self._names:
            raise TypeError(f"{name}: fields of {view.__name__} are not those of the layout: {self._names}")
        self.steps = tuple(_steps(members))
        self.minimum = sum(step.head.size + step.varint for step in self.steps)

    def parse(self, data: Buffer, position: int = 0, end: int | None = None) -> tuple[T, int]:
        """Returns one value and the position after it; raises TruncatedError if it does not end before `end`.

        The end is by default that of the data.
        """
        end = len(data) if end is None else end
        values: list[Any] = []
        at = position
        for step in self.steps:
            if at + step.head.size > end:
                raise self._truncated(len(values), position, end)
            numbers = step.head.unpack_from(data, at)
            at += step.head.size
            if not step.counted:
                values += numbers
                continue
            if step.varint:
                values += numbers
                length, at = self._varint(data, at, end, len(values), position)
            else:
                values += numbers[:-1]
                length = numbers[-1]
            if length < 0 or at + length > end:
                raise self._truncated(len(values), position, end)
            values.append(bytes(data[at : at + length]))
            at += length
        return self.view(*values), at

    def build(self, value: T) -> bytes:
        """Returns the bytes of one value; raises FormatError if a value does not fit its field."""
        values = [getattr(value, name) for name in self._names]
        parts: list[bytes] = []
        taken = 0
        try:
            for step in self.steps:
                fixed = values[taken : taken + len(step.names)]
                taken += len(fixed)
                if not step.counted:
                    parts.append(step.head.pack(*fixed))
                    continue
                raw = values[taken]
                taken += 1
                if step.varint:
                    parts += (step.head.pack(*fixed), bytes(cs.VarInt.build(len(raw))), raw)
                else:
                    parts += (step.head.pack(*fixed, len(raw)), raw)
        except struct.error as error:
            raise FormatError(f"cannot be written: {error}", layout=self.name) from error
        return b"".join(parts)

    def _varint(self, data: Buffer, at: int, end: int, field: int, position: int) -> tuple[int, int]:
        length = shift = 0
        for place in range(at, min(at + _LONGEST_VARINT, end)):
            byte = data[place]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return length, place + 1
        raise self._truncated(field, position, end)

    def _truncated(self, field: int, position: int, end: int) -> TruncatedError:
        name = self._names[min(field, len(self._names) - 1)]
        reason = f"does not end within the {end - position} bytes"
        return TruncatedError(reason, layout=self.name, field=name, position=position)


def _steps(members: tuple[cs.Construct, ...]) -> Iterator[Step]:
    """Yields the runs of fixed fields with the variable field after each."""
    run: list[cs.Construct] = []
    for member in members:
        plain = member.subcon.subcon if isinstance(member.subcon, cs.Renamed) else member.subcon
        if not isinstance(plain, cs.Prefixed):
            run.append(member)
            continue
        varint = plain.lengthfield is cs.VarInt
        yield _step(run if varint else [*run, "length" / plain.lengthfield], run, member.name, varint=varint)
        run = []
    if run:
        yield _step(run, run)


def _step(head: list[cs.Construct], run: list[cs.Construct], counted: str = "", *, varint: bool = False) -> Step:
    fields = leading_fields(cs.Struct(*head))
    names = tuple(member.name for member in run)
    return Step(struct_of(fields), fields, names, counted, varint)
