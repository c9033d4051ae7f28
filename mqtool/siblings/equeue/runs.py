"""Runs of sound message records as columns: what a frame and a record promise, tested for thousands at a time."""

from dataclasses import dataclass

import numpy as np

from mqtool.errors import FormatError
from mqtool.formats.equeue_message import MAX_TICKS, Shape
from mqtool.siblings.equeue.chunk import ChunkFile
from mqtool.siblings.hops import Run
from mqtool.siblings.sequence_columns import SequenceColumns, read_columns


@dataclass(frozen=True, slots=True)
class SoundRun:
    """Messages that follow one another in a chunk; every record can be read, with times that are dates.

    Attributes:
        chunk: that holds them.
        run: their frames.
        fields: of their records.
    """

    chunk: ChunkFile
    run: Run
    fields: SequenceColumns

    @property
    def positions(self) -> np.ndarray:
        """int64, global positions of the frames."""
        return self.run.positions + self.chunk.start


def sound_run(chunk: ChunkFile, shape: Shape, run: Run) -> SoundRun:
    """Returns the frames of a run up to the first whose record is not sound."""
    fields = read_columns(shape.sequence, run.data, run.starts, run.starts + run.sizes)
    sound = fields.good
    for name in ("created_time", "stored_time"):
        sound = sound & (fields.fixed[name] >= 0) & (fields.fixed[name] <= MAX_TICKS)
    count = len(run) if sound.all() else int(np.argmin(sound))
    return SoundRun(chunk, run.first(count), fields.first(count))


def is_decodable(record: bytes, shape: Shape) -> bool:
    """Whether the broker's decoder makes a message of a record; it does not look at what the message says."""
    try:
        return shape.parse(record)[0].is_decodable
    except FormatError:
        return False
