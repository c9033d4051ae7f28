"""Frames as JSON Lines, by a compiled loop or from columns of text that are built by array operations and joined.

The loop leaves rare rows to the columns. Of these, only rows that need it (a quote or control byte in a string,
repeated names, invalid UTF-8) are encoded one by one. `row_of` defines a row; tests compare all three forms.
"""

import base64
import binascii
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from mqtool.formats import properties
from mqtool.formats.java import decode_utf8
from mqtool.native import native
from mqtool.records.arrow import binary_view, data_of, offsets_of
from mqtool.records.columns import BY_NAME, Rows
from mqtool.records.frames import Frames
from mqtool.records.json_text import Lines, needs_escape, replaced
from mqtool.records.property_columns import NameGroup, name_groups
from mqtool.records.trailers import Trailers

_COMPILED_MODES = ("none", "text")

_INTEGERS_BEFORE = ("queue_id", "queue_offset", "flag", "sys_flag", "born_timestamp", "store_timestamp")


def row_of(message: Any, body_mode: str) -> dict[str, Any]:
    """Returns one message (an object with the fields of `store.Message`) as a row.

    Args:
        message: what to show.
        body_mode: "none", "text" (base64 where the body is no UTF-8), "hex" or "base64".
    """
    body, encoding = encode_body(message.body, body_mode)
    return {
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
        "body": body,
        "body_encoding": encoding,
        "offset_message_id": message.offset_message_id,
    }


def encode_body(body: bytes, mode: str) -> tuple[str | None, str]:
    """Returns a body as text, and the name of its encoding; "text" falls back to base64 for invalid UTF-8."""
    if mode == "none":
        return None, "none"
    if mode == "hex":
        return body.hex(), "hex"
    if mode == "text":
        try:
            return body.decode("utf-8"), "text"
        except UnicodeDecodeError:
            pass
    return base64.b64encode(body).decode("ascii"), "base64"


def is_compiled(body_mode: str) -> bool:
    """Whether a compiled loop builds the lines. It runs without the interpreter's lock."""
    return native() is not None and body_mode in _COMPILED_MODES


def json_lines(frames: Frames, body_mode: str = "text", *, raw: bool = False) -> memoryview:
    """Returns one line of JSON for each frame, each ended by a line feed; fields as in `row_of`.

    Args:
        frames: valid frames.
        body_mode: as in `row_of`.
        raw: keep bodies as stored, compressed or not.
    """
    if not len(frames):
        return memoryview(b"")
    compiled = native()
    if compiled is not None and is_compiled(body_mode):
        return _compiled_lines(compiled.lines, frames, body_mode, raw=raw)
    return _lines_of_columns(frames, body_mode, raw=raw)


def _compiled_lines(lines_of: Any, frames: Frames, body_mode: str, *, raw: bool) -> memoryview:
    """Builds lines by a compiled loop, and the lines that it leaves out from columns."""
    sizes = frames.sizes
    room = lines_of.room_for(int(sizes.sum()), int(sizes.max()), len(sizes))
    target, ends = np.empty(room, np.uint8), np.empty(len(frames), np.int64)
    positions = np.ascontiguousarray(frames.positions, np.int64)
    lines = target[: lines_of.json_lines(frames.data, positions, body_mode == "text", raw, target, ends)].data
    left_out = np.flatnonzero(np.diff(ends, prepend=0) == 0)
    if not len(left_out):
        return lines
    others = _lines_of_columns(frames.select(left_out), body_mode, raw=raw).tobytes().split(b"\n")
    pieces: list[bytes | memoryview] = []
    done = 0
    for line, end in zip(others, ends[left_out].tolist(), strict=False):  # after the last line feed there is nothing
        pieces += lines[done:end], line, b"\n"
        done = end
    return memoryview(b"".join([*pieces, lines[done:]]))


def _lines_of_columns(frames: Frames, body_mode: str, *, raw: bool) -> memoryview:
    rows = Rows(frames)
    lines = Lines(len(frames))
    lines.text('{"physical_offset":').integers(frames.column("physical_offset"))
    lines.text(',"store_size":').integers(frames.column("total_size"))
    lines.text(',"topic":').values(rows.of_trailers(_topics, pa.binary()))
    for name in _INTEGERS_BEFORE:
        lines.text(f',"{name}":').integers(frames.column(name))
    for name in ("born_host", "store_host"):
        lines.text(f',"{name}":"').values(rows.coded_host(name)).text('"')
    for name in ("reconsume_times", "prepared_transaction_offset"):
        lines.text(f',"{name}":').integers(frames.column(name))
    _add_properties(lines.text(',"properties":'), rows)
    lines.text(',"body_crc":').integers(frames.column("body_crc"))
    _add_body(lines.text(',"body":'), rows, body_mode, raw=raw)
    prefix, ids = rows.coded_ids() or ("", BY_NAME["offset_message_id"].build(rows))
    lines.text(f',"offset_message_id":"{prefix}').values(ids).text('"}\n')
    return lines.data()


def _topics(trailers: Trailers) -> Any:
    """Returns the quoted topics, dictionary-encoded because few are distinct."""
    coded = (
        binary_view(trailers.data, trailers.topic_start, trailers.topic_length).cast(pa.binary()).dictionary_encode()
    )
    texts = [orjson.dumps(decode_utf8(value)) for value in coded.dictionary.to_pylist()]
    return pa.array(texts, pa.binary()).take(coded.indices)


def _add_properties(lines: Lines, rows: Rows) -> None:
    """Adds the JSON object of every properties string."""
    groups = [(trailers, group) for trailers in rows.trailers for group in name_groups(trailers.property_slices)]
    if len(groups) == 1 and _add_group(lines, *groups[0]):
        return
    lines.values(rows.of_trailers(_properties, pa.binary()))


def _properties(trailers: Trailers) -> Any:
    parts, which = [], []
    for group in name_groups(trailers.property_slices):
        own = Lines(len(group.rows))
        if _add_group(own, trailers, group):
            parts.append(own.joined())
        else:
            parts.append(pa.array(_decoded(trailers, group.rows), pa.binary()))
        which.append(group.rows)
    order = np.empty(trailers.property_slices.count, np.int64)
    order[np.concatenate(which)] = np.arange(len(order))
    return pa.concat_arrays(parts).take(pa.array(order))


def _add_group(lines: Lines, trailers: Trailers, group: NameGroup) -> bool:
    """Adds the objects of rows with the same names; returns False if some must be encoded one by one."""
    if group.names is None or len(set(group.names)) != len(group.names):
        return False
    columns = group.values(trailers.data)
    if any(needs_escape(column) is not None for column in columns):
        return False
    lines.text("{")
    for number, (name, column) in enumerate(zip(group.names, columns, strict=True)):
        lines.text("," if number else "").text(orjson.dumps(name)).text(':"').values(column).text('"')
    lines.text("}")
    return True


def _decoded(trailers: Trailers, rows: np.ndarray) -> list[bytes]:
    starts, lengths = trailers.properties_start[rows].tolist(), trailers.properties_length[rows].tolist()
    stored = (trailers.data[start : start + size].tobytes() for start, size in zip(starts, lengths, strict=True))
    return [orjson.dumps(properties.decode(text)) for text in stored]


def _add_body(lines: Lines, rows: Rows, mode: str, *, raw: bool) -> None:
    """Adds the values of `body` and `body_encoding`."""
    if mode == "none":
        lines.text('null,"body_encoding":"none"')
        return
    values = BY_NAME["raw_body" if raw else "body"].build(rows)
    if mode != "text":
        lines.text('"').values(_encoded(values, mode)).text(f'","body_encoding":"{mode}"')
        return
    escaped = needs_escape(values)
    if escaped is None:
        lines.text('"').values(values).text('","body_encoding":"text"')
        return
    texts = [_body_json(values[index].as_py()) for index in np.flatnonzero(escaped).tolist()]
    plain = replaced(values, escaped, [b""] * len(texts))
    quoted = pc.binary_join_element_wise(b'"', plain, b'","body_encoding":"text"', b"")
    lines.values(replaced(quoted, escaped, texts))


def _encoded(values: Any, mode: str) -> Any:
    if mode == "base64":
        return pa.array([base64.b64encode(value) for value in values.to_pylist()], pa.binary())
    offsets = offsets_of(values)
    digits = binascii.hexlify(data_of(values)[offsets[0] : offsets[-1]].data)
    ends = ((offsets - offsets[0]) * 2).astype(np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(digits)])


def _body_json(body: bytes) -> bytes:
    text, encoding = encode_body(body, "text")
    return orjson.dumps(text) + f',"body_encoding":"{encoding}"'.encode()
