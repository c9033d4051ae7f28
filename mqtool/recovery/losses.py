"""The messages that consumers do not get after a start, of those that the store provably had, by what lost them.

A message is proven by a complete record in the log, or by a unit in a queue whose record is missing or damaged.
Messages before the log's present minimum have expired and count as neither. It is lost already if there is neither a
complete record nor one that its unit confirms; lost by the start if consumers could get it, or a repair could bring it
back, and neither is so afterwards; and not served if its record stays in the log and no unit leads to it, neither
before the start nor after it, if only salvage can read it there, or if the log of its compacted topic lacks it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from mqtool.formats.consume_queue import BATCH_CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT, PRE_BLANK_SIZE_FIELD, UNIT_SIZE
from mqtool.formats.topics import TopicQueue, is_lmq
from mqtool.records.number_sets import among, distinct, stable_order, union
from mqtool.records.record_search import confirmed_record
from mqtool.recovery.mapped_files import QueueFile, UnitContent
from mqtool.recovery.proof import Proof
from mqtool.recovery.reading import NOT_COMPACTED, OK, QueueReading
from mqtool.store.queues.consume_queue import Queue

Ranges = tuple[tuple[int, int], ...]
"""First and last queue offset, both included."""


_NONE = np.empty(0, np.int64)


class Losses(Struct, frozen=True):
    """The losses of a start; None if unknown."""

    lost: Mapping[TopicQueue, Ranges] | None  # queue offsets by queue, of all three kinds
    gone: Mapping[TopicQueue, Ranges] | None  # those that are lost already; see `gone_of`
    by_start: Mapping[TopicQueue, Ranges] | None  # those that the start loses
    unserved: Mapping[TopicQueue, Ranges] | None  # those that are not served, and could be
    unqueued: int  # number of messages whose complete records stay in the log, but that no consumer gets
    readable: int | None  # number of proven messages that consumers get intact
    repeated: Mapping[TopicQueue, Ranges] | None  # queue offsets by queue of messages that they get more than once


UNKNOWN = Losses(None, None, None, None, 0, None, None)
"""Nobody reads, or the log was not read for it."""


class LossCount(Struct, frozen=True):
    """How many messages are lost, and by what. A message is counted once."""

    gone: int = 0  # lost already: no intact record is left
    by_start: int | None = 0  # lost by the next start of the broker; None if it does not start, or if that is unknown
    unserved: int = 0  # their records are intact and stay in the log, but no consumer gets them
    # Lost by a change of the files: a start after it does not deliver them, and they are not lost already; None if the
    # broker does not start after it, or if that is unknown.
    by_change: int | None = 0
    waiting: int = 0  # those of `by_start` that wait for delivery: delays, timers, transactions, popped messages

    @property
    def do_not_start(self) -> bool:
        """Whether the next start loses messages, or leaves some without a consumer that could get them."""
        return bool(self.by_start or self.unserved)

    @property
    def words(self) -> str:
        """Everything but `by_start` in words, each part after a semicolon; "" if nothing is lost."""
        parts = []
        if self.by_change:
            still = f"that {_are(self.by_change)} still in the store"
            parts.append(f"this change loses {_messages(self.by_change)} {still}")
        if self.gone:
            parts.append(f"{self.gone} {_are(self.gone)} lost already")
        if self.unserved:
            reason = "still in the log, but no consumer gets"
            parts.append(
                f"{self.unserved} {_are(self.unserved)} not served: {reason} {'it' if self.unserved == 1 else 'them'}"
            )
        return "".join(f"; {part}" for part in parts)

    @property
    def start_words(self) -> str:
        """What a start loses, and everything else, in words: `loses 2 messages; 1 is lost already`."""
        lost = f"{_messages(self.by_start)}{waiting_words(self.waiting)}" if self.by_start else "no message"
        return f"loses {lost}{self.words}"


def loss_numbers(losses: LossCount | None) -> dict[str, int | None]:
    """Returns the numbers by their names in every JSON document; None for each if they are unknown."""
    names = ("already_lost", "lost_by_start", "not_served", "lost_by_change", "lost_waiting")
    if losses is None:
        return dict.fromkeys(names)
    counts = (losses.gone, losses.by_start, losses.unserved, losses.by_change, losses.waiting)
    return dict(zip(names, counts, strict=True))


def waiting_words(number: int) -> str:
    """Returns how many of some lost messages wait for delivery, in words; "" for none."""
    return f", {number} of them waiting for delivery" if number else ""


def _messages(number: int) -> str:
    return f"{number} message{'' if number == 1 else 's'}"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def count_of(ranges: Mapping[Any, Ranges] | None, includes: Callable[[Any], bool] = lambda _: True) -> int:
    """Returns the number of queue offsets in ranges by queue, of the queues that are included."""
    return sum(last - first + 1 for key, parts in (ranges or {}).items() if includes(key) for first, last in parts)


class Claims(Struct, frozen=True):
    """What the units of one queue prove before the start."""

    offsets: np.ndarray  # int64, queue offsets; each message of a batch has its own
    physical: np.ndarray  # int64, where the records should be
    size: np.ndarray  # int64, of the records
    expired: int = 0  # number of units that point before the log's minimum; they prove nothing

    @property
    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Queue offset, physical offset and size of each."""
        return self.offsets, self.physical, self.size

    def select(self, which: np.ndarray) -> "Claims":
        """Returns the chosen claims."""
        return Claims(self.offsets[which], self.physical[which], self.size[which], self.expired)


NO_CLAIMS = Claims(_NONE, _NONE, _NONE)


def claims_of(files: Iterable[QueueFile], log_min: int) -> Claims:
    """Reads the units of a queue; those that point before the start of the log have expired."""
    offsets, physical, sizes, expired = [_NONE], [_NONE], [_NONE], 0
    for file in files:
        units = file.content.on_disk()
        real = (units["size"] > 0) & (units["size"] != PRE_BLANK_SIZE_FIELD)
        inside = real & (units["physical_offset"] >= log_min)
        if file.content.unit is CONSUME_QUEUE_UNIT:
            first, count = np.arange(len(units)) + file.base // UNIT_SIZE, np.ones(len(units), np.int64)
        else:
            first, count = units["base_queue_offset"].astype(np.int64), units["batch_size"].astype(np.int64)
            inside &= (first >= 0) & (count > 0)
        expired += int(count[real & (units["physical_offset"] < log_min)].sum())
        first, count, units = first[inside], count[inside], units[inside]
        offsets.append(spread(first, count))
        physical.append(np.repeat(units["physical_offset"].astype(np.int64), count))
        sizes.append(np.repeat(units["size"].astype(np.int64), count))
    return Claims(np.concatenate(offsets), np.concatenate(physical), np.concatenate(sizes), expired)


def claims_of_queue(queue: Queue, log_min: int) -> Claims:
    """Reads the units of a queue of an opened store; see `claims_of`."""
    unit: Any = BATCH_CONSUME_QUEUE_UNIT if queue.is_batch else CONSUME_QUEUE_UNIT
    files = (
        QueueFile(file.path, file.base, file.size, UnitContent(file.path, unit, file.size, is_new=False))
        for file in queue.files
    )
    return claims_of(files, log_min)


def confirmed_places(read: Callable[[int, int], bytes], claims: Mapping[TopicQueue, Claims]) -> np.ndarray:
    """Returns the physical offsets, ascending, of records that do not prove themselves and that units confirm.

    The claims are of units that lead to no record; `read` returns bytes of the log, by physical offset and number.
    """
    places = [
        physical
        for key, claim in claims.items()
        for offset, physical, size in zip(*(column.tolist() for column in claim.columns), strict=True)
        if len(raw := read(physical, size)) == size and confirmed_record(raw, physical, key, offset)
    ]
    return distinct(np.array(places, np.int64))


def spread(first: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Returns the numbers of runs, each given by its first number and its length, one run after another."""
    start = np.repeat(first - np.cumsum(count) + count, count)
    return np.asarray(start + np.arange(count.sum()))


def are_moved(queue: TopicQueue, stated: TopicQueue, count: int) -> bool:
    """Whether units belong to another queue, because a file or directory was renamed, copied or exchanged.

    The fields that name a record's queue have no CRC, so a single record that disagrees with its unit may be wrong. But
    damage does not change the length of a topic without making the record invalid, and does not make several records
    name the same other queue. `stated` is the queue that `count` records name, with the queue offsets at which the
    units are.
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
        of_queues[key] = claim.select(kept)
    return of_queues


def confirmed_by(proof: Proof, claims: Mapping[TopicQueue, Claims]) -> np.ndarray:
    """Returns the physical offsets, ascending, of records to which units lead and that only salvage can read.

    They are in displaced blocks, or the unit confirms them.
    """
    others = {key: claim.select(~among(claim.physical, proof.physical)) for key, claim in claims.items()}
    claimed = np.concatenate([_NONE, *(claim.physical for claim in others.values())])
    return union(confirmed_places(proof.read, others), claimed[among(claimed, proof.displaced)])


def losses_of(
    proof: Proof,
    claims: Mapping[TopicQueue, Claims],
    readings: Mapping[TopicQueue, QueueReading],
    end: int,
    confirmed: np.ndarray = _NONE,
    misnamed: np.ndarray = _NONE,
) -> Losses:
    """Compares what is proven and claimed before the start with what is delivered after it, when the log ends at `end`.

    `misnamed` are the physical offsets of the intact records in segments with a wrong name, which no unit leads to.
    """
    delivered = np.zeros(len(proof.position), np.int32)
    others = 0
    for reading in readings.values():
        ok = reading.states == OK
        np.add.at(delivered, reading.records[ok & (reading.records >= 0)], 1)
        others += len(set(reading.physical[ok & (reading.records < 0)].tolist()))
    lost: dict[TopicQueue, Ranges] = {}
    gone: dict[TopicQueue, Ranges] = {}
    by_start: dict[TopicQueue, Ranges] = {}
    unserved: dict[TopicQueue, Ranges] = {}
    repeated: dict[TopicQueue, Ranges] = {}
    comparison = _Comparison(proof, claims, readings, delivered, end, confirmed, misnamed)
    readable = others
    for key in dict.fromkeys((*proof.queues, *claims)):
        parts = comparison.lost(key, readings.get(key))
        _put(gone, key, parts.gone)
        _put(by_start, key, parts.by_start)
        _put(unserved, key, parts.unserved)
        _put(lost, key, union(parts.gone, union(parts.unserved, parts.by_start)))
        _put(repeated, key, comparison.offsets(comparison.rows(key, delivered > 1)))
        readable += int(proof.messages[comparison.rows(key, delivered > 0)].sum())
    unqueued = proof.queued & (delivered == 0) & (proof.physical < end)
    return Losses(lost, gone, by_start, unserved, int(unqueued.sum()), readable, repeated)


def gone_of(
    proof: Proof,
    claims: Mapping[TopicQueue, Claims],
    readings: Mapping[TopicQueue, QueueReading],
    confirmed: np.ndarray = _NONE,
) -> dict[TopicQueue, Claims]:
    """Returns the messages that are lost already, and where their records should be; not those that a start delivers.

    No intact record is left of them: the log has an undecodable one, or a unit leads to none, or the queue offsets of
    the records around damage skip them.
    """
    comparison = _Comparison(proof, claims, readings, np.zeros(len(proof.position), np.int32), 0, confirmed)
    everywhere = {key: comparison.gone(key, readings.get(key)) for key in dict.fromkeys((*proof.queues, *claims))}
    return {key: gone for key, gone in everywhere.items() if len(gone.offsets)}


def _delivered(reading: QueueReading) -> np.ndarray:
    """Returns where the records are that are delivered, without those of another place in a misnamed segment."""
    is_own = (reading.records >= 0) | (reading.stated == reading.offsets)
    return np.asarray(reading.physical[(reading.states == OK) & is_own])


class _Lost(Struct, frozen=True):
    """Queue offsets of one queue; see the module."""

    gone: np.ndarray
    unserved: np.ndarray
    by_start: np.ndarray


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
        end: int,
        confirmed: np.ndarray,
        misnamed: np.ndarray = _NONE,
    ) -> None:
        none = [_NONE]
        self._proof = proof
        self._claims = claims
        self._delivered = delivered
        self._end = end
        self._confirmed = confirmed
        self._intact = np.concatenate([proof.physical, misnamed, confirmed])
        self._rows = rows_by_queue(proof)
        self._numbers = {key: number for number, key in enumerate(proof.queues)}
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
            readable = _delivered(reading)
            fine.append(readable[among(readable, claims[key].physical)] if key in claims else readable[:0])
        self._fine = np.concatenate(fine)

    def rows(self, key: TopicQueue, chosen: np.ndarray) -> np.ndarray:
        """Returns the chosen proven records of a queue that get a unit."""
        rows = self._rows.get(key, _NONE)
        return rows[self._proof.queued[rows] & self._belongs[rows] & chosen[rows]]

    def offsets(self, rows: np.ndarray) -> np.ndarray:
        """Returns every queue offset of some records; a batch has several."""
        return spread(self._place[rows], np.maximum(self._proof.messages[rows], 1))

    def lost(self, key: TopicQueue, reading: QueueReading | None) -> _Lost:
        """Returns the messages that are not delivered."""
        proof, claims = self._proof, self._claims.get(key)
        rows = self.rows(key, (self._delivered == 0) & proof.decodable)
        rows = rows[~self._is_replaced(rows, claims, reading)]
        unserved = (proof.physical[rows] < self._end) & ~self._has_unit(rows, claims)
        if reading is not None:
            unserved |= among(proof.physical[rows], reading.physical[reading.states == NOT_COMPACTED])
        claimed = self._only_claimed(key, claims, reading)
        stays = among(claimed.physical, self._confirmed) & (claimed.physical < self._end)
        is_proven = among(claimed.physical, self._intact) & ~stays
        left = np.concatenate([self._unserved_further(key, claims, reading), claimed.offsets[stays]])
        return _Lost(
            self.gone(key, reading).offsets,
            union(self.offsets(rows[unserved]), left),
            union(self.offsets(rows[~unserved]), claimed.offsets[is_proven]),
        )

    def gone(self, key: TopicQueue, reading: QueueReading | None) -> Claims:
        """Returns the messages of which no intact record is left; see `gone_of`."""
        proof, claims = self._proof, self._claims.get(key)
        rows = self.rows(key, ~proof.decodable)
        if reading is not None:
            rows = rows[~among(proof.physical[rows], reading.physical[reading.states == OK])]
        count = np.maximum(proof.messages[rows], 1)
        places, sizes = (np.repeat(column[rows], count) for column in (proof.physical, proof.size))
        claimed = self._only_claimed(key, claims, reading)
        claimed = claimed.select(~among(claimed.physical, self._intact))
        parts = (Claims(self.offsets(rows), places, sizes), claimed, self._skipped(key, claims))
        _, first = np.unique(np.concatenate([part.offsets for part in parts]), return_index=True)
        return Claims(
            np.concatenate([part.offsets for part in parts])[first],
            np.concatenate([part.physical for part in parts])[first],
            np.concatenate([part.size for part in parts])[first],
        )

    def _has_unit(self, rows: np.ndarray, claims: Claims | None) -> np.ndarray:
        """Whether a unit on disk leads to each record."""
        if claims is None or not len(claims.physical):
            return np.zeros(len(rows), bool)
        order = np.argsort(claims.physical, kind="stable")
        physical, size = self._proof.physical[rows], self._proof.size[rows]
        at = order[np.minimum(np.searchsorted(claims.physical[order], physical), len(order) - 1)]
        return np.asarray((claims.physical[at] == physical) & (claims.size[at] == size))

    def _skipped(self, key: TopicQueue, claims: Claims | None) -> Claims:
        """Returns offsets that the records of a queue skip around damage, and that neither unit nor record has.

        Their records should be in the damage that follows the record before.
        """
        rows, starts = self.rows(key, self._proof.queued), np.sort(self._proof.damages[:, 0])
        if len(rows) < 2 or not len(starts):
            return NO_CLAIMS
        first = self._place[rows[:-1]] + np.maximum(self._proof.messages[rows[:-1]], 1)
        count = self._place[rows[1:]] - first
        after, before = (np.searchsorted(starts, self._proof.physical[ends]) for ends in (rows[:-1], rows[1:]))
        which = (after < before) & (count > 0)
        offsets, damage = spread(first[which], count[which]), np.repeat(starts[after[which]], count[which])
        known = self._place[rows] if claims is None else union(self._place[rows], claims.offsets)
        left = ~among(offsets, known)
        return Claims(offsets[left], damage[left], np.zeros(int(left.sum()), np.int64))

    def _unserved_further(self, key: TopicQueue, claims: Claims | None, reading: QueueReading | None) -> np.ndarray:
        """Returns the offsets in a further queue that records name, and that it serves neither to them nor to others.

        The offset is text without a checksum: where it is that of another record, nothing is missing.
        """
        numbers = self._numbers.get(key, -1)
        record, _, offset = self._proof.further[self._proof.further[:, 1] == numbers].T
        physical = self._proof.physical[record]
        left = self._proof.queued[record] & self._proof.decodable[record] & (physical < self._end)
        if claims is not None:
            left &= ~among(physical, claims.physical)
        if reading is not None:
            ok = reading.states == OK
            left &= ~(among(physical, reading.physical[ok]) | among(offset, reading.offsets[ok]))
        return np.asarray(offset[left])

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

    def _only_claimed(self, key: TopicQueue, claims: Claims | None, reading: QueueReading | None) -> Claims:
        """Returns what only units prove: no proven record of the queue is there, and nothing is delivered.

        Units of a light queue point to records of other queues.
        """
        if claims is None:
            return NO_CLAIMS
        known = self.rows(key, self._proof.queued)
        left = ~among(claims.offsets, self._place[known]) & ~among(claims.physical, self._proof.physical[known])
        if reading is not None:
            left[left] &= ~among(claims.physical[left], _delivered(reading))
        left[left] &= ~among(claims.physical[left], self._fine)
        return claims.select(left)


def places(stated: np.ndarray, counts: np.ndarray, physical: np.ndarray, claims: Claims | None) -> np.ndarray:
    """Returns the queue offset of each queued record of one queue, in the order of the log.

    It is the offset that the record states, unless that contradicts both neighbours, because the field has no CRC. Then
    it is the offset of the record's unit, or the one after the record before.
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
        units = _NONE if claims is None else claims.offsets[claims.physical == physical[at]]
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
