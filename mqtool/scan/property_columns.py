"""Properties of many records as Arrow columns: one value by name, the words of KEYS, the whole map."""

from typing import Any

import numpy as np
import pyarrow as pa

from mqtool.formats import java, properties
from mqtool.scan.arrow import binary_view, text
from mqtool.scan.tails import TailPieces, Tails
from mqtool.scan.words import name_mask, words_of

MAP = pa.map_(pa.string(), pa.string())


def value_column(tails: Tails, name: str) -> Any:
    """Returns the value of one property in each row as strings, null where there is none."""
    return text(binary_view(tails.data, *tails.pieces.value_of(name)))


def key_column(tails: Tails) -> Any:
    """Returns the words of KEYS in each row, as lists."""
    starts, lengths = tails.pieces.value_of(properties.KEYS)
    values = text(binary_view(tails.data, starts, lengths))
    here = lengths >= 0
    if _holds(values, ord(properties.KEY_SEPARATOR)):
        return _words(values)
    offsets = np.concatenate([[0], np.cumsum(here)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values if here.all() else values.drop_null())


def _holds(values: Any, byte: int) -> bool:
    buffer = values.buffers()[2]
    return buffer is not None and bool((np.frombuffer(buffer, np.uint8) == byte).any())


def _words(values: Any) -> Any:
    import pyarrow.compute as pc  # noqa: PLC0415 - costs 30 ms, only needed here

    words = pc.split_pattern(pc.fill_null(values, ""), properties.KEY_SEPARATOR)
    flat, parents = words.flatten(), pc.list_parent_indices(words)
    kept = pc.greater(pc.binary_length(flat), 0)
    counts = np.bincount(np.asarray(pc.filter(parents, kept)), minlength=len(values))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pc.filter(flat, kept))


def map_column(tails: Tails) -> Any:
    """Returns all properties of each row: name to value, in stored order; of equal names the last value counts."""
    pieces = tails.pieces
    shared = shared_names(pieces)
    if shared is not None and len(set(shared)) == len(shared):
        names = _repeated(shared, pieces.count)
        offsets = np.arange(0, len(shared) * pieces.count + 1, max(1, len(shared)), dtype=np.int32)
        if not shared:
            offsets = np.zeros(pieces.count + 1, np.int32)
    else:
        names = binary_view(tails.data, pieces.name_start, pieces.name_length).cast(pa.binary())
        offsets = np.searchsorted(pieces.owner, np.arange(pieces.count + 1)).astype(np.int32)
        if pieces.has_repeats.any() or not _is_utf8(names):
            return _decoded(tails)
        names = names.cast(pa.string())
    values = text(binary_view(tails.data, pieces.value_start, pieces.value_length))
    return pa.MapArray.from_arrays(pa.array(offsets), names, values)


def shared_names(pieces: TailPieces) -> list[str] | None:
    """Returns the names of properties if all rows have the same in the same order, as one producer's do, else None."""
    each, rest = divmod(len(pieces.owner), max(1, pieces.count))
    if rest or (pieces.owner.reshape(-1, max(1, each)) != np.arange(pieces.count if each else 0)[:, None]).any():
        return None
    lengths = pieces.name_length.reshape(pieces.count, each)
    if (lengths != lengths[:1]).any():
        return None
    words = words_of(pieces.data)
    for done in range(0, int(lengths.max(initial=0)), 8):
        at = np.minimum(pieces.name_start + done, len(words) - 1)
        word = words[at].reshape(lengths.shape) & name_mask(lengths[0] - done)
        if (word != word[:1]).any():
            return None
    spans = zip(pieces.name_start[:each].tolist(), pieces.name_length[:each].tolist(), strict=True)
    return [java.decode_utf8(pieces.data[start : start + length].tobytes()) for start, length in spans]


def _repeated(names: list[str], count: int) -> Any:
    """Returns the names again and again."""
    encoded = [name.encode() for name in names]
    ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)
    width = int(ends[-1]) if len(ends) else 0
    offsets = np.concatenate([[0], (np.arange(count)[:, None] * width + ends).ravel()]).astype(np.int32)
    data = b"".join(encoded) * count
    return pa.StringArray.from_buffers(len(names) * count, pa.py_buffer(offsets), pa.py_buffer(data))


def _is_utf8(values: Any) -> bool:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _decoded(tails: Tails) -> Any:
    """Decodes row by row, where names repeat or are no UTF-8."""
    spans = zip(tails.properties_start.tolist(), tails.properties_length.tolist(), strict=True)
    stored = (tails.data[start : start + length].tobytes() for start, length in spans)
    return pa.array([list(properties.decode(one).items()) for one in stored], MAP)
