"""Frames: the proved records in a range of CommitLog bytes, and their fields as columns.

A frame is valid if its magic code, its own physical offset and the sum of its lengths agree (`Frames.valid`). The
body CRC is checked separately (`Frames.crc_matches`).
"""

import zlib
from functools import cached_property
from operator import itemgetter

import numpy as np

from mqtool import native
from mqtool.errors import FormatError
from mqtool.formats import commit_log, java, properties
from mqtool.formats.codec import CRC_MASK
from mqtool.records.frame_scan import FrameScan, room_for, scan_frames, scan_of_positions
from mqtool.records.number_sets import within

INTS = ("total_size", "magic_code", "body_crc", "queue_id", "sys_flag")
"""Fields of a record, as rows of a table of int32 (`native.logs.scan`)."""

LONGS = ("queue_offset", "physical_offset", "born_timestamp", "store_timestamp")
"""Fields of a record, as the first rows of a table of int64."""

PLACES = ("body_start", "body_length", "topic_start", "topic_length", "properties_start", "properties_length")
"""Where the parts of a record are in the view, as the following rows."""

_READ = INTS + LONGS + PLACES

_NOTHING = (0,) * len(_READ)

_fields_of = itemgetter(*(commit_log.HEAD_NAMES.index(name) for name in INTS + LONGS))

_MAX_TOPICS = 4096
"""Texts in one set of frames that are told apart by their bytes."""

_CRC32_NAME = np.frombuffer(properties.crc32_tail(0)[: properties.CRC32_TAIL_SIZE - 11], np.uint8)


def body_crc(body: "bytes | memoryview") -> int:
    """Returns the CRC of a body as records store it."""
    return native.logs.crc_of(body) if native.in_use() else zlib.crc32(body) & CRC_MASK


def crc32_of_ranges(view: memoryview, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Returns the CRC-32 of `view[starts[i]:ends[i]]` for every i, int32, without the sign bit (UtilAll.crc32)."""
    sums = np.empty(len(starts), np.int32)
    if native.in_use():
        native.logs.crcs_of(view, starts, ends, sums)
    else:
        ranges = zip(starts.tolist(), ends.tolist(), strict=True)
        sums[:] = [zlib.crc32(view[start:end]) & CRC_MASK for start, end in ranges]
    return sums


class Frames:
    """Records of one buffer as columns; every array has one item per frame.

    Fields and places are zero where the inner lengths do not add up to the size (`adds_up`).

    Attributes:
        view: the bytes.
        base: physical offset of the view's first byte.
        positions: int64, start of each record in the view.
        sizes: int64, total_size.
    """

    def __init__(
        self,
        view: memoryview,
        base: int,
        positions: np.ndarray,
        sizes: np.ndarray,
        columns: dict[str, np.ndarray] | None = None,
    ) -> None:
        """Takes where the frames are, and those columns that are known; others are read when they are asked for."""
        self.view = view
        self.base = base
        self.positions = positions
        self.sizes = sizes
        self._columns = {} if columns is None else columns

    def __len__(self) -> int:
        return len(self.positions)

    def select(self, which: np.ndarray | slice) -> "Frames":
        """Returns the frames that a mask, an index array or a slice chooses."""
        columns = {name: values[which] for name, values in self._columns.items()}
        chosen = Frames(self.view, self.base, self.positions[which], self.sizes[which], columns)
        if "coded_topics" in self.__dict__:
            codes, names = self.coded_topics
            chosen.coded_topics = codes[which], names
        return chosen

    def between(self, start: int | None, end: int | None) -> "Frames":
        """Returns the frames that begin in a range of physical offsets; None for no bound."""
        if start is None and end is None:
            return self
        kept = within(self.positions + self.base, start, end)
        return self if kept.all() else self.select(kept)

    def column(self, name: str) -> np.ndarray:
        """Returns a fixed field or a place of all records, in the machine's byte order; it must not be changed.

        Fixed are the fields of `commit_log.RECORD` before body_length, hosts excepted; places are those in `PLACES`.
        """
        values = self._columns.get(name)
        if values is None:
            if name in _READ:
                self._columns = self._read() | self._columns
            else:
                self._columns[name] = self._field(name)
            values = self._columns[name]
        return values

    def _read(self) -> dict[str, np.ndarray]:
        """Reads `INTS`, `LONGS` and `PLACES`."""
        count = len(self)
        if not native.in_use():
            spans = zip(self.positions.tolist(), self.sizes.tolist(), strict=True)
            rows = [_row_of(self.view, at, size) for at, size in spans]
            table = np.array(rows, np.int64).reshape(count, len(_READ)).T
            return dict(zip(_READ, (*table[: len(INTS)].astype(np.int32), *table[len(INTS) :]), strict=True))
        ints, longs = _tables(count)
        positions, sizes = np.ascontiguousarray(self.positions), np.ascontiguousarray(self.sizes, np.int64)
        native.logs.read(self.data, positions, sizes, ints, longs)
        return dict(zip(_READ, (*ints, *longs), strict=True))

    def _field(self, name: str) -> np.ndarray:
        field = next(field for field in commit_log.HEADS[0] if field.name == name)
        at = self.positions + np.array(commit_log.field_offsets(name), np.int64)[self.host_shape]
        values = self._bytes_at(at, field.size).view(f">i{field.size}")
        return values.astype(values.dtype.newbyteorder("="))

    def _bytes_at(self, at: np.ndarray, size: int) -> np.ndarray:
        windows = max(0, len(self.view) - size + 1)
        # An index, not `take`: that would copy all windows first.
        return np.ndarray((windows,), f"V{size}", self.view, strides=(1,))[np.clip(at, 0, windows - 1)]

    @cached_property
    def data(self) -> np.ndarray:
        """The buffer as uint8."""
        return np.frombuffer(self.view, np.uint8)

    @cached_property
    def host_shape(self) -> np.ndarray:
        """`(sys_flag >> 4) & 3`: which of born and store host are IPv6."""
        return (self.column("sys_flag") >> 4) & 3

    def host_words(self, name: str) -> np.ndarray | None:
        """Returns the 8 bytes of every born or store host as numbers, first byte lowest; None if some host is IPv6."""
        if self.host_shape.any():
            return None
        return self._bytes_at(self.positions + commit_log.field_offset(name), 8).view("<u8")

    @property
    def body_start(self) -> np.ndarray:
        """Position of each body in the view."""
        return self.column("body_start")

    @property
    def body_length(self) -> np.ndarray:
        """Bytes of each body, never negative."""
        return self.column("body_length")

    @property
    def topic_start(self) -> np.ndarray:
        """Position of each topic's first byte."""
        return self.column("topic_start")

    @property
    def topic_length(self) -> np.ndarray:
        """Bytes of each topic."""
        return self.column("topic_length")

    @property
    def properties_start(self) -> np.ndarray:
        """Position of each properties string."""
        return self.column("properties_start")

    @property
    def properties_length(self) -> np.ndarray:
        """Bytes of each properties string, never negative."""
        return self.column("properties_length")

    @cached_property
    def coded_topics(self) -> tuple[np.ndarray, list[str]]:
        """The topic of each frame as a number (int32), and the topics by number."""
        codes, names = numbered(self.data, self.topic_start, self.topic_length)
        return codes, [java.decode_utf8(name) for name in names]

    def topics_of(self, rows: "np.ndarray | list[int] | slice") -> list[bytes]:
        """Returns the topics of some frames, as stored."""
        return self._texts(self.topic_start[rows], self.topic_length[rows])

    def properties_of(self, rows: "np.ndarray | list[int] | slice") -> list[bytes]:
        """Returns the properties strings of some frames, as stored."""
        return self._texts(self.properties_start[rows], self.properties_length[rows])

    def _texts(self, starts: np.ndarray, lengths: np.ndarray) -> list[bytes]:
        spans = zip(starts.tolist(), lengths.tolist(), strict=True)
        return [bytes(self.view[start : start + length]) for start, length in spans]

    def rows_of(self, *topics: bytes) -> list[int]:
        """Returns the indices of the frames with one of some topics."""
        likely = np.flatnonzero(np.isin(self.topic_length, [len(topic) for topic in topics]))
        return [row for row, topic in zip(likely.tolist(), self.topics_of(likely), strict=True) if topic in topics]

    def rows_with(self, word: bytes) -> list[int]:
        """Returns the indices of the frames that contain a word anywhere, also in their body."""
        owner = self.view.obj
        data = owner if isinstance(owner, bytes) and len(owner) == len(self.view) else bytes(self.view)
        rows: list[int] = []
        at = data.find(word)
        while at >= 0:
            row = int(np.searchsorted(self.positions, at, side="right")) - 1
            end = int(self.positions[row] + self.sizes[row]) if row >= 0 else 0
            if at + len(word) <= end:
                rows.append(row)
                at = end
            elif row + 1 < len(self):
                at = int(self.positions[row + 1])
            else:
                break
            at = data.find(word, at)
        return rows

    def rows_with_crc32(self) -> np.ndarray:
        """Returns the indices of the frames whose last property is, by its name, the CRC of the whole record."""
        length = properties.CRC32_TAIL_SIZE
        starts = self.properties_start + self.properties_length - length
        rows = np.flatnonzero(self.properties_length >= length)
        rows = rows[self.data[starts[rows]] == _CRC32_NAME[0]]  # mostly none is left to compare further
        return rows[(self.data[starts[rows, None] + np.arange(len(_CRC32_NAME))] == _CRC32_NAME).all(axis=1)]

    @cached_property
    def true_offset(self) -> np.ndarray:
        """Which frames state the physical offset at which they are stored."""
        return self.column("physical_offset") == self.positions + self.base

    @cached_property
    def adds_up(self) -> np.ndarray:
        """Which frames have inner lengths that add up to total_size."""
        return self.body_start > 0

    @cached_property
    def valid(self) -> np.ndarray:
        """Which frames are valid: their own offset is right and their lengths add up."""
        return self.true_offset & self.adds_up

    @cached_property
    def crc_matches(self) -> np.ndarray:
        """Which frames have the right body CRC; an empty body always has (CommitLog.checkMessageAndReturnSize).

        Only meaningful where `valid`.
        """
        good = self.computed_crc == self.column("body_crc")
        return good | (self.body_length == 0)

    @property
    def computed_crc(self) -> np.ndarray:
        """CRC-32 of each stored body, 31 bits."""
        if "computed_crc" not in self._columns:
            starts = self.body_start
            self._columns["computed_crc"] = crc32_of_ranges(self.view, starts, starts + self.body_length)
        return self._columns["computed_crc"]


def _row_of(view: memoryview, at: int, size: int) -> tuple[int, ...]:
    """Returns `INTS`, `LONGS` and `PLACES` of one record."""
    try:
        values, places = commit_log.locate(view, at)
    except FormatError:
        return _NOTHING
    body, body_length, topic, topic_length, stored, stored_length = places
    fields = (*_fields_of(values), at + body, body_length, at + topic, topic_length, at + stored, stored_length)
    return fields if fields[0] == size else _NOTHING


def _tables(rows: int) -> tuple[np.ndarray, np.ndarray]:
    return np.empty((len(INTS), rows), np.int32), np.empty((len(LONGS + PLACES), rows), np.int64)


def frames_at(view: memoryview, start: int, base: int, *, with_crc: bool = False) -> tuple[FrameScan, Frames]:
    """Scans frames like `scan_frames` from a position, and returns them as `Frames` too.

    With `with_crc` the CRCs of all bodies, for which the caller will ask, are computed in the same pass if that is
    faster.
    """
    if not native.in_use():
        chain = scan_frames(view, start)
        return chain, Frames(view, base, chain.positions, chain.sizes)
    room = room_for(view, start)
    positions, crcs = np.empty(room, np.int64), np.empty(room if with_crc else 0, np.int32)
    tables = _tables(room)
    count = native.logs.scan(np.frombuffer(view, np.uint8), start, with_crc, positions, *tables, crcs)
    chain = scan_of_positions(view, start, positions[:count])
    columns = dict(zip(_READ, (row[:count] for table in tables for row in table), strict=True))
    frames = Frames(view, base, chain.positions, chain.sizes, columns)
    if with_crc and frames.adds_up.all():
        columns["computed_crc"] = crcs[:count]
    return chain, frames


def numbered(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, list[bytes]]:
    """Numbers the distinct texts among ranges of a buffer, such as topics, in the order in which they appear.

    Returns the number of each range (int32), and the texts by number.
    """
    count = len(starts)
    if native.in_use():
        codes, firsts = np.empty(count, np.int32), np.empty(_MAX_TOPICS, np.int64)
        known = native.logs.group(data, starts, lengths, firsts, codes)
        if known >= 0:
            return codes, [data[starts[row] : starts[row] + lengths[row]].tobytes() for row in firsts[:known]]
    numbers: dict[bytes, int] = {}
    spans = zip(starts.tolist(), lengths.tolist(), strict=True)
    known_or_new = (numbers.setdefault(data[at : at + length].tobytes(), len(numbers)) for at, length in spans)
    return np.fromiter(known_or_new, np.int32, count), list(numbers)
