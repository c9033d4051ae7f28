"""Frames as Arrow columns, one builder per column; only what is asked for is computed.

Column names, types and meaning are in `COLUMNS`; `dump`, `export` and the Spark schema use the same names.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from mqtool.errors import FormatError, UsageError
from mqtool.formats import commit_log, compression, hosts, properties
from mqtool.scan.arrow import binary_view, text
from mqtool.scan.frames import Frames
from mqtool.scan.properties import PropertyPieces


class Rows:
    """What the column builders of one set of frames share."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames

    @cached_property
    def pieces(self) -> PropertyPieces:
        """Name-value pieces of all properties strings."""
        return PropertyPieces(self.frames.bytes, self.frames.properties_start, self.frames.properties_length)

    def binary(self, starts: np.ndarray, lengths: np.ndarray) -> Any:
        """Ranges of the buffer as a binary_view array."""
        return binary_view(self.frames.bytes, starts, lengths)

    def host(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Position and length of the born or store host of every frame."""
        shape = self.frames.host_shape
        by_shape = [next(f for f in head if f.name == name) for head in commit_log.HEADS]
        offsets = np.array([field.offset for field in by_shape])[shape]
        return self.frames.positions + offsets, np.array([field.size for field in by_shape])[shape]


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: as in every output of mqtool.
        type: Arrow type.
        docs: meaning and unit.
        build: makes it.
    """

    name: str
    type: Any
    docs: str
    build: Callable[[Rows], Any]


def _fixed(name: str, arrow_type: Any, docs: str, field: str | None = None) -> Column:
    return Column(name, arrow_type, docs, lambda rows: pa.array(rows.frames.column(field or name), arrow_type))


def _topic(rows: Rows) -> Any:
    return text(rows.binary(rows.frames.topic_start, rows.frames.topic_length))


def _raw_body(rows: Rows) -> Any:
    return rows.binary(rows.frames.body_start, rows.frames.body_length).cast(pa.binary())


def _body(rows: Rows) -> Any:
    packed = np.flatnonzero(rows.frames.column("sys_flag") & commit_log.SysFlag.COMPRESSED)
    stored = _raw_body(rows)
    if not len(packed):
        return stored
    flags = rows.frames.column("sys_flag")
    mask = np.zeros(len(rows.frames), bool)
    mask[packed] = True
    plain = [_decoded(stored[index].as_py(), int(flags[index])) for index in packed.tolist()]
    import pyarrow.compute as pc  # noqa: PLC0415 - costs 30 ms, only needed here

    return pc.replace_with_mask(stored, pa.array(mask), pa.array(plain, pa.binary()))


def _decoded(body: bytes, sys_flag: int) -> bytes:
    """A body that cannot be decompressed stays as stored; `body_decoded` tells."""
    try:
        return compression.decode(body, sys_flag)
    except FormatError:
        return body


def _body_decoded(rows: Rows) -> Any:
    flags = rows.frames.column("sys_flag")
    good = np.ones(len(rows.frames), bool)
    stored = None
    for index in np.flatnonzero(flags & commit_log.SysFlag.COMPRESSED).tolist():
        stored = stored if stored is not None else _raw_body(rows)
        try:
            compression.decode(stored[index].as_py(), int(flags[index]))
        except FormatError:
            good[index] = False
    return pa.array(good)


def _host(name: str) -> Callable[[Rows], Any]:
    def build(rows: Rows) -> Any:
        coded = rows.binary(*rows.host(name)).cast(pa.binary()).dictionary_encode()
        texts = pa.array([hosts.text_of(value) for value in coded.dictionary.to_pylist()], pa.string())
        return texts.take(coded.indices)

    return build


def _property(name: str) -> Callable[[Rows], Any]:
    return lambda rows: text(rows.binary(*rows.pieces.value_of(name)))


def _keys(rows: Rows) -> Any:
    import pyarrow.compute as pc  # noqa: PLC0415 - costs 30 ms, only needed here

    values = _property(properties.KEYS)(rows)
    words = pc.split_pattern(pc.fill_null(values, ""), properties.KEY_SEPARATOR)
    flat, parents = words.flatten(), pc.list_parent_indices(words)
    kept = pc.greater(pc.binary_length(flat), 0)
    counts = np.bincount(np.asarray(pc.filter(parents, kept)), minlength=len(values))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pc.filter(flat, kept))


def _properties(rows: Rows) -> Any:
    pieces = rows.pieces
    keep = np.arange(len(pieces.owner))
    if pieces.has_repeats.any():
        keep = np.flatnonzero(_last_of_each(rows, pieces))
    counts = np.bincount(pieces.owner[keep], minlength=pieces.count)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    names = text(rows.binary(pieces.name_start[keep], pieces.name_length[keep]))
    values = text(rows.binary(pieces.value_start[keep], pieces.value_length[keep]))
    return pa.MapArray.from_arrays(pa.array(offsets), names, values)


def _last_of_each(rows: Rows, pieces: PropertyPieces) -> np.ndarray:
    """Marks the pieces that count: of equal names in one record the last."""
    keep = np.ones(len(pieces.owner), bool)
    for owner in np.flatnonzero(pieces.has_repeats).tolist():
        seen: set[bytes] = set()
        for piece in np.flatnonzero(pieces.owner == owner)[::-1].tolist():
            start = int(pieces.name_start[piece])
            name = bytes(rows.frames.view[start : start + int(pieces.name_length[piece])])
            keep[piece] = name not in seen
            seen.add(name)
    return keep


_HEX = np.array([f"{value:02X}".encode() for value in range(256)], "S2").view(np.uint8).reshape(256, 2)


def _offset_message_id(rows: Rows) -> Any:
    start, length = rows.host("store_host")
    offsets = rows.frames.column("physical_offset").astype(">i8")
    order = np.arange(len(rows.frames))
    parts, where = [], []
    for size in hosts.SIZES:
        which = np.flatnonzero(length == size)
        if not len(which):
            continue
        raw = np.empty((len(which), size + 8), np.uint8)
        raw[:, :size] = rows.frames.bytes[start[which, None] + np.arange(size)]
        raw[:, size:] = offsets[which].view(np.uint8).reshape(-1, 8)
        digits = _HEX[raw].reshape(len(which), -1)
        width = digits.shape[1]
        ends = np.arange(0, width * (len(which) + 1), width, dtype=np.int32)
        parts.append(pa.StringArray.from_buffers(len(which), pa.py_buffer(ends), pa.py_buffer(digits.copy())))
        where.append(which)
    if len(parts) == 1:
        return parts[0]
    order[np.concatenate(where)] = np.arange(len(rows.frames)) if where else order
    return pa.concat_arrays(parts).take(pa.array(order)) if parts else pa.array([], pa.string())


COLUMNS: tuple[Column, ...] = (
    _fixed("physical_offset", pa.int64(), "byte address of the record in the CommitLog"),
    _fixed("store_size", pa.int32(), "bytes of the whole record", "total_size"),
    Column("topic", pa.string(), "topic name", _topic),
    _fixed("queue_id", pa.int32(), "queue of the topic"),
    _fixed("queue_offset", pa.int64(), "ordinal in the queue; 0 for prepared and rolled-back records"),
    _fixed("flag", pa.int32(), "the application's integer"),
    _fixed("sys_flag", pa.int32(), "the broker's bits"),
    _fixed("born_timestamp", pa.int64(), "ms since epoch, producer's clock"),
    _fixed("store_timestamp", pa.int64(), "ms since epoch, broker's clock"),
    Column("born_host", pa.string(), "producer, address:port", _host("born_host")),
    Column("store_host", pa.string(), "broker, address:port", _host("store_host")),
    _fixed("reconsume_times", pa.int32(), "how often a consumer sent it back"),
    _fixed("prepared_transaction_offset", pa.int64(), "of a committed message: physical offset of its half message"),
    Column("properties", pa.map_(pa.string(), pa.string()), "name to value, in stored order", _properties),
    _fixed("body_crc", pa.int32(), "CRC-32 of the stored body, 31 bits"),
    Column("body", pa.binary(), "the body, decompressed", _body),
    Column("offset_message_id", pa.string(), "store host and physical offset, hexadecimal", _offset_message_id),
    Column("tags", pa.string(), "TAGS property", _property(properties.TAGS)),
    Column("keys", pa.list_(pa.string()), "words of the KEYS property", _keys),
    Column("unique_key", pa.string(), "UNIQ_KEY property, the id made by the client", _property(properties.UNIQUE_KEY)),
    _fixed("magic_code", pa.int32(), "version of the record"),
    Column("raw_body", pa.binary(), "the body as stored", _raw_body),
    Column("body_decoded", pa.bool_(), "false if the body could not be decompressed and is as stored", _body_decoded),
)

BY_NAME = {column.name: column for column in COLUMNS}

DEFAULT_COLUMNS = tuple(column.name for column in COLUMNS if column.name not in ("raw_body", "body_decoded"))


def schema(names: Iterable[str] = DEFAULT_COLUMNS) -> Any:
    """Returns the Arrow schema of some columns, each field with its docs as metadata.

    Raises:
        UsageError: an unknown column.
    """
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        raise UsageError(f"unknown column {unknown[0]!r}; known: {', '.join(BY_NAME)}")
    return pa.schema([pa.field(n, BY_NAME[n].type, metadata={"docs": BY_NAME[n].docs}) for n in names])


def record_batch(frames: Frames, names: Iterable[str] = DEFAULT_COLUMNS) -> Any:
    """Returns frames as a `pa.RecordBatch` with the columns asked for, one row per frame."""
    chosen = tuple(names)
    made = schema(chosen)
    rows = Rows(frames)
    return pa.RecordBatch.from_arrays([BY_NAME[name].build(rows) for name in chosen], schema=made)
