"""What to export, as plain data that is sent to worker processes and executors."""

from typing import Any

from msgspec import Struct, field

from mqtool.errors import UsageError
from mqtool.export.schema import ALL_COLUMNS, Body, RecordClass, check_columns, messages_schema
from mqtool.store.log.selection import Selection
from mqtool.values import repr_without

BATCH_BYTES = 8 << 20
"""Maximum record bytes of a batch, except for a single longer record."""
BATCH_ROWS = 16384


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
