"""Partitions rows by topic, date and hour, and names the partition directories.

Directories are named as in Hive (`topic=Orders/date=2026-11-21`), escaped so that Spark reads the original values
back. Dates and hours are those of store_timestamp in UTC. The topic also remains a column of the files.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqtool.errors import UsageError

PARTITION_COLUMNS = ("topic", "date", "hour")
NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"

_ASCII_SPECIAL = re.compile(r"[\x00-\x20\x7f\"#$%&'*+,/:;<=>?@\\^`{|}\[\]]")
_LONGEST = 240
"""Maximum bytes of a value in a directory name; file systems accept 255 including the column's name."""
_EPOCH = date(1970, 1, 1)
_DAY, _HOUR = 86_400_000, 3_600_000


def check_partition_by(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the names after checking that rows can be partitioned by them.

    Raises:
        UsageError: they cannot.
    """
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
    """Returns the values of a partition as text, by name: null or empty ones as None, dates as ISO 8601.

    Args:
        partition_by: names.
        values: as in the key columns.
    """
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
