"""Reads valid message records as columns, checking frames and fields of thousands of records at a time."""

import numpy as np
from msgspec import Struct

from mqtool.errors import FormatError
from mqtool.formats.equeue_message import MAX_TICKS, Shape
from mqtool.siblings.equeue.chunk import ChunkFile
from mqtool.siblings.frame_scan import FrameRun
from mqtool.siblings.sequence_columns import SequenceColumns, read_columns


class ValidRun(Struct, frozen=True):
    """Consecutive messages of a chunk, all of which can be read and have valid times.

    Attributes:
        chunk: the chunk that contains them.
        run: their frames.
        fields: fields of their records as columns.
    """

    chunk: ChunkFile
    run: FrameRun
    fields: SequenceColumns

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
