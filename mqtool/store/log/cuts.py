"""Finds record starts at which a segment can be cut, so that several processes read it in parallel.

There are two ways. `cuts_of` searches the bytes without proof: only if the walk over the part before ends exactly at
a cut is it the start of a record of the log, and not one inside a body. `Cuts` proves each position without a walk, so
that parts can be read on machines that never communicate. A ConsumeQueue is sorted by physical offset, so bisection
finds its first unit at or after an offset, and the record there must state that offset. Where no queue helps, framing
does: magic code, lengths, CRC and own offset of a record must all agree.
"""

from collections import OrderedDict
from collections.abc import Iterator

from msgspec import Struct

from mqtool.errors import StoreError
from mqtool.formats import commit_log
from mqtool.formats.consume_queue import BATCH_CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT, PRE_BLANK_SIZE_FIELD
from mqtool.jobs.pool import cut
from mqtool.records.frame_scan import Stop
from mqtool.records.frames import Frames, frames_at
from mqtool.store.files import MappedFile, ReadFile
from mqtool.store.queues.consume_queue import Queue
from mqtool.store.store import Store

_LOOKS = (1 << 16, 1 << 20)
"""Bytes in which a place is looked for, first and if none was found."""

_MAGIC_V1 = commit_log.MAGIC_V1.to_bytes(4, "big", signed=True)
_MAGIC_AT = commit_log.FRAME.size - len(_MAGIC_V1)
QUEUES = 16
"""Queues that are asked for each cut at most."""
NEAR = 1 << 20
"""Bytes after the wanted offset within which a start is good enough."""
_BLOCK_UNITS = 1024
KEPT = 32
_BEYOND = (1 << 63) - 1


def cuts_of(segment: MappedFile, start: int, distance: int) -> Iterator[int]:
    """Yields positions at which records seem to start, about a distance apart and after `start`; raises StoreError.

    The segment is not one of a DLedger log.
    """
    with ReadFile(segment.path) as file:

        def record_after(target: int, limit: int) -> int | None:
            looks = (record_in(file.read(target, look), segment.base + target) for look in _LOOKS)
            start = next((place for place in looks if place is not None), None)
            return None if start is None or target + start >= limit else target + start

        yield from cut(start, min(file.data_end(), segment.size), distance, record_after)


def record_in(data: bytes, base: int) -> int | None:
    """Returns the first position from which frames with right own offsets lead to the end of the data."""
    at = data.find(_MAGIC_V1)
    while at >= 0:
        position = at - _MAGIC_AT
        if position >= 0:
            chain, frames = frames_at(memoryview(data), position, base)
            if chain.stop in (Stop.MORE, Stop.END) and len(frames) and frames.valid.all():
                return position
        at = data.find(_MAGIC_V1, at + 1)
    return None


class Cut(Struct, frozen=True):
    """A place before a record at which the log may be cut."""

    start: int  # physical offset of the place: of the record, or in a DLedger log of the header of its entry
    physical_offset: int  # of the record
    proof: str  # how its start is proved, "queue" or "framing"


class Cuts:
    """Finds record starts in one store."""

    def __init__(self, store: Store) -> None:
        self._log = store.commit_log
        long_first = sorted(store.disk_queues(), key=lambda queue: -(queue.files[-1].end if queue.files else 0))
        self._queues = [_Halving(queue) for queue in long_first if queue.files][:QUEUES]

    def first_at(self, target: int, limit: int) -> Cut | None:
        """Returns a place in [target, limit) of a segment, near its start if the queues allow; None without proof."""
        best: int | None = None
        first = target + self._header_at(target)
        for queue in self._queues:
            offset = queue.start_at(first)
            if offset is not None and offset < (limit if best is None else best) and self._is_start(offset):
                best = offset
            if best is not None and best - first < NEAR:
                break
        if best is not None:
            return self._before(best, "queue")
        framed = self._by_framing(first, limit)
        return None if framed is None else self._before(framed, "framing")

    def next_at(self, target: int, limit: int) -> int | None:
        """Returns the first place in [target, limit) of a segment, None if there is none.

        It is exact where the chain of records before it is whole, so a log that has grown since is cut there again;
        elsewhere it is that of `first_at`.
        """
        index = self._log.segment_at(target)
        if index is not None and not self._log.segments[index].record_header:
            first = at = self.last_at(target, self._log.segments[index].base)
            data = self._log.read(first, min(target - first + commit_log.FRAME.size, 2 * NEAR))
            while at < target and at - first + commit_log.FRAME.size <= len(data):
                size = commit_log.frame_size(data, at - first, limit - at)
                if not size:
                    break
                at += size
            if target <= at < limit and self._is_start(at):
                return at
        cut = self.first_at(target, limit)
        return None if cut is None else cut.start

    def at(self, physical_offset: int) -> Cut | None:
        """Returns the place before the record at an offset; None if no record states to start there."""
        return self._before(physical_offset, "framing") if self._is_start(physical_offset) else None

    def last_at(self, target: int, floor: int) -> int:
        """Returns a place in [floor, target], near its end if the queues allow; the floor if there is no proof.

        The log may be cut at the floor, in the same segment, e.g. its start.
        """
        best = floor
        for queue in self._queues:
            offset = queue.start_before(target)
            if offset is not None and offset > best and self._is_start(offset):
                best = self._before(offset, "queue").start
            if target - best < NEAR:
                break
        return best

    def _before(self, physical_offset: int, proof: str) -> Cut:
        return Cut(physical_offset - self._header_at(physical_offset), physical_offset, proof)

    def _header_at(self, physical_offset: int) -> int:
        index = self._log.segment_at(physical_offset)
        return 0 if index is None else self._log.segments[index].record_header

    def _is_start(self, physical_offset: int) -> bool:
        """Whether a record states to start here: by framing, lengths and its own offset."""
        try:
            self._log.record(physical_offset)
        except StoreError:
            return False
        return True

    def _by_framing(self, target: int, limit: int) -> int | None:
        """Walks from an arbitrary offset; the first record after the damage is a start."""
        index = self._log.segment_at(target)
        if index is None:
            return None
        for item in self._log.walk_segment(index, start=target - self._log.segments[index].base):
            if isinstance(item, Frames):
                start = item.base + int(item.positions[0])
                return start if start < limit else None
            if item.end >= limit:
                return None
        return None


class _Halving:
    """Binary search in the files of one queue."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._unit = BATCH_CONSUME_QUEUE_UNIT if queue.is_batch else CONSUME_QUEUE_UNIT
        self._total = sum(file.size // self._unit.size for file in queue.files)
        self._blocks: OrderedDict[tuple[int, int], bytes] = OrderedDict()

    def start_at(self, target: int) -> int | None:
        """Returns the physical offset in the first unit at or after `target`, None if there is none."""
        start = self._nearest(target, 0)
        return start if start is not None and target <= start < _BEYOND else None

    def start_before(self, target: int) -> int | None:
        """Returns the physical offset in the last unit at or before `target`, None if there is none."""
        start = self._nearest(target + 1, -1)
        return start if start is not None and start <= target else None

    def _nearest(self, target: int, shift: int) -> int | None:
        """Returns the offset in the first unit at or after `target`, shifted by `shift` units."""
        try:
            low, high = 0, self._total
            while low < high:
                middle = (low + high) // 2
                if self._offset(middle) < target:
                    low = middle + 1
                else:
                    high = middle
            return self._offset(low + shift) if 0 <= low + shift < self._total else None
        except StoreError:
            return None

    def _offset(self, number: int) -> int:
        """Returns the physical offset in a unit; unused units come after everything."""
        index = 0
        while number >= (count := self._queue.files[index].size // self._unit.size):
            number -= count
            index += 1
        block = self._block(index, number // _BLOCK_UNITS)
        at = number % _BLOCK_UNITS * self._unit.size
        if at + self._unit.size > len(block):
            return _BEYOND
        unit = self._unit.parse(block, at)
        if unit.size <= 0:
            return _BEYOND
        return 0 if unit.size == PRE_BLANK_SIZE_FIELD else unit.physical_offset

    def _block(self, index: int, number: int) -> bytes:
        """Returns a cached block of units, because bisection visits the same places for every cut."""
        block = self._blocks.get((index, number))
        if block is None:
            size = _BLOCK_UNITS * self._unit.size
            with ReadFile(self._queue.files[index].path) as opened:
                block = self._blocks[index, number] = opened.read(number * size, size)
            if len(self._blocks) > KEPT:
                self._blocks.popitem(last=False)
        else:
            self._blocks.move_to_end((index, number))
        return block
