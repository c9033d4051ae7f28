"""Valid message records as columns: read thousands at a time, and collected for comparison with the queue entries."""

from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import Struct, field

from mqtool.errors import FormatError
from mqtool.formats import equeue, equeue_message
from mqtool.formats.equeue_message import MAX_TICKS, Shape
from mqtool.records.queue_build import queue_numbers, queue_of
from mqtool.siblings.equeue.chunk import ChunkFile
from mqtool.siblings.frame_scan import FrameRun, SequenceColumns, read_columns


class ValidRun(Struct, frozen=True):
    """Consecutive messages of a chunk, all of which can be read and have valid times."""

    chunk: ChunkFile  # the chunk that contains them
    run: FrameRun  # their frames
    fields: SequenceColumns  # fields of their records as columns

    @property
    def positions(self) -> np.ndarray:
        """Global positions of the frames, int64."""
        return self.run.positions + self.chunk.start


def valid_run(chunk: ChunkFile, shape: Shape, run: FrameRun) -> ValidRun:
    """Returns the frames of a run before the first one whose record is not valid."""
    fields = read_columns(shape.sequence, run.data, run.starts, run.starts + run.sizes)
    valid = fields.good
    for name in ("created_time", "stored_time"):
        valid = valid & (fields.fixed[name] >= 0) & (fields.fixed[name] <= MAX_TICKS)
    count = len(run) if valid.all() else int(np.argmin(valid))
    return ValidRun(chunk, run.first(count), fields.first(count))


def is_decodable(record: bytes, shape: Shape) -> bool:
    """Whether the broker's decoder accepts a record; the decoder does not check the values of fields."""
    try:
        return shape.parse(record)[0].is_decodable
    except FormatError:
        return False


NO_CODE = -1
"""Stored instead of a tag code if the tag has none."""

ID_POSITION = 16
"""Number of hexadecimal digits at the end of a message id that state the global position."""
_SHIFTS = np.arange(8, dtype=np.int64) * 8
_DIGITS = np.full(256, 255, np.uint8)
_DIGITS[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
_DIGITS[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)


class ExpectedMessage(Struct, frozen=True):
    """The fields of a message that its queue entry must match; `tag_code` is None if the tag has no code."""

    topic: str
    queue_id: int
    tag_code: int | None


@lru_cache(maxsize=4096)
def tag_code(tag: bytes) -> int | None:
    """Returns the code of a tag; None for the one hash in 2^32 for which the broker has no code."""
    try:
        return equeue.tag_code(tag.decode("utf-8", "replace"))
    except FormatError:
        return None


class MessageArrays(Struct, frozen=True):
    """Messages as int64 arrays, one element per message."""

    positions: np.ndarray  # global positions
    queues: np.ndarray  # queue numbers, see `MessageTable.queues`
    codes: np.ndarray  # tag codes, `NO_CODE` for none
    offsets: np.ndarray  # queue offsets that the records state


class MessageTable(Struct):
    """All valid messages of a log."""

    queues: dict[tuple[str, int], int] = field(default_factory=dict)  # queue number by (topic, queue id)
    _parts: list[tuple[np.ndarray, ...]] = field(default_factory=list)

    def add(self, valid: ValidRun, topics: "DictionaryColumn", tags: "DictionaryColumn") -> None:
        """Adds the messages of a run, with their distinct topics and tags."""
        names = [topic.decode("utf-8", "replace") for topic in topics.values]
        distinct = distinct_numbers(queue_numbers(topics.codes, valid.fields.fixed["queue_id"]))
        numbers = [self.queues.setdefault(queue_of(number, names), len(self.queues)) for number in distinct.values]
        codes = [NO_CODE if (code := tag_code(tag)) is None else code for tag in tags.values]
        self._parts.append(
            (
                valid.positions,
                np.array(numbers, np.int64)[distinct.codes],
                np.array(codes, np.int64)[tags.codes],
                valid.fields.fixed["queue_offset"].astype(np.int64),
            )
        )

    def arrays(self) -> MessageArrays:
        """Returns the messages in ascending order of their global position."""
        empty = np.empty(0, np.int64)
        positions, queues, codes, offsets = (
            np.concatenate(column) for column in zip((empty, empty, empty, empty), *self._parts, strict=True)
        )
        order = np.argsort(positions, kind="stable")
        return MessageArrays(positions[order], queues[order], codes[order], offsets[order])


class DictionaryColumn(Struct, frozen=True):
    """A dictionary-encoded column: its distinct values, and for each row the index of its value."""

    values: list[Any]
    codes: np.ndarray


def distinct_bytes(valid: ValidRun, name: str, *, without_end: int = 0) -> DictionaryColumn:
    """Returns a field of bytes, dictionary-encoded; all values are empty if the records do not have the field.

    Args:
        valid: the run of records.
        name: name of the field.
        without_end: number of bytes to drop from the end of each value.
    """
    starts, lengths = valid.fields.starts.get(name), valid.fields.lengths.get(name)
    if starts is None or lengths is None:
        return DictionaryColumn([b""], np.zeros(len(valid.run), np.int64))
    from mqtool.siblings import arrow  # noqa: PLC0415 - pyarrow costs 100 ms at import

    coded = arrow.raw(valid.run.data, starts, np.maximum(lengths - without_end, 0)).dictionary_encode()
    return DictionaryColumn(coded.dictionary.to_pylist(), coded.indices.to_numpy())


def distinct_numbers(numbers: np.ndarray) -> DictionaryColumn:
    """Returns a column of integers, dictionary-encoded."""
    distinct, codes = np.unique(numbers, return_inverse=True)
    return DictionaryColumn(distinct.tolist(), codes)


def stated_in_ids(valid: ValidRun) -> np.ndarray:
    """Returns the global position in each message id, int64; -1 if the id does not end with a hexadecimal number."""
    starts, lengths = valid.fields.starts["message_id"], valid.fields.lengths["message_id"]
    fits = lengths >= ID_POSITION
    at = np.where(fits, starts + lengths - ID_POSITION, 0)
    if len(valid.run.data) < ID_POSITION:
        return np.full(len(at), -1)
    digits = _DIGITS[valid.run.data[at[:, None] + np.arange(ID_POSITION)]]
    fits &= (digits < ID_POSITION).all(axis=1)
    pairs = (digits[:, 0::2].astype(np.int64) << 4) | digits[:, 1::2]
    return np.where(fits, (pairs << _SHIFTS).sum(axis=1), -1)


@lru_cache(maxsize=4096)
def begins_an_id(prefix: bytes) -> bool:
    """Whether a prefix, followed by the 16 digits of a position, is a valid message id."""
    try:
        equeue_message.parse_id(prefix + b"0" * ID_POSITION)
    except FormatError:
        return False
    return True
