"""How far the broker's own recovery would go back, and so what it mends: the part that `verify` needs.

Source: CommitLog.recoverAbnormally, isMappedFileMatchedRecover, ConsumeQueue.recover (4.9.7, 5.5.0).
"""

from dataclasses import dataclass

from mqtool.errors import FormatError, StoreError
from mqtool.formats import commit_log
from mqtool.formats.checkpoint import Checkpoint
from mqtool.formats.commit_log import Record
from mqtool.store.files import MappedFile, ReadFile
from mqtool.verify.survey import QueueFiles, Survey

_FARTHEST_BACK = 10
"""commitLogRecoverMaxNum of 5.5: segments that recovery goes back at most."""
_FILES_SCANNED = 3
"""Files of a queue, from the last, that recovery looks at."""
_LONGEST = 1 << 26


@dataclass(frozen=True)
class Recovery:
    """What the next start looks at.

    Attributes:
        scan_start: physical offset from which records are dispatched again; None if none is (an orderly stop).
    """

    scan_start: int | None

    def mends_records(self, start: int) -> bool:
        """Whether records from a physical offset on are dispatched again."""
        return self.scan_start is not None and start >= self.scan_start

    def mends_units(self, queue: QueueFiles, first: int, start: int) -> bool:
        """Whether units are written again, whose first has a number and whose records begin at an offset.

        The queue must lose them first: only its last files are looked at, and it ends at the first invalid unit.
        """
        if not self.mends_records(start):
            return False
        looked_at = queue.files[-_FILES_SCANNED:]
        return not looked_at or first * queue.unit.size >= looked_at[0].base


def plan(survey: Survey, checkpoint: Checkpoint | None) -> Recovery:
    """Returns what the next start would look at."""
    if survey.clean_stop or survey.live or not survey.segments:
        return Recovery(None)
    known = checkpoint or Checkpoint()
    used = survey.segments[: survey.last_used + 1]
    for back, segment in enumerate(reversed(used)):
        if not survey.is_4 and back >= _FARTHEST_BACK:
            return Recovery(segment.base)
        record = _first_record(segment)
        if record is not None and _starts_here(record, known, is_4=survey.is_4):
            return Recovery(segment.base)
    return Recovery(used[0].base)


def _starts_here(record: Record, checkpoint: Checkpoint, *, is_4: bool) -> bool:
    if record.store_timestamp == 0:
        return False
    if is_4:
        return record.store_timestamp <= checkpoint.min_timestamp
    if checkpoint.logics_physical_offset > 0:
        return record.physical_offset <= checkpoint.logics_physical_offset
    return record.store_timestamp <= checkpoint.logics_msg_timestamp


def _first_record(segment: MappedFile) -> Record | None:
    try:
        with ReadFile(segment.path) as file:
            head = file.read(0, commit_log.FRAME.size)
            if len(head) < commit_log.FRAME.size:
                return None
            size = int(commit_log.FRAME.unpack(head)[0])
            return commit_log.parse_record(file.read(0, min(max(0, size), segment.size, _LONGEST)))
    except (FormatError, StoreError):
        return None
