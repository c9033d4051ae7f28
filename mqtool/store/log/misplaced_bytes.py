"""Bytes of a log in a wrong place: segments of another broker's log, and blocks of a segment in another place of it.

The logs of two brokers have files of the same names and sizes, and a record states its physical offset in either, so
a segment of another log looks valid. The queues decide: the units that point into it were written for other records.

A complete record inside a displaced block, such as one of two exchanged pages, shows how far the block was moved. With
the pages put back, records that reach from one block into the next prove themselves too. Only damaged ranges are
searched.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from mqtool.errors import StoreError, UnreadableError
from mqtool.formats import commit_log, hosts, properties
from mqtool.formats.commit_log import MIN_RECORD_SIZE, Record, is_queued, parse_record
from mqtool.formats.java import decode_utf8
from mqtool.records.damage import Damage
from mqtool.records.frames import Frames
from mqtool.records.record_search import frame_starts
from mqtool.records.segment_bytes import SegmentBytes
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.queues.consume_queue import Queue, has_record
from mqtool.words import moment

_SAMPLE = 64
"""Maximum number of records of a segment that are looked at."""
_UNITS = 1024
"""Maximum number of units into a segment that are compared with it."""
_FEW = 4
"""One in so many units may name a record of its size by chance."""
_FARTHEST = 8
"""Maximum number of segments in each direction among which one of this log is looked for."""
_CLIENT = 20
"""Digits of a unique key that identify the producer's process: address, process id, class loader."""


Range = tuple[int, int]
_SECTOR = 512
"""Blocks are displaced by a multiple of this: by a disk, a file system or a copy of either."""
_PAGE = 4096
"""Bytes that are taken to be displaced together, unless the distance is a multiple of a smaller power of two only."""
_STEP = 8 << 20
_ZEROS = bytes(_STEP + commit_log.FRAME.size - 1)
_LONGEST = 64 << 20
"""Maximum bytes of a damaged range that is put together again; of longer ones only complete records are found."""
_OFFSET_AT = commit_log.field_offset("physical_offset")


class Claim(Struct, frozen=True):
    """What a unit names."""

    physical_offset: int  # of the record
    is_confirmed: bool  # whether that record has the unit's size, and states its topic, queue id and queue offset


def claim_at(log: CommitLog, queue: Queue, offset: int) -> Claim | None:
    """Returns the claim of the unit at a queue offset (SimpleCQ); None if there is no unit, or it cannot be read."""
    number = queue.find_file(offset) if offset >= 0 else None
    if number is None:
        return None
    index = offset - queue.files[number].base // queue.unit_size
    try:
        units = queue.units_of(number)[index : index + 1]
    except UnreadableError:
        return None
    if not len(units):
        return None
    physical, size = int(units["physical_offset"][0]), int(units["size"][0])
    return Claim(physical, bool(has_record(units)[0]) and _is_own(log, queue, offset, physical, size))


def _is_own(log: CommitLog, queue: Queue, offset: int, physical: int, size: int) -> bool:
    record = _record(log, physical, size)
    return record is not None and _states(record, queue, offset)


def _record(log: CommitLog, physical: int, size: int) -> Record | None:
    """Returns the record at a physical offset if it has a size."""
    try:
        record = log.record(physical, size)
    except StoreError:
        return None
    return record if record.total_size == size else None


def _states(record: Record, queue: Queue, offset: int) -> bool:
    return (record.topic, record.queue_id, record.queue_offset) == (queue.topic.encode(), queue.queue_id, offset)


class UnitsByPlace(Struct, frozen=True):
    """Units of several queues (SimpleCQ) that name a record, by its physical offset."""

    physical: np.ndarray  # and size: of the record
    size: np.ndarray
    queue: np.ndarray  # index of the queue
    offset: np.ndarray  # queue offset of the unit
    tags_code: np.ndarray  # of the unit

    def between(self, start: int, end: int) -> "UnitsByPlace":
        """Returns the units that point into a range."""
        first, last = np.searchsorted(self.physical, [start, end]).tolist()
        return UnitsByPlace(*(getattr(self, name)[first:last] for name in self.__struct_fields__))


def units_by_place(queues: Sequence[Queue], start: int = 0, end: int = 1 << 62) -> UnitsByPlace:
    """Returns the units of queues that point into a range of the log; queue files that cannot be read have none."""
    none = np.empty(0, np.int64)
    columns: list[list[np.ndarray]] = [[none], [none], [none], [none], [none]]
    for number, queue in enumerate(queues):
        try:
            units = queue.units()
        except UnreadableError:
            continue
        physical = units["physical_offset"]
        inside = (physical >= start) & (physical < end) & (units["size"] >= MIN_RECORD_SIZE)
        real = np.flatnonzero(has_record(units) & inside)
        columns[0].append(physical[real].astype(np.int64))
        columns[1].append(units["size"][real].astype(np.int64))
        columns[2].append(np.full(len(real), number))
        columns[3].append(real + queue.first_offset)
        columns[4].append(units["tags_code"][real].astype(np.int64))
    joined = [np.concatenate(column) for column in columns]
    order = np.argsort(joined[0], kind="stable")
    return UnitsByPlace(*(column[order] for column in joined))


class _Contents(Struct, frozen=True):
    """What a segment holds."""

    records: list[Record]  # the first ones
    units: int  # number of units into the segment that were compared
    named: int  # how many of them name a record of their size
    confirmed: int  # how many of these records state the unit's queue and queue offset
    queues: frozenset[str]  # in which the units are

    @property
    def is_own(self) -> bool:
        """Whether most units confirm the segment."""
        return self.units > 0 and 2 * self.confirmed >= self.units

    def texts(self, text: Callable[[Record], str]) -> set[str]:
        return {text(record) for record in self.records} - {""}


class ForeignSegments:
    """Judges the segments of one log, on request."""

    def __init__(
        self, log: CommitLog, queues: Sequence[Queue], units_between: Callable[[int, int], UnitsByPlace]
    ) -> None:
        """Takes a log, its queues (SimpleCQ), and a function that returns their units into a range of the log."""
        self._log = log
        self._queues = queues
        self._units_between = units_between
        self._by_name = {(queue.topic, queue.queue_id): queue for queue in queues}
        self._contents: dict[int, _Contents] = {}
        self._evidence: dict[int, str] = {}

    def evidence(self, number: int) -> str:
        """Returns why a segment's records are of another broker; "" if they are not.

        Most of its units must name other records, and its records themselves must be out of place: another store
        host, times that are not between those of the segments around it, queue offsets of other records, or, if no
        unit is confirmed, other producers, other queues, or other sizes in several queues. Where no unit points into
        it, the store host and one of the others must differ.
        """
        if number not in self._evidence:
            self._evidence[number] = self._judged(number)
        return self._evidence[number]

    def _judged(self, number: int) -> str:
        mine = self._of(number)
        if not mine.records or mine.is_own:
            return ""
        before = self._own(range(number - 1, max(number - 1 - _FARTHEST, -1), -1))
        after = self._own(range(number + 1, min(number + 1 + _FARTHEST, len(self._log.segments))))
        others = [contents for contents in (before, after) if contents is not None]
        host = _differ(mine, others, _host)
        first = mine.records[0].store_timestamp
        is_early = before is not None and first < before.records[0].store_timestamp
        is_late = after is not None and first > after.records[0].store_timestamp
        taken = sum(self._is_taken(record) for record in mine.records)
        client = _differ(mine, others, _client)
        decisive = [bool(host), is_early or is_late, taken > 0]
        has_other_sizes = bool(others) and len(mine.queues) > 1 and _FEW * mine.named < mine.units
        is_other = bool(client) or mine.queues.isdisjoint(mine.texts(_queue)) or has_other_sizes
        if not (any(decisive) or (is_other and not mine.confirmed) if mine.units else host and sum(decisive) > 1):
            return ""
        words = [f"{mine.units - mine.confirmed} of {mine.units} units point to other records here"]
        words += [f"store host {host[0]}, in other segments {host[1]}"] if host else []
        words += [f"stored at {moment(first)}, out of order"] if is_early or is_late else []
        words += [f"{taken} of {len(mine.records)} records state the queue offset of another one"] if taken else []
        words += ["unique keys of other producers"] if client else []
        return ", ".join(words)

    def _own(self, numbers: range) -> _Contents | None:
        """Returns the first of some segments that units confirm."""
        return next((self._of(number) for number in numbers if self._of(number).is_own), None)

    def _of(self, number: int) -> _Contents:
        if number not in self._contents:
            self._contents[number] = self._compared(number)
        return self._contents[number]

    def _sample(self, number: int) -> list[Record]:
        for item in self._log.walk_segment(number, crc=False):
            if not isinstance(item, Damage):
                part = item.select(slice(0, _SAMPLE))
                places = zip(part.positions.tolist(), part.sizes.tolist(), strict=True)
                return [parse_record(part.view[at : at + size]) for at, size in places]
        return []

    def _compared(self, number: int) -> _Contents:
        """Compares the units into a segment with its records.

        Units of a queue that name the same record count as one, because a hole is filled with the unit after it.
        """
        segment = self._log.segments[number]
        units = self._units_between(segment.base, segment.end)
        rows = range(0, len(units.physical), max(1, len(units.physical) // _UNITS))
        places: set[tuple[int, int]] = set()
        named: set[tuple[int, int]] = set()
        confirmed: set[tuple[int, int]] = set()
        for row in rows:
            place = int(units.queue[row]), int(units.physical[row])
            places.add(place)
            record = _record(self._log, place[1], int(units.size[row]))
            if record is not None:
                named.add(place)
                if _states(record, self._queues[place[0]], int(units.offset[row])):
                    confirmed.add(place)
        queues = (self._queues[number] for number in {number for number, _ in places})
        names = frozenset(f"{queue.topic}/{queue.queue_id}" for queue in queues)
        return _Contents(self._sample(number), len(places), len(named), len(confirmed), names)

    def _is_taken(self, record: Record) -> bool:
        """Whether another record has the place in a queue that a record states; one without a unit has none."""
        if not is_queued(record.sys_flag):
            return False
        queue = self._by_name.get((decode_utf8(record.topic), record.queue_id))
        claim = None if queue is None else claim_at(self._log, queue, record.queue_offset)
        return claim is not None and claim.is_confirmed and claim.physical_offset != record.physical_offset


def _host(record: Record) -> str:
    return hosts.text_of(record.store_host)


def _queue(record: Record) -> str:
    return f"{decode_utf8(record.topic)}/{record.queue_id}"


def _client(record: Record) -> str:
    return properties.decode(record.properties).get(properties.UNIQUE_KEY, "")[:_CLIENT]


def _differ(mine: _Contents, others: list[_Contents], text: Callable[[Record], str]) -> tuple[str, str] | None:
    """Returns a text of some records and one of other records, if they have none in common."""
    here = mine.texts(text)
    there = {value for contents in others for value in contents.texts(text)}
    return (min(here), min(there)) if here and there and here.isdisjoint(there) else None


class DisplacedRecords:
    """The displaced records of one segment."""

    def __init__(self, log: CommitLog, number: int, damaged: Sequence[Range]) -> None:
        """Searches ranges of physical offsets in a segment in which no record proves itself."""
        segment = log.segments[number]
        self._base = segment.base
        self._read = log.reader(number)
        self._size = segment.size
        self._damaged = _joined(damaged)
        self._starts = [start for start, _ in self._damaged]
        self._sources: dict[int, int] = {}
        self._complete: dict[int, int] = {}
        self._joined: dict[int, Frames] = {}
        self._taken: list[Range] = []
        self._empty: set[int] = set()
        self._find(crossing=False)
        self._find(crossing=True)
        self._places = sorted({*self._complete, *self._joined})

    @classmethod
    def of_segment(cls, log: CommitLog, number: int) -> "DisplacedRecords":
        """Walks a segment for its damaged ranges, and searches them."""
        walk = log.walk_segment(number)
        damaged = [(item.start, item.end) for item in walk if isinstance(item, Damage)]
        if walk.tail is not None:
            damaged.append((walk.tail.end, walk.tail.end + walk.tail.length))
        return cls(log, number, damaged)

    def between(self, start: int, end: int) -> Iterator[Frames]:
        """Yields the records completely inside a range, each as frames of its own at its stated place, in order."""
        for place in self._places[bisect_left(self._places, start) :]:
            record = self._joined.get(place) or self._record(self._complete[place], place)
            if place < start or record is None:
                continue
            if place + int(record.sizes[0]) > end:
                return
            yield record
            start = place + int(record.sizes[0])

    def is_blank(self, start: int, end: int) -> bool:
        """Whether a BLANK that is in a displaced block leads from one offset to another."""
        around = self._range_of(start)
        return (
            around is not None
            and around[1] == end
            and self._restored(start, start + commit_log.BLANK_SIZE) == commit_log.build_blank(end - start)
        )

    def _find(self, *, crossing: bool) -> None:
        """Finds complete records in other places, then those that the pages complete once they are put back.

        A record that crosses pages could be the head of one and the trailer of another, because its CRC covers only
        the body. So those inside one page are taken first, and nothing is taken twice.
        """
        for start, end in self._damaged:
            after = start
            for at in self._frames(start, end):
                place = self._stated(at)
                record = None if at < after or place is None else self._record(at, place)
                if record is None or place is None:
                    continue
                after, page = at + int(record.sizes[0]), _page(place - at)
                is_inside = (at - self._base) // page == (after - 1 - self._base) // page
                if is_inside or (crossing and self._is_free(at, after) and self._is_free(place, place + after - at)):
                    self._complete[place] = at
                    self._note(at, after, place - at)
        for sector, source in list(self._sources.items()):  # an exchange moves the other one by as much
            self._sources.setdefault(source, sector)
        self._joined = {record.base: record for record in self._put_together()}
        self._taken = sorted((at, at + int(record.sizes[0])) for at, record in self._joined.items())

    def _is_free(self, start: int, end: int) -> bool:
        """Whether no record that was put together is in a range."""
        number = bisect_left(self._taken, (end, 0)) - 1
        return number < 0 or self._taken[number][1] <= start

    def _frames(self, start: int, end: int) -> Iterator[int]:
        """Yields the physical offsets in a range with a magic code."""
        for at in range(start, end, _STEP):
            data = b"" if at in self._empty else self._bytes(at, min(at + _STEP + commit_log.FRAME.size - 1, end))
            if data == _ZEROS[: len(data)]:  # the unwritten rest of a segment may be a GiB
                self._empty.add(at)
            else:
                yield from (at + position for position in frame_starts(data) if position < _STEP)

    def _bytes(self, start: int, end: int) -> bytes:
        return self._read(start - self._base, end - start)

    def _stated(self, at: int) -> int | None:
        """Returns the physical offset that a record states, if that is damaged and a block may have been there."""
        stored = self._bytes(at + _OFFSET_AT, at + _OFFSET_AT + 8)
        place = int.from_bytes(stored, "big", signed=True)
        is_displaced = place != at and not (place - at) % _SECTOR
        return place if is_displaced and self._range_of(place) is not None else None

    def _range_of(self, physical: int) -> Range | None:
        number = bisect_right(self._starts, physical) - 1
        return self._damaged[number] if number >= 0 and physical < self._damaged[number][1] else None

    def _record(self, at: int, place: int) -> Frames | None:
        """Returns the valid record at a physical offset as one at its stated place; None if there is none."""
        moved = place - at
        segment = SegmentBytes(self._read, self._base + moved, self._size)
        record = segment.record(at - self._base)
        around = self._range_of(place)
        fits = record is not None and around is not None and place + int(record.sizes[0]) <= around[1]
        return record if fits and record is not None and record.crc_matches[0] else None

    def _note(self, start: int, end: int, moved: int) -> None:
        """Notes the pages of a record that was found as the sources of the pages in which it belongs."""
        page = _page(moved)
        low = start - (start - self._base) % page
        high = end + (self._base - end) % page
        for sector in range(low, high, _SECTOR):
            self._sources.setdefault(sector + moved, sector)

    def _put_together(self) -> Iterator[Frames]:
        """Yields the records in damaged ranges whose pages are put back."""
        for start, end in self._damaged:
            if self._sources and end - start <= _LONGEST:
                yield from self._proved(start, self._restored(start, end))

    def _restored(self, start: int, end: int) -> bytes:
        """Returns the bytes of a range with all sectors in their places."""
        data = bytearray(self._bytes(start, end))
        for sector in range(start - (start - self._base) % _SECTOR, end, _SECTOR):
            source = self._sources.get(sector)
            if source is not None:
                low, high = max(sector, start), min(sector + _SECTOR, end)
                data[low - start : high - start] = self._bytes(low + source - sector, high + source - sector)
        return bytes(data)

    def _proved(self, start: int, data: bytes) -> Iterator[Frames]:
        segment = SegmentBytes(lambda at, count: data[at : at + count], start, len(data))
        after = 0
        for position in frame_starts(data):
            if position >= after and segment.states_its_offset(position):
                record = segment.record(position)
                if record is not None and record.crc_matches[0]:
                    after = position + int(record.sizes[0])
                    yield record


def _page(moved: int) -> int:
    """Returns the bytes that are taken to have been moved together, by the distance."""
    return min(_PAGE, moved & -moved)


def _joined(ranges: Sequence[Range]) -> list[Range]:
    """Returns ranges with adjacent ones joined."""
    joined: list[Range] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined
