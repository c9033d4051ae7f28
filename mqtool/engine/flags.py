"""RunningFlags: why a store does not take messages right now. Source: RunningFlags (4.9.7, 5.5.0)."""

import errno
from enum import IntFlag

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""What stops dispatch without a flag: nothing is lost, and it goes on where it stood once there is room; meanwhile
`DispatchLoop.relieve` holds the writer."""


class RunningFlag(IntFlag):
    """One reason each."""

    NOT_READABLE = 1
    NOT_WRITEABLE = 2
    LOGICS_QUEUE_ERROR = 4
    INDEX_FILE_ERROR = 8
    DISK_FULL = 16
    FENCED = 32
    LOGIC_DISK_FULL = 64


_STOPS_PUTS = ~RunningFlag.NOT_READABLE & 0x7F
_STOPS_QUEUES = (
    RunningFlag.NOT_WRITEABLE
    | RunningFlag.LOGICS_QUEUE_ERROR
    | RunningFlag.INDEX_FILE_ERROR
    | RunningFlag.LOGIC_DISK_FULL
)


class RunningFlags:
    """The reasons in force.

    Attributes:
        refuses: whether puts are refused; an attribute, since every put asks.
        flush_has_failed: whether a flush of the log has; an attribute, since every flush asks.
        queue_writeable: whether dispatch may go on; a full disk stops puts, not dispatch.
    """

    def __init__(self) -> None:
        self._flags = RunningFlag(0)
        self.refuses = self.flush_has_failed = False
        self.queue_writeable = True

    def __contains__(self, flag: RunningFlag) -> bool:
        return flag in self._flags

    @property
    def readable(self) -> bool:
        """Whether gets are answered."""
        return RunningFlag.NOT_READABLE not in self._flags

    def only(self, flag: RunningFlag) -> bool:
        """Whether no other reason than this one stops puts."""
        return not self._flags & _STOPS_PUTS & ~flag

    def set(self, flag: RunningFlag) -> None:
        """Puts a reason in force."""
        self._changed(self._flags | flag)

    def clear(self, flag: RunningFlag) -> None:
        """Takes a reason back."""
        self._changed(self._flags & ~flag)

    def _changed(self, flags: RunningFlag) -> None:
        self._flags = flags
        self.refuses = bool(flags & _STOPS_PUTS)
        self.flush_has_failed = RunningFlag.NOT_WRITEABLE in flags
        self.queue_writeable = not flags & _STOPS_QUEUES

    def __str__(self) -> str:
        return self._flags.name or "none"
