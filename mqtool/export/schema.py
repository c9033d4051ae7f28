"""What to export: the tables (messages, damage, rejected values), and the request for rows of them.

Names are as in `dump`, types suitable for a data lake. The columns come from `records.columns`; this module declares
only the differences: timestamps, the store's name, the position in an inner batch, and the record class. Docs page:
docs/lake.md.
"""

import enum
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from msgspec import Struct, field

from mqtool.errors import UsageError
from mqtool.formats import topics
from mqtool.formats.commit_log import TRANSACTION_MASK, SysFlag
from mqtool.records import columns as scan_columns
from mqtool.store.log.selection import Selection
from mqtool.values import repr_without

TIMESTAMP = pa.timestamp("ms", "UTC")

SORT_COLUMNS = ("topic", "queue_id", "queue_offset", "physical_offset", "batch_index")
"""Order of the rows in a file; the first three are declared in it, so that readers may rely on it."""

BATCH_BYTES = 8 << 20
"""Maximum record bytes of a batch, except for a single longer record."""
BATCH_ROWS = 16384


class Body(enum.StrEnum):
    """How bodies are written."""

    BINARY = "binary"
    """As the producer sent them, decompressed."""
    TEXT = "text"
    """As a string; a body that is not UTF-8 becomes null and a rejected value."""
    JSON = "json"
    """As a string that contains one JSON value; any other body becomes null and a rejected value."""


class RecordClass(enum.StrEnum):
    """Class of the record that a row comes from: values of the column `record_class`."""

    COMMITTED = "committed"
    """Visible to consumers: it has a unit in the queue of an ordinary topic."""
    HALF = "half"
    """A half message of a transaction, whatever its outcome; its commit is a separate record."""
    ROLLED_BACK = "rolled-back"
    """sys_flag states rollback (4.x before half topics, and artificial logs)."""
    SYSTEM = "system"
    """A record of a system topic, e.g. a delayed message, an op message or a POP checkpoint."""


def class_of(topic: str, sys_flag: int) -> RecordClass:
    """Returns the class of a record.

    Only transaction types none and commit get a ConsumeQueue unit. Source: CommitLogDispatcherBuildConsumeQueue
    (4.9.7, 5.5.0).
    """
    transaction = sys_flag & TRANSACTION_MASK
    if topic in topics.HALF_TOPICS or transaction == SysFlag.TRANSACTION_PREPARED:
        return RecordClass.HALF
    if transaction == SysFlag.TRANSACTION_ROLLBACK:
        return RecordClass.ROLLED_BACK
    return RecordClass.COMMITTED if topics.is_for_consumers(topic) else RecordClass.SYSTEM


class ExportColumn(Struct, frozen=True):
    """One column of the messages table."""

    name: str  # as in `dump`
    type: Any  # Arrow type
    docs: str  # meaning and unit


def _columns() -> tuple[ExportColumn, ...]:
    chosen = [scan_columns.BY_NAME[name] for name in (*scan_columns.DEFAULT_COLUMNS, "body_decoded")]
    timed = {"born_timestamp": "producer's clock", "store_timestamp": "broker's clock, taken inside the append lock"}
    adapted = [
        ExportColumn(c.name, TIMESTAMP, timed[c.name]) if c.name in timed else ExportColumn(c.name, c.type, c.docs)
        for c in chosen
    ]
    return (
        ExportColumn("broker", pa.string(), "which store, where several are read"),
        *adapted,
        ExportColumn("batch_index", pa.int32(), "place in an inner batch; null for a message of its own"),
        ExportColumn("record_class", pa.string(), "committed, half, rolled-back or system"),
    )


COLUMNS: tuple[ExportColumn, ...] = _columns()
BY_NAME = {column.name: column for column in COLUMNS}
ALL_COLUMNS = tuple(BY_NAME)


def check_columns(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the names after checking that all are columns.

    Raises:
        UsageError: one is not, or no name was given.
    """
    chosen = tuple(dict.fromkeys(names))
    unknown = [name for name in chosen if name not in BY_NAME]
    if unknown:
        raise UsageError(f"unknown column {unknown[0]!r}; known: {', '.join(BY_NAME)}")
    if not chosen:
        raise UsageError("no column is selected; name at least one")
    return chosen


def messages_schema(names: Iterable[str] = ALL_COLUMNS, body: Body = Body.BINARY) -> Any:
    """Returns the Arrow schema of the messages table, with the docs as field metadata."""
    fields = []
    for name in names:
        column = BY_NAME[name]
        arrow_type = pa.string() if name == "body" and body is not Body.BINARY else column.type
        fields.append(pa.field(name, arrow_type, metadata={"docs": column.docs}))
    return pa.schema(fields)


def _table(*fields: tuple[str, Any, str]) -> Any:
    return pa.schema([pa.field(name, arrow_type, metadata={"docs": docs}) for name, arrow_type, docs in fields])


DAMAGE_SCHEMA = _table(
    ("broker", pa.string(), "which store"),
    ("start", pa.int64(), "physical offset of the first byte that holds no valid record"),
    ("end", pa.int64(), "physical offset after the last one"),
    ("kind", pa.string(), "bad-crc, bad-header, zeros, missing, …"),
    ("detail", pa.string(), "expected and found"),
    ("file", pa.string(), "the segment, from the store's root"),
    ("position", pa.int64(), "of start in that file"),
)

REJECTED_VALUE_SCHEMA = _table(
    ("broker", pa.string(), "which store"),
    ("physical_offset", pa.int64(), "of the record"),
    ("batch_index", pa.int32(), "place in an inner batch"),
    ("topic", pa.string(), "topic name"),
    ("queue_id", pa.int32(), "queue of the topic"),
    ("queue_offset", pa.int64(), "ordinal in the queue"),
    ("column", pa.string(), "column that is null in the messages table, or holds what was stored"),
    ("reason", pa.string(), "why it could not be written as asked for"),
    ("value", pa.binary(), "what was stored; null if the column is redacted"),
)


class Table(enum.StrEnum):
    """The tables of an export, each a directory."""

    MESSAGES = "messages"
    DAMAGE = "damage"
    REJECTED_VALUES = "rejected_values"


PLACES = {Table.MESSAGES: "physical_offset", Table.REJECTED_VALUES: "physical_offset", Table.DAMAGE: "start"}
"""By table, the column with the physical offset of a row."""


class ReadRequest(Struct, frozen=True):
    """Which messages to read, and which of their columns."""

    # Conditions on messages; its physical offsets apply to every store.
    selection: Selection = field(default_factory=Selection)
    columns: tuple[str, ...] = ALL_COLUMNS  # of the messages table, in this order
    every_class: bool = False  # also half, rolled-back and system records, not only committed ones
    body: Body = Body.BINARY  # how to write bodies
    redact: frozenset[str] = frozenset()  # columns whose values are replaced
    salt: bytes = b""  # for the replacements
    fail_fast: bool = False  # damage is an error instead of a row of the damage table
    batch_bytes: int = BATCH_BYTES  # and batch_rows: size of a batch; a longer single record is a batch by itself
    batch_rows: int = BATCH_ROWS

    __repr__ = repr_without("salt")

    def __post_init__(self) -> None:
        check_columns(self.columns)
        if self.redact:
            check_columns(self.redact)
        if self.selection.limit is not None or self.selection.needs_properties:
            raise UsageError(
                "an export selects only by topic, queue, offset and time; select the rest when you read it"
            )

    def includes(self, record_class: RecordClass) -> bool:
        """Whether records of a class are read."""
        return self.every_class or record_class is RecordClass.COMMITTED

    @property
    def schema(self) -> Any:
        """Arrow schema of the batches."""
        return messages_schema(self.columns, self.body)
