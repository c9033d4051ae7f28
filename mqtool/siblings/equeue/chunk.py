"""Reads one chunk file of EQueue: header, footer, entries of a queue, frames, and valid message records as columns."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from mqtool.errors import FormatError
from mqtool.formats import equeue
from mqtool.formats.equeue import ENTRY_SIZE, FOOTER_SIZE, HEADER_SIZE, LENGTH, MAX_TICKS, ChunkHeader, Shape
from mqtool.records.damage import Damage
from mqtool.records.queue_build import queue_numbers, queue_of
from mqtool.siblings.frames import FrameFile, FrameRun, SequenceColumns, read_columns
from mqtool.store.log.readable_parts import UnreadableParts

NO_CODE = -1
"""Stored instead of a tag code if the tag has none."""

ID_POSITION = 16
"""Number of hexadecimal digits at the end of a message id that state the global position."""
_SHIFTS = np.arange(8, dtype=np.int64) * 8
_DIGITS = np.full(256, 255, np.uint8)


class ChunkFile(FrameFile):
    """A chunk file, open for reading; `footer` is None if the file is too short for a header and a footer."""

    position_field = LENGTH.size

    def __init__(self, path: Path, unreadable: UnreadableParts | None = None) -> None:
        """Opens the file and reads header and footer; raises TruncatedError if it is shorter than a header.

        Unreadable parts between header and footer are noted in `unreadable`, or an error without it.
        """
        super().__init__(path)
        try:
            self.header = equeue.HEADER.parse(self._file.read(0, HEADER_SIZE))
        except Exception:
            self.close()
            raise
        self.start = self.header.start
        self.footer_data_size = None
        self.footer = None
        if self.size >= HEADER_SIZE + FOOTER_SIZE:
            self.footer = equeue.FOOTER.parse(self._file.read(self.size - FOOTER_SIZE, FOOTER_SIZE))
            self.footer_data_size = self.footer.data_size
        if unreadable is not None:
            self.tolerate(unreadable)

    def assume(self, header: ChunkHeader) -> None:
        """Reads the chunk as if it had another header, because its own one is damaged."""
        self.header = header
        self.start = header.start

    @property
    def is_finished(self) -> bool:
        """Whether the chunk is completed: its footer states exactly the length that the file has."""
        size = self.footer_data_size
        return size is not None and size >= 0 and HEADER_SIZE + size + FOOTER_SIZE == self.size

    @property
    def room(self) -> int:
        """Data position at which the last record must end at the latest."""
        if self.is_finished:
            return self.footer_data_size or 0
        return min(self.header.capacity, max(0, self.size - HEADER_SIZE))

    def entries(self, count: int) -> "np.ndarray[tuple[int], np.dtype[np.void]]":
        """Returns the first `count` entries of a queue chunk, or fewer if the file ends earlier."""
        data = self._file.read(HEADER_SIZE, count * ENTRY_SIZE)
        return equeue.QUEUE_ENTRY.rows(data)

    def entry_parts(
        self, *, is_last: bool
    ) -> "Iterator[tuple[int, np.ndarray[tuple[int], np.dtype[np.void]]] | Damage]":
        """Yields (queue offset of the first entry, array of entries) of a queue chunk, with unreadable parts between.

        The positions of a damage are those of entries: a queue offset times 12 bytes. In the last chunk it stops where
        the broker finds the end of the queue, at the first entry without a position. After an unreadable part without
        such an entry before it, the queue may have ended in that part.
        """
        entries = self.entries(min(self.header.capacity, self.room) // ENTRY_SIZE)
        first = self.header.chunk_number * (self.header.capacity // ENTRY_SIZE)
        at = 0
        for start, after in [*self._unread_entries(len(entries)), (len(entries), len(entries))]:
            part = entries[at:start]
            if is_last and len(invalid := np.flatnonzero(part["position_plus_one"] <= 0)):
                yield first + at, part[: invalid[0]]
                return
            yield first + at, part
            if start < after and (unread := self.unread(start * ENTRY_SIZE, after * ENTRY_SIZE)):
                low, high = (first + start) * ENTRY_SIZE, (first + after) * ENTRY_SIZE
                yield Damage(low, high, unread.kind, unread.detail, self.path, HEADER_SIZE + start * ENTRY_SIZE)
            at = after

    def _unread_entries(self, count: int) -> list[tuple[int, int]]:
        """Returns the ranges of the first `count` entries of which a byte could not be read; ascending, half-open."""
        ranges = [] if self._unreadable is None else self._unreadable.ranges(self.path, -HEADER_SIZE)
        unread: list[tuple[int, int]] = []
        for start, end in sorted(ranges):
            first, after = max(0, start) // ENTRY_SIZE, min(count, -(-end // ENTRY_SIZE))
            if unread and first <= unread[-1][1]:
                unread[-1] = unread[-1][0], max(after, unread[-1][1])
            elif first < after:
                unread.append((first, after))
        return unread


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
    """Returns a field of bytes, dictionary-encoded, with `without_end` bytes dropped from the end of each value.

    All values are empty if the records do not have the field.
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
        equeue.parse_id(prefix + b"0" * ID_POSITION)
    except FormatError:
        return False
    return True
