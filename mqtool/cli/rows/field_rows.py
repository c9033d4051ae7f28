"""`dump --hex`: every field of a record or unit with its bytes."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from mqtool.cli.schema import TABLE, Column, OutputSchema

if TYPE_CHECKING:
    from mqtool.store.entries import Annotated

FIELD = OutputSchema(
    "field",
    1,
    "a field of a record, unit, entry or header, with its bytes",
    (
        Column("record", "int64", "address of the record or unit: physical offset, or position", show=TABLE),
        Column("at", "int64", "address of the field", show=TABLE),
        Column("bytes", "string", "the bytes, hexadecimal", show=TABLE),
        Column("field", "string", "its name", show=TABLE),
        Column("value", "any", "number or text; null for other bytes", show=TABLE, nullable=True),
        Column("docs", "string", "what it means"),
    ),
)


def rows(annotated: "Iterable[Annotated]") -> Iterator[dict[str, Any]]:
    """Yields a row per field."""
    for address, fields in annotated:
        for field in fields:
            value = _text(field.value) if isinstance(field.value, bytes) else field.value
            yield {
                "record": address,
                "at": address + field.offset,
                "bytes": field.data.hex(),
                "field": field.name,
                "value": value,
                "docs": field.docs,
            }


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
