"""Writes the files of queues while units arrive: ConsumeQueue, its extension, BatchConsumeQueue."""

from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple

from mqtool.formats import consume_queue, file_names
from mqtool.formats.consume_queue import BATCH_CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT, PRE_BLANK, BatchConsumeQueueUnit
from mqtool.formats.topics import SCHEDULE_TOPIC, is_lmq
from mqtool.rebuild.files import FileSequence, OutputFiles
from mqtool.rebuild.placement import Claim, Cut, HoleBudget, Note, NoteKind, Placement
from mqtool.records.queue_build import accepts_batch

UNIT = CONSUME_QUEUE_UNIT.size
_FILL = 1 << 16
"""Number of fill units written at a time."""
_BATCH_UNIT = np.array(astuple(BatchConsumeQueueUnit(0, 0, 0, 0, 0, 0)), BATCH_CONSUME_QUEUE_UNIT.dtype)


class QueueName(Struct, frozen=True):
    """Identifies a queue: topic and queue id."""

    topic: str
    queue_id: int

    @property
    def is_path(self) -> bool:
        """Whether the topic is usable as a directory name, as the broker would create it."""
        return file_names.is_directory_name(self.topic)

    def below(self, kind: str) -> str:
        """Returns the queue's directory below the directory of a kind of queue, e.g. `consumequeue`."""
        return f"{kind}/{self.topic}/{self.queue_id}"


class UnitBatch(Struct):
    """Units of one queue, in log order."""

    offsets: np.ndarray  # int64, stated queue offsets
    units: np.ndarray  # of `CONSUME_QUEUE_UNIT.dtype`
    times: np.ndarray  # store timestamps, int64
    counts: np.ndarray  # messages in each record, int16
    properties: list[bytes] | None = None  # of each record, as stored; None if they were not requested

    @classmethod
    def empty(cls) -> "UnitBatch":
        """Returns a batch without units."""
        return cls(
            np.empty(0, np.int64), np.empty(0, CONSUME_QUEUE_UNIT.dtype), np.empty(0, np.int64), np.empty(0, np.int16)
        )


class SimpleQueueWriter:
    """Writes one ConsumeQueue.

    Attributes:
        name: of the queue.
        placement: decides the queue offsets of units.
        files: that are written.
        first: queue offset of its first unit; None before there is one.
    """

    def __init__(self, name: QueueName, output: OutputFiles, file_size: int, budget: HoleBudget, claim: Claim) -> None:
        """Starts an empty queue.

        Args:
            file_size: size of a file in bytes, a multiple of the unit size.
            claim: see `Claim`.
        """
        self.name = name
        self.placement = Placement(budget, claim, is_light=is_lmq(name.topic))
        self.files = FileSequence(output, name.below(file_names.CONSUME_QUEUE), file_size)
        self.first: int | None = None
        self._hole = range(0)  # the last one that was filled

    @property
    def next(self) -> int:
        """The queue offset after the last unit."""
        return self.files.end // UNIT

    def add(self, batch: UnitBatch, *, is_end: bool = False) -> None:
        """Places units and writes them."""
        for step in self.placement.place(batch.offsets, batch.units, is_end=is_end):
            if isinstance(step, Cut):
                self._cut(step.offset)
                continue
            if self.first is None:
                self._start(step.first)
            elif step.first > self.next:
                self._hole = range(self.next, step.first)
                self._fill(self._hole_unit(step.units[:1]), step.first)
            self.files.append(step.units.tobytes())

    def finish(self) -> None:
        """Places the waiting unit, and writes everything."""
        self.add(UnitBatch.empty(), is_end=True)
        self.files.flush()

    def state(self) -> dict[str, Any]:
        """Returns what `resume` needs, as JSON; everything else has been written to the files after a flush."""
        placement = self.placement
        waiting = (
            None if placement.waiting is None else [placement.waiting[0].tolist(), placement.waiting[1].tobytes().hex()]
        )
        notes = [[note.kind.value, note.first, note.last, note.physical_offset] for note in placement.notes.items]
        return {
            "first": self.first,
            "hole": [self._hole.start, self._hole.stop],
            "next": self.next,
            "place": placement.next,
            "shift": placement.shift,
            "held": waiting,
            "notes": notes,
            "notes_count": placement.notes.count,
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Continues after what an earlier run wrote."""
        self.first, self._hole = state["first"], range(*state["hole"])
        self.files.resume((self.first if self.first is not None else state["next"]) * UNIT, state["next"] * UNIT)
        placement = self.placement
        placement.next, placement.shift = state["place"], state["shift"]
        if state["held"] is not None:
            offsets, units = state["held"]
            unit_bytes = bytes.fromhex(units)
            placement.waiting = np.array(offsets, np.int64), np.frombuffer(unit_bytes, CONSUME_QUEUE_UNIT.dtype)
        placement.notes.items = [Note(NoteKind(kind), *rest) for kind, *rest in state["notes"]]
        placement.notes.count = state["notes_count"]

    def _start(self, first: int) -> None:
        """Writes pre-blank units before the first unit, if the queue does not begin at the start of a file."""
        at = first * UNIT
        self.files.start(at - at % self.files.file_size)
        self._fill(np.frombuffer(CONSUME_QUEUE_UNIT.build(PRE_BLANK), CONSUME_QUEUE_UNIT.dtype), first)
        self.first = first

    def _hole_unit(self, following: np.ndarray) -> np.ndarray:
        """Returns the fill unit for lost messages: a copy of the next message's unit, with tags code 0 (no tag).

        A consumer that filters by tag skips it; a consumer of all messages gets the next message again. A unit that
        points nowhere would avoid this duplicate, but a search by time that hits such a unit returns the beginning
        of the queue, and units after it in the first segment are skipped
        (ConsumeQueueStore.binarySearchInQueueByTime, DefaultMessageStore.getMessage,
        ExpressionMessageFilter.isMatchedByConsumeQueue; 4.9.7, 5.5.0).
        """
        if self.name.topic == SCHEDULE_TOPIC:  # there it is the time of delivery
            return following
        unit = following.copy()
        unit["tags_code"] = 0
        return unit

    def _fill(self, unit: np.ndarray, until: int) -> None:
        while self.next < until:
            self.files.append(np.repeat(unit, min(_FILL, until - self.next)).tobytes())

    def _cut(self, offset: int) -> None:
        assert self.first is not None
        if self._hole.start < offset <= self._hole.stop:  # it was filled with the unit that is cut off now
            offset = self._hole.start
        self.files.cut(max(offset, 0) * UNIT)
        if offset <= self.first:
            self.first = None


class BatchQueueWriter:
    """Writes one BatchConsumeQueue: one unit per record, consecutively, whatever their queue offsets.

    Attributes:
        name: of the queue.
        files: that are written.
        last_physical: physical offset of the last unit's record; -1 before there is one.
    """

    def __init__(self, name: QueueName, output: OutputFiles, file_size: int) -> None:
        """Starts an empty queue; `file_size` in bytes."""
        self.name = name
        self.last_physical = -1
        unit = BATCH_CONSUME_QUEUE_UNIT.size
        self.files = FileSequence(output, name.below(file_names.BATCH_CONSUME_QUEUE), file_size // unit * unit)

    def add(self, batch: UnitBatch) -> None:
        """Appends the units that the broker accepts."""
        kept = accepts_batch(batch.units["physical_offset"], batch.offsets, batch.counts, self.last_physical)
        units = np.full(np.count_nonzero(kept), _BATCH_UNIT)
        if not len(units):
            return
        for name in CONSUME_QUEUE_UNIT.dtype.names or ():
            units[name] = batch.units[name][kept]
        units["store_timestamp"] = batch.times[kept]
        units["base_queue_offset"] = batch.offsets[kept]
        units["batch_size"] = batch.counts[kept]
        self.files.append(units.tobytes())
        self.last_physical = int(units["physical_offset"][-1])

    def state(self) -> dict[str, Any]:
        """Returns what `resume` needs, as JSON."""
        return {"end": self.files.end, "last_physical": self.last_physical}

    def resume(self, state: dict[str, Any]) -> None:
        """Continues after what an earlier run wrote."""
        self.last_physical = state["last_physical"]
        self.files.resume(0, state["end"])

    def finish(self) -> None:
        """Writes everything."""
        self.files.flush()


class ExtensionWriter:
    """Writes the ConsumeQueueExt of one queue: one ext unit per queue unit, whose address replaces the tags code.

    Attributes:
        files: that are written; their end is the address of the next ext unit.
    """

    def __init__(self, name: QueueName, output: OutputFiles, file_size: int) -> None:
        """Starts an empty extension; `file_size` in bytes."""
        self.files = FileSequence(output, name.below(file_names.CONSUME_QUEUE_EXT), file_size)

    def add(self, batch: UnitBatch, bit_maps: list[bytes]) -> None:
        """Writes an ext unit for each queue unit, and stores its address in the queue unit (ConsumeQueueExt.put).

        Args:
            batch: the tags codes of its units are replaced by addresses.
            bit_maps: one per unit; empty if no filter is known.
        """
        addresses = []
        tags_codes = batch.units["tags_code"].tolist()
        for fields in zip(tags_codes, batch.times.tolist(), bit_maps, strict=True):
            unit = consume_queue.make_ext_unit(*fields)
            left = self.files.file_size - self.files.end % self.files.file_size
            if unit.size > left - consume_queue.EXT_END_BLANK_SIZE:
                end_of_file = self.files.end + left
                self.files.append(consume_queue.END_OF_EXT_FILE.to_bytes(2, "big", signed=True))
                self.files.skip_to(end_of_file)
            addresses.append(consume_queue.ext_address(self.files.end))
            self.files.append(consume_queue.build_ext_unit(unit))
        batch.units["tags_code"] = addresses

    def finish(self) -> None:
        """Writes everything."""
        self.files.flush()
