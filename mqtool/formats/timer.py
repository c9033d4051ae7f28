"""Timer messages of 5.x: the wheel's slot, the log's unit and end mark, the timer checkpoint.

Docs page: docs/formats/timer.md. Source: Slot, TimerWheel, TimerLog, TimerMessageStore,
TimerCheckpoint (5.5.0).
"""

from enum import IntFlag
from typing import TYPE_CHECKING, overload

from msgspec import Struct

from mqtool.formats import java
from mqtool.formats.codec import Buffer, Unit, i32, i64
from mqtool.formats.commit_log import MAGIC_BLANK

if TYPE_CHECKING:
    import numpy as np

USED_SLOTS = 7 * 86_400 - 60
"""Slots before and after the current one that a broker uses (slotsTotal - TIMER_BLANK_SLOTS in TimerMessageStore)."""

WHEEL_SLOTS = 7 * 86_400 * 2
"""Slots of a wheel, whatever its precision."""

DEFAULT_PRECISION_MS = 1000
PRECISIONS_MS = (1000, 500, 200, 100)
"""What timerPrecisionMs can be: the broker rounds other values down to one of these."""

DEFAULT_ROLL_WINDOW = 2 * 86_400
"""Default of timerRollWindowSlot: a message that is due later is put into an earlier slot and rolled from there."""

DEFAULT_LOG_FILE_SIZE = 100 * 1024 * 1024
CHECKPOINT_FILE_SIZE = 4096
NO_POSITION = -1


def precision_ms(configured: int) -> int:
    """Returns the effective precision for a configured timerPrecisionMs (MessageStoreConfig.setTimerPrecisionMs)."""
    return next((precision for precision in PRECISIONS_MS if precision <= configured), PRECISIONS_MS[-1])


class TimerMagic(IntFlag):
    """Bits of a log unit's magic."""

    DEFAULT = 0x1
    ROLL = 0x2
    DELETE = 0x4


class TimerSlot(Struct, frozen=True):
    """One slot of the wheel; valid only while its time equals the requested time."""

    time: int
    first_position: int
    last_position: int
    count: int
    magic: int

    def after(self, position: int, unit_magic: int) -> "TimerSlot":
        """Returns the slot after a unit was added to its chain (TimerWheel.putSlot, TimerMessageStore.doEnqueue).

        The magic is that of the unit: one that deletes counts -1.
        """
        first = position if self.first_position == NO_POSITION else self.first_position
        count = java.to_int32(self.count + (-1 if unit_magic & TimerMagic.DELETE else 1))
        return TimerSlot(self.time, first, position, count, self.magic)


class TimerLogUnit(Struct, frozen=True):
    """One unit of the timer log."""

    size: int
    previous_position: int
    magic: int
    write_time: int
    delay: int
    physical_offset: int
    record_size: int
    topic_hash: int
    reserved: int

    @property
    def deliver_time(self) -> int:
        """When the message leaves its slot, ms."""
        return java.to_int64(self.write_time + self.delay)


class TimerLogEnd(Struct, frozen=True):
    """Ends a file of the timer log; the rest of the file is unspecified."""

    remaining: int
    zero: int
    magic: int


class TimerCheckpoint(Struct, frozen=True):
    """Positions up to which the timer has read, enqueued and flushed."""

    last_read_time_ms: int = 0
    last_timer_log_flush_position: int = 0
    last_timer_queue_offset: int = 0
    master_timer_queue_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0


SLOT = Unit(
    "timer wheel slot",
    TimerSlot,
    i64("time", "deliver time / precision"),
    i64("first_position", "timer log position of the oldest unit, -1 for none"),
    i64("last_position", "timer log position of the newest unit, -1 for none"),
    i32("count", "units in the slot, without deleted ones"),
    i32("magic", "kept as it is, normally 0"),
)

LOG_UNIT = Unit(
    "timer log unit",
    TimerLogUnit,
    i32("size", "52"),
    i64("previous_position", "timer log position of the same slot's previous unit, -1 for none"),
    i32("magic", "1 default, 2 roll (not yet within the wheel), 4 delete (TimerMagic)"),
    i64("write_time", "ms since epoch, aligned to a slot"),
    i32("delay", "deliver time - write time, ms"),
    i64("physical_offset", "the parked record's address in the CommitLog"),
    i32("record_size", "the parked record's bytes"),
    i32("topic_hash", "Java hash of the real topic, 0 for none"),
    i64("reserved", "0"),
)

LOG_END = Unit(
    "timer log end",
    TimerLogEnd,
    i32("remaining", "bytes from here to the end of the file, these 16 included"),
    i64("zero", "0"),
    i32("magic", "0xCBD43194, the BLANK's"),
)

CHECKPOINT = Unit(
    "timer checkpoint",
    TimerCheckpoint,
    i64("last_read_time_ms", "slots before this time have been delivered"),
    i64("last_timer_log_flush_position", "position up to which the timer log is flushed"),
    i64("last_timer_queue_offset", "queue offset in rmq_sys_wheel_timer up to which messages are in the wheel"),
    i64("master_timer_queue_offset", "the master's last_timer_queue_offset, for slaves"),
    i64("state_version", "data version: the controller's state machine"),
    i64("timestamp", "data version: ms since epoch"),
    i64("counter", "data version: how often it changed"),
)

SLOT_SIZE = SLOT.size
LOG_UNIT_SIZE = LOG_UNIT.size
LOG_END_SIZE = LOG_END.size
WHEEL_FILE_SIZE = WHEEL_SLOTS * SLOT_SIZE


def slot_index(time_ms: int, precision_ms: int = DEFAULT_PRECISION_MS) -> int:
    """Returns the slot of a deliver time (TimerWheel.getSlotIndex)."""
    return time_ms // precision_ms % WHEEL_SLOTS


def slot_at(stored: TimerSlot | None, time: int) -> TimerSlot:
    """Returns the slot of a time: the stored one, or an empty one if that belongs to another time (TimerWheel.getSlot).

    `stored` is None if nothing is known to be at its place in the wheel; `time` is deliver time / precision.
    """
    return stored if stored is not None and stored.time == time else TimerSlot(time, NO_POSITION, NO_POSITION, 0, 0)


def used_slots(slots: "np.ndarray") -> "np.ndarray":
    """Returns a bool per slot of `SLOT.dtype`: it leads to a unit."""
    return (slots["time"] > 0) & (slots["last_position"] >= 0)


def unread_slots(slots: "np.ndarray", read_to: int, precision_ms: int) -> "np.ndarray":
    """Returns a bool per slot of `SLOT.dtype`: it leads to a unit that has not been delivered.

    `read_to` is last_read_time_ms of the checkpoint: the broker reads the slot of this time next.
    """
    return used_slots(slots) & (slots["time"] >= -(-read_to // precision_ms))


def first_slot_after_start(now: int, precision_ms: int) -> int:
    """Returns the time of the oldest slot that a broker started at a time reads, both in ms; it skips those before.

    Source: TimerMessageStore.recover (5.3.3, 5.4.0, 5.5.0, 5.5.1).
    """
    return now - now % precision_ms - USED_SLOTS * precision_ms


def time_in_wheel(due: int, write_time: int, window: int, precision_ms: int) -> tuple[int, bool]:
    """Returns the time of the slot that a message enters, in ms, and whether it is rolled when it leaves that slot.

    A message that is due after the window, which is timerRollWindowSlot slots, enters an earlier slot
    (TimerMessageStore.doEnqueue). `write_time` is the current time rounded to slots; all times are in ms.
    """
    excess = due - write_time - window * precision_ms
    if excess < 0:
        return due, False
    slots = window // 2 if excess < window // 3 * precision_ms else window
    return write_time + slots * precision_ms, True


def log_end_at(position: int, file_size: int) -> TimerLogEnd | None:
    """Returns the end mark due at a timer log position; None if the file has room for a unit and a mark.

    Source: TimerLog.append.
    """
    left = file_size - position % file_size
    return None if left >= LOG_UNIT_SIZE + LOG_END_SIZE else TimerLogEnd(left, 0, MAGIC_BLANK)


def is_log_end(data: Buffer, position: int) -> bool:
    """Whether the end mark of a timer log file is at a position."""
    if position + LOG_END_SIZE > len(data):
        return False
    end = LOG_END.parse(data, position)
    return end.magic == MAGIC_BLANK and end.zero == 0 and end.remaining >= LOG_END_SIZE


@overload
def is_magic_valid(magic: int) -> bool: ...


@overload
def is_magic_valid(magic: "np.ndarray") -> "np.ndarray": ...


def is_magic_valid(magic: "int | np.ndarray") -> "bool | np.ndarray":
    """Returns whether the broker accepts the magic of a log unit, or of each (TimerMessageStore.isMagicOK)."""
    return magic | 0xF == 0xF


def unit_at(data: Buffer, position: int = 0) -> TimerLogUnit | None:
    """Returns the unit at a position; None if the broker accepts none there (TimerMessageStore.recoverAndRevise)."""
    if position + LOG_UNIT_SIZE > len(data):
        return None
    unit = LOG_UNIT.parse(data, position)
    return unit if unit.size == LOG_UNIT_SIZE and is_magic_valid(unit.magic) else None


def is_unused(data: Buffer, position: int = 0) -> bool:
    """Whether the units of a file end at a position without damage: by an end mark, by zeros, or with the data."""
    return is_log_end(data, position) or not any(data[position : position + LOG_UNIT_SIZE])


def is_recall(magic: int) -> bool:
    """Whether the message of a unit recalls others in its slot; one that is rolled from there does not yet.

    Source: TimerMessageStore.dequeue.
    """
    return bool(magic & TimerMagic.DELETE) and not magic & TimerMagic.ROLL


def log_rows(data: Buffer) -> "tuple[np.ndarray, np.ndarray]":
    """Returns the places for units in a file, of `LOG_UNIT.dtype`, and a bool for each: `unit_at` finds one there."""
    rows = LOG_UNIT.rows(data)
    return rows, (rows["size"] == LOG_UNIT_SIZE) & is_magic_valid(rows["magic"])


def last_unit_position(file_size: int) -> int:
    """Returns where the last unit of a full timer log file starts (TimerLog.getOffsetForLastUnit)."""
    return file_size - (file_size - LOG_END_SIZE) % LOG_UNIT_SIZE - LOG_END_SIZE - LOG_UNIT_SIZE


def parse_checkpoint(data: Buffer) -> TimerCheckpoint:
    """Parses config/timercheck; fields missing from a short file are 0, as in `checkpoint.parse`."""
    return CHECKPOINT.parse_start(data)


def build_checkpoint(checkpoint: TimerCheckpoint) -> bytes:
    """Returns the 4096 bytes of config/timercheck."""
    return CHECKPOINT.build(checkpoint).ljust(CHECKPOINT_FILE_SIZE, b"\x00")
