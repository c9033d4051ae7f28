"""Compares queues and CommitLog unit by unit in buckets whose checksums differ, and determines what is wrong.

Both sides of these buckets are read again, so changes by a running broker have settled. Units that are equal on both
sides are removed. Each remaining unit is classified by the record that it points to, and each remaining record by
the unit at its position in the queue.
"""

from collections import Counter

import numpy as np
from msgspec import Struct, field

from mqtool.errors import StoreError
from mqtool.formats.consume_queue import MAX_EXT_ADDRESS
from mqtool.formats.topics import SCHEDULE_TOPIC, TopicQueue
from mqtool.records.number_sets import among
from mqtool.recovery.losses import are_moved
from mqtool.store.files import ReadFile
from mqtool.store.queues.consume_queue import ExtUnits
from mqtool.verify.checksums import Records, mix_batches, mix_units, queue_key
from mqtool.verify.consume_queue import Kinds, QueueFacts
from mqtool.verify.segment import FOREIGN, DamagedRange
from mqtool.verify.survey import QueueFiles, Survey


class WrongUnits(Struct):
    """Consecutive units that differ from what dispatch would write, all in the same way."""

    code: str  # of the finding; "" if they point into damage and so prove which messages were there
    queue: TopicQueue  # and is_batch: the queue that contains them
    is_batch: bool
    first: int  # and last: numbers of the units, inclusive
    last: int
    first_offset: int  # and last_offset: queue offsets that they represent, inclusive
    last_offset: int
    start: int  # and end: minimum physical offset that they state, and maximum end
    end: int
    evidence: str  # expected and found, for the first
    damage: int = -1  # number of the damaged range that they point into, -1 if none
    # Queue and queue offset that the first unit's record states, if different.
    expected: tuple[TopicQueue, int] | None = None

    def continues(self, other: "WrongUnits") -> bool:
        """Whether `other` is the next unit of the same kind."""
        return (
            self.queue == other.queue
            and self.code == other.code
            and self.damage == other.damage
            and self.is_batch == other.is_batch
            and self.last + 1 == other.first
            and (self.code != "log-wrong-queue" or self.stated == other.stated)
        )

    @property
    def stated(self) -> TopicQueue | None:
        """The queue that the first unit's record states, if different."""
        return None if self.expected is None else self.expected[0]

    @property
    def is_hole(self) -> bool:
        """Whether they are fill units for lost messages, i.e. copies of the unit of the next remaining message."""
        return self.code == "queue-filled-hole"

    def extend(self, other: "WrongUnits") -> None:
        """Appends the next unit."""
        self.last, self.last_offset = other.last, other.last_offset
        self.start, self.end = min(self.start, other.start), max(self.end, other.end)


class MissingUnit(Struct, frozen=True):
    """Records with consecutive queue offsets whose units are missing."""

    queue: TopicQueue  # of the records
    first: int  # and last: queue offsets, inclusive
    last: int
    start: int  # and end: physical offsets of the records
    end: int


class UnitDifferences(Struct):
    """The differences found; the lists grow group by group."""

    wrong: list[WrongUnits] = field(default_factory=list)
    missing: list[MissingUnit] = field(default_factory=list)

    def separate_moved(self) -> None:
        """Reports units that belong to another queue as wrong, and as missing there, instead of their records."""
        named = [units for units in self.wrong if units.code == "log-wrong-queue" and units.stated is not None]
        counts: Counter[tuple[TopicQueue, TopicQueue | None]] = Counter()
        for units in named:
            counts[units.queue, units.stated] += units.last - units.first + 1
        for units in named:
            stated = units.stated
            if stated is not None and are_moved(units.queue, stated, counts[units.queue, stated]):
                units.code = "queue-foreign-unit"
                self.missing.append(MissingUnit(stated, units.first_offset, units.last_offset, units.start, units.end))


class _Side(Struct, frozen=True):
    """Units of one side as columns."""

    queue: np.ndarray
    number: np.ndarray
    offset: np.ndarray
    messages: np.ndarray
    physical: np.ndarray
    size: np.ndarray
    tags: np.ndarray
    time: np.ndarray
    mixed: np.ndarray

    def select(self, which: np.ndarray) -> "_Side":
        return _Side(*(getattr(self, name)[which] for name in self.__struct_fields__))


class UnitDetail:
    """Compares the groups of buckets one by one."""

    def __init__(self, survey: Survey, facts: list[QueueFacts], damages: list[DamagedRange]) -> None:
        """Starts with the results of the first pass: facts in the survey's order of queues, damages of the log."""
        self._survey = survey
        self._damage_starts = np.array([damage.start for damage in damages], np.int64)
        self._damage_ends = np.array([damage.end for damage in damages], np.int64)
        self._is_foreign = np.array([damage.kind == FOREIGN for damage in damages], bool)
        self._facts = [item for item in zip(survey.queues, facts, strict=True) if survey.includes(item[0].topic)]
        self._numbers = {queue.key: number for number, (queue, _) in enumerate(self._facts)}
        self._keys = np.array([queue_key(*queue.key) for queue, _ in self._facts], np.uint64)
        self.differences = UnitDifferences()

    def compare(self, records: Records) -> None:
        """Compares the records of a range with the units that point into it."""
        expected, row = self._expected(records)
        actual = self._actual(records)
        left = ~among(actual.mixed, expected.mixed)
        absent = ~among(expected.mixed, actual.mixed)
        explained = np.zeros(len(absent), bool)
        differing = actual.select(np.flatnonzero(left))
        at = records.at(differing.physical)
        for index in range(len(differing.queue)):
            self._classify(differing, index, int(at[index]), expected, row, absent, explained, records)
        self._missing(expected.select(np.flatnonzero(absent & ~explained)))

    def _expected(self, records: Records) -> tuple[_Side, np.ndarray]:
        units = records.units
        topics = {name: number for number, name in enumerate(records.topics)}
        known = {
            (topics[topic], queue_id): number for (topic, queue_id), number in self._numbers.items() if topic in topics
        }
        pairs = zip(units.topic.tolist(), units.queue_id.tolist(), strict=True)
        queue = np.fromiter((known.get(pair, -1) for pair in pairs), np.int64, len(units))
        kept = np.flatnonzero(queue >= 0)
        units, queue = units.select(kept), queue[kept]
        side = self._side(
            queue,
            units.queue_offset,
            units.queue_offset,
            units.batch_size,
            units.physical_offset,
            units.size,
            units.tags_code,
            units.store_timestamp,
        )
        return side, units.row

    def _side(
        self,
        queue: np.ndarray,
        number: np.ndarray,
        offset: np.ndarray,
        messages: np.ndarray,
        physical: np.ndarray,
        size: np.ndarray,
        tags: np.ndarray,
        time: np.ndarray,
    ) -> _Side:
        mixed = mix_units(self._keys[queue], offset, physical, size, tags)
        batch = np.flatnonzero(np.array([queue.is_batch for queue, _ in self._facts], bool)[queue])
        if len(batch):
            mixed[batch] = mix_batches(mixed[batch], time[batch], messages[batch])
        messages, size = messages.astype(np.int64), size.astype(np.int64)
        return _Side(queue, number, offset, messages, physical, size, tags, time, mixed)

    def _actual(self, records: Records) -> _Side:
        parts = [part for number in range(len(self._facts)) for part in self._read(number, records)]
        columns = [np.concatenate([part[i] for part in parts]) if parts else np.empty(0, np.int64) for i in range(8)]
        return self._side(*columns)

    def _read(self, number: int, records: Records) -> list[tuple[np.ndarray, ...]]:
        queue, facts = self._facts[number]
        columns = []
        for file_number, first, count, low, high in facts.chunks:
            if high < records.start or low >= records.end:
                continue
            file = queue.files[file_number]
            try:
                with ReadFile(file.path) as opened:
                    data = opened.read(first * queue.unit.size, count * queue.unit.size)
            except StoreError as error:  # since the first pass
                facts.failure, facts.failed_file = error.reason, str(error.path)
                return []
            units = queue.unit.rows(data)
            columns.append(self._columns(number, queue, units, file.base // queue.unit.size + first, records))
        return columns

    def _columns(
        self, number: int, queue: QueueFiles, units: np.ndarray, start: int, records: Records
    ) -> tuple[np.ndarray, ...]:
        kinds = Kinds(units, self._survey, queue.is_batch)
        which = np.flatnonzero(kinds.inside & (kinds.physical >= records.start) & (kinds.physical < records.end))
        tags = units["tags_code"][which].astype(np.int64)
        addressed = np.flatnonzero(tags <= MAX_EXT_ADDRESS)
        if len(addressed):
            tags[addressed] = ExtUnits(self._survey.root, *queue.key).tags_of(tags[addressed], [])
        time = units["store_timestamp"][which].astype(np.int64) if queue.is_batch else np.zeros(len(which), np.int64)
        return (
            np.full(len(which), number, np.int64),
            start + which,
            kinds.offsets(start)[which],
            kinds.messages[which],
            kinds.physical[which],
            kinds.size[which],
            tags,
            time,
        )

    def _classify(
        self,
        differing: _Side,
        index: int,
        record: int,
        expected: _Side,
        row: np.ndarray,
        absent: np.ndarray,
        explained: np.ndarray,
        records: Records,
    ) -> None:
        """Determines what is wrong with one unit, and which absent units that explains."""
        if record < 0:
            self._add(differing, index, *_points_at_nothing(records, int(differing.physical[index])))
            return
        of_record = np.arange(np.searchsorted(row, record), np.searchsorted(row, record, side="right"))
        if not len(of_record):
            self._add(differing, index, *self._without_unit(differing, index, record, records))
            return
        same = of_record[expected.queue[of_record] == differing.queue[index]]
        if not len(same):
            own = int(of_record[0])
            explained[own] = absent[own] and expected.offset[own] == differing.offset[index]
            self._add(differing, index, *self._foreign(expected, own, wrong_queue=bool(explained[own])))
            return
        own = int(same[0])
        explained[own] = absent[own]
        topic = self._facts[int(differing.queue[index])][0].topic
        fill_tags = int(expected.tags[own]) if topic == SCHEDULE_TOPIC else 0
        code, evidence = _differs(differing, index, expected, own, fill_tags, absent=bool(absent[own]))
        if code == "queue-wrong-tags":
            delay = int(differing.tags[index]) - int(expected.time[own])
            code = "queue-other-delay" if self._survey.is_other_delay(topic, delay) else code
        self._add(differing, index, code, evidence)

    @staticmethod
    def _without_unit(
        differing: _Side, index: int, record: int, records: Records
    ) -> tuple[str, str, tuple[TopicQueue, int] | None]:
        """Classifies a unit that points to a record that has no unit, or only one in a queue that is not checked."""
        mine = np.flatnonzero(records.units.row == record)
        if not len(mine):
            return "queue-transaction-unit", "points at a prepared or rolled-back record", None
        unit = int(mine[0])
        topic = records.topics[int(records.units.topic[unit])]
        queue = (topic, int(records.units.queue_id[unit]))
        offset = int(records.units.queue_offset[unit])
        code = "log-wrong-queue" if offset == differing.offset[index] else "queue-foreign-unit"
        return code, f"points at a record of {topic} queue {queue[1]}, queue offset {offset}", (queue, offset)

    def _foreign(
        self, expected: _Side, own: int, *, wrong_queue: bool
    ) -> tuple[str, str, tuple[TopicQueue, int] | None]:
        queue, offset = self._facts[int(expected.queue[own])][0].key, int(expected.offset[own])
        evidence = f"points at a record of {queue[0]} queue {queue[1]}, queue offset {offset}"
        return "log-wrong-queue" if wrong_queue else "queue-foreign-unit", evidence, (queue, offset)

    def _add(
        self, differing: _Side, index: int, code: str, evidence: str, expected: tuple[TopicQueue, int] | None = None
    ) -> None:
        queue, _ = self._facts[int(differing.queue[index])]
        number, offset, start = (
            int(differing.number[index]),
            int(differing.offset[index]),
            int(differing.physical[index]),
        )
        damage = int(self._damages_at(np.array([start]))[0])
        if damage >= 0 and (not code or self._is_foreign[damage]):
            code = ""
        else:
            damage, code = -1, code or "queue-dangling-unit"
        last_offset = offset + int(differing.messages[index]) - 1
        unit = WrongUnits(
            code,
            queue.key,
            queue.is_batch,
            number,
            number,
            offset,
            last_offset,
            start,
            start + int(differing.size[index]),
            evidence,
            damage,
            expected,
        )
        if self.differences.wrong and self.differences.wrong[-1].continues(unit):
            self.differences.wrong[-1].extend(unit)
        else:
            self.differences.wrong.append(unit)

    def _damages_at(self, physical: np.ndarray) -> np.ndarray:
        """Returns the numbers of the damaged ranges that contain some physical offsets, -1 for none."""
        if not len(self._damage_starts):
            return np.full(len(physical), -1)
        at = np.searchsorted(self._damage_starts, physical, side="right") - 1
        return np.where((at >= 0) & (physical < self._damage_ends[at]), at, -1)

    def _missing(self, absent: _Side) -> None:
        damage = self._damages_at(absent.physical)
        foreign = (damage >= 0) & self._is_foreign[damage] if len(self._is_foreign) else np.zeros(len(damage), bool)
        absent = absent.select(np.flatnonzero(~foreign))
        if not len(absent.queue):
            return
        order = np.lexsort((absent.offset, absent.queue))
        absent = absent.select(order)
        after = absent.offset + absent.messages
        opens = np.ones(len(order), bool)
        opens[1:] = (absent.queue[1:] != absent.queue[:-1]) | (absent.offset[1:] != after[:-1])
        starts = np.flatnonzero(opens)
        for low, high in zip(starts.tolist(), np.append(starts[1:], len(order)).tolist(), strict=True):
            physical = absent.physical[low:high]
            ends = physical + absent.size[low:high]
            self.differences.missing.append(
                MissingUnit(
                    self._facts[int(absent.queue[low])][0].key,
                    int(absent.offset[low]),
                    int(after[high - 1]) - 1,
                    int(physical.min()),
                    int(ends.max()),
                )
            )


def _points_at_nothing(records: Records, physical: int) -> tuple[str, str]:
    before = int(np.searchsorted(records.offsets, physical, side="right")) - 1
    if before >= 0 and physical < int(records.offsets[before] + records.sizes[before]):
        return "queue-dangling-unit", f"points into the record at {int(records.offsets[before])}"
    return "", "points where no record starts"


def _differs(
    differing: _Side, index: int, expected: _Side, own: int, fill_tags: int, *, absent: bool
) -> tuple[str, str]:
    """Compares a unit with the one that its record should have in the same queue.

    `fill_tags` is the tags code of a unit that fills the place of a lost message; see `SimpleQueueWriter`.
    """
    actual, due = int(differing.offset[index]), int(expected.offset[own])
    if actual != due:
        code = "queue-shifted-unit" if absent else "queue-duplicate-unit"
        is_fill = differing.tags[index] == fill_tags and differing.size[index] == expected.size[own]
        if is_fill and not absent and actual < due:
            code = "queue-filled-hole"
        return code, f"queue offset {actual} points at the record with queue offset {due}"
    if differing.size[index] != expected.size[own]:
        return "queue-wrong-size", f"size {differing.size[index]}, but the record has {expected.size[own]}"
    if differing.tags[index] != expected.tags[own]:
        return "queue-wrong-tags", f"tags code {differing.tags[index]}, but the record's is {expected.tags[own]}"
    return "queue-wrong-batch", (
        f"{differing.messages[index]} message(s) stored at {differing.time[index]}, but the record has "
        f"{expected.messages[own]} stored at {expected.time[own]}"
    )
