"""Tests whether the broker accepts bytes as a record: its own checks, in its own order, by the keys that change them.

This is weaker than `records.frames`: the record's own physical offset, its queue offset and the size of a BLANK are
not checked. Recovery and dispatch both stop where this test fails, so what passes it is the log. Source:
CommitLog.checkMessageAndReturnSize, MessageVersion, MessageStoreConfig (4.9.7, 5.5.0).
"""

import zlib
from collections.abc import Callable

from msgspec import Struct

from mqtool.errors import FormatError
from mqtool.formats import codec, commit_log, java, properties, topics
from mqtool.formats.codec import CRC_MASK
from mqtool.formats.release import Release

DEFAULT_RECOVER_MAX = 10
DEFAULT_HEAP = 8 << 30
"""What the broker's start script gives the JVM."""


_SCHEDULE_TOPIC = topics.SCHEDULE_TOPIC.encode()

LARGEST_JAVA_ARRAY = java.INT_MAX - 2

_CHUNK = 4 << 20

_I16 = commit_log.PROPERTIES_LENGTH

_I32 = codec.struct_of(commit_log.HEADS[0][:1])

_HEADS = commit_log.HEAD_STRUCTS

_SHORTEST_HEAD = _HEADS[0].size

_SYS_FLAG_AT = commit_log.field_offset("sys_flag")

Read = Callable[[int, int], bytes]
"""`read(position, count)`: bytes of a segment, fewer at its end."""


class RecoveryRules(Struct, frozen=True, kw_only=True):
    """What recovery of the CommitLog depends on besides the store's files."""

    release: Release  # release whose rules apply
    check_crc: bool = True  # and force_property_crc: checkCRCOnRecover, forceVerifyPropCRC (5.5)
    force_property_crc: bool = False
    check_offset_on_recover: bool = False  # checkCommitLogOffsetOnRecover (5.5)
    index_enabled: bool = True  # messageIndexEnable, and indexFileWriteEnable (5.5)
    index_safe: bool = False  # messageIndexEnable and messageIndexSafe
    recheck_reput: bool = False  # recheckReputOffsetFromCq (5.5)
    # commitLogRecoverMaxNum (5.5): maximum number of segments that are tested as starting point.
    recover_max: int = DEFAULT_RECOVER_MAX
    delay_levels_ms: tuple[int, ...] = ()  # delay of levels 1, 2, …
    heap_bytes: int = DEFAULT_HEAP  # heap of the broker; an array of half of it is assumed not to fit


class CheckResult(Struct, frozen=True):
    """Result of the test, like the broker's DispatchRequest."""

    size: int  # size of the record; 0 for a BLANK; -1 if nothing was recognised
    ok: bool  # passed. Not ok with a positive size is a "half message", whose lengths do not add up.
    reason: str = ""  # why it failed
    consumed: int = 0  # bytes read of a half message; dispatch continues after them


BLANK = CheckResult(0, ok=True)
NEGATIVE_BLANK = CheckResult(0, ok=True, reason="a BLANK whose TOTALSIZE is negative")
"""Releases before 5.5.1 take it for the end of the segment."""


class HeapExhausted(Exception):  # noqa: N818 - an answer, not an error
    """The broker would allocate an array that does not fit its heap, and end with an OutOfMemoryError.

    Attributes:
        refusal: the broker's message.
    """

    def __init__(self, refusal: str) -> None:
        super().__init__(refusal)
        self.refusal = refusal


class _BufferUnderflow(Exception):  # noqa: N818 - an answer, not an error
    """A read past the end of the buffer: Java's BufferUnderflowException, which fails the test."""


class RecordCheck:
    """The test with the rules of one release.

    Attributes:
        rules: release and the relevant keys.
        delay_levels: levels known to the store during the test; 4.9 has not read them yet during recovery.
        largest_array: bytes of the largest array that a test allocated before it knew whether there is a record.
    """

    def __init__(self, rules: RecoveryRules, *, recovering: bool) -> None:
        """Creates the test of recovery (reads the body, compares its CRC) or of dispatch (neither)."""
        self.rules = rules
        self.recovering = recovering
        self.check_crc = recovering and rules.check_crc
        self.largest_array = 0
        self.delay_levels = rules.delay_levels_ms if rules.release >= (5, 0) or not recovering else ()

    def magic_is_known(self, magic: int) -> bool:
        """Whether a record may have this magic code."""
        return magic == commit_log.MAGIC_V1 or (magic == commit_log.MAGIC_V2 and self.rules.release >= (5, 0))

    def check(self, read: Read, position: int, limit: int) -> CheckResult:
        """Tests the bytes at a position of a segment, up to its end, or the end of what counts as written.

        Raises HeapExhausted where 4.9 allocates an array that no Java heap can hold.
        """
        try:
            return self._check(_Cursor(read, position, limit))
        except _BufferUnderflow:
            return CheckResult(-1, ok=False, reason="it ends inside its fields")
        except FormatError as error:
            return CheckResult(-1, ok=False, reason=str(error))

    def _check(self, cursor: "_Cursor") -> CheckResult:
        is_5 = self.rules.release >= (5, 0)
        if is_5 and cursor.remaining <= 4:
            return CheckResult(-1, ok=False, reason="the segment ends")
        start = cursor.position
        (total,) = _I32.unpack(cursor.take(_I32.size))
        if is_5 and cursor.remaining < java.to_int32(total - 4):
            return CheckResult(-1, ok=False, reason=f"TOTALSIZE {total} reaches beyond the segment")
        if total < 0 and self.rules.release >= (5, 5, 1):
            return CheckResult(-1, ok=False, reason=f"TOTALSIZE {total} is negative")
        (magic,) = _I32.unpack(cursor.take(_I32.size))
        if magic == commit_log.MAGIC_BLANK:
            return BLANK if total >= 0 else NEGATIVE_BLANK
        if not self.magic_is_known(magic):
            return CheckResult(-1, ok=False, reason=f"magic code {magic & 0xFFFFFFFF:08x}")
        self._allocate(total)
        fields = self._head(cursor, start, total)
        body_start, body_length = cursor.position, fields["body_length"]
        if body_length > 0:
            if self.recovering and body_length > total:
                raise FormatError(f"BODYLEN {body_length} is larger than TOTALSIZE {total}", layout="record")
            cursor.skip(body_length)
            if self.check_crc and not self.rules.force_property_crc:
                computed, stored = cursor.crc32(body_start, body_length), fields["body_crc"]
                if computed != stored:
                    return CheckResult(
                        -1, ok=False, reason=f"body CRC {computed:08x}, stored {stored & 0xFFFFFFFF:08x}"
                    )
        return self._rest(cursor, start, total, magic, fields)

    def _allocate(self, total: int) -> None:
        """Models `new byte[totalSize]`, which 4.9 does before it checks anything else."""
        if total < 0:
            raise FormatError(f"TOTALSIZE {total} is negative", layout="record")
        if total > LARGEST_JAVA_ARRAY:
            raise HeapExhausted("load: java.lang.OutOfMemoryError: Requested array size exceeds VM limit")
        if total >= self.rules.heap_bytes // 2:
            raise HeapExhausted("load: java.lang.OutOfMemoryError: Java heap space")
        self.largest_array = max(self.largest_array, total)

    def _head(self, cursor: "_Cursor", start: int, total: int) -> dict[str, int]:
        shortest = cursor.peek(start, _SHORTEST_HEAD)
        (sys_flag,) = _I32.unpack_from(shortest, _SYS_FLAG_AT)
        shape = commit_log.host_shape(sys_flag)
        head = _HEADS[shape]
        values = head.unpack(cursor.peek(start, head.size))
        if total < max(len(value) for value in values if isinstance(value, bytes)):
            raise FormatError(f"TOTALSIZE {total} is smaller than a host", layout="record")
        cursor.position = start + head.size
        names = (field.name for field in commit_log.HEADS[shape])
        return {name: value for name, value in zip(names, values, strict=True) if isinstance(value, int)}

    def _rest(self, cursor: "_Cursor", start: int, total: int, magic: int, fields: dict[str, int]) -> CheckResult:
        length = commit_log.TOPIC_LENGTH_V2 if magic == commit_log.MAGIC_V2 else commit_log.TOPIC_LENGTH_V1
        (topic_length,) = length.unpack(cursor.take(length.size))
        if not 0 <= topic_length <= total:
            raise FormatError(f"TOPICLEN {topic_length}", layout="record")
        topic = cursor.take(topic_length)
        (properties_length,) = _I16.unpack(cursor.take(_I16.size))
        if properties_length > total:
            raise FormatError(f"PROPLEN {properties_length} is larger than TOTALSIZE {total}", layout="record")
        stored = cursor.take(properties_length) if properties_length > 0 else b""
        values = properties.decode(stored)
        self._parse_delay(topic, values)
        if self.check_crc and self.rules.force_property_crc:
            wrong = _property_crc_fault(cursor, total, stored)
            if wrong:
                return CheckResult(-1, ok=False, reason=wrong)
        read_length = (
            _HEADS[commit_log.host_shape(fields["sys_flag"])].size
            + max(fields["body_length"], 0)
            + length.size
            + topic_length
            + _I16.size
            + max(properties_length, 0)
        )
        if read_length != total:
            reason = f"TOTALSIZE {total}, but the fields take {read_length} bytes"
            return CheckResult(total, ok=False, reason=reason, consumed=cursor.position - start)
        self._parse_inner(values)
        return CheckResult(total, ok=True)

    def numbers_pass(self, topic: bytes, stored: bytes) -> bool:
        """Whether Java can parse the numbers in a record's properties; otherwise it throws and the test fails."""
        values = properties.decode(stored)
        try:
            self._parse_delay(topic, values)
            self._parse_inner(values)
        except FormatError:
            return False
        return True

    @staticmethod
    def _parse_delay(topic: bytes, values: dict[str, str]) -> None:
        if topic == _SCHEDULE_TOPIC and properties.DELAY_LEVEL in values:
            java.parse_int(values[properties.DELAY_LEVEL])

    def _parse_inner(self, values: dict[str, str]) -> None:
        if self.rules.release >= (5, 0) and properties.INNER_NUM in values and properties.INNER_BASE in values:
            java.parse_long(values[properties.INNER_BASE])
            java.parse_short(values[properties.INNER_NUM])


def _property_crc_fault(cursor: "_Cursor", total: int, stored: bytes) -> str:
    """Compares `__CRC32#` with the bytes before the last 20, as the broker does from any assumed start."""
    value = properties.decode(stored).get(properties.CRC32)
    if value is None:
        return "no __CRC32# property"
    expected = 0
    for unit in reversed(value):
        expected = java.to_int32(expected * 10 + ord(unit) - ord("0"))
    if expected < 0:
        return "no valid __CRC32# property"
    begin = cursor.position - total
    if begin < 0 or total < properties.CRC32_TAIL_SIZE:
        raise FormatError("the record begins before the segment", layout="record")
    computed = cursor.crc32(begin, total - properties.CRC32_TAIL_SIZE)
    return "" if computed == expected else f"record CRC {computed}, stored {expected}"


class _Cursor:
    """A position in a segment whose reads must end before a limit, like a ByteBuffer."""

    def __init__(self, read: Read, position: int, limit: int) -> None:
        self._read = read
        self.position = position
        self._limit = limit

    @property
    def remaining(self) -> int:
        return self._limit - self.position

    def take(self, count: int) -> bytes:
        data = self.peek(self.position, count)
        self.position += count
        return data

    def peek(self, position: int, count: int) -> bytes:
        if position + count > self._limit:
            raise _BufferUnderflow
        data = self._read(position, count)
        if len(data) < count:
            raise _BufferUnderflow
        return data

    def skip(self, count: int) -> None:
        if count > self.remaining:
            raise _BufferUnderflow
        self.position += count

    def crc32(self, position: int, count: int) -> int:
        crc, end = 0, position + count
        while position < end:
            part = self.peek(position, min(_CHUNK, end - position))
            crc = zlib.crc32(part, crc)
            position += len(part)
        return crc & CRC_MASK
