"""Rows of JSON Lines, or of Parquet as `export` writes it, and the messages that they describe.

Field names are those of `dump` and `export`, so that their output can be appended again; each value is checked, and
those that the store sets (offsets, store timestamp) are ignored. Docs page: docs/engine.md.

Lines are read one by one and tables batch by batch. A line that is too long for a message is skipped without loading
it into memory; a line longer than `LONGEST_LINE` is an error.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from mqtool.engine.options import StoreOptions
from mqtool.engine.write.messages import OutgoingMessage
from mqtool.errors import FormatError, StoreError
from mqtool.formats import commit_log, compression, hosts, java, properties
from mqtool.formats.commit_log import SysFlag
from mqtool.ingest.bulk_ingest import Row
from mqtool.records.columns import DEFAULT_COLUMNS
from mqtool.records.frames import body_crc
from mqtool.store.paths import require_regular

_BATCH_BITS = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)

_PACKED = int(SysFlag.COMPRESSED) | commit_log.COMPRESSION_MASK

_NAMED = {
    "tags": properties.TAGS,
    "keys": properties.KEYS,
    "unique_key": properties.UNIQUE_KEY,
    "delay_level": properties.DELAY_LEVEL,
    "sharding_key": properties.SHARDING_KEY,
}

_NUMBERS = {
    "queue_id": (0, java.INT_MAX),
    "flag": (java.INT_MIN, java.INT_MAX),
    "sys_flag": (java.INT_MIN, java.INT_MAX),
    "reconsume_times": (java.INT_MIN, java.INT_MAX),
    "born_timestamp": (java.LONG_MIN, java.LONG_MAX),
    "prepared_transaction_offset": (java.LONG_MIN, java.LONG_MAX),
}

_TAKEN = {"topic", "body", "body_base64", "body_encoding", "properties", "born_host", "store_host", *_NAMED, *_NUMBERS}

_ALSO_SHOWN = {"body_decoded", "body_size", "batch_index", "broker", "record_class"}

IGNORED = {*DEFAULT_COLUMNS, *_ALSO_SHOWN} - _TAKEN
"""Columns of `dump` and `export` that are not stored: the store sets them again, or they only explain others."""

_NO_BODY = "body: missing; write the row with its body (`dump --body base64`, `export --body-type binary`)"

_PARQUET = b"PAR1"

_TABLE_ROWS = 4096

TABLE_BYTES = 32 << 20
"""Rows of a table that are read together, and their approximate bytes, of which one row may have more."""

_BESIDE_BODY = 1 << 20

_BODIES = frozenset(("body", "body_base64"))

_NO_TIME = (
    "born_timestamp: missing, because `export` writes null for a time outside the years 1 to 9999; write the row with "
    "the time (`dump --format jsonl`)"
)

LONGEST_LINE = 1 << 28
"""Maximum bytes of a line: input without line ends, such as a device, is refused."""


class NoMessageError(FormatError):
    """A row is not a valid message; `reason` states why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, layout="row")
        self.reason = reason


def message_of(row: Any, options: StoreOptions) -> OutgoingMessage:
    """Returns the message of a row for a store with these options; the body is text, bytes or base64, as it states."""
    if not isinstance(row, Mapping):
        raise _wrong("row", "an object", row)
    unknown = [name for name in row if name not in _TAKEN and name not in IGNORED]
    if unknown:
        known = ", ".join(sorted(_TAKEN))
        raise NoMessageError(f"unknown field {str(unknown[0])[:40]!r}; known: {known}")
    topic = row.get("topic")
    if not isinstance(topic, str) or not topic:
        raise _wrong("topic", "a name", topic)
    numbers = {name: _number(row, name, *limits) for name, limits in _NUMBERS.items()}
    body = _body(row)
    size = row.get("body_size")
    if size is not None and size != len(body):
        raise NoMessageError(
            f"body: expected the {size} bytes that body_size states, found {len(body)}; write the row with its "
            f"complete body (`dump` without --max-body)"
        )
    sys_flag = _sys_flag(row, body, numbers["sys_flag"] or 0)
    return OutgoingMessage(
        topic,
        numbers["queue_id"] or 0,
        body,
        _encoded(_properties(row), options),
        numbers["flag"] or 0,
        sys_flag,
        numbers["born_timestamp"],
        _host(row, "born_host"),
        _host(row, "store_host"),
        numbers["reconsume_times"] or 0,
        numbers["prepared_transaction_offset"] or 0,
    )


def _wrong(name: str, expected: str, actual: object) -> NoMessageError:
    text = repr(actual)
    shown = text if len(text) < 60 else f"{text[:60]}…"
    return NoMessageError(f"{name}: expected {expected}, found {shown}")


def _number(row: Mapping[str, Any], name: str, low: int, high: int) -> int | None:
    value = row.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _wrong(name, f"a whole number from {low} to {high}", value)
    return value


def _body(row: Mapping[str, Any]) -> bytes:
    body, encoded = row.get("body"), row.get("body_base64")
    if encoded is not None:
        if body is not None:
            raise NoMessageError("body and body_base64: expected one of them, found both")
        return _from_base64("body_base64", encoded)
    if isinstance(body, bytes):
        return body
    if body is None:
        if "body" in row and row.get("body_encoding") in ("none", "redacted"):
            raise NoMessageError(_NO_BODY)
        return b""
    kind = row.get("body_encoding", "text")
    if kind == "base64":
        return _from_base64("body", body)
    if not isinstance(body, str):
        raise _wrong("body", "text", body)
    if kind == "hex":
        try:
            return bytes.fromhex(body)
        except ValueError:
            raise _wrong("body", "hexadecimal digits", body) from None
    if kind not in ("text", None):
        raise _wrong("body_encoding", "text, base64 or hex", kind)
    return body.encode() if body.isascii() else java.encode_utf8(body)


def _from_base64(name: str, value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise _wrong(name, "base64", value) from None


def _sys_flag(row: Mapping[str, Any], body: bytes, sys_flag: int) -> int:
    """Clears bits that no longer apply: compression of a decompressed body, inner batch of a single message."""
    if sys_flag & SysFlag.COMPRESSED and not _is_packed(row.get("body_crc"), body, sys_flag):
        sys_flag &= ~_PACKED
    return sys_flag & ~_BATCH_BITS if row.get("batch_index") is not None else sys_flag


def _is_packed(stored_crc: Any, body: bytes, sys_flag: int) -> bool:
    """Whether a body is still compressed: it has the CRC of the stored one; if that is unknown, it can be decoded."""
    if isinstance(stored_crc, int):
        return body_crc(body) == stored_crc
    try:
        compression.decode(body, sys_flag)
    except FormatError:
        return False
    return True


def _encoded(values: dict[str, str], options: StoreOptions) -> bytes:
    return properties.encode(values.items(), trailing_separator=options.release >= (5, 0))


def _properties(row: Mapping[str, Any]) -> dict[str, str]:
    """Returns the properties: first those in `properties`, then those that have fields of their own."""
    values = _given_properties(row.get("properties"))
    for field, name in _NAMED.items():
        value = _named_value(field, row.get(field))
        if value and not _agree(field, values.setdefault(name, value), value):
            raise NoMessageError(f"{field} and properties.{name} differ")
    if row.get("batch_index") is not None:
        for name in (properties.INNER_NUM, properties.INNER_BASE):
            values.pop(name, None)
    return values


def _given_properties(given: Any) -> dict[str, str]:
    if isinstance(given, list) and all(isinstance(pair, tuple) for pair in given):  # a column of maps
        given = dict(given)
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise _wrong("properties", "an object", given)
    for name, value in given.items():
        if not isinstance(value, str) or not isinstance(name, str):
            raise _wrong(f"properties.{str(name)[:40]}", "text", value if isinstance(name, str) else name)
        if any(mark in name for mark in "\1\2") or "\2" in value:
            raise NoMessageError(f"properties.{name[:40]!r}: contains a separator, 0x01 or 0x02")
    return dict(given)


def _agree(field: str, stored: str, value: str) -> bool:
    if field == "keys":
        return properties.keys_of({properties.KEYS: stored}) == properties.keys_of({properties.KEYS: value})
    return stored == value


def _named_value(field: str, value: Any) -> str | None:
    if value is None:
        return None
    if field == "keys" and isinstance(value, list | tuple):
        if not all(isinstance(text, str) for text in value):
            raise _wrong("keys", "texts", value)
        return properties.KEY_SEPARATOR.join(value)
    if field == "delay_level":
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= java.INT_MAX:
            raise _wrong("delay_level", "a whole number from 0 on", value)
        return str(value) if value else ""
    if not isinstance(value, str):
        raise _wrong(field, "text", value)
    if "\2" in value:
        raise NoMessageError(f"{field}: contains the separator 0x02")
    return value


def _host(row: Mapping[str, Any], name: str) -> bytes | None:
    value = row.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise _wrong(name, "address:port", value)
    try:
        return hosts.build(hosts.parse_text(value))
    except FormatError:
        raise _wrong(name, "1.2.3.4:5 or [::1]:5", value) from None


def is_parquet(path: Path) -> bool:
    """Whether a file starts with the Parquet magic; a directory counts as an export.

    Raises UsageError if it is a device or a FIFO; StoreError if it cannot be read.
    """
    if path.is_dir():
        return True
    require_regular(path, "`mqtool append --from -` reads from a pipe")
    try:
        with path.open("rb") as file:
            return file.read(len(_PARQUET)) == _PARQUET
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror}", path) from error


def rows_of_lines(lines: IO[bytes], options: StoreOptions) -> Iterator[Row]:
    """Yields a row for each line of JSON that is not blank; raises FormatError for one above `LONGEST_LINE` bytes."""
    limit = 8 * options.max_message_size + _BESIDE_BODY  # an escaped byte of a body has six characters
    number = at = 0
    while line := lines.readline(limit):
        number += 1
        if len(line) == limit and not line.endswith(b"\n"):
            size = limit
            while (more := lines.readline(limit)) and not more.endswith(b"\n"):
                size = within_longest(size + len(more), number, at)
            at += size + len(more) - limit
            yield Row(number, None, f"longer than {limit} bytes, the maximum of this store")
        elif line.strip():
            yield _row(number, line, options)
        at += len(line)


def within_longest(size: int, number: int, position: int) -> int:
    """Returns the number of bytes of a line read so far; its number and position are for the error.

    Raises FormatError if `size` is greater than `LONGEST_LINE`.
    """
    if size > LONGEST_LINE:
        raise FormatError(
            f"line {number} is longer than {LONGEST_LINE} bytes: expected one message a line, as JSON",
            layout="JSON Lines",
            position=position,
        )
    return size


def _row(number: int, line: bytes, options: StoreOptions) -> Row:
    try:
        document = json.loads(line)
    except RecursionError:
        return Row(number, None, "not JSON that describes a message: nested too deeply")
    except ValueError as error:
        return Row(number, None, f"not JSON: {error}")
    return row_of(number, document, options)


def row_of(number: int, document: Any, options: StoreOptions) -> Row:
    """Returns a row of the input, with a reason instead of a message if it is invalid."""
    try:
        return Row(number, message_of(document, options), given=document)
    except NoMessageError as error:
        return Row(number, None, error.reason)


def rows_of_parquet(files: Iterable[Path], options: StoreOptions, *, keep_times: bool = True) -> Iterator[Row]:
    """Yields the rows of Parquet files, in order.

    A row whose body is null is invalid: `export` writes null for a body that is not of the requested type. With
    `keep_times`, so is one of an export whose born timestamp is null, because it is outside the years 1 to 9999. Raises
    FormatError if a file is not Parquet, or is truncated; StoreError if the file is missing or cannot be read.
    """
    number = 0
    for file in files:
        try:
            with pq.ParquetFile(file) as table:
                for batch in _batches(table):
                    needs_time = keep_times and _is_export(batch) and "born_timestamp" in batch.schema.names
                    for values in _dicts(batch):
                        number += 1
                        if needs_time and "born_timestamp" not in values:
                            yield Row(number, None, _NO_TIME)
                        else:
                            yield row_of(number, values, options)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError) as error:
            raise FormatError(f"{file}: cannot be read as Parquet: {error}", layout="parquet") from error
        except OSError as error:
            raise StoreError(f"cannot be read: {error.strerror or error}", file) from error


def _batches(table: Any) -> Iterator[Any]:
    """Yields the rows of a `pq.ParquetFile` as batches of limited size."""
    for number in range(table.num_row_groups):
        group = table.metadata.row_group(number)
        rows = TABLE_BYTES * group.num_rows // max(1, group.total_byte_size)
        yield from table.iter_batches(min(max(1, rows), _TABLE_ROWS), row_groups=[number])


def _is_export(batch: Any) -> bool:
    """Whether a batch has a column that only a table of a store's messages has."""
    return not IGNORED.isdisjoint(batch.schema.names)


def _dicts(batch: Any) -> list[dict[str, Any]]:
    """Returns a batch as rows: times in ms, null values left out; a missing body is marked as `dump` marks it."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())  # noqa: PLW2901
        columns.append((name, column.to_pylist()))
    rows = [{name: values[at] for name, values in columns if values[at] is not None} for at in range(batch.num_rows)]
    if _is_export(batch) or not _BODIES.isdisjoint(batch.schema.names):
        return [row if _BODIES & row.keys() else {**row, "body": None, "body_encoding": "none"} for row in rows]
    return rows
