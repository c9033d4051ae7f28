"""Record starts inside segments: where a big file may be cut, proved without walking it.

A ConsumeQueue is sorted by physical offset, so its first unit at or after a wanted offset is found by halving,
unit by unit. The record there must state that very offset. Where no queue helps, framing does: magic, lengths,
CRC and own offset of a record must all agree.
"""

from dataclasses import dataclass

from mqtool.errors import StoreError
from mqtool.formats.batch_consume_queue import BATCH_CONSUME_QUEUE_UNIT
from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT, PRE_BLANK_SIZE_FIELD
from mqtool.scan.frames import Frames
from mqtool.store import Store
from mqtool.store.consume_queue import Queue
from mqtool.store.files import ReadFile

QUEUES = 16
"""Queues that are asked for each cut at most."""
NEAR = 1 << 20
"""Bytes after the wanted offset within which a start is good enough."""
_BEYOND = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Cut:
    """A proved start of a record.

    Attributes:
        physical_offset: where.
        proof: "queue" or "framing".
    """

    physical_offset: int
    proof: str


class Cuts:
    """Finds record starts in one store."""

    def __init__(self, store: Store) -> None:
        self._log = store.commit_log
        long_first = sorted(store.queues(), key=lambda queue: -(queue.files[-1].end if queue.files else 0))
        self._queues = [_Halving(queue) for queue in long_first if queue.files][:QUEUES]

    def first_at(self, wanted: int, limit: int) -> Cut | None:
        """Returns a record start in [wanted, limit), near its beginning if the queues allow; None if there is no proof.

        Args:
            wanted: physical offset.
            limit: the first one that is too late; in the same segment.
        """
        best: int | None = None
        for queue in self._queues:
            offset = queue.start_at(wanted)
            if offset is not None and offset < (limit if best is None else best) and self.is_start(offset):
                best = offset
            if best is not None and best - wanted < NEAR:
                break
        if best is not None:
            return Cut(best, "queue")
        framed = self._by_framing(wanted, limit)
        return None if framed is None else Cut(framed, "framing")

    def is_start(self, physical_offset: int) -> bool:
        """Whether a record starts here by its own testimony: framing, lengths and stated offset."""
        try:
            self._log.record(physical_offset)
        except StoreError:
            return False
        return True

    def _by_framing(self, wanted: int, limit: int) -> int | None:
        """Walks from an offset that need not be a start: what comes first after the damage is one."""
        index = self._log.segment_at(wanted)
        if index is None:
            return None
        for item in self._log.walk(index, start=wanted - self._log.segments[index].base):
            if isinstance(item, Frames):
                found = item.base + int(item.positions[0])
                return found if found < limit else None
            if item.end >= limit:
                return None
        return None


class _Halving:
    """Binary search in the files of one queue."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._unit = BATCH_CONSUME_QUEUE_UNIT if queue.is_batch else CONSUME_QUEUE_UNIT
        self._total = sum(file.size // self._unit.size for file in queue.files)

    def start_at(self, wanted: int) -> int | None:
        """Returns the physical offset that the first unit at or after the wanted one names, None if there is none."""
        try:
            low, high = 0, self._total
            while low < high:
                middle = (low + high) // 2
                if self._offset(middle) < wanted:
                    low = middle + 1
                else:
                    high = middle
            found = self._offset(low) if low < self._total else _BEYOND
        except StoreError:
            return None
        return found if wanted <= found < _BEYOND else None

    def _offset(self, number: int) -> int:
        """Returns what the unit of a number names; what is not in use yet comes after everything."""
        for file in self._queue.files:
            count = file.size // self._unit.size
            if number < count:
                break
            number -= count
        with ReadFile(file.path) as opened:
            data = opened.read(number * self._unit.size, self._unit.size)
        if len(data) < self._unit.size:
            return _BEYOND
        unit = self._unit.parse(data)
        if unit.size <= 0:
            return _BEYOND
        return 0 if unit.size == PRE_BLANK_SIZE_FIELD else unit.physical_offset
