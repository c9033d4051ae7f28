"""Lists the fields of a parsed layout with their bytes, for annotated hex dumps."""

from typing import Any

import construct as cs
from msgspec import Struct

from mqtool.formats import codec
from mqtool.formats.codec import Buffer


class FieldBytes(Struct, frozen=True):
    """One field with its bytes."""

    name: str  # of the field
    offset: int  # from the start of the layout
    data: bytes  # its bytes
    value: Any  # decoded: an integer, or the bytes unchanged
    docs: str  # description of the field


def annotate(layout: cs.Struct, data: Buffer, *, name: str = "") -> list[FieldBytes]:
    """Returns every field of a layout in order; the concatenation of their `data` is the whole layout.

    Args:
        layout: the declaration.
        data: begins with the layout.
        name: of the layout, for errors.

    Raises:
        TruncatedError, FormatError: as `codec.parse`.
    """
    values = codec.parse(layout, data, name=name)
    docs = {field: text for field, _, text in codec.all_fields(layout)}
    view = memoryview(data)
    fields: list[FieldBytes] = []
    offset = 0
    for member in layout.subcons:
        value = values[member.name]
        size = len(member.build(value, **values))
        fields.append(FieldBytes(member.name, offset, bytes(view[offset : offset + size]), value, docs[member.name]))
        offset += size
    return fields
