"""Which messages consumers no longer get after a start, of those that the store provably holds now.

A message is proven by a whole record in the log, or by a unit in a queue whose record is gone or damaged.
Messages before the log's present minimum have expired and count as neither.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mqtool.engine.recovery.proof import Proof
from mqtool.engine.recovery.queue_files import QueueFile
from mqtool.engine.recovery.reading import OK, QueueReading
from mqtool.engine.recovery.state import QueueKey
from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT, PRE_BLANK_SIZE_FIELD, UNIT_SIZE

Ranges = tuple[tuple[int, int], ...]
"""First and last queue offset, both included."""


@dataclass(frozen=True)
class Losses:
    """What a start costs; None where it is not known.

    Attributes:
        lost: queue offsets by queue.
        unqueued: messages whose whole records stay in the log, but in no queue.
        readable: proven messages that consumers get intact.
        repeated: queue offsets by queue of messages that they get more than once.
    """

    lost: Mapping[QueueKey, Ranges] | None
    unqueued: int
    readable: int | None
    repeated: Mapping[QueueKey, Ranges] | None


UNKNOWN = Losses(None, 0, None, None)
"""Nobody reads, or the log was not read for it."""


def claims_of(files: Iterable[QueueFile], log_min: int) -> np.ndarray:
    """Returns the queue offsets that units speak for, as the files are on disk.

    Args:
        files: of one queue; those of a BatchConsumeQueue claim nothing.
        log_min: where the log begins; units that point before it have expired.
    """
    offsets = [np.empty(0, np.int64)]
    for file in files:
        if file.content.unit is not CONSUME_QUEUE_UNIT:
            continue
        units = file.content.on_disk()
        real = (units["size"] > 0) & (units["size"] != PRE_BLANK_SIZE_FIELD) & (units["physical_offset"] >= log_min)
        offsets.append(np.flatnonzero(real) + file.base // UNIT_SIZE)
    return np.concatenate(offsets)


def losses_of(
    proof: Proof, claims: Mapping[QueueKey, np.ndarray], readings: Mapping[QueueKey, QueueReading], end: int
) -> Losses:
    """Compares what is proven with what is delivered.

    Args:
        proof: records in the log before the start.
        claims: offsets that units spoke for before the start.
        readings: pulls after the start.
        end: physical offset at which the log then ends.
    """
    delivered = np.zeros(len(proof.position), np.int64)
    unproven = 0
    for reading in readings.values():
        ok = reading.states == OK
        np.add.at(delivered, reading.records[ok & (reading.records >= 0)], 1)
        unproven += len(np.unique(reading.physical[ok & (reading.records < 0)]))
    lost: dict[QueueKey, Ranges] = {}
    repeated: dict[QueueKey, Ranges] = {}
    rows_of = _rows_by_queue(proof)
    for key in dict.fromkeys((*proof.queues, *claims)):
        rows = rows_of.get(key, np.empty(0, np.int64))
        rows = rows[proof.queued[rows]]
        gone = _offsets(proof, rows[delivered[rows] == 0])
        only_claimed = _only_claimed(claims.get(key), readings.get(key), proof.queue_offset[rows])
        _put(lost, key, np.union1d(gone, only_claimed))
        _put(repeated, key, _offsets(proof, rows[delivered[rows] > 1]))
    bases = np.array([file.base for file in proof.segments] + [0])
    unqueued = proof.queued & (delivered == 0) & (bases[proof.segment] + proof.position < end)
    readable = int(proof.messages[proof.queued & (delivered > 0)].sum()) + unproven
    return Losses(lost, int(unqueued.sum()), readable, repeated)


def _rows_by_queue(proof: Proof) -> dict[QueueKey, np.ndarray]:
    order = np.argsort(proof.queue, kind="stable")
    edges = np.searchsorted(proof.queue[order], np.arange(len(proof.queues) + 1))
    return {key: order[edges[number] : edges[number + 1]] for number, key in enumerate(proof.queues)}


def _offsets(proof: Proof, rows: np.ndarray) -> np.ndarray:
    """Returns every queue offset of some records; a batch has several."""
    counts = np.maximum(proof.messages[rows], 1)
    first = np.repeat(proof.queue_offset[rows] - np.cumsum(counts) + counts, counts)
    return np.asarray(first + np.arange(counts.sum()))


def _only_claimed(claims: np.ndarray | None, reading: QueueReading | None, proven: np.ndarray) -> np.ndarray:
    """Returns offsets that a unit alone speaks for, and that are not delivered."""
    if claims is None:
        return np.empty(0, np.int64)
    offsets = np.setdiff1d(claims, proven)
    return offsets if reading is None else np.setdiff1d(offsets, reading.stated[reading.states == OK])


def _put(found: dict[QueueKey, Ranges], key: QueueKey, offsets: np.ndarray) -> None:
    if len(offsets):
        found[key] = tuple(ranges(offsets))


def ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yields runs of consecutive numbers as (first, last)."""
    ordered = np.unique(np.fromiter(numbers, np.int64))
    if not len(ordered):
        return
    breaks = np.flatnonzero(np.diff(ordered) != 1) + 1
    starts = np.concatenate([[0], breaks])
    ends = np.concatenate([breaks, [len(ordered)]]) - 1
    yield from zip(ordered[starts].tolist(), ordered[ends].tolist(), strict=True)
