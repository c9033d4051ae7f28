"""Redaction: replaces user data by salted hashes, in every column that contains a copy of it.

Equal values have equal hashes with the same salt, so joins and counts still work.
"""

import hashlib
import os
import secrets
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from mqtool.errors import UsageError
from mqtool.formats import properties
from mqtool.records.columns import PROPERTY_COLUMNS

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


def closure(columns: Iterable[str]) -> frozenset[str]:
    """Returns the columns, and all others that would reveal their values.

    Raises:
        UsageError: a column by which messages are partitioned or sorted.
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
    """Returns a batch with the values of some columns replaced; their types do not change.

    Args:
        batch: `pa.RecordBatch`.
        columns: result of `closure`; not empty.
        salt: of the hashes.
    """
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
