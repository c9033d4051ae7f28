"""Checksums that show whether log and queues (or index) contain the same units, without keeping the units.

The CommitLog is divided into buckets. Each unit that dispatch would write is mixed into one 64-bit number, and the
numbers of a bucket are added up; the same is done with the units in the queues. Equal sums mean equal sets, in any
order; only the records of buckets that differ are read again (`read_records`) and compared unit by unit. This takes a
few words of memory per bucket, and sums of parts can be added in any order, by any number of processes.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
from msgspec import Struct, structs

from mqtool import native
from mqtool.records.damage import Damage
from mqtool.records.dispatch import Dispatcher, DispatchRules, IndexKeys, QueueUnits
from mqtool.records.frames import Frames
from mqtool.records.number_sets import run_starts
from mqtool.store.files import MappedFile, ReadFile
from mqtool.store.log.log_walk import walk_file
from mqtool.verify.survey import Survey

BUCKET_BITS = 20
"""A bucket is 1 MiB of a segment."""

_OFFSET, _PLACE, _SIZE, _TAGS, _TIME, _BATCH, _FINAL = map(
    np.uint64,
    (
        0x9E3779B97F4A7C15,
        0xC2B2AE3D27D4EB4F,
        0xFF51AFD7ED558CCD,
        0xD6E8FEB86659FD93,
        0xE7037ED1A0B428DB,
        0x8EBC6AF09C88C6E3,
        0x94D049BB133111EB,
    ),
)
"""Odd numbers, by which fields are multiplied where a unit or an entry becomes one number; as in `native.logs`."""
_FOLD = np.uint64(32)

C = TypeVar("C", QueueUnits, IndexKeys)

MAX_BUCKETS = 32
"""Buckets that are read together."""


class Buckets:
    """Maps physical offsets to bucket numbers; `first` has that of each segment, followed by the number of buckets."""

    def __init__(self, segments: Sequence[MappedFile]) -> None:
        self._bases = np.array([segment.base for segment in segments], np.int64)
        self._ends = np.array([segment.end for segment in segments], np.int64)
        sizes = [-(-segment.size >> BUCKET_BITS) for segment in segments]
        self.first = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
        self.count = int(self.first[-1])

    def of(self, offsets: np.ndarray) -> np.ndarray:
        """Returns the bucket of each physical offset; -1 outside all segments."""
        if not len(self._bases):
            return np.full(len(offsets), -1, np.int64)
        if len(offsets):
            index = int(np.searchsorted(self._bases, offsets.min(), side="right")) - 1
            if index >= 0 and offsets.max() < self._ends[index]:  # all in one segment
                return self.first[index] + ((offsets - self._bases[index]) >> BUCKET_BITS)
        segment = np.searchsorted(self._bases, offsets, side="right") - 1
        at = np.maximum(segment, 0)
        inside = (segment >= 0) & (offsets < self._ends[at])
        return np.where(inside, self.first[at] + ((offsets - self._bases[at]) >> BUCKET_BITS), -1)

    def add_plain_units(
        self, sums: "Sums", units: np.ndarray, start: int, key: np.uint64, end: int
    ) -> tuple[int, int, int] | None:
        """Adds the units of a ConsumeQueue to their buckets by `native.logs`, if all refer to records of the log.

        `units` have the type `CONSUME_QUEUE_UNIT.dtype`, and start at queue offset `start`; `end` is the log's. Returns
        minimum and maximum physical offset, and the largest end of a record; None if nothing was added.
        """
        if not native.in_use():
            return None
        places = (self._bases, self._ends, self.first, BUCKET_BITS)
        return native.logs.plain_units(units.view(np.uint8), start, key, end, *places, sums.total, sums.count)

    def add_plain_entries(
        self, sums: "Sums", entries: np.ndarray, first: int, heads: np.ndarray, end: int
    ) -> tuple[int, int, int]:
        """Adds index entries to their buckets, and makes them the heads of their slots, as far as `native.logs` does.

        `entries` have the type `index_file.ENTRY.dtype`; `heads` is the number of the newest entry of each slot; `end`
        is the log's. Returns how many were added (all before the first that contradicts its file or refers to no record
        of the log), and their minimum and maximum physical offset.
        """
        if not native.in_use():
            return 0, 0, 0
        places = (self._bases, self._ends, self.first, BUCKET_BITS)
        return native.logs.plain_entries(entries.view(np.uint8), first, heads, end, *places, sums.total, sums.count)

    def segment_of(self, bucket: int) -> int:
        """Returns the number of the segment that contains a bucket."""
        return int(np.searchsorted(self.first, bucket, side="right")) - 1

    def span(self, bucket: int) -> tuple[int, int]:
        """Returns the range of physical offsets of a bucket, half-open."""
        segment = self.segment_of(bucket)
        start = int(self._bases[segment]) + ((bucket - int(self.first[segment])) << BUCKET_BITS)
        return start, min(start + (1 << BUCKET_BITS), int(self._ends[segment]))


class Sums:
    """Sum of the mixed values (uint64) and count (int64) per bucket."""

    def __init__(self, buckets: int) -> None:
        self.total = np.zeros(buckets, np.uint64)
        self.count = np.zeros(buckets, np.int64)

    def add(self, buckets: np.ndarray, values: np.ndarray) -> None:
        """Adds values (uint64) to their buckets (int64, not negative); fastest if equal buckets are adjacent."""
        if not len(buckets):
            return
        starts = run_starts(buckets)
        where = buckets[starts]
        np.add.at(self.total, where, np.add.reduceat(values, starts))
        np.add.at(self.count, where, np.diff(starts, append=len(buckets)))

    def merge(self, other: "Sums", first: int = 0) -> None:
        """Adds another table's sums, whose bucket 0 is this one's bucket `first`."""
        self.total[first : first + len(other.total)] += other.total
        self.count[first : first + len(other.count)] += other.count

    def differ(self, other: "Sums") -> np.ndarray:
        """Returns the buckets in which two tables differ."""
        return np.flatnonzero((self.total != other.total) | (self.count != other.count))


def queue_key(topic: str, queue_id: int) -> int:
    """Returns a 64-bit hash of topic and queue id."""
    data = f"{queue_id}@{topic}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def mix_units(
    queue_keys: np.ndarray, offsets: np.ndarray, physical: np.ndarray, sizes: np.ndarray, tags: np.ndarray
) -> np.ndarray:
    """Returns one uint64 per unit; equal units have equal numbers.

    `queue_keys` has the `queue_key` of each unit's queue, uint64, or is an array of one for all.
    """
    mixed = _word(physical) * _OFFSET
    mixed += _word(offsets) * _PLACE
    mixed += _word(sizes) * _SIZE
    mixed += _word(tags) * _TAGS
    mixed += queue_keys
    return _finish(mixed)


def mix_batches(mixed: np.ndarray, times: np.ndarray, batch_sizes: np.ndarray) -> np.ndarray:
    """Returns the numbers of batch units: those of `mix_units`, mixed with the fields that only batch units have."""
    return _finish(mixed + _word(times) * _TIME + _word(batch_sizes) * _BATCH)


def mix_entries(key_hashes: np.ndarray, physical: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Returns one uint64 per index entry or key; `times` are seconds since the file's begin."""
    return _finish(_word(physical) * _OFFSET + _word(key_hashes) * _TAGS + _word(times) * _TIME)


def _word(values: np.ndarray) -> np.ndarray:
    return values.astype(np.int64).view(np.uint64)


def _finish(mixed: np.ndarray) -> np.ndarray:
    mixed ^= mixed >> _FOLD
    mixed *= _FINAL
    mixed ^= mixed >> _FOLD
    return mixed


class Records(Struct, frozen=True):
    """Valid records that start in [start, end), with their units and keys."""

    start: int  # and end: physical offsets
    end: int
    offsets: np.ndarray  # and sizes, times: int64 per record, ascending
    sizes: np.ndarray
    times: np.ndarray
    units: QueueUnits  # `row` counts these records
    keys: IndexKeys  # the same
    topics: list[str]  # names by topic number in `units`

    def at(self, physical: np.ndarray) -> np.ndarray:
        """Returns the number of the record that starts at each physical offset, -1 if there is none."""
        if not len(self.offsets):
            return np.full(len(physical), -1, np.int64)
        numbers = np.minimum(np.searchsorted(self.offsets, physical), len(self.offsets) - 1)
        return np.where(self.offsets[numbers] == physical, numbers, -1)


def groups_of(differing: np.ndarray, buckets: Buckets) -> Iterator[tuple[int, int]]:
    """Yields runs of buckets (first, last + 1) of one segment, short enough to be read at once."""
    first = end = -1
    for bucket in differing.tolist():
        follows = bucket == end and bucket - first < MAX_BUCKETS
        if not (follows and buckets.segment_of(bucket) == buckets.segment_of(first)):
            if end >= 0:
                yield first, end
            first = bucket
        end = bucket + 1
    if end >= 0:
        yield first, end


def read_records(
    survey: Survey, number: int, span: tuple[int, int], start: int, rules: DispatchRules | None = None
) -> Records:
    """Reads the records of a segment that start in a range of physical offsets.

    `start` is the physical offset of the first record in it, -1 if there is none. `rules` are given if they differ from
    the survey's.
    """
    dispatcher = Dispatcher(rules or survey.rules)
    parts = list(_frames(survey, number, span, start)) if start >= 0 else []
    units: list[QueueUnits] = []
    keys: list[IndexKeys] = []
    before = 0
    for frames in parts:
        dispatched = dispatcher.dispatch(frames)
        units.append(_moved(dispatched.units, before))
        keys.append(_moved(dispatched.keys, before))
        before += len(frames)
    return Records(
        *span,
        _joined([frames.positions + frames.base for frames in parts]),
        _joined([frames.sizes for frames in parts]),
        _joined([frames.column("store_timestamp") for frames in parts]),
        _concatenated(QueueUnits, units),
        _concatenated(IndexKeys, keys),
        dispatcher.topics.names,
    )


def _frames(survey: Survey, number: int, span: tuple[int, int], start: int) -> Iterator[Frames]:
    segment = survey.segments[number]
    with ReadFile(segment.path) as file:
        is_last = number >= survey.last_used
        walk = walk_file(
            file, segment, start=start - segment.base, is_last=is_last, crc=False, start_index=survey.start_index()
        )
        for item in walk:
            if isinstance(item, Damage):
                continue
            offsets = item.positions + item.base
            if offsets[0] >= span[1]:
                return
            limit = min(span[1], survey.end) if survey.live else span[1]
            inside = item.select((offsets >= span[0]) & (offsets < limit))
            if len(inside):
                yield inside


def _moved(columns: C, by: int) -> C:
    values = structs.asdict(columns)
    return type(columns)(**{**values, "row": values["row"] + by})


def _concatenated(kind: type[C], parts: list[C]) -> C:
    return kind(*(_joined([getattr(part, name) for part in parts]) for name in kind.__struct_fields__))


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
