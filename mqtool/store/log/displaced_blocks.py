"""Records in blocks of a segment that were written to another place in it, such as two exchanged pages.

A record states its physical offset, so a complete one inside a displaced block shows how far the block was moved. With
the pages put back, records that reach from one block into the next prove themselves too. Only damaged ranges are
searched.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from mqtool.formats import commit_log
from mqtool.records.damage import Damage
from mqtool.records.frames import Frames
from mqtool.records.record_search import frame_starts
from mqtool.records.segment_bytes import SegmentBytes
from mqtool.store.log.commit_log import CommitLog

Range = tuple[int, int]

_SECTOR = 512
"""Blocks are displaced by a multiple of this: by a disk, a file system or a copy of either."""
_PAGE = 4096
"""Bytes that are taken to be displaced together, unless the distance is a multiple of a smaller power of two only."""
_STEP = 8 << 20
_LONGEST = 64 << 20
"""Maximum bytes of a damaged range that is put together again; of longer ones only complete records are found."""
_OFFSET_AT = commit_log.field_offset("physical_offset")


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
            data = self._bytes(at, min(at + _STEP + commit_log.FRAME.size - 1, end))
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
