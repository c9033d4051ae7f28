"""Topics, tags codes and index keys of records by a kernel, for whoever dispatches them: read or just written."""

from typing import NamedTuple

import numpy as np

from mqtool.kernels import Kernels
from mqtool.records.topics import TopicTable


class Place(NamedTuple):
    """Where topics and properties of records are, int64 each; inside the buffer."""

    topic_start: np.ndarray
    topic_length: np.ndarray
    properties_start: np.ndarray
    properties_length: np.ndarray

    @property
    def most_keys(self) -> int:
        """How many keys there can be: each word of KEYS takes a byte at least."""
        return int(self.properties_length.sum()) + 2 * len(self.properties_length)


class Found(NamedTuple):
    """Arrays that are filled: topic number and tags code of each record, record and hash of each key.

    There must be room for `Place.most_keys` keys.
    """

    topic: np.ndarray
    tags_code: np.ndarray
    key_rows: np.ndarray
    key_hashes: np.ndarray


def read_trailers(
    compiled: Kernels, topics: TopicTable, data: np.ndarray, place: Place, wanted: tuple[int, bool, bool], found: Found
) -> tuple[int, np.ndarray]:
    """Fills what can be told of records; topics that are new get numbers.

    Args:
        compiled: the kernels.
        topics: get numbers here.
        data: uint8, the buffer.
        place: where its records have what is read.
        wanted: number of the schedule topic; whether keys are wanted; whether a tag is one.
        found: is filled.

    Returns:
        How many keys there are, and the records that are left to array arithmetic.
    """
    count, slots = len(place.topic_start), topics.slots
    others = np.empty(count, np.int64)
    done = (0, 0, 0)
    while True:
        done = compiled.dispatch(data, tuple(place), slots.columns(), wanted, done, (*found, others))
        row, keys, other_count = done
        if row == count:
            return keys, others[:other_count]
        start = int(place.topic_start[row])
        slots.learn(data[start : start + int(place.topic_length[row])].tobytes())
