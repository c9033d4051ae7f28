"""RunningFlags: why a store currently does not accept messages. Source: RunningFlags (4.9.7, 5.5.0)."""

import errno
from enum import IntFlag

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""Errors that stop dispatch without a flag: nothing is lost, and dispatch continues at its position once there is
space; until then `DispatchLoop.relieve` blocks the writer."""


class RunningFlag(IntFlag):
    """A reason for refusing messages; the broker's first flag, NOT_READABLE, is never set."""

    NOT_WRITEABLE = 2
    LOGICS_QUEUE_ERROR = 4
    INDEX_FILE_ERROR = 8
    DISK_FULL = 16
    FENCED = 32
    LOGIC_DISK_FULL = 64


_STOPS_QUEUES = (
    RunningFlag.NOT_WRITEABLE
    | RunningFlag.LOGICS_QUEUE_ERROR
    | RunningFlag.INDEX_FILE_ERROR
    | RunningFlag.LOGIC_DISK_FULL
)


class RunningFlags:
    """The reasons that currently stop puts or dispatch.

    Attributes:
        refuses: whether puts are refused; an attribute because every put reads it.
        flush_has_failed: whether a flush of the log has failed; an attribute because every flush reads it.
        queue_writeable: whether dispatch may continue; a full disk stops puts, not dispatch.
    """

    def __init__(self) -> None:
        self._flags = RunningFlag(0)
        self.refuses = self.flush_has_failed = False
        self.queue_writeable = True

    def __contains__(self, flag: RunningFlag) -> bool:
        return flag in self._flags

    def only(self, flag: RunningFlag) -> bool:
        """Whether this is the only reason that stops puts."""
        return not self._flags & ~flag

    def set(self, flag: RunningFlag) -> None:
        """Adds a reason."""
        self._changed(self._flags | flag)

    def clear(self, flag: RunningFlag) -> None:
        """Removes a reason."""
        self._changed(self._flags & ~flag)

    def _changed(self, flags: RunningFlag) -> None:
        self._flags = flags
        self.refuses = bool(flags)
        self.flush_has_failed = RunningFlag.NOT_WRITEABLE in flags
        self.queue_writeable = not flags & _STOPS_QUEUES

    def __str__(self) -> str:
        return self._flags.name or "none"
