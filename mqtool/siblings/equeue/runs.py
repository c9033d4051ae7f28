"""Runs of valid message records as columns: frames and fields checked for thousands of records at a time."""

from dataclasses import dataclass

import numpy as np

from mqtool.errors import FormatError
from mqtool.formats.equeue_message import MAX_TICKS, Shape
from mqtool.siblings.equeue.chunk import ChunkFile
from mqtool.siblings.frame_scan import FrameRun
from mqtool.siblings.sequence_columns import SequenceColumns, read_columns


@dataclass(frozen=True, slots=True)
class ValidRun:
    """Messages that follow one another in a chunk; every record can be read, with times that are dates.

    Attributes:
        chunk: that holds them.
        run: their frames.
        fields: of their records.
    """

    chunk: ChunkFile
    run: FrameRun
    fields: SequenceColumns

    @property
    def positions(self) -> np.ndarray:
        """int64, global positions of the frames."""
        return self.run.positions + self.chunk.start


def valid_run(chunk: ChunkFile, shape: Shape, run: FrameRun) -> ValidRun:
    """Returns the frames of a run up to the first whose record is not valid."""
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
