"""Reads valid log records as columns, grouped by type and version of their layouts."""

import numpy as np
from msgspec import Struct

from mqtool.formats.tfchunk_records import BOUNDS, HEAD, LAYOUTS
from mqtool.siblings.frame_scan import FrameRun, SequenceColumns, read_columns
from mqtool.siblings.tfchunk.chunk import TFChunkFile


class Group(Struct, frozen=True):
    """Records of one layout in a run.

    Attributes:
        record_type, version: the layout.
        rows: int64, indexes of the records in the run.
        fields: fields of these records as columns.
    """

    record_type: int
    version: int
    rows: np.ndarray
    fields: SequenceColumns


class ValidRun(Struct, frozen=True):
    """Consecutive records of a chunk, all of which can be read.

    Attributes:
        chunk: the chunk that contains them.
        run: their frames.
        groups: the records by layout.
    """

    chunk: TFChunkFile
    run: FrameRun
    groups: tuple[Group, ...]

    @property
    def positions(self) -> np.ndarray:
        """Log positions that the records state, int64."""
        positions = np.zeros(len(self.run), np.int64)
        for group in self.groups:
            positions[group.rows] = group.fields.fixed["log_position"]
        return positions


def valid_run(chunk: TFChunkFile, run: FrameRun) -> ValidRun:
    """Returns the frames of a run before the first one whose record cannot be read."""
    types, versions, valid = _heads(run)
    groups = []
    for (record_type, version), sequence in LAYOUTS.items():
        rows = np.flatnonzero((types == record_type) & (versions == version))
        if len(rows):
            starts = run.starts[rows]
            ends = starts + run.sizes[rows]
            fields = read_columns(sequence, run.data, starts, ends)
            good = fields.good & (fields.after == ends)  # as `tfchunk_records.parse`
            for name, (minimum, maximum) in BOUNDS[record_type].items():
                good &= (fields.fixed[name] >= minimum) & (fields.fixed[name] <= maximum)
            valid[rows] = good
            groups.append(Group(int(record_type), version, rows, fields))
    count = len(run) if valid.all() else int(np.argmin(valid))
    kept = [(group, int(np.searchsorted(group.rows, count))) for group in groups]
    return ValidRun(
        chunk,
        run.first(count),
        tuple(
            Group(group.record_type, group.version, group.rows[:number], group.fields.first(number))
            for group, number in kept
            if number
        ),
    )


def _heads(run: FrameRun) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns type and version of each record, and a bool array of the same length, all False."""
    none = np.zeros(len(run), bool)
    if len(run.data) < HEAD.size or not len(run):
        return np.full(len(run), -1), np.full(len(run), -1), none
    sliding = np.ndarray((len(run.data) - HEAD.size + 1,), f"V{HEAD.size}", run.data, strides=(1,))
    fits = run.sizes >= HEAD.size
    heads = sliding[np.where(fits, run.starts, 0)].view(HEAD.dtype)
    types, versions = (heads[name].astype(np.int16) for name in ("record_type", "version"))  # of a byte each
    return np.where(fits, types, -1), np.where(fits, versions, -1), none
