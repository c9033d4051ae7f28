"""Frames as JSON Lines, columns first: the text of each column is made by array operations, then joined.

Only rows that need it (a quote or control byte in a string, an odd properties string, bytes that are no
UTF-8) are encoded one by one; `row_of` says what a row is, and a test holds the two to each other.
"""

import base64
import binascii
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from mqtool.formats import properties
from mqtool.formats.java import decode_utf8
from mqtool.scan.arrow import binary_view
from mqtool.scan.columns import BY_NAME, Rows
from mqtool.scan.frames import Frames
from mqtool.scan.properties import PropertyPieces

BODY_MODES = ("none", "text", "hex", "base64")

_PIECE = 1 << 16
"""Bytes looked at together: they and what is computed of them stay in the processor's cache."""

_INTEGERS_BEFORE = ("queue_id", "queue_offset", "flag", "sys_flag", "born_timestamp", "store_timestamp")

def row_of(message: Any, body_mode: str) -> dict[str, Any]:
    """Returns the row of one message (an object with the fields of `store.Message`).

    Args:
        message: what to show.
        body_mode: "none", "text" (base64 where the body is no UTF-8), "hex" or "base64".
    """
    body, encoding = encode_body(message.body, body_mode)
    return {
        "physical_offset": message.physical_offset, "store_size": message.store_size, "topic": message.topic,
        "queue_id": message.queue_id, "queue_offset": message.queue_offset, "flag": message.flag,
        "sys_flag": message.sys_flag, "born_timestamp": message.born_timestamp,
        "store_timestamp": message.store_timestamp, "born_host": message.born_host, "store_host": message.store_host,
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset, "properties": message.properties,
        "body_crc": message.body_crc, "body": body, "body_encoding": encoding,
        "offset_message_id": message.offset_message_id,
    }  # fmt: skip


def encode_body(body: bytes, mode: str) -> tuple[str | None, str]:
    """Returns a body as text and the name of its encoding; "text" falls back to base64, so nothing is lost."""
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


def json_lines(frames: Frames, body_mode: str = "text", *, raw: bool = False) -> bytes:
    """Returns one line of JSON per frame, each ended by a line feed; fields as in `row_of`.

    Args:
        frames: sound ones.
        body_mode: as in `row_of`.
        raw: bodies as stored, not decompressed.
    """
    if not len(frames):
        return b""
    rows = Rows(frames)
    line = _Line(len(frames))
    line.text('{"physical_offset":').integers(frames.column("physical_offset"))
    line.text(',"store_size":').integers(frames.column("total_size"))
    line.text(',"topic":').strings(_quoted_few(_range(rows, frames.topic_start, frames.topic_length), decode_utf8))
    for name in _INTEGERS_BEFORE:
        line.text(f',"{name}":').integers(frames.column(name))
    for name in ("born_host", "store_host"):
        line.text(f',"{name}":"').strings(_coded(BY_NAME[name].build(rows))).text('"')
    for name in ("reconsume_times", "prepared_transaction_offset"):
        line.text(f',"{name}":').integers(frames.column(name))
    line.text(',"properties":').strings(_properties(rows))
    line.text(',"body_crc":').integers(frames.column("body_crc"))
    line.text(',"body":').strings(_bodies(rows, body_mode, raw=raw))
    line.text(',"offset_message_id":"').strings(BY_NAME["offset_message_id"].build(rows)).text('"}\n')
    return line.join()


class _Line:
    """Pieces of a line; what is the same in all rows is merged with the text around it."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._parts: list[Any] = []

    def text(self, text: str) -> "_Line":
        if self._parts and isinstance(self._parts[-1], bytes):
            self._parts[-1] += text.encode()
        else:
            self._parts.append(text.encode())
        return self

    def integers(self, values: np.ndarray) -> "_Line":
        if (values == values[0]).all():
            return self.text(str(int(values[0])))
        self._parts.append(pc.cast(pc.cast(pa.array(values), pa.string()), pa.binary()))
        return self

    def strings(self, values: Any) -> "_Line":
        """Takes a string or binary array, or a dictionary-encoded one."""
        if pa.types.is_dictionary(values.type):
            if len(values.dictionary) == 1:
                return self.text(values.dictionary[0].as_py())
            values = values.dictionary.take(values.indices)
        self._parts.append(pc.cast(values, pa.binary()))
        return self

    def join(self) -> bytes:
        parts = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in self._parts]
        if all(isinstance(part, pa.Scalar) for part in parts):
            return b"".join(self._parts) * self._count
        joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))
        data = joined.buffers()[2]
        return data.to_pybytes() if data is not None else b""


def _range(rows: Rows, starts: np.ndarray, lengths: np.ndarray) -> Any:
    return rows.binary(starts, lengths).cast(pa.binary())


def _coded(values: Any) -> Any:
    return values.dictionary_encode()


def _quoted_few(values: Any, decode: Callable[[bytes], str]) -> Any:
    """Quotes a column of few distinct values by way of its dictionary."""
    coded = values.dictionary_encode()
    texts = pa.array([orjson.dumps(decode(value)).decode() for value in coded.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(coded.indices, texts)


def _offsets(values: Any) -> np.ndarray:
    return np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4).astype(np.int64)


def _bytes(values: Any) -> np.ndarray:
    buffer = values.buffers()[2]
    return np.frombuffer(buffer, np.uint8) if buffer is not None else np.empty(0, np.uint8)


def _flagged(values: Any, lowest: int) -> np.ndarray:
    """Bool per value: it has a byte that a JSON string cannot hold as it is, or it is not UTF-8.

    Args:
        values: binary.
        lowest: control bytes from here on count; 0 does always.
    """
    offsets = _offsets(values)
    flags = np.zeros(len(values), bool)
    low, high = int(offsets[0]), int(offsets[-1])
    data = _bytes(values)
    for start in range(low, high, _PIECE):
        piece = data[start : min(start + _PIECE, high)]
        # wraps around, so that one comparison finds lowest … 0x1F
        special = (piece - np.uint8(lowest)) < np.uint8(0x20 - lowest)
        special |= (piece == 0) | (piece == 0x22) | (piece == 0x5C) | (piece == 0x7F)
        if special.any():
            at = np.flatnonzero(special) + start
            flags[np.searchsorted(offsets, at, side="right") - 1] = True
    try:
        pc.cast(values, pa.string())
    except pa.ArrowInvalid:
        for index in np.flatnonzero(~flags).tolist():
            flags[index] = not _is_utf8(values[index].as_py())
    return flags


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _replaced(values: Any, which: np.ndarray, texts: list[bytes]) -> Any:
    return pc.replace_with_mask(values, pa.array(which), pa.array(texts, pa.binary())) if which.any() else values


def _bodies(rows: Rows, mode: str, *, raw: bool) -> Any:
    """Makes the value of `body` and, behind it, `body_encoding`."""
    count = len(rows.frames)
    if mode == "none":
        return pa.array(['null,"body_encoding":"none"']).take(pa.array(np.zeros(count, np.int32))).dictionary_encode()
    values = BY_NAME["raw_body" if raw else "body"].build(rows)
    if mode == "text":
        flags = _flagged(values, 1)
        odd = [_body_json(values[index].as_py()) for index in np.flatnonzero(flags).tolist()]
        plain = _replaced(values, flags, [b""] * len(odd))
        quoted = pc.binary_join_element_wise(b'"', plain, b'","body_encoding":"text"', b"")
        return _replaced(quoted, flags, odd)
    encode = binascii.hexlify if mode == "hex" else base64.b64encode
    texts = pa.array([encode(value) for value in values.to_pylist()], pa.binary())
    return pc.binary_join_element_wise(b'"', texts, f'","body_encoding":"{mode}"'.encode(), b"")


def _body_json(body: bytes) -> bytes:
    text, encoding = encode_body(body, "text")
    return orjson.dumps(text) + f',"body_encoding":"{encoding}"'.encode()


def _properties(rows: Rows) -> Any:
    """Makes the JSON object of every properties string."""
    frames = rows.frames
    stored = binary_view(frames.bytes, frames.properties_start, frames.properties_length).cast(pa.binary())
    stored = _with_last_separator(stored)
    odd = _flagged(stored, properties.VALUE_END + 1) | _irregular(stored)
    texts = [orjson.dumps(properties.decode(stored[index].as_py())) for index in np.flatnonzero(odd).tolist()]
    regular = pc.cast(_replaced(stored, odd, [b"\x02"] * len(texts)), pa.string())
    named = pc.replace_substring(_without_last_byte(regular), "\x01", '":"')
    quoted = pc.binary_join_element_wise('{"', pc.replace_substring(named, "\x02", '","'), '"}', "")
    return _replaced(pc.cast(quoted, pa.binary()), odd, texts)


def _without_last_byte(values: Any) -> Any:
    return pc.cast(pc.binary_slice(pc.cast(values, pa.binary()), 0, -1), pa.string())


def _with_last_separator(values: Any) -> Any:
    """Appends the last 0x02 that 4.9.1 to 5.1.4 leave out, so that all strings look alike."""
    offsets = _offsets(values)
    if (np.diff(offsets) == 0).any() or (_bytes(values)[offsets[1:] - 1] == properties.VALUE_END).any():
        return values
    return pc.binary_join_element_wise(values, b"\x02", b"")


def _irregular(values: Any) -> np.ndarray:
    """Bool per properties string: not simply name, 0x01, value, 0x02 repeated, with distinct names."""
    offsets = _offsets(values)
    data = _bytes(values)
    pieces = PropertyPieces(data, offsets[:-1], np.diff(offsets))
    if _all_regular(data, offsets):
        return pieces.has_repeats
    kept = np.bincount(pieces.owner, minlength=len(values))
    at = np.flatnonzero(data[: offsets[-1]] <= properties.VALUE_END)
    separators = np.bincount(np.searchsorted(offsets, at, side="right") - 1, minlength=len(values))[: len(values)]
    unended = data[np.maximum(offsets[1:] - 1, 0)] != properties.VALUE_END
    return (np.diff(offsets) == 0) | (separators != 2 * kept) | unended | pieces.has_repeats


def _all_regular(data: np.ndarray, offsets: np.ndarray) -> bool:
    """Whether the separators of all strings taken together simply alternate, none next to another."""
    low, high = int(offsets[0]), int(offsets[-1])
    if (np.diff(offsets) == 0).any() or not (data[offsets[1:] - 1] == properties.VALUE_END).all():
        return False
    at = np.flatnonzero(data[low:high] <= properties.VALUE_END)
    kinds = data[low:high][at]
    alternate = (kinds[::2] == properties.NAME_END).all() and (kinds[1::2] == properties.VALUE_END).all()
    return bool(alternate and len(at) % 2 == 0 and at[0] > 0 and (np.diff(at) > 1).all())
