"""The HA stream between a master and its slave, without sockets: unchanged bytes of the CommitLog in transfers.

A slave reports the max physical offset of its log; the master sends bytes from there. A transfer may end anywhere in a
record, but never spans two segments. Docs page: docs/protocol.md. Source: DefaultHAConnection, DefaultHAClient (4.9.7,
5.5.0), and wire captures.
"""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct

from mqtool.errors import RemoteProtocolError
from mqtool.formats.codec import Unit, i32, i64
from mqtool.formats.commit_log import BLANK_SIZE, FRAME, frame_size

MAX_TRANSFER = 16 << 20
"""Maximum size of a transfer that is accepted, in bytes; a master sends 32 KiB (haTransferBatchSize)."""


class Transfer(Struct, frozen=True):
    """The header of a transfer; an empty transfer is a heartbeat."""

    physical_offset: int
    body_size: int


TRANSFER = Unit(
    "HA transfer",
    Transfer,
    i64("physical_offset", "where in the CommitLog the bytes that follow begin"),
    i32("body_size", "how many follow; 0 for a heartbeat"),
)


class Report(Struct, frozen=True):
    """What a slave sends whenever its log has grown, and every 5 s."""

    physical_offset: int


REPORT = Unit("HA report", Report, i64("physical_offset", "where the slave's log ends; 0 for one that is empty"))


class Piece(NamedTuple):
    """Bytes of the CommitLog. A heartbeat has no bytes; its offset is the next one that the master will send."""

    physical_offset: int
    data: bytes


class TransferReader:
    """Splits the bytes that a master sends into transfers, independently of how they were received."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Adds received bytes; yields the transfers that are now complete.

        Raises:
            RemoteProtocolError: a transfer states an offset below 0 or a size outside 0 to `MAX_TRANSFER`.
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
    """Joins transfers to complete frames: records, and the BLANKs at the end of segments.

    Args:
        physical_offset: physical offset of the first byte that will be added.
        segment_size: size of a segment on the master in bytes.
    """

    def __init__(self, physical_offset: int, segment_size: int) -> None:
        self._offset, self._segment_size = physical_offset, segment_size
        self._kept = bytearray()

    @property
    def expected(self) -> int:
        """The physical offset of the next byte."""
        return self._offset + len(self._kept)

    def feed(self, piece: Piece) -> Iterator[Piece]:
        """Adds a transfer; yields the frames that are now complete.

        Raises:
            RemoteProtocolError: the transfer does not start where the previous one ended, or its bytes are not a
                record.
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
