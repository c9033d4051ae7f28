"""Walks over bytes in memory, and segments whose records are known."""

from dataclasses import dataclass, field

from mqtool.formats import commit_log
from mqtool.records.damage import Damage
from mqtool.records.walk import SegmentSpan, SegmentWalk
from tests.support.builder import FIRST_TIME, encode


@dataclass
class Segment:
    """A segment that grows record by record.

    Attributes:
        size: of the whole file.
        base: physical offset of its first byte.
        data: what was written so far.
        starts, ends: positions of each record.
    """

    size: int = 4096
    base: int = 0
    data: bytearray = field(default_factory=bytearray)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def add(self, body=b"body", **changes):
        """Append a sound record one ms younger than the one before; return its position."""
        at = len(self.data)
        changes = {"store_timestamp": FIRST_TIME + len(self.starts), **changes}
        self.data += encode(self.base + at, body, **changes)
        self.starts.append(at)
        self.ends.append(len(self.data))
        return at

    def fill(self, count):
        """Append records."""
        for number in range(count):
            self.add(f"message {number}".encode())
        return self

    def blank(self):
        """Append a BLANK that runs to the end."""
        self.data += commit_log.build_blank(self.size - len(self.data))
        return self

    def whole(self):
        """The file."""
        assert len(self.data) <= self.size
        return bytes(self.data).ljust(self.size, b"\0")


def reader(data):
    """Reads bytes as a file is read."""
    return lambda position, count: data[position : position + count]


def reader_into(data):
    """Fills memory as a file does, and spoils what it does not fill."""

    def read_into(position, target):
        found = data[position : position + len(target)]
        target[:] = bytes(found).ljust(len(target), b"\xda")
        return len(found)

    return read_into


def walk(data, base=0, *, check_crc=True, start_index=None, **span):
    """Walk a segment; returns positions of the records, (start, end, kind) of the damage, and the walk.

    It is walked once more window by window in one memory, which must find the same.
    """
    ways = []
    for read_into in (reader_into(data), None):
        made = SegmentWalk(
            reader(data),
            SegmentSpan(base, len(data), **span),
            check_crc=check_crc,
            start_index=start_index,
            read_into=read_into,
        )
        ways.append((*_told(made, base), made))
    assert (*ways[0][:2], ways[0][2].end, ways[0][2].tail) == (*ways[1][:2], ways[1][2].end, ways[1][2].tail)
    return ways[1]


def _told(made, base):
    positions, damage = [], []
    for item in made:
        if isinstance(item, Damage):
            damage.append((item.start - base, item.end - base, str(item.kind)))
        else:
            assert item.valid.all()
            positions += (item.positions + (item.base - base)).tolist()
    return positions, damage


def over(data, at, new):
    """The same bytes with some of them replaced."""
    return data[:at] + new + data[at + len(new) :]
