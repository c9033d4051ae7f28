"""Frames as Arrow columns, with one builder for each column. Only requested columns are computed.

`COLUMNS` has their names, types and meaning; `dump`, `export` and the Spark schema use the same names. Columns are
built over the frames' buffer without copying values, where Arrow can do that (`binary_view`).
"""

import binascii
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from mqtool import native
from mqtool.errors import FormatError, UsageError
from mqtool.formats import commit_log, compression, hosts, java, properties
from mqtool.formats.message_batch import BatchedMessage
from mqtool.records.frames import Frames, numbered

_INLINE = 12
_WORD = 8
_U64 = np.uint64
_HALF = _U64(32)
_HEADS = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], _U64)
"""Masks that keep the first 0 … 8 bytes of a word whose first byte is lowest."""


MAP = pa.map_(pa.string(), pa.string())

_SHORTEST = 4
"""Bytes of a property with the byte after it."""


def binary_view(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> "pa.BinaryViewArray":
    """Returns ranges of a buffer as a `binary_view` array that points into it; a negative length is null.

    A view has 16 bytes: the length, then the value itself if it has up to 12 bytes, else its first four, the number
    of the buffer and the position in it. The buffer is uint8, of less than 2 GiB.
    """
    null = lengths < 0
    if native.in_use():
        views = np.empty((len(starts), 2), _U64)
        native.logs.views(data, np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(lengths, np.int64), views)
    else:
        views = _views(data, starts, np.where(null, 0, lengths))
    validity = pa.array(~null).buffers()[1] if null.any() else None
    buffers = [validity, pa.py_buffer(views), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), len(starts), buffers)


def _views(data: np.ndarray, starts: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Returns `native.logs.views` of ranges, as two words of eight bytes each."""
    padded = data if len(data) >= _INLINE else np.concatenate([data, np.zeros(_INLINE, np.uint8)])
    at = np.minimum(starts, len(padded) - _INLINE)
    words = np.ndarray((len(padded) - _WORD + 1,), "<u8", padded, strides=(1,))
    views = np.empty((len(starts), 2), _U64)
    first = words[at] & _HEADS[np.minimum(size, 4)]
    views[:, 0] = size.astype(_U64) | (first << _HALF)
    views[:, 1] = starts.astype(_U64) << _HALF
    short = np.flatnonzero(size <= _INLINE)
    if len(short):
        rest = words[at[short] + 4] & _HEADS[np.clip(size[short] - 4, 0, _WORD)]
        views[short, 1] = rest
    for index in np.flatnonzero(at != starts).tolist():  # a word would have left the buffer, so the value is short
        value = data[starts[index] : starts[index] + size[index]].tobytes().ljust(_INLINE, b"\0")
        low = int.from_bytes(value[:4], "little") << 32
        views[index] = int(size[index]) | low, int.from_bytes(value[4:], "little")
    return views


def offsets_of(values: "pa.Array") -> np.ndarray:
    """Returns the start of each value in a binary array's data, and the end of the last; int64."""
    return np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4).astype(np.int64)


def data_of(values: "pa.Array") -> np.ndarray:
    """Returns the data of a binary array as uint8."""
    buffer = values.buffers()[2]
    return np.frombuffer(buffer, np.uint8) if buffer is not None else np.empty(0, np.uint8)


def text(values: "pa.Array") -> "pa.Array":
    """Returns binary values as strings; invalid UTF-8 becomes U+FFFD as in Java."""
    import pyarrow.compute as pc  # noqa: PLC0415 - costs 30 ms that column-less callers need not pay

    plain = values.cast(pa.binary())
    try:
        return pc.cast(plain, pa.string())
    except pa.ArrowInvalid:
        from mqtool.formats.java import decode_utf8  # noqa: PLC0415

        return pa.array([None if v is None else decode_utf8(v) for v in plain.to_pylist()], pa.string())


class PropertySlices:
    """All properties of some frames, in stored order.

    Attributes:
        data: uint8, the frames' buffer.
        count: number of frames.
        owner: int64, index of the frame of each property; ascending.
        codes, names: int32, the number of each property's name, and the names by number, as stored.
        value_start, value_length: int64 positions in `data`.
    """

    def __init__(self, frames: Frames) -> None:
        self.data, self.count, self._frames = frames.data, len(frames), frames
        self.owner, starts, lengths, self.value_start, self.value_length = _find(frames)
        self.codes, self.names = numbered(frames.data, starts, lengths)

    def value_of(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the position of each frame's value for one name: int64 start and length.

        The length is -1 if the frame has no such property. The last of equal names counts.
        """
        stored, starts = name.encode(), np.zeros(self.count, np.int64)
        lengths = np.full(self.count, -1, np.int64)
        if stored in self.names:
            matches = np.flatnonzero(self.codes == self.names.index(stored))
            owner = self.owner[matches]
            starts[owner] = self.value_start[matches]  # ascending: the last one wins
            lengths[owner] = self.value_length[matches]
        return starts, lengths

    def strings(self, name: str) -> Any:
        """Returns the value of one property in each frame as strings, null if the frame does not have it."""
        return text(binary_view(self.data, *self.value_of(name)))

    def keys(self) -> Any:
        """Returns the words of KEYS in each frame, as lists."""
        values = self.strings(properties.KEYS)
        here = np.asarray(values.is_valid())
        if (data_of(values) == ord(properties.KEY_SEPARATOR)).any():
            return _words(values)
        offsets = np.concatenate([[0], np.cumsum(here)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), values if here.all() else values.drop_null())

    def maps(self) -> Any:
        """Returns all properties of each frame, name to value, in stored order; the last of equal names counts."""
        names = [java.decode_utf8(name) for name in self.names]
        if self._has_repeats() or len(set(names)) < len(names):
            stored = self._frames.properties_of(slice(None))
            return pa.array([list(properties.decode(encoded).items()) for encoded in stored], MAP)
        offsets = np.searchsorted(self.owner, np.arange(self.count + 1)).astype(np.int32)
        keys = pa.array(names, pa.string()).take(pa.array(self.codes))
        values = text(binary_view(self.data, self.value_start, self.value_length))
        return pa.MapArray.from_arrays(pa.array(offsets), keys, values)

    def _has_repeats(self) -> bool:
        """Whether a frame has two properties of one name."""
        is_same = self.owner[1:] == self.owner[:-1]
        if not (is_same & (self.codes[1:] <= self.codes[:-1])).any():
            return False  # as where all records have the same names, which are numbered in their order
        named = np.sort(self.owner * len(self.names) + self.codes)
        return bool((named[1:] == named[:-1]).any())


def _find(frames: Frames) -> np.ndarray:
    """Returns a table of int64: the frame of each property, start and length of its name, and of its value."""
    spans = (frames.properties_start, frames.properties_length)
    if native.in_use():
        table = np.empty((5, int(spans[1].sum()) // _SHORTEST + len(frames)), np.int64)
        return table[:, : native.logs.properties(frames.data, *spans, table)]
    rows = [
        (row, at + start, split - start, at + split + 1, end - split - 1)
        for row, (at, stored) in enumerate(zip(spans[0].tolist(), frames.properties_of(slice(None)), strict=True))
        for start, split, end in properties.places(stored)
    ]
    return np.array(rows, np.int64).reshape(len(rows), 5).T.copy()


def _words(values: Any) -> Any:
    import pyarrow.compute as pc  # noqa: PLC0415 - costs 30 ms, only needed here

    words = pc.split_pattern(pc.fill_null(values, ""), properties.KEY_SEPARATOR)
    flat, parents = words.flatten(), pc.list_parent_indices(words)
    kept = pc.greater(pc.binary_length(flat), 0)
    counts = np.bincount(np.asarray(pc.filter(parents, kept)), minlength=len(values))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pc.filter(flat, kept))


class Rows:
    """What the column builders of one set of frames share."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames

    @cached_property
    def properties(self) -> PropertySlices:
        """Properties of all records."""
        return PropertySlices(self.frames)

    def binary(self, starts: np.ndarray, lengths: np.ndarray) -> Any:
        """Ranges of the buffer as a `binary_view` array."""
        return binary_view(self.frames.data, starts, lengths)

    def host(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Position and length of the born or store host of every frame."""
        shape = self.frames.host_shape
        by_shape = [next(f for f in head if f.name == name) for head in commit_log.HEADS]
        offsets = np.array([field.offset for field in by_shape])[shape]
        return self.frames.positions + offsets, np.array([field.size for field in by_shape])[shape]

    def coded_host(self, name: str) -> Any:
        """Born or store host as text, dictionary-encoded because few values are distinct."""
        words = self.frames.host_words(name)
        if words is None:
            coded = self.binary(*self.host(name)).cast(pa.binary()).dictionary_encode()
            codes, distinct = coded.indices, coded.dictionary.to_pylist()
        elif (words == words[:1]).all():
            codes, distinct = pa.array(np.zeros(len(words), np.int32)), [word.tobytes() for word in words[:1]]
        else:
            coded = pa.array(words).dictionary_encode()
            codes, distinct = coded.indices, [word.to_bytes(8, "little") for word in coded.dictionary.to_pylist()]
        texts = pa.array([hosts.text_of(value) for value in distinct], pa.string())
        return pa.DictionaryArray.from_arrays(codes, texts)


class InnerMessage:
    """A message of an inner batch, with its decoded properties."""

    def __init__(self, message: BatchedMessage) -> None:
        self.message = message
        self.properties = properties.decode(message.properties)


class Column(Struct, frozen=True):
    """One column."""

    name: str  # as in every output of mqtool
    type: Any  # Arrow type
    docs: str  # meaning and unit
    build: Callable[[Rows], Any]  # builds the column of records
    # Returns the value for a message of an inner batch; None if that is the value of its record.
    inner: Callable[[InnerMessage], Any] | None = None
    property: str = ""  # name of the property that the column shows


def _fixed(name: str, arrow_type: Any, docs: str, field: str | None = None, **other: Any) -> Column:
    return Column(name, arrow_type, docs, lambda rows: pa.array(rows.frames.column(field or name), arrow_type), **other)


def _topic(rows: Rows) -> Any:
    codes, names = rows.frames.coded_topics
    return pa.array(names, pa.string()).take(pa.array(codes))


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
    """Returns the decompressed body, or the stored one if that fails; column `body_decoded` shows which."""
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
        coded = rows.coded_host(name)
        return coded.dictionary.take(coded.indices)

    return build


def _property(name: str, stored: str, docs: str) -> Column:
    return Column(
        name,
        pa.string(),
        docs,
        lambda rows: rows.properties.strings(stored),
        lambda inner: inner.properties.get(stored),
        stored,
    )


def _offset_message_id(rows: Rows) -> Any:
    offsets = rows.frames.column("physical_offset").astype(">i8")
    words = rows.frames.host_words("store_host")
    if words is not None:
        return _hexadecimal(np.stack([words, offsets.view("<u8")], axis=1).view(np.uint8))
    start, length = rows.host("store_host")
    order = np.empty(len(rows.frames), np.int64)
    parts, done = [], 0
    for size in hosts.SIZES:
        which = np.flatnonzero(length == size)
        raw = np.empty((len(which), size + 8), np.uint8)
        raw[:, :size] = rows.frames.data[start[which, None] + np.arange(size)]
        raw[:, size:] = offsets[which].view(np.uint8).reshape(-1, 8)
        parts.append(_hexadecimal(raw))
        order[which] = np.arange(done, done + len(which))
        done += len(which)
    return pa.concat_arrays(parts).take(pa.array(order))


def _hexadecimal(rows: np.ndarray) -> Any:
    """Returns the upper-case digits of each row of bytes."""
    digits = binascii.hexlify(rows.data).upper()
    ends = np.arange(0, len(digits) + 1, 2 * rows.shape[1], dtype=np.int32)
    return pa.StringArray.from_buffers(len(rows), pa.py_buffer(ends), pa.py_buffer(digits))


COLUMNS: tuple[Column, ...] = (
    _fixed("physical_offset", pa.int64(), "byte address of the record in the CommitLog"),
    _fixed("store_size", pa.int32(), "bytes of the complete record", "total_size"),
    Column("topic", pa.string(), "topic name", _topic),
    _fixed("queue_id", pa.int32(), "queue of the topic"),
    _fixed("queue_offset", pa.int64(), "ordinal in the queue; 0 for prepared and rolled-back records"),
    _fixed("flag", pa.int32(), "the application's integer", inner=lambda inner: inner.message.flag),
    _fixed("sys_flag", pa.int32(), "the broker's bits"),
    _fixed("born_timestamp", pa.int64(), "ms since epoch, producer's clock"),
    _fixed("store_timestamp", pa.int64(), "ms since epoch, broker's clock"),
    Column("born_host", pa.string(), "producer, address:port", _host("born_host")),
    Column("store_host", pa.string(), "broker, address:port", _host("store_host")),
    _fixed("reconsume_times", pa.int32(), "how often a consumer has sent it back"),
    _fixed("prepared_transaction_offset", pa.int64(), "of a committed message: physical offset of its half message"),
    Column(
        "properties",
        MAP,
        "name to value, in stored order",
        lambda rows: rows.properties.maps(),
        lambda inner: list(inner.properties.items()),
    ),
    _fixed("body_crc", pa.int32(), "CRC-32 of the stored body, 31 bits"),
    Column("body", pa.binary(), "the body, decompressed", _body, lambda inner: inner.message.body),
    Column("offset_message_id", pa.string(), "store host and physical offset, hexadecimal", _offset_message_id),
    _property("tags", properties.TAGS, "TAGS property"),
    Column(
        "keys",
        pa.list_(pa.string()),
        "words of the KEYS property",
        lambda rows: rows.properties.keys(),
        lambda inner: list(properties.keys_of(inner.properties)),
    ),
    _property("unique_key", properties.UNIQUE_KEY, "UNIQ_KEY property, the id assigned by the client"),
    _property(
        "sharding_key",
        properties.SHARDING_KEY,
        "__SHARDINGKEY property: messages with the same key are kept in order",
    ),
    _fixed("magic_code", pa.int32(), "version of the record"),
    Column("raw_body", pa.binary(), "the body as stored", _raw_body),
    Column("body_decoded", pa.bool_(), "false if the body could not be decompressed and is as stored", _body_decoded),
)

BY_NAME = {column.name: column for column in COLUMNS}

PROPERTY_COLUMNS = {column.name: column.property for column in COLUMNS if column.property}
"""Columns that are the value of one property, and its name."""

DEFAULT_COLUMNS = tuple(column.name for column in COLUMNS if column.name not in ("raw_body", "body_decoded"))


def schema(names: Iterable[str] = DEFAULT_COLUMNS) -> Any:
    """Returns the Arrow schema of columns; each field has its docs as metadata. Raises UsageError."""
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        raise UsageError(f"unknown column {unknown[0]!r}; known: {', '.join(BY_NAME)}")
    return pa.schema([pa.field(n, BY_NAME[n].type, metadata={"docs": BY_NAME[n].docs}) for n in names])


def record_batch(frames: Frames, names: Iterable[str] = DEFAULT_COLUMNS) -> Any:
    """Returns frames as a `pa.RecordBatch` with the requested columns, one row for each frame."""
    chosen = tuple(names)
    arrow_schema = schema(chosen)
    rows = Rows(frames)
    return pa.RecordBatch.from_arrays([BY_NAME[name].build(rows) for name in chosen], schema=arrow_schema)
