"""Decides at which segment the broker's recovery begins to scan the CommitLog. No other code does.

Source: CommitLog.recoverNormally, recoverAbnormally, isMappedFileMatchedRecover, StoreCheckpoint.getMinTimestamp,
ConsumeQueueStore.isMappedFileMatchedRecover, IndexService.isMappedFileMatchedRecover (4.9.7, 5.5.0).
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from mqtool.formats import commit_log
from mqtool.formats.checkpoint import Checkpoint
from mqtool.formats.dledger import ENTRY_HEADER_SIZE
from mqtool.records.record_check import Read, RecordCheck, RecoveryRules

_LAST_SEGMENTS = 3
_LONGEST_HEAD = commit_log.BODY_POSITIONS[-1]


class ScanStart(Struct, frozen=True):
    """Where a scan begins."""

    segment: int  # number of the segment in the list
    reason: str  # the rule that chose it


def scan_start(
    segments: Sequence[Callable[[], Read]],
    segment_size: int,
    checkpoint: Checkpoint,
    rules: RecoveryRules,
    *,
    clean_stop: bool,
    queues_end: int = -1,
    bases: Sequence[int] = (),
) -> ScanStart:
    """Returns the segment at which recovery begins to scan.

    Args:
        segments: opens each segment that the broker loads for reading, oldest first, including allocated, unused
            ones; at least one.
        segment_size: configured size in bytes.
        checkpoint, rules: as loaded, all zeros if there is none; of the broker that is started.
        clean_stop: the store was shut down cleanly: there is no abort file.
        queues_end: end of the newest record that any queue names, -1 without queues; only used after a clean stop.
        bases: physical offset at which each segment begins; only used after a clean stop.
    """
    if not segments:
        raise ValueError("a log without segments is not scanned")
    if rules.release >= (5, 4):
        return _Search5(segments, segment_size, checkpoint, rules, clean_stop, queues_end).start()
    if clean_stop and rules.release >= (5, 0):
        reached = [number for number, base in enumerate(bases) if base <= queues_end]
        reason = f"the last one that begins at most at {queues_end}, the largest end of a queue, untested (5.3)"
        return ScanStart(max(reached, default=0), reason)
    if clean_stop:
        reason = "the third from the end, untested (CommitLog.recoverNormally, 4.9)"
        return ScanStart(max(0, len(segments) - _LAST_SEGMENTS), reason)
    return _after_crash_4(segments, checkpoint, rules)


def _after_crash_4(segments: Sequence[Callable[[], Read]], checkpoint: Checkpoint, rules: RecoveryRules) -> ScanStart:
    limit = checkpoint.min_timestamp
    if rules.index_safe:
        limit = min(limit, checkpoint.index_msg_timestamp)
    check = RecordCheck(rules, recovering=True)
    for number in range(len(segments) - 1, -1, -1):
        fields = _head(segments[number]())
        if check.magic_is_known(fields["magic_code"]) and 0 != fields["store_timestamp"] <= limit:
            rule = f"the last one whose first record was stored by {limit}, the checkpoint's time less 3 s"
            return ScanStart(number, f"{rule} (CommitLog.isMappedFileMatchedRecover, {rules.release})")
    return ScanStart(0, f"the first one: no segment's first record was stored at or before {limit} ({rules.release})")


class _Search5(Struct, frozen=True):
    """The search since 5.4, backwards from the newest segment; the same after a clean stop and after a crash."""

    segments: Sequence[Callable[[], Read]]
    segment_size: int
    checkpoint: Checkpoint
    rules: RecoveryRules
    clean_stop: bool
    queues_end: int

    def start(self) -> ScanStart:
        check = RecordCheck(self.rules, recovering=True)
        lowest = 1 if self.clean_stop else 0
        last = len(self.segments) - 1
        for number in range(last, lowest - 1, -1):
            if self._matches(check, self.segments[number]()):
                return ScanStart(number, f"the last one whose first record is intact and {self._anchor}")
            if last - number + 1 >= self.rules.recover_max:
                return ScanStart(number, f"{self.rules.recover_max} segments were checked, and none fits (5.5)")
        return ScanStart(0, f"the first one: no later segment begins with an intact record that {self._anchor}")

    @property
    def _anchor(self) -> str:
        if self.clean_stop:
            return f"states a physical offset of at most {self.queues_end}, the largest end of a queue (5.5)"
        physical, stored = self.checkpoint.logics_physical_offset, self.checkpoint.logics_msg_timestamp
        if self.rules.release < (5, 5):
            return f"was stored by {self.checkpoint.min_timestamp}, the checkpoint's time less 3 s (5.4)"
        if physical > 0:
            return f"states a physical offset of at most the checkpoint's {physical} (5.5)"
        return f"was stored at or before {stored}, the checkpoint's time of the queues (5.5)"

    def _matches(self, check: RecordCheck, read: Read) -> bool:
        result = check.check(read, 0, self.segment_size)
        if not result.ok or result.size == 0:
            return False
        fields = _head(read)
        return fields["store_timestamp"] != 0 and self._is_anchored(
            fields["physical_offset"], fields["store_timestamp"]
        )

    def _is_anchored(self, physical: int, stored: int) -> bool:
        if not self.clean_stop:
            return _is_dispatched(physical, stored, self.checkpoint, self.rules)
        return physical <= self.queues_end and not _is_unindexed(stored, self.checkpoint, self.rules)


def ledger_scan_start(files: Sequence[Callable[[], Read]], checkpoint: Checkpoint, rules: RecoveryRules) -> int:
    """Returns the DLedger data file, of files oldest first, from which 5.x dispatches again after a crash.

    Source: isMmapFileMatchedRecover.
    """
    for number in range(len(files) - 1, -1, -1):
        fields = _head(files[number](), ENTRY_HEADER_SIZE)
        physical, stored = fields["physical_offset"], fields["store_timestamp"]
        is_record = fields["magic_code"] == commit_log.MAGIC_V1 and stored != 0
        if is_record and _is_dispatched(physical, stored, checkpoint, rules):
            return number
    return 0


def _is_dispatched(physical: int, stored: int, checkpoint: Checkpoint, rules: RecoveryRules) -> bool:
    """Whether the checkpoint says that queues and index were flushed up to a record."""
    if _is_unindexed(stored, checkpoint, rules):
        return False
    if rules.release < (5, 5):
        return stored <= checkpoint.min_timestamp
    if checkpoint.logics_physical_offset > 0:
        return physical <= checkpoint.logics_physical_offset
    return stored <= checkpoint.logics_msg_timestamp


def _is_unindexed(stored: int, checkpoint: Checkpoint, rules: RecoveryRules) -> bool:
    return rules.index_safe and stored > checkpoint.index_msg_timestamp


def _head(read: Read, position: int = 0) -> dict[str, int]:
    """Returns the fields before the body of the first record; fields past the segment's end are zero."""
    head = read(position, _LONGEST_HEAD).ljust(_LONGEST_HEAD, b"\0")
    return commit_log.head_fields(head)
