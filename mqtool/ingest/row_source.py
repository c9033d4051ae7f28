"""Reads rows: JSON Lines, or Parquet as `export` writes it.

Lines are read one by one and tables batch by batch. A line that is too long for a message is skipped without loading
it into memory; a line longer than `LONGEST_LINE` is an error.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from mqtool.engine.options import StoreOptions
from mqtool.errors import FormatError, StoreError
from mqtool.ingest.row_parser import IGNORED, NoMessageError, Row, message_of
from mqtool.store.named_files import require_regular

_PARQUET = b"PAR1"
_TABLE_ROWS = 4096
_TABLE_BYTES = 32 << 20
"""Rows of a table that are read together, and their approximate bytes, of which one row may have more."""
_BESIDE_BODY = 1 << 20
_BODIES = frozenset(("body", "body_base64"))
_NO_TIME = (
    "born_timestamp: missing, because `export` writes null for a time outside the years 1 to 9999; write the row with "
    "the time (`dump --format jsonl`)"
)

LONGEST_LINE = 1 << 28
"""Maximum bytes of a line: input without line ends, such as a device, is refused."""


def is_parquet(path: Path) -> bool:
    """Whether a file starts with the Parquet magic; a directory counts as an export.

    Raises:
        UsageError: it is a device or a FIFO.
        StoreError: it cannot be read.
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
    """Yields a row for each line that is not blank.

    Args:
        lines: JSON Lines.
        options: of the store that the messages are for.

    Raises:
        FormatError: a line is longer than `LONGEST_LINE` bytes.
    """
    limit = 8 * options.max_message_size + _BESIDE_BODY  # an escaped byte of a body has six characters
    number = at = 0
    while line := lines.readline(limit):
        number += 1
        if len(line) == limit and not line.endswith(b"\n"):
            size = limit
            while (more := lines.readline(limit)) and not more.endswith(b"\n"):
                size = within_longest(size + len(more), number, at)
            at += size + len(more) - limit
            yield Row(number, None, f"longer than {limit} bytes: no message of this store is")
        elif line.strip():
            yield _row(number, line, options)
        at += len(line)


def within_longest(size: int, number: int, position: int) -> int:
    """Returns the number of bytes of a line read so far.

    Args:
        size: that number.
        number, position: of the line.

    Raises:
        FormatError: `size` is greater than `LONGEST_LINE`.
    """
    if size > LONGEST_LINE:
        raise FormatError(
            f"line {number} has no end within {LONGEST_LINE} bytes: expected one message a line, as JSON",
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

    A row whose body is null is invalid: `export` writes null for a body that is not of the requested type.

    Args:
        files: their paths; `message_files` returns those of an export.
        options: of the store that the messages are for.
        keep_times: the born timestamps are used. Rows of an export are then invalid if theirs is null, because it is
            outside the years 1 to 9999.

    Raises:
        FormatError: a file is not Parquet, or is truncated.
        StoreError: the file is missing or cannot be read.
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
        rows = _TABLE_BYTES * group.num_rows // max(1, group.total_byte_size)
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
