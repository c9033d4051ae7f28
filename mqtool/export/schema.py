"""What to export: the tables (messages, damage, rejected values), the request for rows of them, and redaction.

Names are as in `dump`, types suitable for a data lake. The columns come from `records.columns`; this module declares
only the differences: timestamps, the store's name, the position in an inner batch, and the record class. Redaction
replaces user data by salted hashes, in every column that contains a copy of it; equal values have equal hashes with
the same salt, so joins and counts still work. Docs page: docs/lake.md.
"""

import enum
import hashlib
import os
import secrets
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from mqtool.errors import UsageError
from mqtool.formats import properties, topics
from mqtool.formats.commit_log import TRANSACTION_MASK, SysFlag
from mqtool.records import columns as scan_columns
from mqtool.records.columns import PROPERTY_COLUMNS
from mqtool.records.frames import Frames
from mqtool.store.log.selection import Selection
from mqtool.values import repr_without

TIMESTAMP = pa.timestamp("ms", "UTC")

SORT_COLUMNS = ("topic", "queue_id", "queue_offset", "physical_offset", "batch_index")
"""Order of the rows in a file; the first three are declared in it, so that readers may rely on it."""

BATCH_BYTES = 8 << 20
"""Maximum record bytes of a batch, except for a single longer record."""
BATCH_ROWS = 16384

SALT_VARIABLE = "MQTOOL_REDACT_SALT"
"""Environment variable with the salt: equal salts make hashes comparable, and let their owner test likely values."""

ALSO: dict[str, tuple[str, ...]] = {
    "body": ("body_crc",),
    "body_crc": (),
    "properties": ("keys", *PROPERTY_COLUMNS),
    "keys": (),
    **dict.fromkeys(PROPERTY_COLUMNS, ()),
    "born_host": ("unique_key",),  # the client puts its address into the id
    "store_host": ("offset_message_id",),
    "offset_message_id": ("store_host",),
}
"""Columns that can be redacted, each with the columns that would reveal its value."""

COPIES: dict[str, tuple[str, ...]] = {
    "keys": (properties.KEYS,),
    **{column: (name,) for column, name in PROPERTY_COLUMNS.items()},
    "unique_key": (
        properties.UNIQUE_KEY,
        properties.TRANSACTION_ID,
        properties.ORIGIN_MESSAGE_ID,
        properties.TIMER_DEL_UNIQUE_KEY,
        "DLQ_ORIGIN_MESSAGE_ID",
    ),
    "born_host": ("__BORNHOST",),
    "offset_message_id": (properties.ORIGIN_MESSAGE_ID, "DLQ_ORIGIN_MESSAGE_ID"),
}
"""Properties that also contain a column's value (MessageConst, 5.5.0)."""


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


def committed(frames: Frames) -> np.ndarray:
    """Returns which records are visible to consumers."""
    codes, names = frames.coded_topics
    transactions = frames.column("sys_flag") & TRANSACTION_MASK
    if not transactions.any():
        return np.array([class_of(name, 0) is RecordClass.COMMITTED for name in names], bool)[codes]
    kinds, back = np.unique(codes.astype(np.int64) << 32 | transactions, return_inverse=True)
    visible = [class_of(names[kind >> 32], kind & 0xFFFFFFFF) is RecordClass.COMMITTED for kind in kinds.tolist()]
    return np.array(visible, bool)[back]


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
        ExportColumn("broker", pa.string(), "which store, if several are read"),
        *adapted,
        ExportColumn("batch_index", pa.int32(), "place in an inner batch; null for a message of its own"),
        ExportColumn("record_class", pa.string(), "committed, half, rolled-back or system"),
    )


COLUMNS: tuple[ExportColumn, ...] = _columns()
BY_NAME = {column.name: column for column in COLUMNS}
ALL_COLUMNS = tuple(BY_NAME)


def check_columns(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the names after checking that all are columns; raises UsageError if one is not, or there is none."""
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
    ("reason", pa.string(), "why it could not be converted"),
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


def closure(columns: Iterable[str]) -> frozenset[str]:
    """Returns the columns, and all others that would reveal their values.

    Raises UsageError for a column by which messages are partitioned or sorted.
    """
    names: set[str] = set()
    waiting = list(columns)
    while waiting:
        name = waiting.pop()
        if name not in ALSO:
            raise UsageError(
                f"column {name!r} cannot be redacted (possible: {', '.join(ALSO)}); leave it out with --columns"
            )
        if name not in names:
            names.add(name)
            waiting.extend(ALSO[name])
    return frozenset(names)


def new_salt() -> bytes:
    """Returns the salt from the environment, or a random one that is never stored."""
    given = os.environ.get(SALT_VARIABLE)
    return hashlib.blake2b(given.encode("utf-8", "surrogateescape")).digest() if given else secrets.token_bytes(32)


def redact_batch(batch: Any, columns: frozenset[str], salt: bytes) -> Any:
    """Returns a `pa.RecordBatch` with the values of the columns of a `closure` replaced; their types do not change."""
    names = {name for column in columns for name in COPIES.get(column, ())}
    names.add(properties.CRC32)  # of the complete record: who knows the rest can test likely values with it
    for index, name in enumerate(batch.schema.names):
        if name == "properties":
            hidden = _properties(batch.column(index), None if "properties" in columns else names, salt)
        elif name in columns:
            hidden = _hidden(batch.column(index), salt)
        else:
            continue
        batch = batch.set_column(index, name, hidden)
    return batch


def pseudonym(value: bytes, salt: bytes) -> str:
    """Returns the replacement of a value."""
    return f"redacted:{hashlib.blake2b(value, digest_size=8, key=salt).hexdigest()}"


def _hidden(values: Any, salt: bytes) -> Any:
    if pa.types.is_list(values.type):
        return pa.ListArray.from_arrays(values.offsets, _hidden(values.values, salt))
    if pa.types.is_integer(values.type):
        return pa.nulls(len(values), values.type)
    coded = values.dictionary_encode()
    plain = coded.dictionary.cast(pa.binary()).to_pylist()
    return pa.array([pseudonym(value, salt) for value in plain], pa.string()).cast(values.type).take(coded.indices)


def _properties(values: Any, names: set[str] | None, salt: bytes) -> Any:
    keys, items = values.keys, values.items
    hidden = _hidden(items, salt)
    if names is not None:
        import pyarrow.compute as pc  # noqa: PLC0415 - costs 30 ms, only needed here

        hidden = pc.if_else(pc.is_in(keys, pa.array(sorted(names))), hidden, items)
    return pa.MapArray.from_arrays(values.offsets, keys, hidden)
