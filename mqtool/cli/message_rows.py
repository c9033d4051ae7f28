"""Messages as rows of `dump`, `get` and `find`: columns, bodies as text, redaction, and their way to the output.

`MessageView` has the options, `MessageRows` builds rows, `MessageStream` counts, limits and reports damage.
"""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.cli import ranges
from mqtool.cli.damage import DamageReport
from mqtool.cli.invocation import JSON_FORMATS, TABLE_FORMATS, Format
from mqtool.cli.options import Body, DamageMode, ProgressMode
from mqtool.cli.output import Output
from mqtool.cli.progress import Progress
from mqtool.cli.schema import DATA, TABLE, WIDE, Column, OutputSchema, nested
from mqtool.errors import FormatError, UsageError
from mqtool.records.damage import Damage
from mqtool.values import repr_without

if TYPE_CHECKING:
    from mqtool.store import Message
    from mqtool.store.log.json_lines import Lines

Encoded = tuple[Any, str]
"""A value for JSON and the name of its encoding."""

_NOTHING = object()

Row = dict[str, Any]

DAMAGE = OutputSchema(
    "damage",
    "a byte range of the CommitLog without a valid record; a row only with --damage rows",
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
        Column("reconsume_times", "integer", "how often a consumer has sent it back"),
        Column("prepared_transaction_offset", "int64", "for a committed message: physical offset of its half message"),
        Column("properties", "object", "name to value, in stored order: TAGS, KEYS, UNIQ_KEY, …", show=DATA),
        Column("body_crc", "integer", "CRC-32 of the stored body, 31 bits", show=DATA),
        Column("body", "any", "the body, decompressed unless --raw; null if --body none", nullable=True, show=DATA),
        Column("body_encoding", "string", "of body: text, base64, hex, json, none or redacted", show=DATA),
        Column("offset_message_id", "string", "store host and physical offset, hexadecimal"),
        Column("body_size", "integer", "bytes of the complete body, with --max-body", show=DATA, optional=True),
        Column(
            "batch_index",
            "integer",
            "index in the inner batch, if its messages are shown one by one",
            show=DATA,
            optional=True,
        ),
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

EVERY = 1024
"""Messages between two updates of the progress."""


class BodyView(Struct, frozen=True):
    """How bodies are printed."""

    mode: Body = Body.TEXT  # encoding
    raw: bool = False  # as stored, not decompressed
    max_bytes: int | None = None  # maximum number of bytes of each, None for all

    def encode(self, body: bytes) -> Encoded:
        """Returns a body with its actual encoding: text that is not UTF-8 becomes base64."""
        if self.mode is Body.NONE:
            return None, "none"
        if self.mode is Body.JSON:
            parsed = _parsed(body) if self.max_bytes is None or len(body) <= self.max_bytes else _NOTHING
            if parsed is not _NOTHING:
                return parsed, "json"
        shown = body if self.max_bytes is None else body[: self.max_bytes]
        if self.mode is Body.HEX:
            return shown.hex(), "hex"
        if self.mode is Body.BASE64:
            return base64.b64encode(shown).decode(), "base64"
        return _text(body, shown)


def _text(body: bytes, shown: bytes) -> Encoded:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return base64.b64encode(shown).decode(), "base64"
    if len(shown) < len(body):
        text = shown.decode("utf-8", "ignore")  # a cut inside a character drops its beginning
    return text, "text"


def _parsed(body: bytes) -> Any:
    import orjson

    try:
        value = json.loads(body, parse_constant=_refuse, parse_float=_finite)
        orjson.dumps(value)  # integers of more than 64 bits, lone surrogates and deep nesting cannot be written again
    except (ValueError, TypeError, RecursionError):
        return _NOTHING
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(digits)
    return value


class Redaction(Struct, frozen=True):
    """Replaces user data by salted hashes: equal values stay equal within one output.

    Each run creates a new salt and never shows it, so nobody can guess values by trying them.
    """

    salt: bytes = field(default_factory=lambda: os.urandom(16))

    __repr__ = repr_without("salt")

    def text(self, value: str | bytes) -> str:
        """Returns the replacement of a value."""
        import hashlib

        data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
        return f"redacted:{hashlib.blake2b(data, digest_size=8, key=self.salt).hexdigest()}"

    def row(self, row: dict[str, Any]) -> dict[str, Any]:
        """Returns a message's row without body, property values, ids and hosts.

        Topics, queues, offsets, sizes, times, flags and the names of properties stay.
        """
        shown = dict(row)
        for name in ("born_host", "store_host", "offset_message_id"):
            shown[name] = self.text(shown[name])
        shown["properties"] = {name: self.text(value) for name, value in shown["properties"].items()}
        if shown["body"] is not None:
            value = shown["body"] if isinstance(shown["body"], str) else json.dumps(shown["body"])
            shown["body"], shown["body_encoding"] = self.text(value), "redacted"
        return shown


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

    def row(self, message: Message) -> Row:
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
    return damage_row(Damage(physical_offset, physical_offset, "undecodable-body", detail))


def damage_row(damage: Damage) -> Row:
    """Returns damage as a row."""
    return {"damage": damage.as_dict()}


class MessageView(Struct, frozen=True, kw_only=True):
    """Values of the options; see `options`."""

    format: Format
    body: Body | None = None
    max_body: str | None = None
    raw: bool = False
    redact: bool = False
    explode: bool = False
    hex: bool = False
    follow: bool = False
    damage: DamageMode = DamageMode.STDERR
    progress: ProgressMode = ProgressMode.NONE
    jobs: int = 1

    def check(self) -> None:
        """Raises UsageError where options exclude each other."""
        if self.damage is DamageMode.ROWS and self.format not in JSON_FORMATS:
            raise UsageError("--damage rows needs --format json or jsonl")
        if self.hex and (self.follow or self.explode or self.redact):
            raise UsageError("--hex cannot be combined with --follow, --explode and --redact; leave out either")

    def rows(self, *, default: Body | None = None) -> MessageRows:
        """Returns the builder of message rows; without `--body` and a default, tables have no body, others text."""
        in_table = self.format in TABLE_FORMATS
        by_format = Body.NONE if in_table else Body.TEXT
        max_body = ranges.parse_size(self.max_body) if self.max_body else None
        bodies = BodyView(self.body or default or by_format, self.raw, max_body)
        return MessageRows(bodies, Redaction() if self.redact else None, in_table)

    def ready_lines(self) -> str | None:
        """Returns the body mode if the library can build the lines of JSON, otherwise None."""
        slow = self.redact or self.explode or self.hex or self.follow or self.max_body is not None
        mode = self.body or Body.TEXT
        return None if slow or mode is Body.JSON or self.format not in JSON_FORMATS else str(mode)


class MessageStream(Struct):
    """Passes on messages and damage until a limit is reached."""

    report: DamageReport  # receives all damage
    limit: int | None = None  # maximum number of messages, None for all
    max_bytes: int | None = None  # maximum sum of their records' sizes, None for all
    exploded: bool = False  # split inner batches into messages
    count: int = 0  # number of messages so far
    size: int = 0  # bytes of their records, with the first one that was too many

    def _is_complete(self) -> bool:
        """Whether a limit has been reached."""
        too_long = self.max_bytes is not None and self.size > self.max_bytes
        return too_long or (self.limit is not None and self.count >= self.limit)

    def items(self, items: Iterable[Message | Damage]) -> Iterator[Message | Damage]:
        """Yields messages and damage within the limits."""
        if self._is_complete():
            return
        for item in items:
            if isinstance(item, Damage):
                self.report.damage(item)
                yield item
                continue
            self.size += item.store_size
            if self._is_complete():
                return
            for message in self._parts(item):
                yield message
                self.count += 1
                if self._is_complete():
                    return

    def _parts(self, message: Message) -> list[Message]:
        if not self.exploded:
            return [message]
        from mqtool.store.log.message import explode

        try:
            return explode(message)
        except FormatError as error:
            self.report.report(f"damage: inner batch at physical offset {message.physical_offset}: {error}")
            return [message]

    def write(
        self, items: Iterable[Message | Damage], rows: MessageRows, output: Output, bar: Progress, damage: DamageMode
    ) -> None:
        """Writes messages and damage within the limits as rows."""
        for item in self.items(items):
            if isinstance(item, Damage):
                if damage is DamageMode.ROWS:
                    output.row(damage_row(item))
                continue
            if item.body_problem and not rows.bodies.raw:
                self._undecoded(item.physical_offset, item.body_problem, output, damage)
            output.row(rows.row(item))
            if not self.count % EVERY:
                bar.update(item.physical_offset)

    def write_lines(self, items: Iterable[Lines | Damage], output: Output, bar: Progress, damage: DamageMode) -> None:
        """Writes finished lines; whoever builds them applies the limit."""
        for item in items:
            if isinstance(item, Damage):
                self.report.damage(item)
                if damage is DamageMode.ROWS:
                    output.row(damage_row(item))
                continue
            for physical_offset in item.undecoded:
                self._undecoded(physical_offset, "cannot be decompressed; shown as stored", output, damage)
            output.lines(item.data)
            self.count += item.count
            bar.update(item.end)

    def _undecoded(self, physical_offset: int, detail: str, output: Output, damage: DamageMode) -> None:
        self.report.report(f"damage: body of the message at physical offset {physical_offset}: {detail}")
        if damage is DamageMode.ROWS:
            output.row(undecoded_row(physical_offset, detail))
