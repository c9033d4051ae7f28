"""Messages as rows: the columns of `dump`, `get` and `find`."""

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from mqtool.cli.options import Body
from mqtool.cli.rows.bodies import BodyView, Redaction
from mqtool.cli.schema import DATA, TABLE, WIDE, Column, OutputSchema, nested

if TYPE_CHECKING:
    from mqtool.records.damage import Damage
    from mqtool.store import Message

Row = dict[str, Any]

DAMAGE = OutputSchema(
    "damage",
    1,
    "a byte range of the CommitLog that holds no valid record; among the rows with --damage rows only",
    (
        nested(
            "damage",
            "the range",
            Column("start", "int64", "physical offset of its first byte"),
            Column("end", "int64", "physical offset after its last byte"),
            Column("kind", "string", "what is wrong: bad-crc, bad-header, zeros, missing, …"),
            Column("detail", "string", "expected and found"),
            Column("path", "string", "the file", nullable=True),
            Column("position", "int64", "of start in that file"),
            show=WIDE,
        ),
    ),
)

MESSAGE = OutputSchema(
    "message",
    1,
    "a message of the CommitLog",
    (
        Column("physical_offset", "int64", "byte address of its record in the CommitLog", show=TABLE),
        Column("store_size", "integer", "bytes of the record", show=TABLE),
        Column("topic", "string", "topic name", show=TABLE),
        Column("queue_id", "integer", "queue of the topic", show=TABLE),
        Column("queue_offset", "int64", "ordinal in the queue; 0 for prepared and rolled-back ones", show=TABLE),
        Column("flag", "integer", "the application's integer"),
        Column("sys_flag", "integer", "the broker's bits"),
        Column("born_timestamp", "int64", "ms since epoch, producer's clock", time=True),
        Column("store_timestamp", "int64", "ms since epoch, broker's clock", show=TABLE, time=True),
        Column("born_host", "string", "producer, address:port"),
        Column("store_host", "string", "broker, address:port"),
        Column("reconsume_times", "integer", "how often a consumer sent it back"),
        Column("prepared_transaction_offset", "int64", "of a committed message: where its half message is"),
        Column("properties", "object", "name to value, in stored order: TAGS, KEYS, UNIQ_KEY, …", show=DATA),
        Column("body_crc", "integer", "CRC-32 of the stored body, 31 bits", show=DATA),
        Column("body", "any", "the body, decompressed unless --raw; null if --body none", nullable=True, show=DATA),
        Column("body_encoding", "string", "of body: text, base64, hex, json, none or redacted", show=DATA),
        Column("offset_message_id", "string", "store host and physical offset, hexadecimal"),
        Column("body_size", "integer", "bytes of the whole body, with --max-body", show=DATA, optional=True),
        Column("batch_index", "integer", "place in the inner batch, if shown alone", show=DATA, optional=True),
    ),
    mixed=(DAMAGE,),
)

_IN_TABLES = (
    Column("body_size", "integer", "bytes of the body"),
    Column("tags", "string", "TAGS property", show=TABLE),
    Column("keys", "array", "words of the KEYS property", show=TABLE),
    Column("unique_key", "string", "UNIQ_KEY property"),
)
"""What tables show of the properties and the body."""


def table_schema(*, with_body: bool) -> OutputSchema:
    """Returns the columns of tables of messages."""
    shown = [replace(c, show=TABLE) if with_body and c.name == "body" else c for c in MESSAGE.columns]
    kept = [column for column in shown if column.name not in {"body", "body_size"}]
    body = [column for column in shown if column.name == "body"]
    return replace(MESSAGE, columns=(*kept, *_IN_TABLES, *body))


class MessageRows(Struct, frozen=True):
    """Turns messages into rows."""

    bodies: BodyView  # how bodies are printed
    redaction: Redaction | None  # redacts rows; None for no redaction
    in_table: bool  # rows are for readers, with columns for tags and keys

    @property
    def schema(self) -> OutputSchema:
        """The schema of these rows."""
        return table_schema(with_body=self.bodies.mode is not Body.NONE) if self.in_table else MESSAGE

    def row(self, message: "Message") -> Row:
        """Returns one row, keys in the order of the schema."""
        from mqtool.store.log.json_rows import row_of

        body = message.raw_body if self.bodies.raw else message.body
        row = row_of(message, Body.NONE)
        row["body"], row["body_encoding"] = self.bodies.encode(body)
        if self.bodies.max_bytes is not None or self.in_table:
            row["body_size"] = len(body)
        if message.batch_index is not None:
            row["batch_index"] = message.batch_index
        if self.redaction:
            row = self.redaction.row(row)
        return {**row, **_view(row["properties"])} if self.in_table else row


def _view(row: dict[str, str]) -> Row:
    from mqtool.formats import properties

    unique_key = row.get(properties.UNIQUE_KEY)
    return {"tags": row.get(properties.TAGS), "keys": properties.keys_of(row), "unique_key": unique_key}


def undecoded_row(physical_offset: int, detail: str) -> Row:
    """Returns a row of damage for a body that cannot be decompressed."""
    from mqtool.records.damage import Damage

    return damage_row(Damage(physical_offset, physical_offset, "undecodable-body", detail))


def damage_row(damage: "Damage") -> Row:
    """Returns damage as a row."""
    return {"damage": damage.as_dict()}
