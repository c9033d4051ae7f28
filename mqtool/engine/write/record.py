"""Encoding of records for the append path: sizes and limits, the trailer, the record's CRC.

`formats.commit_log` declares the layout; the packers here are derived from it. Source: MessageExtEncoder,
CommitLog.DefaultAppendMessageCallback (4.9.7, 5.5.0).
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, groupby, repeat

from mqtool.formats import commit_log, properties
from mqtool.formats.commit_log import HEADS, SysFlag

HEAD_PACKERS = commit_log.HEAD_STRUCTS
"""Fixed fields up to body_length, by host shape."""

HOST_SIZE_V4 = 8
LONGEST_PROPERTIES = (1 << 15) - 1
ROOM_BESIDE_BODY = 64 << 10
"""Maximum bytes of a record besides its body."""

pack_length = commit_log.PROPERTIES_LENGTH.pack

_V6_BITS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)  # arithmetic with the enum costs a hundred times as much
_CRC_NAME = properties.CRC32.encode()


def host_shape(born_host: bytes, store_host: bytes) -> int:
    """Returns which of the two are IPv6: 0 none, 1 born, 2 store, 3 both."""
    return (len(born_host) != HOST_SIZE_V4) + 2 * (len(store_host) != HOST_SIZE_V4)


def shaped(sys_flag: int, shape: int) -> int:
    """Returns the system flag with the two IPv6 bits set according to the hosts."""
    return sys_flag & ~_V6_BITS | shape << 4


class RunPacker:
    """Packs the heads of records that differ in few fields; the common fields are packed only once."""

    VARYING = ("total_size", "body_crc", "flag", "queue_offset", "physical_offset", "body_length")

    def __init__(self, shape: int) -> None:
        """Derives the packer.

        Args:
            shape: of the hosts, as `host_shape`.
        """
        pieces: list[str] = []
        self._constant: list[slice] = []
        for varies, run in groupby(commit_log.HEADS[shape], key=lambda field: field.name in self.VARYING):
            found = list(run)
            size = sum(field.size for field in found)
            pieces += [field.code for field in found] if varies else [f"{size}s"]
            if not varies:
                self._constant.append(slice(found[0].offset, found[0].offset + size))
        self._pack = struct.Struct(">" + "".join(pieces)).pack

    def heads(
        self,
        sample: bytes,
        sizes: Sequence[int],
        crcs: Iterable[int],
        flags: Iterable[int],
        first: int,
        positions: Iterable[int],
        body_sizes: Iterable[int],
    ) -> Iterator[bytes]:
        """Yields heads of records in a row, of one queue.

        Args:
            sample: head of any of them.
            sizes, crcs, flags, positions, body_sizes: of each.
            first: queue offset of the first.
        """
        magic, queue, rest = (repeat(sample[where]) for where in self._constant)
        return map(self._pack, sizes, magic, crcs, queue, flags, count(first), positions, rest, body_sizes)


RUN_PACKERS = tuple(map(RunPacker, range(len(HEADS))))
"""By host shape."""


def room_for_crc(encoded: bytes, *, single: bool = True) -> bytes:
    """Returns properties with 20 bytes at their end for the record's CRC.

    Args:
        encoded: the properties; in a single message an older CRC is removed, and a missing final 0x02 is added.
        single: False for a message of a batch, whose properties the broker leaves unchanged.
    """
    if single:
        encoded = properties.without(encoded, properties.CRC32) if _CRC_NAME in encoded else encoded
        encoded = properties.terminated(encoded)
    return encoded + bytes(properties.CRC32_TAIL_SIZE)
