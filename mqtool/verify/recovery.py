"""How far back the broker's recovery would start, and therefore what it repairs, as far as `verify` needs it.

Source: ConsumeQueue.recover (4.9.7, 5.5.0).
"""

from msgspec import Struct

from mqtool.errors import StoreError
from mqtool.store import Store
from mqtool.verify.survey import QueueFiles, Survey

_FILES_SCANNED = 3
"""Number of a queue's last files that recovery reads."""


class Recovery(Struct, frozen=True):
    """What the next start reads."""

    # Physical offset from which records are dispatched again; None if none are (after a clean stop).
    scan_start: int | None

    def repairs_records(self, start: int) -> bool:
        """Whether records from a physical offset on are dispatched again."""
        return self.scan_start is not None and start >= self.scan_start

    def repairs_units(self, queue: QueueFiles, first: int, start: int) -> bool:
        """Whether the next start writes units again, from unit number `first` on, for records from offset `start` on.

        Recovery must discard them first: it reads only the last files of a queue, and ends the queue at the first
        invalid unit.
        """
        if not self.repairs_records(start):
            return False
        looked_at = queue.files[-_FILES_SCANNED:]
        return not looked_at or first * queue.unit.size >= looked_at[0].base


def plan(survey: Survey, store: Store) -> Recovery:
    """Returns what the next start would read; nothing if a segment needed to determine this cannot be read.

    In that case the log's check is unknown, and no finding depends on what a start would repair.
    """
    try:
        return Recovery(None if survey.live else store.recovery_start)
    except StoreError:
        return Recovery(None)
