"""Messages as rows: the columns of `dump`, `get` and `find`."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mqtool.cli.bodies import BodyView, Redaction
from mqtool.cli.options import Body
from mqtool.cli.schema import DATA, TABLE, Column, OutputSchema

if TYPE_CHECKING:
    from mqtool.scan.damage import Damage
    from mqtool.store import Message

Row = dict[str, Any]

DAMAGE = OutputSchema(
    "damage",
    1,
    "a byte range of the CommitLog that holds no valid record; among the rows with --damage rows only",
    (
        Column(
            "damage",
            "object",
            "the range",
            fields=(
                Column("start", "int64", "physical offset of its first byte"),
                Column("end", "int64", "physical offset after its last byte"),
                Column("kind", "string", "what is wrong: bad-crc, bad-header, zeros, missing, …"),
                Column("detail", "string", "expected and found"),
                Column("path", "string", "the file", nullable=True),
                Column("position", "int64", "of start in that file"),
            ),
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
        Column("properties", "object", "name to value, in stored order", show=DATA),
        Column("body_crc", "integer", "CRC-32 of the stored body, 31 bits", show=DATA),
        Column("body_size", "integer", "bytes of the body, decompressed unless --raw"),
        Column("body", "any", "the body; null if --body none", nullable=True, show=DATA),
        Column("body_encoding", "string", "of body: text, base64, hex, json, none or redacted", show=DATA),
        Column("offset_message_id", "string", "store host and physical offset, hexadecimal"),
        Column("tags", "string", "TAGS property", show=TABLE, nullable=True),
        Column("keys", "array", "words of the KEYS property", show=TABLE),
        Column("unique_key", "string", "UNIQ_KEY property, the id made by the client", nullable=True),
        Column("magic_code", "integer", "version of the record: -626843481 is 1, -626843477 is 2", show=DATA),
        Column("batch_index", "integer", "place in the inner batch, with --explode", show=DATA, optional=True),
        Column("body_problem", "string", "why body is as stored, not decompressed", show=DATA, optional=True),
    ),
    mixed=(DAMAGE,),
)


def with_body(schema: OutputSchema) -> OutputSchema:
    """Returns the schema with the body shown in tables."""
    shown = [replace(c, show=TABLE) if c.name == "body" else c for c in schema.columns]
    return replace(schema, columns=tuple(shown))


@dataclass(frozen=True, slots=True)
class MessageRows:
    """Turns messages into rows.

    Attributes:
        bodies: how bodies are printed.
        redaction: what is left out, None for nothing.
    """

    bodies: BodyView
    redaction: Redaction | None = None

    @property
    def schema(self) -> OutputSchema:
        """The schema of these rows."""
        return MESSAGE if self.bodies.mode is Body.NONE else with_body(MESSAGE)

    def row(self, message: "Message") -> Row:
        """Returns one row, keys in the order of the schema."""
        body = message.raw_body if self.bodies.raw else message.body
        value, encoding = self.bodies.encode(body)
        row = {
            "physical_offset": message.physical_offset,
            "store_size": message.store_size,
            "topic": message.topic,
            "queue_id": message.queue_id,
            "queue_offset": message.queue_offset,
            "flag": message.flag,
            "sys_flag": message.sys_flag,
            "born_timestamp": message.born_timestamp,
            "store_timestamp": message.store_timestamp,
            "born_host": message.born_host,
            "store_host": message.store_host,
            "reconsume_times": message.reconsume_times,
            "prepared_transaction_offset": message.prepared_transaction_offset,
            "properties": message.properties,
            "body_crc": message.body_crc,
            "body_size": len(body),
            "body": value,
            "body_encoding": encoding,
            "offset_message_id": message.offset_message_id,
            "tags": message.tags,
            "keys": list(message.keys),
            "unique_key": message.unique_key,
            "magic_code": message.magic_code,
        }
        if message.batch_index is not None:
            row["batch_index"] = message.batch_index
        if message.body_problem and not self.bodies.raw:
            row["body_problem"] = message.body_problem
        return self.redaction.row(row) if self.redaction else row


def damage_row(damage: "Damage") -> Row:
    """Returns damage as a row."""
    return {
        "damage": {
            "start": damage.start,
            "end": damage.end,
            "kind": str(damage.kind),
            "detail": damage.detail,
            "path": None if damage.path is None else str(damage.path),
            "position": damage.position,
        }
    }
