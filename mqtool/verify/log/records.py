"""Reads a part of the CommitLog again: its records, and what dispatch would write for them.

Used only for buckets whose checksums differ.
"""

from collections.abc import Iterator
from typing import TypeVar

import numpy as np
from msgspec import Struct, structs

from mqtool.records.damage import Damage
from mqtool.records.dispatch import Dispatcher, DispatchRules, IndexKeys, QueueUnits
from mqtool.records.frames import Frames
from mqtool.store.files import ReadFile
from mqtool.store.log.log_walk import walk_file
from mqtool.verify.log.checksums import Buckets
from mqtool.verify.survey import Survey

C = TypeVar("C", QueueUnits, IndexKeys)

MAX_BUCKETS = 32
"""Buckets that are read together."""


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
    """Reads the records of a range of one segment.

    Args:
        survey: the store.
        number: of the segment.
        span: physical offsets; records that start in it are read.
        start: physical offset of the first record in it, -1 if there is none.
        rules: if they differ from the survey's.

    Raises:
        StoreError: the segment cannot be read.
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
