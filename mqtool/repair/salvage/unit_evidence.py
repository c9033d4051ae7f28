"""The records of one store as its units confirm them; `records.record_search` states which."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.errors import StoreError
from mqtool.formats import commit_log, properties
from mqtool.formats.commit_log import TRANSACTION_MASK, Record
from mqtool.formats.consume_queue import tags_code
from mqtool.formats.topics import TopicQueue, is_lmq
from mqtool.rebuild.settings import settings_of
from mqtool.records.dispatch import Dispatcher, QueueUnits
from mqtool.records.frames import Frames
from mqtool.records.record_search import UNQUEUED, confirmed_record
from mqtool.store.log.misplaced_bytes import ForeignSegments, UnitsByPlace, claim_at, units_by_place
from mqtool.store.queues.consume_queue import Queue
from mqtool.store.store import Store
from mqtool.verify.record_rules import Continuity

_QUEUE_ID_AT = commit_log.field_offset("queue_id")
_QUEUE_OFFSET_AT = commit_log.field_offset("queue_offset")
_EVER = 1 << 62
_PLACE = ("topic", "queue_id", "queue_offset", "physical_offset")
_SAMPLE = 8
"""Number of records of a segment whose units are looked for."""
_FARTHEST = 4096
"""Maximum number of units to try for one that agrees with its record."""


class ChangedFrames:
    """Frames of which some records are changed."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._data: bytearray | None = None
        self._fields: dict[int, set[str]] = {}

    def put(self, row: int, record: bytes, *fields: str) -> None:
        """Puts a record in the place of one of the same length, which has other values in some fields."""
        if self._data is None:
            self._data = bytearray(self._frames.view)
        at = int(self._frames.positions[row])
        self._data[at : at + len(record)] = record
        self._fields.setdefault(row, set()).update(fields)

    def write(self, row: int, field: str, at: int, value: int, width: int = 8) -> None:
        """Writes a number into a field of a record, which is at a position in it, and renews its CRC-32 property."""
        start, size = int(self._frames.positions[row]), int(self._frames.sizes[row])
        record = bytearray((self._data or self._frames.view)[start : start + size])
        record[at : at + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "big")
        self.put(row, properties.renew_crc32(bytes(record)), field)

    @property
    def fields(self) -> dict[int, set[str]]:
        """Names of the changed fields by physical offset of the record."""
        return {int(self._frames.base + self._frames.positions[row]): names for row, names in self._fields.items()}

    def result(self) -> Frames:
        """Returns the changed frames."""
        frames = self._frames
        if self._data is None:
            return frames
        return Frames(memoryview(self._data), frames.base, frames.positions, frames.sizes)


def add_fields(corrected: dict[int, set[str]], more: dict[int, set[str]]) -> None:
    """Adds names of corrected fields to others, both by physical offset of the record."""
    for at, names in more.items():
        corrected.setdefault(at, set()).update(names)


class ForeignRecords(Struct):
    """The records in a segment of another broker's log."""

    path: Path  # of the segment
    start: int  # and end: its physical offsets
    end: int
    evidence: str  # why its records are not of this log
    kept: list[int] = field(default_factory=list)  # physical offsets of records that fit into their queues
    # Physical offsets of those of them that got the queue offset of the unit that names them.
    moved: list[int] = field(default_factory=list)
    left_out: int = 0  # number of records whose queue offsets other records have


class UnitEvidence:
    """The records that units of one store confirm.

    Attributes:
        corrected: which of topic, queue id and queue offset were corrected, by physical offset of the record.
    """

    def __init__(self, store: Store, *, keeps_foreign: bool = True) -> None:
        """Takes the store. Units are read on the first question; an intact log needs none.

        With `keeps_foreign`, records of another broker are kept where they fit. If there are copies, these have the
        records that were there.
        """
        self._log = store.commit_log
        self._store = store
        self._dispatcher = Dispatcher(settings_of(store).rules)
        self._continuity = Continuity(self._dispatcher.topics.names)
        self.corrected: dict[int, set[str]] = {}
        self._keeps_foreign = keeps_foreign
        self._foreign: dict[int, ForeignRecords] = {}
        self._sampled = -1
        self._unknown: list[int] = []
        self._checked = 0
        self._assigned: set[tuple[int, int]] = set()
        self._agreements: dict[tuple[int, int], bool | None] = {}

    @cached_property
    def _queues(self) -> Sequence[Queue]:
        return [queue for queue in self._store.disk_queues() if not queue.is_batch]

    @cached_property
    def _known(self) -> set[str]:
        """Topics that have a queue or a configuration."""
        return {queue.topic for queue in self._store.disk_queues()} | self._store.metadata.topics.keys()

    @cached_property
    def _units(self) -> UnitsByPlace:  # `add_losses` reports queues that cannot be read
        return units_by_place(self._queues)

    @cached_property
    def _segments(self) -> ForeignSegments:
        return ForeignSegments(self._log, self._queues, self._units.between)

    @cached_property
    def _numbers(self) -> dict[TopicQueue, int]:
        return {(queue.topic, queue.queue_id): number for number, queue in enumerate(self._queues)}

    @cached_property
    def _batches(self) -> set[TopicQueue]:
        return {(queue.topic, queue.queue_id) for queue in self._store.disk_queues() if queue.is_batch}

    def records(self, start: int, end: int) -> Iterator[Frames]:
        """Yields the confirmed records of a range in which no record proves itself, corrected, in order."""
        units = self._units
        first, last = np.searchsorted(units.physical, [start, end]).tolist()
        at = start
        for number in range(first, last):
            physical, size = int(units.physical[number]), int(units.size[number])
            if physical < at or physical + size > end:
                continue
            record = self._corrected_record(number, physical, size)
            if record is not None:
                yield Frames(memoryview(record), physical, np.zeros(1, np.int64), np.array([size], np.int64))
                at = physical + size

    def queued(self, frames: Frames) -> Frames:
        """Returns frames in which every record has the queue and the queue offset that its unit confirms."""
        if not len(frames):
            return frames
        unprepared = self._unprepared(frames)
        dispatched = self._dispatcher.dispatch(unprepared, keys=False).units
        foreign = self._foreign_segment(unprepared, dispatched)
        if foreign is not None:
            return self._fitting(frames, foreign, dispatched)
        return self._placed(self._named(unprepared, dispatched), dispatched)

    def _foreign_segment(self, frames: Frames, dispatched: QueueUnits) -> "ForeignRecords | None":
        """Returns what is known of the segment of some records if it is of another broker's log.

        A segment is judged if most of the first records that are seen of it have no unit.
        """
        number = self._log.segment_at(int(frames.base + frames.positions[0]))
        if number is None:
            return None
        if number != self._sampled:
            self._sampled = number
            evidence = "" if self._has_units(dispatched) else self._segments.evidence(number)
            if evidence and number not in self._foreign:
                segment = self._log.segments[number]
                self._foreign[number] = ForeignRecords(segment.path, segment.base, segment.end, evidence)
        return self._foreign.get(number)

    def _has_units(self, dispatched: QueueUnits) -> bool:
        """Whether at least half of some records in ConsumeQueues have their units."""
        topics, answers = self._dispatcher.topics.names, []
        step = max(1, len(dispatched) // _SAMPLE)
        for topic, queue_id, *place in dispatched.select(slice(None, None, step)).tuples(*_PLACE):
            key = topics[topic], queue_id
            if key not in self._batches:
                number = self._numbers.get(key)
                answers.append(number is not None and self._queues[number].names(*place))
        return 2 * sum(answers) >= len(answers)

    @property
    def foreign(self) -> "list[ForeignRecords]":
        """Segments of another broker's log."""
        return [self._foreign[number] for number in sorted(self._foreign)]

    def _fitting(self, frames: Frames, foreign: "ForeignRecords", dispatched: QueueUnits) -> Frames:
        """Returns the records of another broker that fit between the records of this log in all their queues."""
        if not self._keeps_foreign:
            foreign.left_out += len(frames)
            return frames.select(slice(0, 0))
        codes = self._continuity.codes(dispatched)
        named = self._named_offsets(codes, dispatched)
        offsets = np.where(named < 0, dispatched.queue_offset, named)
        fits = np.ones(len(codes), bool)
        for code in np.unique(codes).tolist():
            low, high = self._bounds(code, foreign)
            mine = np.flatnonzero(codes == code)
            is_named, mine_offsets = named[mine] >= 0, offsets[mine]
            floor = np.maximum.accumulate(np.where(is_named, mine_offsets, low - 1))
            ceiling = np.minimum.accumulate(np.where(is_named, mine_offsets, high)[::-1])[::-1]
            fits[mine] = is_named | ((mine_offsets > floor) & (mine_offsets < ceiling))
        left_out = np.unique(dispatched.row[~fits])
        kept = np.flatnonzero(~np.isin(dispatched.row, left_out))
        changes = ChangedFrames(frames)
        for number in kept[dispatched.queue_offset[kept] != offsets[kept]].tolist():
            changes.write(int(dispatched.row[number]), "queue_offset", _QUEUE_OFFSET_AT, int(offsets[number]))
        self._continuity.follow(codes[kept], replace(dispatched.select(kept), queue_offset=offsets[kept]))
        fitting = changes.result().select(np.setdiff1d(np.arange(len(frames)), left_out))
        foreign.kept += (fitting.base + fitting.positions).tolist()
        foreign.moved += sorted(changes.fields)
        foreign.left_out += len(left_out)
        return fitting

    def _named_offsets(self, codes: np.ndarray, dispatched: QueueUnits) -> np.ndarray:
        """Returns the queue offset of the unit of the same queue that names each record, with its size; -1 for none.

        The broker serves such a record there, whatever it states.
        """
        units, offsets = self._units, np.full(len(codes), -1)
        first, last = (
            np.searchsorted(units.physical, dispatched.physical_offset, side=side) for side in ("left", "right")
        )
        for row in np.flatnonzero(last > first).tolist():
            key = self._continuity.span.queues[int(codes[row])]
            mine = None if is_lmq(key[0]) else self._numbers.get(key)  # whose offsets are in properties
            for number in range(int(first[row]), int(last[row])):
                if units.queue[number] == mine and units.size[number] == dispatched.size[row]:
                    offsets[row] = units.offset[number]
        return offsets

    def _bounds(self, code: int, foreign: "ForeignRecords") -> tuple[int, int]:
        """Returns the queue offsets, half-open, that a queue has free between the records around a segment."""
        span, units = self._continuity.span, self._units
        key = span.queues[code]
        low = int(span.following[code]) if span.messages[code] else 0
        if key in self._batches:
            return low, low  # without units by queue offset nothing shows what is free
        number = self._numbers.get(key)
        if number is None:
            return low, _EVER
        before, after = (
            part.offset[part.queue == number]
            for part in (units.between(0, foreign.start), units.between(foreign.end, _EVER))
        )
        top, bottom = int(before.max(initial=-1)), int(after.min(initial=_EVER))
        last = self._nearest(number, range(top, top - _FARTHEST, -1))
        first = self._nearest(number, range(bottom, bottom + _FARTHEST))
        return max(low, -1 if last is None else last + 1), _EVER if first is None else first

    def _named(self, frames: Frames, dispatched: QueueUnits) -> Frames:
        """Corrects topics that no queue and no configuration knows, if exactly one unit confirms another topic.

        The unit must be at the queue offset that the record states, with its size and tags code, and its topic must
        have the same length.
        """
        names = self._dispatcher.topics.names
        self._unknown += [number for number in range(self._checked, len(names)) if names[number] not in self._known]
        self._checked = len(names)
        if not self._unknown:
            return frames
        units, physical = self._units, frames.positions + frames.base
        unknown = np.unique(dispatched.row[np.isin(dispatched.topic, self._unknown)])
        changes = ChangedFrames(frames)
        for row in unknown.tolist():
            at, size = int(frames.positions[row]), int(frames.sizes[row])
            first, last = (int(np.searchsorted(units.physical, physical[row], side=side)) for side in ("left", "right"))
            record = commit_log.parse_record(frames.view[at : at + size])
            topics = {self._queue(number).topic for number in range(first, last) if self._is_of(number, record)}
            if len(topics) != 1:
                continue
            renamed = commit_log.build_record(replace(record, topic=topics.pop().encode()))
            changes.put(row, properties.renew_crc32(renamed), "topic")
        add_fields(self.corrected, changes.fields)
        return changes.result()

    def _is_of(self, number: int, record: Record) -> bool:
        """Whether a unit agrees with a record in everything but the topic, whose length must be equal."""
        queue, units = self._queue(number), self._units
        if is_lmq(queue.topic) or len(queue.topic.encode()) != len(record.topic):
            return False
        tags = properties.decode(record.properties).get(properties.TAGS)
        stated = record.queue_id, record.queue_offset, record.total_size, tags_code(tags)
        return stated == (*self._place(number), int(units.size[number]), int(units.tags_code[number]))

    def _placed(self, frames: Frames, dispatched: QueueUnits) -> Frames:
        """Corrects queue ids and queue offsets, from the first record on that does not continue its queue."""
        self._continuity.follow(self._continuity.codes(dispatched), dispatched)
        if not self._continuity.span.jumps:
            return frames
        units, physical = self._units, frames.positions + frames.base
        first, last = (np.searchsorted(units.physical, physical, side=side) for side in ("left", "right"))
        ids, offsets = frames.column("queue_id"), frames.column("queue_offset")
        changes = ChangedFrames(frames)
        for row in np.flatnonzero(last > first).tolist():
            candidates = range(int(first[row]), int(last[row]))
            stated = int(ids[row]), int(offsets[row])
            places = [self._place(number) for number in candidates]
            if any(place == stated for place in places):
                continue
            size, at = int(frames.sizes[row]), int(frames.positions[row])
            topic = commit_log.parse_record(frames.view[at : at + size]).topic
            mine = [number for number in candidates if self._queue(number).topic.encode() == topic]
            if len(mine) != 1 or int(units.size[mine[0]]) != size or not self._is_misplaced(mine[0], topic, *stated):
                continue
            queue_id, offset = self._place(mine[0])
            if queue_id != stated[0]:
                changes.write(row, "queue_id", _QUEUE_ID_AT, queue_id, width=4)
            if offset != stated[1]:
                changes.write(row, "queue_offset", _QUEUE_OFFSET_AT, offset)
            self._assigned.add((int(units.queue[mine[0]]), offset))
        add_fields(self.corrected, changes.fields)
        return changes.result()

    def _queue(self, number: int) -> Queue:
        return self._queues[int(self._units.queue[number])]

    def _place(self, number: int) -> tuple[int, int]:
        return self._queue(number).queue_id, int(self._units.offset[number])

    def _is_misplaced(self, number: int, topic: bytes, queue_id: int, offset: int) -> bool:
        """Whether the record is wrong, rather than the unit that points to it."""
        queue, (mine, place) = int(self._units.queue[number]), self._place(number)
        if queue_id != mine:  # another queue has a record in the place that this one states, or cannot have one
            return offset == place and (queue_id < 0 or self._is_taken(topic, queue_id, offset))
        before = self._nearest(queue, range(place - 1, place - _FARTHEST, -1))
        after = self._nearest(queue, range(place + 1, place + _FARTHEST))
        if (queue, offset) in self._assigned:  # by another record that belongs there
            return True
        return (before is not None and offset <= before) or (after is not None and offset >= after)

    def _nearest(self, queue: int, places: range) -> int | None:
        """Returns the first queue offset at which unit and record agree; None at the queue's end."""
        for at in places:
            agrees = self._agrees(queue, at)
            if agrees is not False:
                return at if agrees else None
        return None

    def _is_taken(self, topic: bytes, queue_id: int, offset: int) -> bool:
        number = self._numbers.get((topic.decode("utf-8", "replace"), queue_id))
        return number is not None and bool(self._agrees(number, offset))

    def _agrees(self, queue: int, offset: int) -> bool | None:
        """Whether a unit and its record state the same place; None if there is no unit."""
        key = queue, offset
        if key not in self._agreements:
            claim = claim_at(self._log, self._queues[queue], offset)
            self._agreements[key] = None if claim is None else claim.is_confirmed
        return self._agreements[key]

    def _unprepared(self, frames: Frames) -> Frames:
        """Returns frames without the transaction flags that would keep records with a unit out of their queues."""
        kinds = frames.column("sys_flag") & TRANSACTION_MASK
        unqueued = np.flatnonzero(np.isin(kinds, UNQUEUED))
        changes = ChangedFrames(frames)
        for row in unqueued.tolist():
            physical, size = int(frames.base + frames.positions[row]), int(frames.sizes[row])
            first, last = np.searchsorted(self._units.physical, [physical, physical + 1]).tolist()
            for number in range(first, last):
                record = self._corrected_record(number, physical, size)
                if record is not None and int(self._units.size[number]) == size:
                    changes.put(row, record)
                    break
        return changes.result()

    def _corrected_record(self, number: int, physical: int, size: int) -> bytes | None:
        """Returns the record that a unit confirms, corrected; None if it is not the record that was written."""
        try:
            raw = self._log.read(physical, size)
        except StoreError:
            return None
        if len(raw) < size or self._log.unreadable_between(physical, physical + size) is not None:
            return None
        queue, offset = self._queue(number), int(self._units.offset[number])
        return confirmed_record(raw, physical, (queue.topic, queue.queue_id), offset)
