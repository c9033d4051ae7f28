"""How far the broker's own recovery would go back, and so what it mends: the part that `verify` needs.

Source: ConsumeQueue.recover (4.9.7, 5.5.0).
"""

from dataclasses import dataclass

from mqtool.errors import StoreError
from mqtool.store import Store
from mqtool.verify.survey import QueueFiles, Survey

_FILES_SCANNED = 3
"""Files of a queue, from the last, that recovery looks at."""


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


def plan(survey: Survey, store: Store) -> Recovery:
    """Returns what the next start would look at; nothing, where a segment that decides it cannot be read.

    The check of the log is unknown then, and no finding depends on what a start would mend.
    """
    try:
        return Recovery(None if survey.live else store.recovery_start)
    except StoreError:
        return Recovery(None)
