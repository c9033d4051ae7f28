"""Frames: the proved records in a range of CommitLog bytes, and their fields as columns.

A frame is valid if its magic code, its own physical offset and the sum of its lengths agree (`Frames.valid`). The
body CRC is checked separately (`Frames.crc_matches`).
"""

from functools import cached_property

import numpy as np

from mqtool.formats import codec, commit_log, java, properties
from mqtool.native import native
from mqtool.records.crc import crc32_of_ranges
from mqtool.records.frame_scan import FrameScan, room_for, scan_frames, scan_of_positions
from mqtool.records.number_sets import within

INTS = ("total_size", "magic_code", "body_crc", "queue_id", "sys_flag")
"""Rows of the table of int32 that `native.logs.scan` fills: fields of a record."""
LONGS = ("queue_offset", "physical_offset", "born_timestamp", "store_timestamp")
"""First rows of its table of int64: fields of a record."""
PLACES = ("body_start", "body_length", "topic_start", "topic_length", "properties_start", "properties_length")
"""The following rows, as properties of `Frames`."""

_HEAD_DTYPES = tuple(codec.dtype_of(head) for head in commit_log.HEADS)
_BODY_AT = np.array(commit_log.BODY_POSITIONS, np.int64)
_ABOVE_PORT = np.uint64(0xFFFF << 32)
"""In the eight bytes of an IPv4 host, the first one lowest: the upper half of the port's four bytes."""
_MAX_TOPICS = 4096
"""Topics in one set of frames that are told apart by their bytes."""
_CRC32_NAME = np.frombuffer(properties.crc32_tail(0)[: properties.CRC32_TAIL_SIZE - 11], np.uint8)
_COMMON = {field.name for field in commit_log.HEADS[0] if field.offset < commit_log.field_offset("born_host")}


class Frames:
    """Records of one buffer as columns; every array has one item per frame.

    Attributes:
        view: the bytes.
        base: physical offset of the view's first byte.
        positions: int64, start of each record in the view.
        sizes: int64, total_size.
    """

    def __init__(self, view: memoryview, base: int, positions: np.ndarray, sizes: np.ndarray) -> None:
        self.view = view
        self.base = base
        self.positions = positions
        self.sizes = sizes
        self._columns: dict[str, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self.positions)

    def select(self, which: np.ndarray | slice) -> "Frames":
        """Returns the frames that a mask, an index array or a slice chooses."""
        return Frames(self.view, self.base, self.positions[which], self.sizes[which])

    def between(self, start: int | None, end: int | None) -> "Frames":
        """Returns the frames that begin in a range of physical offsets; None for no bound."""
        if start is None and end is None:
            return self
        kept = within(self.positions + self.base, start, end)
        return self if kept.all() else self.select(kept)

    def fill(
        self, columns: dict[str, np.ndarray], crcs: np.ndarray | None = None, *, has_plain_ports: bool | None = None
    ) -> None:
        """Takes what is known of the frames, which are all valid; the rest is read when it is asked for.

        Args:
            columns: fields and positions by name: any of `INTS`, `LONGS` and `PLACES`.
            crcs: `computed_crc`, if known.
            has_plain_ports: that property, if known.
        """
        self._columns.update((name, column) for name, column in columns.items() if name not in PLACES)
        known: dict[str, object] = {name: column for name, column in columns.items() if name in PLACES}
        known |= {"valid": np.ones(len(self), bool), "computed_crc": crcs, "has_plain_ports": has_plain_ports}
        self.__dict__.update((name, value) for name, value in known.items() if value is not None)

    @cached_property
    def data(self) -> np.ndarray:
        """The buffer as uint8."""
        return np.frombuffer(self.view, np.uint8)

    @cached_property
    def host_shape(self) -> np.ndarray:
        """`(sys_flag >> 4) & 3`: which of born and store host are IPv6."""
        return (self.column("sys_flag") >> 4) & 3

    @cached_property
    def _plain(self) -> bool:
        return not self.host_shape.any()

    def _heads(self, shape: int, positions: np.ndarray) -> np.ndarray:
        dtype = _HEAD_DTYPES[shape]
        windows = len(self.view) - dtype.itemsize + 1
        if windows <= 0:
            return np.zeros(len(positions), dtype)
        # gathered as opaque bytes: numpy copies a record type field by field, ten times slower
        sliding = np.ndarray((windows,), f"V{dtype.itemsize}", self.view, strides=(1,))
        return sliding[np.minimum(positions, windows - 1)].view(dtype)

    @cached_property
    def _heads_v4(self) -> np.ndarray:
        return self._heads(0, self.positions)

    def column(self, name: str) -> np.ndarray:
        """Returns a fixed field of all records, in the machine's byte order.

        Args:
            name: a field of `commit_log.RECORD` up to body_length, hosts excepted.

        Returns:
            An array that is kept: it must not be changed.
        """
        values = self._columns.get(name)
        if values is None:
            values = self._columns[name] = self._column(name)
        return values

    def _column(self, name: str) -> np.ndarray:
        first = self._heads_v4[name]
        values = first.astype(first.dtype.newbyteorder("="))
        if name in _COMMON or self._plain:
            return values
        for shape in (1, 2, 3):
            which = np.flatnonzero(self.host_shape == shape)
            if len(which):
                values[which] = self._heads(shape, self.positions[which])[name]
        return values

    @cached_property
    def has_plain_ports(self) -> bool:
        """Whether all hosts are IPv4 and all ports 16-bit numbers: then the two bytes before them are zero."""
        hosts = [self.host_words(name) for name in ("born_host", "store_host")]
        return not any(words is None or (words & _ABOVE_PORT).any() for words in hosts)

    def host_words(self, name: str) -> np.ndarray | None:
        """Returns the 8 bytes of every born or store host as numbers, first byte lowest; None if some host is IPv6."""
        return np.ascontiguousarray(self._heads_v4[name]).view("<u8") if self._plain else None

    @cached_property
    def body_start(self) -> np.ndarray:
        """Position of each body in the view."""
        return self.positions + (_BODY_AT[0] if self._plain else _BODY_AT[self.host_shape])

    @cached_property
    def body_length(self) -> np.ndarray:
        """Bytes of each body, never negative."""
        return np.maximum(self.column("body_length"), 0).astype(np.int64)

    @cached_property
    def topic_start(self) -> np.ndarray:
        """Position of each topic's first byte."""
        return self._body_end + (np.where(self._is_v2, 2, 1) if self._has_v2 else 1)

    @cached_property
    def _body_end(self) -> np.ndarray:
        return self.body_start + self.body_length

    @cached_property
    def _is_v2(self) -> np.ndarray:
        return self.column("magic_code") == commit_log.MAGIC_V2

    @cached_property
    def _has_v2(self) -> bool:
        return bool(self._is_v2.any())

    @cached_property
    def topic_length(self) -> np.ndarray:
        """Bytes of each topic as stored, signed: negative where the record is damaged."""
        at = self._inside(self._body_end)
        short = self.data[at].view(np.int8).astype(np.int64)
        if not self._has_v2:
            return short
        return np.where(self._is_v2, _i16_at(self.data, at), short)

    @cached_property
    def coded_topics(self) -> tuple[np.ndarray, list[str]]:
        """The topic of each frame as a number (int32), and the topics by number. Only meaningful where `valid`."""
        compiled, count = native(), len(self)
        if compiled is not None:
            codes, firsts = np.empty(count, np.int32), np.empty(_MAX_TOPICS, np.int64)
            known = compiled.logs.group(self.data, self.topic_start, self.topic_length, firsts, codes)
            if known >= 0:
                starts, lengths = self.topic_start[firsts[:known]], self.topic_length[firsts[:known]]
                return codes, [self._text(at, length) for at, length in zip(starts, lengths, strict=True)]
        numbers: dict[str, int] = {}
        spans = zip(self.topic_start.tolist(), self.topic_length.tolist(), strict=True)
        numbered = (numbers.setdefault(self._text(at, length), len(numbers)) for at, length in spans)
        return np.fromiter(numbered, np.int32, count), list(numbers)

    def _text(self, start: int, length: int) -> str:
        return java.decode_utf8(self.view[start : start + length].tobytes())

    @cached_property
    def properties_start(self) -> np.ndarray:
        """Position of each properties string."""
        return self.topic_start + np.maximum(self.topic_length, 0) + 2

    @cached_property
    def properties_length(self) -> np.ndarray:
        """Bytes of each properties string, never negative."""
        return np.maximum(_i16_at(self.data, self._inside(self.properties_start - 2)), 0)

    def topics_of(self, rows: "np.ndarray | list[int]") -> list[bytes]:
        """Returns the topics of some frames, as stored."""
        return self._texts(self.topic_start[rows], self.topic_length[rows])

    def properties_of(self, rows: "np.ndarray | list[int]") -> list[bytes]:
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

    def _inside(self, at: np.ndarray) -> np.ndarray:
        """Limits positions derived from unproved lengths to the buffer."""
        last = max(0, len(self.view) - 2)
        return at if len(at) and at.min() >= 0 and at.max() <= last else np.clip(at, 0, last)

    @cached_property
    def true_offset(self) -> np.ndarray:
        """Which frames state the physical offset at which they are stored."""
        return self.column("physical_offset") == self.positions + self.base

    @cached_property
    def adds_up(self) -> np.ndarray:
        """Which frames have inner lengths that add up to total_size."""
        total = self.properties_start + self.properties_length - self.positions
        return (total == self.sizes) & (self.topic_length >= 0)

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

    @cached_property
    def computed_crc(self) -> np.ndarray:
        """CRC-32 of each stored body, 31 bits."""
        ends = np.minimum(self._body_end, len(self.view))
        return crc32_of_ranges(self.view, np.minimum(self.body_start, ends), ends)


def frames_at(view: memoryview, start: int, base: int, *, with_crc: bool = False) -> tuple[FrameScan, Frames]:
    """Scans frames like `scan_frames`, and returns them as `Frames` too.

    Args:
        view: the bytes.
        start: position of the first frame.
        base: physical offset of the view's first byte.
        with_crc: the caller will ask for the CRCs of all bodies; they are then computed in the same pass if that is
            faster.
    """
    compiled = native()
    if compiled is None:
        chain = scan_frames(view, start)
        return chain, Frames(view, base, chain.positions, chain.sizes)
    room = room_for(view, start)
    positions, crcs = np.empty(room, np.int64), np.empty(room if with_crc else 0, np.int32)
    ints = np.empty((len(INTS), room), np.int32)
    longs = np.empty((len(LONGS + PLACES), room), np.int64)
    data = np.frombuffer(view, np.uint8)
    count, is_valid, has_plain_ports = compiled.logs.scan(data, start, base, with_crc, positions, ints, longs, crcs)
    chain = scan_of_positions(view, start, positions[:count])
    frames = Frames(view, base, chain.positions, chain.sizes)
    if is_valid:
        columns = dict(zip(INTS, ints[:, :count], strict=True))
        columns.update(zip(LONGS + PLACES, longs[:, :count], strict=True))
        frames.fill(columns, crcs[:count] if with_crc else None, has_plain_ports=has_plain_ports)
    return chain, frames


def _i16_at(data: np.ndarray, at: np.ndarray) -> np.ndarray:
    high = data[at].view(np.int8).astype(np.int64)
    return (high << 8) | data[at + 1]
