"""Messages as lines of JSON: `row_of` defines a line, and `native.lines` makes the same lines of records at once."""

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson

from mqtool import native
from mqtool.records.frames import Frames
from mqtool.store.log.message import messages_of

_MODES = ("none", "text", "hex", "base64")


def row_of(message: Any, body_mode: str) -> dict[str, Any]:
    """Returns one message (an object with the fields of `store.Message`) as a row.

    `body_mode` is "none", "text" (base64 where the body is no UTF-8), "hex" or "base64".
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


def json_lines(frames: Frames, body_mode: str = "text", *, raw: bool = False) -> memoryview:
    """Returns one line of JSON for each valid frame, each ended by a line feed; fields as in `row_of`.

    `raw` keeps bodies as stored, compressed or not.
    """
    if not native.in_use() or not len(frames):
        return memoryview(b"".join(_lines(frames, body_mode, raw=raw)))
    sizes = frames.sizes
    room = native.lines.room_for(int(sizes.sum()), int(sizes.max()), len(sizes))
    target, ends = np.empty(room, np.uint8), np.empty(len(frames), np.int64)
    positions = np.ascontiguousarray(frames.positions, np.int64)
    used = native.lines.json_lines(frames.data, positions, _MODES.index(body_mode), raw, target, ends)
    lines = target[:used].data
    left_out = np.flatnonzero(np.diff(ends, prepend=0) == 0)
    if not len(left_out):
        return lines
    pieces: list[bytes | memoryview] = []
    done = 0
    others = _lines(frames.select(left_out), body_mode, raw=raw)
    for line, end in zip(others, ends[left_out].tolist(), strict=True):
        pieces += lines[done:end], line
        done = end
    return memoryview(b"".join([*pieces, lines[done:]]))


def _lines(frames: Frames, body_mode: str, *, raw: bool) -> Iterator[bytes]:
    for message in messages_of(frames):
        row = row_of(message, body_mode)
        if raw:
            row["body"], row["body_encoding"] = encode_body(message.raw_body, body_mode)
        yield orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
