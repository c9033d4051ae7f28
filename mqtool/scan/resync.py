"""Finding the next record after bytes that are none, with proof.

Two questions, in this order. Does what is left of the damaged record tell where it ends? Then the
record after it proves that, and nothing inside (a body may hold whole frames) is looked at.
Otherwise: which later position holds a frame whose magic, lengths, own physical offset and CRC
all agree, and is not denied by a witness (a ConsumeQueue that names other record starts)?
"""

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from mqtool.formats import commit_log
from mqtool.scan.damage import DamageKind
from mqtool.scan.frames import Frames, hop

_MAGICS = (commit_log.MAGIC_V1, commit_log.MAGIC_V2, commit_log.MAGIC_BLANK)
_MAGIC = re.compile(b"|".join(re.escape(struct.pack(">i", magic)) for magic in _MAGICS))
_STEP = 1 << 16
_MAGIC_AT = commit_log.FRAME.size - 4
_OFFSET_AT = commit_log.field_offset("physical_offset")
_I64 = struct.Struct(">q")

Witness = Callable[[int], bool | None]
"""Says of a physical offset whether a record starts there: True, False, or None for "cannot tell"."""


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes of one segment.

    Attributes:
        view: the bytes.
        base: physical offset of the first of them.
        segment_end: physical offset after the segment's last byte.
        complete: the view reaches the end of the segment's file.
    """

    view: memoryview
    base: int
    segment_end: int
    complete: bool

    def is_boundary(self, position: int) -> bool:
        """Whether a record, a BLANK or the end of the segment is at a position, by its own testimony."""
        if position == len(self.view):
            return self.complete
        if position + 8 > len(self.view):
            return self.complete and self.base + position + 8 > self.segment_end
        total, magic = commit_log.FRAME.unpack_from(self.view, position)
        if magic == commit_log.MAGIC_BLANK:
            return bool(total == self.segment_end - self.base - position)
        if magic not in (commit_log.MAGIC_V1, commit_log.MAGIC_V2) or position + _OFFSET_AT + 8 > len(self.view):
            return False
        (stated,) = _I64.unpack_from(self.view, position + _OFFSET_AT)
        return bool(stated == self.base + position)

    def is_proven(self, position: int) -> bool:
        """Whether a whole, sound record with a right CRC, or an exact BLANK, is at a position."""
        total, magic = commit_log.FRAME.unpack_from(self.view, position)
        if magic == commit_log.MAGIC_BLANK:
            return self.is_boundary(position)
        if total < commit_log.MIN_RECORD_SIZE or position + total > len(self.view):
            return False
        frame = Frames(self.view, self.base, np.array([position]), np.array([total]))
        return bool(frame.sound[0]) and bool(frame.crc_matches[0])


def extent(block: Block, position: int) -> int | None:
    """Returns where the damaged record at a position ends, if what is left of it tells, else None.

    Of several ends that a following record proves, the first counts; the end of the segment proves least.
    """
    total, _ = commit_log.FRAME.unpack_from(block.view, position)
    sizes = {total, *_sizes_by_lengths(block.view[position:])}
    ends = sorted(position + size for size in sizes if size >= commit_log.MIN_RECORD_SIZE)
    return next((end for end in ends if end <= len(block.view) and block.is_boundary(end)), None)


def _sizes_by_lengths(record: memoryview) -> Iterator[int]:
    """Yields total sizes that the inner lengths imply, for each host shape and version; the stated shape first."""
    for body_at in commit_log.BODY_POSITIONS:
        if body_at > len(record):
            continue
        (body_length,) = struct.unpack_from(">i", record, body_at - 4)
        at = body_at + max(0, body_length)
        for topic_reader in (commit_log.TOPIC_LENGTH_V1, commit_log.TOPIC_LENGTH_V2):
            try:
                (topic_length,) = topic_reader.unpack_from(record, at)
                tail = at + topic_reader.size + topic_length
                (properties_length,) = commit_log.PROPERTIES_LENGTH.unpack_from(record, tail)
            except struct.error:
                continue
            if topic_length >= 0:
                yield tail + commit_log.PROPERTIES_LENGTH.size + max(0, properties_length)


def next_record(block: Block, position: int, witness: Witness | None = None) -> int | None:
    """Returns the first position at or after `position` where a record or BLANK is proven, or None.

    Frames inside the body of a damaged record are skipped: the witness denies them, or what surrounds
    them looks like the rest of that record.
    """
    skipped_to = position
    for at in _boundaries(block, position):
        if at < skipped_to or not block.is_proven(at):
            continue
        verdict = witness(block.base + at) if witness else None
        if verdict is False or (verdict is None and _is_enclosed(block, position, at)):
            skipped_to = hop(block.view, at).end
            continue
        return at
    return None


def _boundaries(block: Block, position: int) -> Iterator[int]:
    for match in _MAGIC.finditer(block.view, position + _MAGIC_AT):
        at = match.start() - _MAGIC_AT
        if block.is_boundary(at):
            yield at


def _is_enclosed(block: Block, damaged: int, position: int) -> bool:
    """Whether the chain of frames at `position` stands inside the body of the record damaged at `damaged`.

    It does if after the chain comes the rest of a record, body end, topic and properties, up to the next
    boundary. A damaged record after a real chain also ends like that, but it has a header before its body,
    and the record before a real chain ends where the chain starts.
    """
    end = hop(block.view, position).end
    if end + 8 > len(block.view) or block.is_boundary(end) or extent(block, end) is not None:
        return False
    following = next(_boundaries(block, end), None)
    if following is None:
        return False
    tail = _record_tail(block.view, end, following)
    if tail is None:
        return False
    if tail - end < commit_log.BODY_POSITIONS[0]:
        return True
    header_wiped = not any(block.view[end : end + 8])
    return not header_wiped and _record_tail(block.view, damaged, position) is None


def _record_tail(view: memoryview, start: int, end: int) -> int | None:
    """Returns where `topic length, topic, properties length, properties` begins that ends exactly at `end`."""
    low = max(start + 2, end - 0x8000 - 2)
    if end - low < 2:
        return None
    data = np.frombuffer(view[low:end], np.uint8).astype(np.int64)
    stated = (data[:-1] << 8) | data[1:]
    for at in np.flatnonzero(stated == np.arange(len(stated) - 1, -1, -1)).tolist():
        topic_end = low + at
        for length in range(1, min(127, topic_end - start - 1) + 1):
            topic = bytes(view[topic_end - length : topic_end])
            if not all(0x21 <= byte < 0x7F for byte in topic[:1]):
                break  # grows towards the front: the first byte is the newest
            if view[topic_end - length - 1] == length:
                return topic_end - length - 1
    return None


def describe(block: Block, position: int) -> tuple[DamageKind, str]:
    """Returns kind and words for bytes at which no sound frame starts."""
    view = block.view
    if position + 8 > len(view):
        return DamageKind.MISSING, "the file ends inside a record"
    total, magic = commit_log.FRAME.unpack_from(view, position)
    if total == magic == 0:
        return DamageKind.ZEROS, "zero bytes where a record should be"
    if magic == commit_log.MAGIC_BLANK:
        return DamageKind.BAD_BLANK, f"BLANK of {total} bytes does not run to the end of its segment"
    if magic not in (commit_log.MAGIC_V1, commit_log.MAGIC_V2):
        return DamageKind.BAD_HEADER, f"expected magic daa320a7, found {magic & 0xFFFFFFFF:08x}"
    if block.is_boundary(position):
        return DamageKind.BAD_LENGTHS, f"the inner lengths do not add up to total_size {total}"
    return DamageKind.BAD_HEADER, f"total_size {total} or the physical offset cannot be"


def last_data(view: memoryview) -> int:
    """Returns the position after the last byte that is not zero."""
    data = np.frombuffer(view, np.uint8)
    for start in range((len(data) - 1) // _STEP * _STEP, -1, -_STEP):
        block = np.flatnonzero(data[start : start + _STEP])
        if len(block):
            return int(start + block[-1] + 1)
    return 0


def first_data(view: memoryview, position: int) -> int | None:
    """Returns the position of the first byte at or after `position` that is not zero."""
    data = np.frombuffer(view, np.uint8)
    for start in range(position, len(data), _STEP):
        block = data[start : start + _STEP]
        if block.any():
            return int(start + np.flatnonzero(block)[0])
    return None
