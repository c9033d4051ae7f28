"""Declares the output of a command: columns with types and docs, and its JSON Schema.

A declaration serves every format: tables print the columns marked for them, CSV the names, JSON the values, `--format
help` the JSON Schema. Additions keep the version; removing a column or changing its meaning raises it.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

DIALECT = "https://json-schema.org/draft/2020-12/schema"

TABLE = "table"
"""Shown by `--format table` and `--format wide`."""
WIDE = "wide"
"""Shown by `--format wide` only."""
DATA = "data"
"""Never shown in tables: JSON, JSON Lines and CSV only."""

_SCALARS = ("integer", "int64", "number", "string", "boolean", "any")


class Column(Struct, frozen=True):
    """One value of a row, or one field of an object."""

    name: str  # key in JSON, heading in tables
    type: str  # "integer" (fits 32 bits), "int64", "number", "string", "boolean", "any", "object" or "array"
    doc: str  # what it means, with its unit
    show: str = WIDE  # TABLE, WIDE or DATA
    time: bool = False  # ms since epoch; tables print RFC 3339
    nullable: bool = False  # may be null
    optional: bool = False  # may be absent
    items: str = "string"  # type of an array's items, or of the values of an object without `fields`
    fields: tuple["Column", ...] = ()  # of an object, or of the objects in an array
    label: str = ""  # what readers of a document see in place of the name; default: the name with blanks
    is_size: bool = False  # bytes; tables print them in KiB, MiB, …
    is_verdict: bool = False  # the answer in words: the first line of a document for readers
    is_command: bool = False  # to be typed: printed as it is, on a line of its own

    @property
    def heading(self) -> str:
        """What readers of a document see."""
        return self.label or self.name.replace("_", " ")

    def json_schema(self) -> dict[str, Any]:
        """Returns the JSON Schema of the value."""
        schema = self._shape()
        if self.nullable and "type" in schema:
            schema["type"] = [schema["type"], "null"]
        return {"description": self.doc, **schema}

    def _shape(self) -> dict[str, Any]:
        if self.type in _SCALARS:
            return _scalar(self.type)
        inner = object_schema(self.fields) if self.fields else _scalar(self.items)
        if self.type == "array":
            return {"type": "array", "items": inner}
        return inner if self.fields else {"type": "object", "additionalProperties": inner}


def text(name: str, doc: str, *, show: str = TABLE, nullable: bool = False, label: str = "") -> Column:
    """Returns a column of text, shown in tables."""
    return Column(name, "string", doc, show=show, nullable=nullable, label=label)


def count(name: str, doc: str, *, show: str = TABLE, nullable: bool = False, label: str = "") -> Column:
    """Returns an integer column of any size, shown in tables."""
    return Column(name, "int64", doc, show=show, nullable=nullable, label=label)


def size(name: str, doc: str, *, nullable: bool = False, label: str = "") -> Column:
    """Returns a column of bytes, shown in tables in KiB, MiB, …."""
    return Column(name, "int64", doc, show=TABLE, nullable=nullable, label=label, is_size=True)


def flag(name: str, doc: str, *, nullable: bool = False, label: str = "") -> Column:
    """Returns a column that is true or false, shown in tables."""
    return Column(name, "boolean", doc, show=TABLE, nullable=nullable, label=label)


def moment(name: str, doc: str, *, show: str = TABLE) -> Column:
    """Returns a column of ms since the epoch, which may be null; shown in tables as RFC 3339."""
    return Column(name, "int64", f"{doc}, ms since epoch", show=show, time=True, nullable=True)


def listing(
    name: str,
    doc: str,
    *fields: Column,
    show: str = TABLE,
    label: str = "",
    optional: bool = False,
    nullable: bool = False,
) -> Column:
    """Returns a column with an array of objects, or of texts if there are no fields; shown in tables."""
    return Column(name, "array", doc, show, fields=fields, label=label, optional=optional, nullable=nullable)


def nested(
    name: str, doc: str, *fields: Column, show: str = TABLE, optional: bool = False, nullable: bool = False
) -> Column:
    """Returns a column with an object, shown in tables."""
    return Column(name, "object", doc, show, fields=fields, optional=optional, nullable=nullable)


def row_of(columns: Iterable[Column], source: Any, /, **computed: Any) -> dict[str, Any]:
    """Returns a value as a row: for each column what is computed for it, else the value's attribute of that name.

    Members of an Enum become their values.
    """
    row = {c.name: computed[c.name] if c.name in computed else getattr(source, c.name) for c in columns}
    return {name: value.value if isinstance(value, Enum) else value for name, value in row.items()}


CONFIG = text("config", "broker.conf: given, or found where brokers keep it; else null", nullable=True)
NEXT_STEP = Column("next_step", "string", "the command to type", show=TABLE, label="next", is_command=True)
NEXT_STEPS = Column(
    "next_steps",
    "array",
    "commands to type, in this order or to choose from",
    show=TABLE,
    label="next",
    is_command=True,
)
UNDO = Column(
    "undo",
    "string",
    "the command that undoes the change; null if nothing was changed in place",
    show=TABLE,
    nullable=True,
    is_command=True,
)


def _scalar(name: str) -> dict[str, Any]:
    if name == "any":
        return {}
    return {"type": "integer", "format": "int64"} if name == "int64" else {"type": name}


def object_schema(columns: tuple[Column, ...]) -> dict[str, Any]:
    """Returns the JSON Schema of an object with these fields; later releases may add others."""
    return {
        "type": "object",
        "properties": {column.name: column.json_schema() for column in columns},
        "required": [column.name for column in columns if not column.optional],
    }


class OutputSchema(Struct, frozen=True):
    """One kind of output."""

    name: str  # stable, e.g. "dump.message".
    doc: str  # meaning of a row, or of the object
    columns: tuple[Column, ...]  # of a row, or of the object
    single: bool = False  # one object, not rows
    mixed: tuple["OutputSchema", ...] = ()  # other kinds of rows that may occur among the rows in JSON
    version: int = 1  # raised when a consumer of the old one would break

    def shown(self, wide: bool) -> tuple[Column, ...]:
        """Returns the columns of a table."""
        return tuple(c for c in self.columns if c.show == TABLE or (wide and c.show == WIDE))

    def head(self) -> dict[str, Any]:
        """Returns the fields that begin every JSON document of this output."""
        return {"schema": self.name, "schema_version": self.version}

    def row_schema(self) -> dict[str, Any]:
        """Returns the JSON Schema of a row: one line of `--format jsonl`."""
        if self.single:
            return self._enveloped(self.columns)
        return {"description": self.doc, **object_schema(self.columns)}

    def document_schema(self) -> dict[str, Any]:
        """Returns the JSON Schema of a whole `--format json` document; rows are referred to by name."""
        if self.single:
            return {"$ref": f"#/$defs/{self.name}.row"}
        kinds = [{"$ref": f"#/$defs/{part.name}.row"} for part in (self, *self.mixed)]
        schema = self._enveloped(())
        schema["properties"]["rows"] = {"type": "array", "items": {"anyOf": kinds} if self.mixed else kinds[0]}
        schema["required"].append("rows")
        return schema

    def _enveloped(self, columns: tuple[Column, ...]) -> dict[str, Any]:
        schema = object_schema((*ENVELOPE, *columns))
        for name, value in self.head().items():
            schema["properties"][name]["const"] = value
        return {"description": self.doc, **schema}


ERROR = Column(
    "error",
    "object",
    "why the command failed; absent if it did not",
    optional=True,
    fields=(
        Column("kind", "string", "stable name of the failure, see docs/exit-codes.md"),
        Column("message", "string", "what, where, what to do"),
        Column("path", "string", "the file or directory concerned", optional=True),
    ),
)

ENVELOPE = (
    Column("schema", "string", "name of this kind of output"),
    Column("schema_version", "integer", "raised when a reader of the old one would break"),
    Column("ok", "boolean", "whether the command ended with exit code 0"),
    ERROR,
)

FAILURE = (Column("ok", "boolean", "false"), replace(ERROR, optional=False))
"""What `json` and `jsonl` print when a command fails before its output has begun."""


def document(command: str, schemas: tuple[OutputSchema, ...]) -> dict[str, Any]:
    """Returns the JSON Schema of everything that a command can print as JSON.

    A whole `--format json` document is valid against the root, a line of `--format jsonl` against
    `#/$defs/line`.
    """
    every = tuple(dict.fromkeys(kind for schema in schemas for kind in (schema, *schema.mixed)))
    lines = {f"{schema.name}.row": schema.row_schema() for schema in every}
    lines["failure"] = object_schema(FAILURE)
    wholes = {schema.name: schema.document_schema() for schema in schemas}
    return {
        "$schema": DIALECT,
        "title": f"mqtool {command}",
        "x-versions": {schema.name: schema.version for schema in every},
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in (*wholes, "failure")],
        "$defs": {**wholes, **lines, "line": {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in lines]}},
    }


F = TypeVar("F", bound=Callable[..., Any])


def prints(*schemas: OutputSchema, group: str = "") -> Callable[[F], F]:
    """Declares the outputs of a command; `--format help` and the tests read them from the function.

    All subcommands of a group have the same outputs, and one JSON Schema.
    """

    def mark(function: F) -> F:
        function.__dict__.update(outputs=schemas, group=group)
        return function

    return mark


def schema_of(words: tuple[str, ...], function: Any) -> tuple[str, dict[str, Any]]:
    """Returns the name of a command's JSON Schema, and the schema of what its function prints."""
    names = (function.group,) if function.group else words
    return "-".join(names), document(" ".join(names), function.outputs)
