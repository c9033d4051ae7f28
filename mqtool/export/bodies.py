"""Converts bodies to text or JSON; reports why a body became null."""

from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

NOT_DECOMPRESSED = "the body cannot be decompressed"

Converted = tuple[Any, dict[int, str]]
"""A string array, and by row the reason of each null in it."""


def as_text(bodies: Any, undecoded: Any = None) -> Converted:
    """Returns binary bodies as strings.

    Args:
        bodies: binary array.
        undecoded: bool array, true where the body is still compressed; None if no body is.
    """
    bad = _still_packed(undecoded)
    if not bad:
        try:
            return pc.cast(bodies, pa.string()), {}
        except pa.ArrowInvalid:
            pass  # at least one is no UTF-8: find out which
    texts: list[str | None] = []
    for index, body in enumerate(bodies.to_pylist()):
        try:
            texts.append(None if index in bad else body.decode())
        except UnicodeDecodeError as error:
            bad[index] = f"no UTF-8: {error.reason} at byte {error.start}"
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
