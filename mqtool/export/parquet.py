"""Writes sorted batches to Parquet: row groups limited by bytes, files by size, one directory per partition.

Directories of topic, date and hour are named as in Hive (`topic=Orders/date=2026-11-21`), escaped so that Spark reads
the original values back. Dates and hours are those of store_timestamp in UTC. The topic also remains a column of the
files.
"""

import base64
import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from mqtool.errors import UsageError
from mqtool.export.rows import size_of, writable, writable_schema
from mqtool.export.schema import Table
from mqtool.export.target import Target

PARTITION_COLUMNS = ("topic", "date", "hour")
NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"

_ASCII_SPECIAL = re.compile(r"[\x00-\x20\x7f\"#$%&'*+,/:;<=>?@\\^`{|}\[\]]")
_LONGEST = 240
"""Maximum bytes of a value in a directory name; file systems accept 255 including the column's name."""
_EPOCH = date(1970, 1, 1)
_DAY, _HOUR = 86_400_000, 3_600_000

ROW_GROUP_BYTES = 32 << 20
"""Arrow bytes of a row group."""
FILE_BYTES = 256 << 20

_FEW_ROWS = 256
"""Batches of fewer rows are merged by a copy, because each batch costs the writer some time."""

_ARROW_SCHEMA = "ARROW:schema"
"""Metadata key under which Arrow stores its types in a file."""

SORTED = ("topic", "queue_id", "queue_offset")
"""Order of the rows in a file, as declared in its footer."""
_DICTIONARY = frozenset(
    (
        "broker",
        "topic",
        "queue_id",
        "flag",
        "sys_flag",
        "born_host",
        "store_host",
        "reconsume_times",
        "tags",
        "prepared_transaction_offset",
        "properties.key_value.key",
        "magic_code",
        "body_decoded",
        "batch_index",
        "record_class",
        "kind",
        "file",
        "column",
        "reason",
    )
)
"""Columns with few distinct values. For the others, building a dictionary wastes time before it is abandoned."""

_NO_STATISTICS = frozenset(("body", "properties.key_value.value"))
"""Whose smallest and largest value would let a reader skip nothing; to find them takes 2 % of an export."""


def check_partition_by(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the names after checking that rows can be partitioned by them; raises UsageError if they cannot."""
    chosen = tuple(dict.fromkeys(names))
    unknown = [name for name in chosen if name not in PARTITION_COLUMNS]
    if unknown:
        raise UsageError(f"expected a partition column, found {unknown[0]!r}; use {', '.join(PARTITION_COLUMNS)}")
    return chosen


def partition_columns(keys: Any, partition_by: tuple[str, ...]) -> Any:
    """Returns key columns, with `date` (days since the epoch) and `hour` added if requested."""
    millis = keys["store_timestamp"].cast(pa.int64())
    days = pc.floor(pc.divide(millis.cast(pa.float64()), float(_DAY))).cast(pa.int64())
    if "date" in partition_by:
        keys = keys.append_column("date", days)
    if "hour" in partition_by:
        keys = keys.append_column("hour", pc.divide(pc.subtract(millis, pc.multiply(days, _DAY)), _HOUR))
    return keys


def group_edges(keys: Any, names: Iterable[str]) -> np.ndarray:
    """Returns the row numbers at which sorted rows change in any column: int64, from 0 to the number of rows."""
    count = keys.num_rows
    changes = np.zeros(max(0, count - 1), bool)
    for name in names:
        values = keys[name]
        if pa.types.is_string(values.type):
            values = values.dictionary_encode().indices
        numbers = np.asarray(pc.fill_null(values, -(1 << 62) if values.type == pa.int64() else -1))
        changes |= numbers[1:] != numbers[:-1]
    return np.concatenate([[0], np.flatnonzero(changes) + 1, [count]]) if count else np.zeros(1, np.int64)


def partition_values(partition_by: tuple[str, ...], values: Iterable[Any]) -> dict[str, str | None]:
    """Returns the values of a partition as text, by name: null or empty ones as None, dates as ISO 8601."""
    return {name: _text(name, value) for name, value in zip(partition_by, values, strict=True)}


def directory(values: Mapping[str, str | None]) -> str:
    """Returns the directory of a partition, from its values as text; "" without partitioning."""
    return "/".join(f"{name}={NULL_DIRECTORY if text is None else _segment(text)}" for name, text in values.items())


def stored_value(name: str, text: str | None) -> Any:
    """Returns the value of a partition as tables store it, from its text: days since the epoch for a date."""
    return (date.fromisoformat(text) - _EPOCH).days if name == "date" and text is not None else text


def _text(name: str, value: Any) -> str | None:
    if value is None or value == "":
        return None
    if name == "date":
        return (_EPOCH + timedelta(days=value)).isoformat()
    return f"{value:02d}" if name == "hour" else str(value)


def _segment(text: str) -> str:
    """Returns a directory name: escaped, and shortened to what file systems accept; the full topic is in the files."""
    segment = _ASCII_SPECIAL.sub(lambda match: f"%{ord(match[0]):02X}", text)
    data = segment.encode()
    if len(data) <= _LONGEST:
        return segment
    mark = hashlib.blake2b(data, digest_size=8).hexdigest()
    return f"{data[: _LONGEST - 20].decode('utf-8', 'ignore')}~{mark}"


class WriteOptions(Struct, frozen=True):
    """How to write files."""

    partition_by: tuple[str, ...] = ()  # of `topic`, `date`, `hour`, in the order of the directories
    file_bytes: int = FILE_BYTES  # size in bytes at which a new file is started
    level: int = 1  # zstd compression level
    row_group_bytes: int = ROW_GROUP_BYTES  # see the constant

    def __post_init__(self) -> None:
        check_partition_by(self.partition_by)
        if not 1 <= self.level <= 22:
            raise UsageError(f"expected a zstd level from 1 to 22, found {self.level}")
        if self.file_bytes < 1:
            raise UsageError("expected a file size of at least 1 byte")


class FileEntry(Struct, frozen=True):
    """A file that was written."""

    table: str  # that it belongs to
    path: str  # in the export
    staged: str  # path in staging, until it is published
    rows: int  # and size: number of rows; bytes
    size: int
    partition: dict[str, str | None]  # value as text by partition column, unescaped; None for null
    broker: str = ""  # whose messages it contains; "" if it belongs to no broker
    copy_of: str = ""  # path of the removed file some of whose rows it contains; "" for new rows
    checksum: int | None = None  # CRC-32 of its bytes, if a task wrote it


class _Checksummed:
    """A file that is written from its beginning to its end, with the checksum of what was written."""

    def __init__(self, file: Any) -> None:
        self._file, self.checksum = file, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: Any) -> Any:
        self.checksum = zlib.crc32(data, self.checksum)
        return self._file.write(data)


class TableWriter:
    """Writes one table of one task; keeps at most one file open."""

    def __init__(
        self,
        target: Target,
        staging: str,
        table: Table,
        schema: Any,
        name: str,
        options: WriteOptions,
        broker: str = "",
    ) -> None:
        """Writes nothing yet.

        The table becomes a directory below `staging`, the directory of this task; `name` is that of the files, without
        number and suffix, and `broker` whose messages they contain.
        """
        self._broker = broker
        self._target, self._staging, self._table, self._schema = target, staging, table, schema
        self._name, self._options = name, options
        self._files: list[FileEntry] = []
        self._pieces: list[Any] = []
        self._bytes = self._rows = 0
        self._values: tuple[Any, ...] = ()
        self._open: tuple[Any, Any, str] | None = None

    def add(self, batch: Any, values: tuple[Any, ...] = (), *, new_file: bool = False) -> None:
        """Writes rows of a `pa.RecordBatch`; the rows of a partition must be consecutive.

        `values` are of the partition columns. `new_file` starts a new file, because the rows do not continue the sort
        order.
        """
        if values != self._values or new_file:
            self._end_file()
            self._values = values
        size = size_of(batch)
        step = max(1, batch.num_rows * self._options.row_group_bytes // max(1, size))
        if step >= batch.num_rows:
            self._take(batch, size)
            return
        for start in range(0, batch.num_rows, step):
            piece = batch.slice(start, step)
            self._take(piece, size_of(piece))

    def _take(self, batch: Any, size: int) -> None:
        self._pieces.append(batch)
        self._bytes += size
        if self._bytes >= self._options.row_group_bytes:
            self._flush()
            if self._open is not None and self._open[0].tell() >= self._options.file_bytes:
                self._end_file()

    def close(self) -> list[FileEntry]:
        """Closes the last file; returns all files."""
        self._end_file()
        return self._files

    def abandon(self) -> None:
        """Closes the file that an error has left open, whatever is in it; does nothing after `close`."""
        if self._open is None:
            return
        sink, writer, _ = self._open
        self._open = None
        writer.is_open = False  # it would write the end of the file when it is collected, and print that it cannot
        with suppress(OSError):  # what could not be written still cannot
            sink.close()

    def _flush(self) -> None:
        if not self._pieces:
            return
        if self._open is None:
            self._open = self._start_file()
        table = self._table_of_pieces()
        self._open[1].write_table(table, row_group_size=max(1, table.num_rows))
        self._rows += table.num_rows
        self._pieces, self._bytes = [], 0

    def _table_of_pieces(self) -> Any:
        pieces = [writable(piece) for piece in self._pieces]
        if sum(piece.num_rows for piece in pieces) < len(pieces) * _FEW_ROWS:
            pieces = [pa.concat_batches(pieces)]
        return pa.Table.from_batches(pieces)

    def _start_file(self) -> tuple[Any, Any, str]:
        name = f"{self._name}-{len(self._files):04d}.parquet"
        path = "/".join(part for part in (self._table, directory(self._partition), name) if part)
        sink = _Checksummed(self._target.create(f"{self._staging}/{path}"))
        return sink, parquet_writer(sink, self._schema, self._options.level), path

    def _end_file(self) -> None:
        self._flush()
        if self._open is None:
            return
        sink, writer, path = self._open
        writer.close()
        size = sink.tell()
        sink.close()
        self._files.append(
            FileEntry(
                self._table,
                path,
                f"{self._staging}/{path}",
                self._rows,
                size,
                self._partition,
                self._broker,
                checksum=sink.checksum,
            )
        )
        self._open, self._rows = None, 0

    @property
    def _partition(self) -> dict[str, str | None]:
        return partition_values(self._options.partition_by if self._table == Table.MESSAGES else (), self._values)


def rewrite(
    target: Target, source: str, to: str, keep: Callable[[Any], Any], level: int, *, in_order: bool = True
) -> tuple[int, int]:
    """Writes a copy of a file with some of its rows, row group by row group; returns its rows and its size.

    `keep` returns which rows of a `pa.Table` to copy; `in_order` is whether they are sorted as in every file of an
    export.
    """
    rows = 0
    with target.open(source) as opened, pq.ParquetFile(opened) as file, closing(target.create(to)) as sink:
        with parquet_writer(sink, file.schema_arrow, level, in_order=in_order) as writer:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                kept = table.filter(keep(table)).combine_chunks()
                for batch in kept.to_batches():
                    writer.write_table(pa.Table.from_batches([writable(batch)]), row_group_size=batch.num_rows)
                rows += kept.num_rows
        return rows, sink.tell()


def parquet_writer(sink: Any, schema: Any, level: int, *, in_order: bool = True) -> Any:
    """Returns a `pq.ParquetWriter` with the settings of all exports.

    The schema is what Arrow readers see; tables are written in the form of `writable_schema`. `in_order` is whether the
    rows are sorted, as far as the columns for that are there.
    """
    leaves = _leaves(schema)
    in_order &= set(SORTED) <= set(schema.names)
    sorting = pq.SortingColumn.from_ordering(schema, [(name, "ascending") for name in SORTED]) if in_order else None
    writer = pq.ParquetWriter(
        sink,
        writable_schema(schema),
        compression="zstd",
        compression_level=level,
        use_dictionary=[path for path in leaves if path in _DICTIONARY],
        write_statistics=[path for path in leaves if path not in _NO_STATISTICS],
        write_page_index=True,
        sorting_columns=sorting,
        version="2.6",
        store_schema=False,
    )
    writer.add_key_value_metadata({_ARROW_SCHEMA: base64.b64encode(schema.serialize())})
    return writer


def _leaves(schema: Any) -> list[str]:
    """Returns the paths of the leaf columns, as Parquet names them."""
    leaves: list[str] = []
    for field in schema:
        if pa.types.is_map(field.type):
            leaves.extend((f"{field.name}.key_value.key", f"{field.name}.key_value.value"))
        elif pa.types.is_list(field.type):
            leaves.append(f"{field.name}.list.element")
        else:
            leaves.append(field.name)
    return leaves
