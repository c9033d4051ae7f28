"""The messages that consumers no longer get after a start, of those that the store provably has now.

A message is proven by a complete record in the log, or by a unit in a queue whose record is missing or damaged.
Messages before the log's present minimum have expired and count as neither.
"""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from msgspec import Struct

from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT, PRE_BLANK_SIZE_FIELD, UNIT_SIZE
from mqtool.formats.topics import TopicQueue, is_lmq
from mqtool.records.number_sets import among, distinct, stable_order, union
from mqtool.recovery.proof import Proof
from mqtool.recovery.queue_files import QueueFile
from mqtool.recovery.reading import OK, QueueReading

Ranges = tuple[tuple[int, int], ...]
"""First and last queue offset, both included."""


class Losses(Struct, frozen=True):
    """The losses of a start; None if unknown.

    Attributes:
        lost: queue offsets by queue.
        unqueued: number of messages whose complete records stay in the log, but that no consumer gets.
        readable: number of proven messages that consumers get intact.
        repeated: queue offsets by queue of messages that they get more than once.
    """

    lost: Mapping[TopicQueue, Ranges] | None
    unqueued: int
    readable: int | None
    repeated: Mapping[TopicQueue, Ranges] | None


UNKNOWN = Losses(None, 0, None, None)
"""Nobody reads, or the log was not read for it."""


class Claims(Struct, frozen=True):
    """What the units of one queue prove before the start.

    Attributes:
        offsets: int64, queue offsets.
        physical: int64, where the records should be.
        expired: number of units that point before the log's minimum; they prove nothing.
    """

    offsets: np.ndarray
    physical: np.ndarray
    expired: int = 0


def claims_of(files: Iterable[QueueFile], log_min: int) -> Claims:
    """Reads the units of a queue; units of a BatchConsumeQueue prove nothing.

    Args:
        files: of one queue.
        log_min: start of the log.
    """
    offsets, physical, expired = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
    for file in files:
        if file.content.unit is not CONSUME_QUEUE_UNIT:
            continue
        units = file.content.on_disk()
        real = (units["size"] > 0) & (units["size"] != PRE_BLANK_SIZE_FIELD)
        inside = real & (units["physical_offset"] >= log_min)
        expired += int((real & ~inside).sum())
        offsets.append(np.flatnonzero(inside) + file.base // UNIT_SIZE)
        physical.append(units["physical_offset"][inside].astype(np.int64))
    return Claims(np.concatenate(offsets), np.concatenate(physical), expired)


def are_moved(queue: TopicQueue, stated: TopicQueue, count: int) -> bool:
    """Whether units belong to another queue, because a file or directory was renamed, copied or exchanged.

    The fields that name a record's queue have no CRC, so a single record that disagrees with its unit may be wrong. But
    damage does not change the length of a topic without making the record invalid, and does not make several records
    name the same other queue.

    Args:
        queue: queue that contains the units.
        stated: queue that their records name, with the queue offsets at which the units are.
        count: number of these units.
    """
    return count > 1 or len(queue[0].encode()) != len(stated[0].encode())


def without_moved(proof: Proof, claims: Mapping[TopicQueue, Claims]) -> dict[TopicQueue, Claims]:
    """Returns the claims of units that belong to their queue; see `are_moved`."""
    order = stable_order(proof.physical)
    physical = proof.physical[order]
    numbers = {key: number for number, key in enumerate(proof.queues)}
    of_queues = dict(claims)
    for key, claim in claims.items():
        if is_lmq(key[0]) or not len(physical):
            continue  # a light queue has units for records of other queues
        row = order[np.minimum(np.searchsorted(physical, claim.physical), len(physical) - 1)]
        is_other = (proof.physical[row] == claim.physical) & (proof.queue[row] != numbers.get(key, -1))
        is_other &= proof.queue_offset[row] == claim.offsets
        if not is_other.any():
            continue
        queue = proof.queue[row]
        counts = np.bincount(queue[is_other], minlength=len(proof.queues))
        moved = [are_moved(key, stated, count) for stated, count in zip(proof.queues, counts.tolist(), strict=True)]
        kept = ~(is_other & np.array(moved, bool)[queue])
        of_queues[key] = Claims(claim.offsets[kept], claim.physical[kept], claim.expired)
    return of_queues


def losses_of(
    proof: Proof, claims: Mapping[TopicQueue, Claims], readings: Mapping[TopicQueue, QueueReading], end: int
) -> Losses:
    """Compares what is proven with what is delivered.

    Args:
        proof: records in the log before the start.
        claims: what units proved before the start.
        readings: pulls after the start.
        end: physical offset at which the log ends after the start.
    """
    delivered = np.zeros(len(proof.position), np.int32)
    others = 0
    for reading in readings.values():
        ok = reading.states == OK
        np.add.at(delivered, reading.records[ok & (reading.records >= 0)], 1)
        others += len(set(reading.physical[ok & (reading.records < 0)].tolist()))
    lost: dict[TopicQueue, Ranges] = {}
    repeated: dict[TopicQueue, Ranges] = {}
    comparison = _Comparison(proof, claims, readings, delivered)
    readable = others
    for key in dict.fromkeys((*proof.queues, *claims)):
        _put(lost, key, comparison.lost(key, readings.get(key)))
        _put(repeated, key, comparison.offsets(comparison.rows(key, delivered > 1)))
        readable += int(proof.messages[comparison.rows(key, delivered > 0)].sum())
    unqueued = proof.queued & (delivered == 0) & (proof.physical < end)
    return Losses(lost, int(unqueued.sum()), readable, repeated)


class _Comparison:
    """Records and units of the same messages, matched.

    If a record states one queue, and only another queue has a unit for it, the unit is trusted: the fields that name
    a record's queue have no CRC.
    """

    def __init__(
        self,
        proof: Proof,
        claims: Mapping[TopicQueue, Claims],
        readings: Mapping[TopicQueue, QueueReading],
        delivered: np.ndarray,
    ) -> None:
        none = [np.empty(0, np.int64)]
        self._proof = proof
        self._claims = claims
        self._delivered = delivered
        self._rows = rows_by_queue(proof)
        self._place = proof.queue_offset.copy()
        for key, rows in self._rows.items():
            queued = rows[proof.queued[rows]]
            self._place[queued] = places(
                proof.queue_offset[queued],
                np.maximum(proof.messages[queued], 1),
                proof.physical[queued],
                claims.get(key),
            )
        self._belongs = ~among(proof.physical, np.concatenate([*none, *(claim.physical for claim in claims.values())]))
        for key, rows in self._rows.items():
            if key in claims:
                self._belongs[rows] |= among(proof.physical[rows], claims[key].physical)
        fine = none
        for key, reading in readings.items():
            readable = reading.physical[reading.states == OK]
            fine.append(readable[among(readable, claims[key].physical)] if key in claims else readable[:0])
        self._fine = np.concatenate(fine)

    def rows(self, key: TopicQueue, chosen: np.ndarray) -> np.ndarray:
        """Returns the chosen proven records of a queue that get a unit."""
        rows = self._rows.get(key, np.empty(0, np.int64))
        return rows[self._proof.queued[rows] & self._belongs[rows] & chosen[rows]]

    def offsets(self, rows: np.ndarray) -> np.ndarray:
        """Returns every queue offset of some records; a batch has several."""
        counts = np.maximum(self._proof.messages[rows], 1)
        first = np.repeat(self._place[rows] - np.cumsum(counts) + counts, counts)
        return np.asarray(first + np.arange(counts.sum()))

    def lost(self, key: TopicQueue, reading: QueueReading | None) -> np.ndarray:
        """Returns the queue offsets of messages that are not delivered."""
        claims = self._claims.get(key)
        rows = self.rows(key, self._delivered == 0)
        undelivered = self.offsets(rows[~self._is_replaced(rows, claims, reading)])
        return union(undelivered, self._only_claimed(key, claims, reading))

    def _is_replaced(self, rows: np.ndarray, claims: Claims | None, reading: QueueReading | None) -> np.ndarray:
        """Whether no unit points to a record, and another record with the same queue offset is delivered there.

        Nobody got such a message before the start either: its offset was given to a later one.
        """
        if reading is None:
            return np.zeros(len(rows), bool)
        served = reading.offsets[(reading.states == OK) & (reading.stated == reading.offsets)]
        replaced = among(self._place[rows], served) & (self._proof.messages[rows] <= 1)
        if claims is not None:
            replaced &= ~among(self._proof.physical[rows], claims.physical)
        return np.asarray(replaced)

    def _only_claimed(self, key: TopicQueue, claims: Claims | None, reading: QueueReading | None) -> np.ndarray:
        """Returns offsets that only a unit proves: no proven record is there, and nothing is delivered."""
        if claims is None:
            return np.empty(0, np.int64)
        known = self.rows(key, self._proof.queued)
        left = ~among(claims.offsets, self._place[known]) & ~among(claims.physical, self._proof.physical[known])
        if reading is not None:
            left[left] &= ~among(claims.physical[left], reading.physical[reading.states == OK])
        left[left] &= ~among(claims.physical[left], self._fine)
        return claims.offsets[left]


def places(stated: np.ndarray, counts: np.ndarray, physical: np.ndarray, claims: Claims | None) -> np.ndarray:
    """Returns the queue offset of each queued record of one queue.

    It is the offset that the record states, unless that contradicts both neighbours, because the field has no CRC.
    Then it is the offset of the record's unit, or the one after the record before.

    Args:
        stated: queue offsets that the records state, in the order of the log.
        counts: number of messages in each record.
        physical: physical offsets of the records.
        claims: units of the queue before the start.
    """
    after = stated + counts
    fits = np.zeros(len(stated), bool)
    fits[1:] = stated[1:] == after[:-1]
    fits[:-1] |= after[:-1] == stated[1:]
    disordered = np.zeros(len(stated), bool)
    disordered[1:] = stated[1:] < after[:-1]
    disordered[:-1] |= after[:-1] > stated[1:]
    if claims is not None and len(claims.physical):
        disordered |= among(physical, claims.physical)
    offsets = stated.copy()
    for at in np.flatnonzero(disordered & ~fits).tolist():
        units = np.empty(0, np.int64) if claims is None else claims.offsets[claims.physical == physical[at]]
        if len(units):
            offsets[at] = stated[at] if stated[at] in units else units[0]
        elif at:
            offsets[at] = offsets[at - 1] + counts[at - 1]
    return offsets


def rows_by_queue(proof: Proof) -> dict[TopicQueue, np.ndarray]:
    """Returns the rows of each queue's records, in the order of the log."""
    order = stable_order(proof.queue)
    edges = np.concatenate([[0], np.cumsum(np.bincount(proof.queue, minlength=len(proof.queues)))])
    return {key: order[edges[number] : edges[number + 1]] for number, key in enumerate(proof.queues)}


def _put(losses: dict[TopicQueue, Ranges], key: TopicQueue, offsets: np.ndarray) -> None:
    if len(offsets):
        losses[key] = tuple(ranges(offsets))


def ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yields runs of consecutive numbers as (first, last)."""
    ordered = distinct(np.fromiter(numbers, np.int64))
    if not len(ordered):
        return
    breaks = np.flatnonzero(np.diff(ordered) != 1) + 1
    starts = np.concatenate([[0], breaks])
    ends = np.concatenate([breaks, [len(ordered)]]) - 1
    yield from zip(ordered[starts].tolist(), ordered[ends].tolist(), strict=True)
