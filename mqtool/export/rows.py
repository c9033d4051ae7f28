"""Converts frames into rows of the messages table: classes, inner batches, timestamps, bodies.

A value that cannot be converted as requested becomes null and a rejected value; its row is always kept. A record that
contains several messages becomes one row per message, as consumers receive them; hosts, timestamps and physical
offset are the record's (MessageDecoder.decodeMessage, 5.5.0).

The body is by far the largest part of a record, and stays in the buffer into which it was read until it is written:
an Arrow view of 16 bytes is sorted without moving the body, which is copied only when the file is encoded. Arrow has
no `take` for views yet, so they are taken as opaque 16-byte values.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as arrow_types
from msgspec import Struct, field

from mqtool.errors import FormatError
from mqtool.export import schema
from mqtool.export.schema import BY_NAME, Body, ReadRequest, class_of, redact_batch
from mqtool.formats import message_batch
from mqtool.formats.commit_log import FIRST_MILLIS, LAST_MILLIS, SysFlag
from mqtool.formats.message_batch import BatchedMessage
from mqtool.records import columns as scan_columns
from mqtool.records.columns import InnerMessage
from mqtool.records.frames import Frames

WRITABLE = int(pa.__version__.split(".")[0]) >= 22
"""Whether the Parquet writer of this Arrow release supports views (19 does not)."""

_DENSE = 2
"""Views are worth their keep where they use at least one part in so many of the bytes that they keep in memory."""

Reject = Callable[[Any, int, str, str], None]
"""Takes the batch, the row, the column and the reason of a rejected value."""

Part = tuple[int, int | None, BatchedMessage | None]
"""Row of the record, position in its batch, and the message; None if the record is not an inner batch."""

NOT_DECOMPRESSED = "the body cannot be decompressed"

Converted = tuple[Any, dict[int, str]]
"""A string array, and by row the reason of each null in it."""

PLACE = ("physical_offset", "topic", "queue_id", "queue_offset")
KEY_COLUMNS = (*schema.SORT_COLUMNS, "store_timestamp", "record_class")


def is_dense(used: int, kept: int) -> bool:
    """Whether views of `used` bytes in total justify keeping a buffer of `kept` bytes in memory."""
    return used * _DENSE >= kept


def take(batch: Any, order: Any) -> Any:
    """Returns the rows of a `pa.RecordBatch` in another order, an Arrow array of row numbers."""
    columns = [_taken(column, order) if _is_view(column) else column.take(order) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _taken(column: Any, order: Any) -> Any:
    """Returns views without nulls in another order; they refer to the same buffers."""
    _, stored, *buffers = column.buffers()
    views = np.frombuffer(stored, "V16")[column.offset : column.offset + len(column)]
    chosen = views.take(np.asarray(order))
    return pa.Array.from_buffers(column.type, len(chosen), [None, pa.py_buffer(chosen), *buffers])


def concatenate(batches: list[Any]) -> Any:
    """Returns batches as one batch; its bodies are views only if they are in all of the batches."""
    if len({batch.schema for batch in batches}) > 1:
        batches = [compact(batch) for batch in batches]
    return pa.concat_batches(batches)


def compact(batch: Any) -> Any:
    """Returns a batch with bodies copied out of the read buffers, as binary."""
    for index, column in enumerate(batch.columns):
        if _is_view(column):
            field = batch.schema.field(index).with_type(pa.binary())
            batch = batch.set_column(index, field, column.cast(pa.binary()))
    return batch


def writable(batch: Any) -> Any:
    """Returns a batch with the types of `writable_schema`."""
    if not WRITABLE:
        return compact(batch)
    for index, column in enumerate(batch.columns):
        if column.type == pa.binary():
            field = batch.schema.field(index).with_type(pa.binary_view())
            batch = batch.set_column(index, field, column.cast(pa.binary_view()))
    return batch


def writable_schema(schema: Any) -> Any:
    """Returns a schema with the types in which binary columns are passed to the Parquet writer."""
    fields = [field.with_type(pa.binary_view()) if field.type == pa.binary() else field for field in schema]
    return pa.schema(fields, schema.metadata) if WRITABLE else schema


def size_of(batch: Any) -> int:
    """Returns the bytes of a batch; views count with the bytes they show, not with the buffers they keep."""
    return sum(_shown(column) if _is_view(column) else column.nbytes for column in batch.columns)


def _shown(column: Any) -> int:
    words = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, 4)
    lengths = words[column.offset : column.offset + len(column), 0]
    return int(lengths.sum(dtype=np.int64)) + 16 * len(column)


def _is_view(column: Any) -> bool:
    return bool(arrow_types.is_binary_view(column.type))


def explode(columns: Any, rows: scan_columns.Rows, inner: np.ndarray, reject: Reject) -> Any:
    """Returns the columns with inner batches expanded into one row per message, in CommitLog order.

    A batch that cannot be parsed stays one row with its body as stored, and is reported as a rejected value.
    """
    bodies = columns["body"] if "body" in columns.schema.names else scan_columns.BY_NAME["body"].build(rows)
    parts: list[Part] = []
    for index, packed in enumerate(inner.tolist()):
        messages: list[BatchedMessage] = []
        if packed:
            try:
                messages = list(message_batch.split(bodies[index].as_py()))
            except FormatError as error:
                reject(columns, index, "body", f"the inner batch cannot be decoded: {error}")
        parts.extend((index, place, message) for place, message in enumerate(messages))
        if not messages:
            parts.append((index, None, None))
    return _with_parts(columns.take(pa.array([index for index, _, _ in parts], pa.int64())), parts)


def _with_parts(rows: Any, parts: list[Part]) -> Any:
    inside = {at: InnerMessage(message) for at, (_, _, message) in enumerate(parts) if message is not None}
    names = rows.schema.names
    patched = {}
    for column in scan_columns.COLUMNS:
        if column.inner is not None and column.name in names:
            values = rows[column.name].to_pylist()
            for at, message in inside.items():
                values[at] = column.inner(message)
            patched[column.name] = pa.array(values, column.type)
    places = [place for _, place, _ in parts]
    patched["batch_index"] = pa.array(places, pa.int32())
    patched["queue_offset"] = pa.array(np.asarray(rows["queue_offset"]) + np.array([place or 0 for place in places]))
    return pa.RecordBatch.from_arrays([patched.get(name, rows[name]) for name in names], names=names)


def as_text(bodies: Any, undecoded: Any = None) -> Converted:
    """Returns a binary array of bodies as strings; `undecoded` is true where a body is still compressed."""
    bad = _still_packed(undecoded)
    if not bad:
        try:
            return pc.cast(bodies, pa.string()), {}
        except pa.ArrowInvalid:
            pass  # at least one is not UTF-8: find out which
    texts: list[str | None] = []
    for index, body in enumerate(bodies.to_pylist()):
        try:
            texts.append(None if index in bad else body.decode())
        except UnicodeDecodeError as error:
            bad[index] = f"not UTF-8: {error.reason} at byte {error.start}"
            texts.append(None)
    return pa.array(texts, pa.string()), bad


def as_json(bodies: Any, undecoded: Any = None) -> Converted:
    """Returns binary bodies as strings, each of which is one JSON value as the producer wrote it; see `as_text`."""
    bad = _still_packed(undecoded)
    values: list[bytes | None] = []
    for index, body in enumerate(bodies.to_pylist()):
        try:
            if index not in bad:
                orjson.loads(body)
        except (orjson.JSONDecodeError, RecursionError) as error:
            bad[index] = f"no JSON: {error}"
        values.append(None if index in bad else body)
    return pc.cast(pa.array(values, pa.binary()), pa.string()), bad


def _still_packed(undecoded: Any) -> dict[int, str]:
    if undecoded is None:
        return {}
    return {index: NOT_DECOMPRESSED for index, packed in enumerate(undecoded.to_pylist()) if packed}


class Rows(Struct):
    """Some rows of the messages table."""

    # `pa.RecordBatch` with the requested columns, in CommitLog order; binary bodies may be views into the bytes that
    # were read, see `views`.
    batch: Any
    keys: Any  # `pa.RecordBatch` with the columns by which rows are sorted and partitioned
    rejected_values: list[dict[str, Any]] = field(default_factory=list)  # rows of that table, without the broker


def rows_of(frames: Frames, broker: str, request: ReadRequest) -> Rows | None:
    """Returns the rows of frames that match the selection; None if there are none."""
    rows = scan_columns.Rows(frames)
    topics = scan_columns.BY_NAME["topic"].build(rows)
    classes, included = _classes(frames, topics.dictionary_encode(), request)
    if not included.any():
        return None
    if not included.all():
        frames, classes = frames.select(included), classes.filter(pa.array(included))
        rows, topics = scan_columns.Rows(frames), topics.filter(pa.array(included))
    converts = "body" in request.columns and request.body is not Body.BINARY
    needed = tuple(dict.fromkeys((*request.columns, *KEY_COLUMNS, *(("body_decoded",) if converts else ()))))
    maker = RowBuilder(broker, request, needed)
    inner = (frames.column("sys_flag") & SysFlag.INNER_BATCH) != 0
    if inner.any():
        batch = explode(maker.batch(rows, topics, classes), rows, inner, maker.reject)
    else:
        maker.may_view = is_dense(int(frames.sizes.sum()), len(frames.view))
        batch = maker.batch(rows, topics, classes)
    return maker.finish(batch)


def _classes(frames: Frames, topics: Any, request: ReadRequest) -> tuple[Any, np.ndarray]:
    """Returns the class of each record, and which records have a requested class."""
    flags = frames.column("sys_flag") & 0xC
    names = topics.dictionary.to_pylist()
    code = np.asarray(topics.indices, np.int64) * 16 + flags
    distinct, back = np.unique(code, return_inverse=True)
    classes = [class_of(names[value // 16], value % 16) for value in distinct.tolist()]
    included = np.array([request.includes(kind) for kind in classes], bool)[back]
    return pa.DictionaryArray.from_arrays(pa.array(back.astype(np.int32)), pa.array(map(str, classes))), included


class RowBuilder:
    """Builds columns for one set of frames and collects rejected values."""

    def __init__(self, broker: str, request: ReadRequest, names: tuple[str, ...]) -> None:
        self.broker = broker
        self.request = request
        self.names = names
        self.rejected: list[dict[str, Any]] = []
        self.may_view = False

    def batch(self, rows: scan_columns.Rows, topics: Any, classes: Any) -> Any:
        """Returns all columns that are needed, with bodies and timestamps still as stored."""
        frames = rows.frames
        columns: dict[str, Any] = {}
        special: dict[str, Callable[[], Any]] = {
            "broker": lambda: pa.array([self.broker] * len(frames), pa.string()),
            "topic": lambda: topics,
            "body": lambda: self._stored_bodies(rows),
            "batch_index": lambda: pa.nulls(len(frames), pa.int32()),
            "record_class": lambda: classes.dictionary.take(classes.indices),
            "body_decoded": lambda: body_decoded(frames, columns.get("body")),
        }
        for name in sorted(self.names, key="body_decoded".__eq__):  # last, to use the body
            columns[name] = special[name]() if name in special else scan_columns.BY_NAME[name].build(rows)
        return pa.RecordBatch.from_arrays([columns[name] for name in self.names], names=list(self.names))

    def finish(self, batch: Any) -> Rows:
        """Returns the rows with their final types."""
        for name in ("born_timestamp", "store_timestamp"):
            if name in self.names:
                batch = self._replace(batch, name, *timestamps(batch[name]))
        if "body" in self.request.columns and self.request.body is not Body.BINARY:
            batch = self._bodies(batch)
        keys = batch.select(list(KEY_COLUMNS))
        chosen = batch.select(list(self.request.columns))
        if self.request.redact:
            chosen = redact_batch(chosen, self.request.redact, self.request.salt)
        chosen = pa.RecordBatch.from_arrays(chosen.columns, schema=self._schema(chosen))
        return Rows(chosen, keys, self.rejected)

    def _schema(self, batch: Any) -> Any:
        """Returns the schema of the request, with the type that bodies have in the batch."""
        schema = self.request.schema
        at = schema.get_field_index("body")
        return schema if at < 0 else schema.set(at, schema.field(at).with_type(batch.schema.field(at).type))

    def _stored_bodies(self, rows: scan_columns.Rows) -> Any:
        """Returns decompressed bodies; as views if all of them are written as stored."""
        frames = rows.frames
        as_stored = self.request.body is Body.BINARY and "body" not in self.request.redact
        if self.may_view and as_stored and not (frames.column("sys_flag") & SysFlag.COMPRESSED).any():
            return rows.binary(frames.body_start, frames.body_length)
        return scan_columns.BY_NAME["body"].build(rows)

    def _bodies(self, batch: Any) -> Any:
        undecoded = None if pc.all(batch["body_decoded"]).as_py() else pc.invert(batch["body_decoded"])
        convert = as_json if self.request.body is Body.JSON else as_text
        return self._replace(batch, "body", *convert(batch["body"], undecoded))

    def _replace(self, batch: Any, name: str, values: Any, bad: dict[int, str]) -> Any:
        for index, reason in bad.items():
            self.reject(batch, index, name, reason)
        return batch.set_column(batch.schema.get_field_index(name), name, values)

    def reject(self, batch: Any, index: int, column: str, reason: str) -> None:
        """Records one value of a batch as rejected."""
        if column not in self.request.columns:
            return
        place = {name: batch[name][index].as_py() for name in (*PLACE, "batch_index")}
        value = None
        if column not in self.request.redact:
            stored = batch[column][index].as_py()
            value = stored if isinstance(stored, bytes) else str(stored).encode()
        self.rejected.append({**place, "column": column, "reason": reason, "value": value})


def timestamps(millis: Any) -> tuple[Any, dict[int, str]]:
    """Returns int64 milliseconds as timestamps; those outside the calendar become null, with a reason by row."""
    values = np.asarray(millis)
    outside = (values < FIRST_MILLIS) | (values > LAST_MILLIS)
    typed = millis.cast(pa.int64()).view(BY_NAME["store_timestamp"].type)
    if not outside.any():
        return typed, {}
    kept = pc.if_else(pa.array(outside), pa.scalar(None, typed.type), typed)
    return kept, dict.fromkeys(np.flatnonzero(outside).tolist(), "not between the years 1 and 9999")


def body_decoded(frames: Frames, bodies: Any = None) -> Any:
    """Returns which bodies are as the producer sent them: all except compressed ones that cannot be decompressed.

    `bodies` is their column `body`, if it exists.
    """
    good = np.ones(len(frames), bool)
    packed = np.flatnonzero(frames.column("sys_flag") & SysFlag.COMPRESSED)
    if len(packed):
        some = scan_columns.Rows(frames.select(packed))
        decoded = scan_columns.BY_NAME["body"].build(some) if bodies is None else bodies.take(pa.array(packed))
        good[packed] = np.asarray(pc.not_equal(scan_columns.BY_NAME["raw_body"].build(some), decoded), bool)
    return pa.array(good)
