"""The HA stream between a master and its slave, without sockets: the CommitLog as it is, in pieces.

A slave reports the end of its log; the master sends bytes from there, in pieces that end anywhere, but at the end of
each segment.
Docs page: docs/protocol.md. Source: DefaultHAConnection, DefaultHAClient (4.9.7, 5.5.0), and wire captures.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mqtool.errors import RemoteProtocolError
from mqtool.formats.codec import Unit
from mqtool.formats.commit_log import BLANK_SIZE, FRAME, frame_size
from mqtool.formats.fields import i32, i64

MAX_TRANSFER = 16 << 20
"""Bytes of one piece that are believed; a master sends 32 KiB (haTransferBatchSize)."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """The header of each piece of the log; an empty piece is a heartbeat."""

    physical_offset: int
    body_size: int


TRANSFER = Unit(
    "HA transfer",
    Transfer,
    i64("physical_offset", "where in the CommitLog the bytes that follow begin"),
    i32("body_size", "how many follow; 0 for a heartbeat"),
)


@dataclass(frozen=True, slots=True)
class Report:
    """What a slave sends: when its log has grown, and every 5 s."""

    physical_offset: int


REPORT = Unit("HA report", Report, i64("physical_offset", "where the slave's log ends; 0 for one that is empty"))


class Piece(NamedTuple):
    """Bytes of the log. A heartbeat has none, and its offset is the next that the master will send."""

    physical_offset: int
    data: bytes


class TransferReader:
    """Cuts what a master sends into pieces, however it arrives."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Takes the next bytes and yields the pieces that are complete.

        Raises:
            RemoteProtocolError: a size that no master sends.
        """
        self._kept += data
        while len(self._kept) >= TRANSFER.size:
            offset, size = TRANSFER.struct.unpack_from(self._kept)
            if offset < 0 or not 0 <= size <= MAX_TRANSFER:
                raise RemoteProtocolError(f"a piece of {size} bytes at physical offset {offset}: no master sends that")
            end = TRANSFER.size + size
            if len(self._kept) < end:
                return
            piece = Piece(offset, bytes(self._kept[TRANSFER.size : end]))
            del self._kept[:end]
            yield piece


class RecordAssembler:
    """Joins pieces to complete frames: records, and the BLANKs that end segments.

    Args:
        physical_offset: of the first byte that is to come.
        segment_size: bytes of a segment on the master.
    """

    def __init__(self, physical_offset: int, segment_size: int) -> None:
        self._offset, self._segment_size = physical_offset, segment_size
        self._kept = bytearray()

    @property
    def expected(self) -> int:
        """The physical offset of the next byte."""
        return self._offset + len(self._kept)

    def feed(self, piece: Piece) -> Iterator[Piece]:
        """Takes a piece and yields the frames that are complete now.

        Raises:
            RemoteProtocolError: the piece does not follow the one before, or what comes is not a record.
        """
        if piece.physical_offset != self.expected:
            raise RemoteProtocolError(f"the master sends physical offset {piece.physical_offset}, not {self.expected}")
        self._kept += piece.data
        start = 0
        while len(self._kept) - start >= BLANK_SIZE:
            offset = self._offset + start
            size = frame_size(self._kept, start, self._segment_size - offset % self._segment_size)
            if not size:
                stated, magic_code = FRAME.unpack_from(self._kept, start)
                raise RemoteProtocolError(
                    f"the master's log holds no record at physical offset {offset}: size {stated}, "
                    f"magic code {magic_code}; verify its store"
                )
            if len(self._kept) - start < size:
                break
            yield Piece(offset, bytes(self._kept[start : start + size]))
            start += size
        del self._kept[:start]
        self._offset += start
