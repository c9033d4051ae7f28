"""Topics, tags codes and index keys of records, read by a compiled loop."""

from typing import NamedTuple

import numpy as np

from mqtool.kernels import Kernels
from mqtool.records.topics import TopicTable


class TrailerPositions(NamedTuple):
    """Positions of topics and properties in a buffer, int64 arrays with one item for each record."""

    topic_start: np.ndarray
    topic_length: np.ndarray
    properties_start: np.ndarray
    properties_length: np.ndarray

    @property
    def max_keys(self) -> int:
        """The maximum number of keys: each word of KEYS takes at least one byte."""
        return int(self.properties_length.sum()) + 2 * len(self.properties_length)


class TrailerArrays(NamedTuple):
    """Output arrays: topic number and tags code of each record, record and hash of each key.

    They must have room for `TrailerPositions.max_keys` keys.
    """

    topic: np.ndarray
    tags_code: np.ndarray
    key_rows: np.ndarray
    key_hashes: np.ndarray


def read_trailers(
    compiled: Kernels,
    topics: TopicTable,
    data: np.ndarray,
    positions: TrailerPositions,
    options: tuple[int, bool, bool],
    arrays: TrailerArrays,
) -> tuple[int, np.ndarray]:
    """Fills the output arrays; new topics get numbers.

    Args:
        compiled: the kernels.
        topics: assigns topic numbers.
        data: uint8, the buffer.
        positions: where the records' topics and properties are.
        options: number of the schedule topic; whether keys are wanted; whether tags count as keys.
        arrays: filled.

    Returns:
        The number of keys, and the records that are left to the array form.
    """
    count, slots = len(positions.topic_start), topics.slots
    others = np.empty(count, np.int64)
    done = (0, 0, 0)
    while True:
        done = compiled.dispatch(data, tuple(positions), slots.columns(), options, done, (*arrays, others))
        row, keys, other_count = done
        if row == count:
            return keys, others[:other_count]
        start = int(positions.topic_start[row])
        slots.learn(data[start : start + int(positions.topic_length[row])].tobytes())
