"""What dispatch is given of each record, as columns; and the numbers that it derives from properties.

The fields of DispatchRequest that ConsumeQueue and IndexFile use, all as the record states them, true or not.
Source: CommitLog.checkMessageAndReturnSize, DispatchRequest, IndexService.buildIndex (4.9.7, 5.5.0).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mqtool.formats import commit_log, index_file, java, properties
from mqtool.formats.delay_levels import due
from mqtool.formats.topics import SCHEDULE_TOPIC
from mqtool.records import hashes
from mqtool.records.frames import Frames
from mqtool.records.record_check import RecordCheck
from mqtool.records.trailers import Trailers, trailers_of, values_of
from mqtool.recovery.log_scan import topic_and_properties


@dataclass(frozen=True)
class Keys:
    """Key texts to be indexed, in the order in which the broker puts them.

    Attributes:
        owner: int64, number of the record (ascending).
        hashes: int32, key hash of each.
    """

    owner: np.ndarray
    hashes: np.ndarray


class Requests:
    """Records of one window.

    Attributes:
        frames: the records.
    """

    def __init__(self, frames: Frames, check: RecordCheck) -> None:
        self.frames = frames
        self._check = check

    def __len__(self) -> int:
        return len(self.frames)

    @cached_property
    def physical_offset(self) -> np.ndarray:
        """int64: what the record states, not where it is."""
        return self.frames.column("physical_offset")

    @cached_property
    def queue_id(self) -> np.ndarray:
        """int32."""
        return self.frames.column("queue_id")

    @cached_property
    def queue_offset(self) -> np.ndarray:
        """int64."""
        return self.frames.column("queue_offset")

    @cached_property
    def store_timestamp(self) -> np.ndarray:
        """int64, ms."""
        return self.frames.column("store_timestamp")

    @cached_property
    def transaction_type(self) -> np.ndarray:
        """int32: 0, 4, 8 or 12."""
        return self.frames.column("sys_flag") & commit_log.TRANSACTION_MASK

    @property
    def queued(self) -> np.ndarray:
        """Bool: records of no transaction, or committed, get a unit (CommitLogDispatcherBuildConsumeQueue)."""
        return (self.transaction_type == 0) | (self.transaction_type == commit_log.SysFlag.TRANSACTION_COMMIT)

    @cached_property
    def topics(self) -> tuple[np.ndarray, list[bytes]]:
        """Number of each record's topic, and the topics by number."""
        starts, lengths = self.frames.topic_start, self.frames.topic_length
        width = int(lengths.max(initial=0))
        if not len(starts):
            return np.empty(0, np.int64), []
        at = np.minimum(starts[:, None] + np.arange(width), len(self.frames.bytes) - 1)
        padded = np.zeros((len(starts), width + 2), np.uint8)
        padded[:, :width] = self.frames.bytes[at]
        padded[:, :width][np.arange(width) >= lengths[:, None]] = 0
        padded[:, width:] = lengths.astype(">u2").view(np.uint8).reshape(-1, 2)
        distinct, numbers = np.unique(padded.view(f"V{width + 2}").ravel(), return_inverse=True)
        names = [row.tobytes() for row in distinct]
        return numbers, [name[: int.from_bytes(name[width:], "big")] for name in names]

    def by_queue(self, rows: np.ndarray) -> Iterator[tuple[str, int, np.ndarray]]:
        """Yields topic, queue id and rows, in order, of each queue that some records belong to."""
        numbers, names = self.topics
        pairs = (numbers[rows] << 32) | (self.queue_id[rows].astype(np.int64) & 0xFFFFFFFF)
        distinct, group = np.unique(pairs, return_inverse=True)
        order = np.argsort(group, kind="stable")
        edges = np.searchsorted(group[order], np.arange(len(distinct) + 1))
        for number, pair in enumerate(distinct.tolist()):
            topic = java.decode_utf8(names[pair >> 32])
            yield topic, java.to_int32(pair & 0xFFFFFFFF), rows[order[edges[number] : edges[number + 1]]]

    @cached_property
    def _trailers(self) -> list[Trailers]:
        return trailers_of(self.frames)

    def _values(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns position in the frames' buffer and length of one property's values, length -1 where it is missing."""
        return values_of(self.frames, self._trailers, name)

    def property_of(self, row: int, name: str) -> str | None:
        """Returns one property of one record."""
        return properties.decode(topic_and_properties(self.frames, row)[1]).get(name)

    def has_property(self, name: str) -> np.ndarray:
        """Bool per record."""
        return self._values(name)[1] >= 0

    @cached_property
    def tags_code(self) -> np.ndarray:
        """int64: hash of TAGS, or the time at which a delayed message is due."""
        codes = self._hashes(properties.TAGS).astype(np.int64)
        numbers, names = self.topics
        schedule = SCHEDULE_TOPIC.encode()
        if schedule in names:
            scheduled = self.has_property(properties.DELAY_LEVEL) & (numbers == names.index(schedule))
            for row in np.flatnonzero(scheduled).tolist():
                codes[row] = self._due(row, int(codes[row]))
        return codes

    def _due(self, row: int, hashed: int) -> int:
        level = java.parse_int(self.property_of(row, properties.DELAY_LEVEL) or "0")
        time = due(int(self.store_timestamp[row]), level, self._check.delay_levels)
        return hashed if time is None else time

    def _hashes(self, name: str) -> np.ndarray:
        starts, lengths = self._values(name)
        data, offsets = _gather(self.frames.bytes, starts, np.maximum(lengths, 0))
        return hashes.java_hash(data, offsets)

    def batch(self, row: int) -> tuple[int, int]:
        """Returns (first queue offset, messages) of a record, for a BatchConsumeQueue (setBatchSizeIfNeeded)."""
        number, base = self.property_of(row, properties.INNER_NUM), self.property_of(row, properties.INNER_BASE)
        if number is None or base is None:
            return int(self.queue_offset[row]), 1
        return java.parse_long(base), java.parse_short(number)

    def keys(self, *, with_tags: bool) -> Keys:
        """Returns the key texts' hashes: unique key, the words of KEYS, and in 5.5 the tag."""
        prefix = self._topic_hashes(b"#")
        parts = [self._key_part(0, properties.UNIQUE_KEY, prefix), self._words(prefix)]
        if with_tags:
            marked = self._topic_hashes(b"#" + index_file.TAG_MARK.encode())
            parts.append(self._key_part(2, properties.TAGS, marked))
        owner, rank, found = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.lexsort((rank, owner))
        return Keys(owner[order], found[order])

    def _topic_hashes(self, suffix: bytes) -> np.ndarray:
        numbers, names = self.topics
        known = [java.string_hash(java.decode_utf8(topic + suffix)) for topic in names]
        return np.array(known, np.int32)[numbers]

    def _key_part(self, rank: int, name: str, prefix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        starts, lengths = self._values(name)
        rows = np.flatnonzero(lengths > 0)
        return rows, np.full(len(rows), rank << 32), self._joined(prefix[rows], starts[rows], lengths[rows])

    def _words(self, prefix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        starts, lengths = self._values(properties.KEYS)
        rows = np.flatnonzero(lengths > 0)
        data, offsets = _gather(self.frames.bytes, starts[rows], lengths[rows])
        # a word begins at a value's start and behind each space; it ends at a space or the value's end
        spaces = np.flatnonzero(data == ord(" "))
        begin = np.unique(np.concatenate([offsets[:-1], spaces + 1]))
        begin = begin[begin < len(data)]
        owner = np.searchsorted(offsets, begin, side="right") - 1
        end = np.minimum(offsets[owner + 1], _next_of(spaces, begin, len(data)))
        kept = end > begin
        begin, end, owner = begin[kept], end[kept], owner[kept]
        at = starts[rows][owner] + begin - offsets[owner]
        records = rows[owner]
        return records, (1 << 32) + begin, self._joined(prefix[records], at, end - begin)

    def _joined(self, prefix: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        data, offsets = _gather(self.frames.bytes, starts, lengths)
        joined = hashes.joined_hash(prefix, hashes.java_hash(data, offsets), hashes.utf16_lengths(data, offsets))
        return hashes.absolute(joined)


def _next_of(positions: np.ndarray, after: np.ndarray, end: int) -> np.ndarray:
    """Returns the first position at or behind each place, `end` where there is none."""
    return np.append(positions, end)[np.searchsorted(positions, after)]


def _gather(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Copies slices of a buffer into one, end to end; returns it and n + 1 offsets."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    where = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    return data[where], offsets
