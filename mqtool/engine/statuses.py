"""RunningFlags: why a store currently does not accept messages; and results of puts and gets.

The names of the statuses are the broker's own. Sources: RunningFlags, PutMessageStatus, AppendMessageStatus,
GetMessageStatus, PutMessageResult (4.9.7, 5.5.0).
"""

import errno
from enum import Enum, IntFlag
from typing import NamedTuple

from mqtool.formats import hosts
from mqtool.store.queues.get_message import Found

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


class PutStatus(Enum):
    """Status of a put. `PUT_OK` and the flush timeout mean that the message is in the log."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    PUT_TO_REMOTE_BROKER_FAIL = "PUT_TO_REMOTE_BROKER_FAIL"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"
    WHEEL_TIMER_FLOW_CONTROL = "WHEEL_TIMER_FLOW_CONTROL"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"


class AppendStatus(Enum):
    """Status of an append to the CommitLog."""

    PUT_OK = "PUT_OK"
    END_OF_FILE = "END_OF_FILE"
    MESSAGE_SIZE_EXCEEDED = "MESSAGE_SIZE_EXCEEDED"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    ROCKSDB_ERROR = "ROCKSDB_ERROR"


class PutResult(NamedTuple):
    """Result of a put, and where the message is."""

    status: PutStatus  # the answer to the sender
    append_status: AppendStatus | None = None  # of the append, None if nothing was appended
    # Of the (first) record, or of the BLANK in place of one that fits no segment; -1 without either.
    physical_offset: int = -1
    size: int = 0  # bytes written, those of all records of a batch
    queue_offset: int = 0  # of the (first) message; 0 for prepared and rolled-back ones
    store_timestamp: int = 0  # the record's, ms since epoch
    store_host: bytes = b""  # the record's, 8 or 20 bytes
    physical_offsets: tuple[int, ...] = ()  # of every record of a batch; () for a single message

    @property
    def ok(self) -> bool:
        """Whether the message is in the log, judged by the append status as in PutMessageResult.isOk."""
        return self.append_status is AppendStatus.PUT_OK

    @property
    def end(self) -> int:
        """Physical offset after the last byte written."""
        return self.physical_offset + self.size

    @property
    def offset_message_id(self) -> str:
        """The offset message id; for a batch the ids in order, joined by commas; "" if nothing was stored."""
        if not self.ok:
            return ""
        offsets = self.physical_offsets or (self.physical_offset,)
        return ",".join(hosts.format_offset_id(self.store_host, offset) for offset in offsets)


class AppendFailedError(Exception):
    """An append failed; carries the result for the caller and never leaves the engine."""

    def __init__(self, result: PutResult) -> None:
        super().__init__(result.status.name)
        self.result = result


GetResult = Found[memoryview]
"""Result of a get; the records are uncopied views that stay valid."""


class QueryResult(NamedTuple):
    """Result of a query by key."""

    records: list[memoryview]  # the bytes of each record found; as in the broker, only hashes of keys were compared
    physical_offsets: list[int]  # of each record
    # index_last_update_timestamp, index_last_update_physical_offset: end of the newest IndexFile; 0 without one.
    index_last_update_timestamp: int
    index_last_update_physical_offset: int
