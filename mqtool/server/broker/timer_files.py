"""The timer's files (wheel, log, checkpoint) in the real broker's format, so that either broker can continue them.

The wheel has a slot for each second. A slot points to the newest of its units in the log, and each unit to the previous
one. Files are written through the page cache, the log before the wheel: after a kill they are consistent, or the next
start makes them consistent. Source: TimerWheel, TimerLog, TimerCheckpoint, TimerMessageStore.recoverAndRevise (5.5.0).
"""

import os
from pathlib import Path

from mqtool.engine.disk.files import open_more
from mqtool.errors import LayoutError
from mqtool.formats import file_names, timer
from mqtool.formats.timer import NO_POSITION, TimerCheckpoint, TimerLogUnit, TimerSlot
from mqtool.store.files import read_file


class TimerFiles:
    """Wheel, log and checkpoint of one store, open for writing; `end` is the log position after the last unit."""

    def __init__(self, root: Path, precision_ms: int, file_size: int) -> None:
        """Opens the files, creates missing ones, and makes wheel and log consistent.

        Raises LayoutError if an existing file has another size: no broker starts on it, and it is not changed. Raises
        OSError if a file cannot be written.
        """
        self._precision = precision_ms
        self._size = file_size
        self._directory = root / file_names.TIMER_LOG
        self._check_path = root / file_names.CONFIG / file_names.TIMER_CHECKPOINT
        self._logs: dict[int, int] = {}
        self._units: list[bytes] = []
        self._slots: dict[int, TimerSlot] = {}
        self._directory.mkdir(parents=True, exist_ok=True)
        for base in self._bases():
            _check_size(self._path(base), file_size, "mappedFileSizeTimerLog")
        wheel = root / file_names.TIMER_WHEEL
        _check_size(wheel, timer.WHEEL_FILE_SIZE)
        self._wheel = open_more(wheel, os.O_RDWR | os.O_CREAT)
        os.ftruncate(self._wheel, timer.WHEEL_FILE_SIZE)
        data = read_file(self._check_path) if self._check_path.is_file() else b""
        self.checkpoint = timer.parse_checkpoint(data)
        self.end = self._recover()

    def close(self) -> None:
        """Flushes the files to disk and closes them."""
        self.write()
        for descriptor in (self._wheel, *self._logs.values()):
            os.fsync(descriptor)
            os.close(descriptor)
        self._logs.clear()

    def slot(self, time_ms: int) -> TimerSlot:
        """Returns the slot of a time; an empty slot if the wheel's slot is still used for another time."""
        index = timer.slot_index(time_ms, self._precision)
        slot = self._slots.get(index)
        if slot is None:
            slot = timer.SLOT.parse(os.pread(self._wheel, timer.SLOT_SIZE, index * timer.SLOT_SIZE))
        return timer.slot_at(slot, time_ms // self._precision)

    def _put_slot(self, time_ms: int, slot: TimerSlot) -> None:
        self._slots[timer.slot_index(time_ms, self._precision)] = slot

    def write(self) -> None:
        """Writes added units to the log, then the slots that point to them to the wheel."""
        if self._units:
            data = b"".join(self._units)
            start = self.end - len(data)
            os.pwrite(self._log(start), data, start % self._size)
            self._units.clear()
        for index, slot in self._slots.items():
            os.pwrite(self._wheel, timer.SLOT.build(slot), index * timer.SLOT_SIZE)
        self._slots.clear()

    def add(self, time_ms: int, write_ms: int, magic: int, physical_offset: int, size: int, topic_hash: int) -> None:
        """Adds a message to the slot of its delivery time; it survives a kill of the process after `write`.

        `write_ms` is the current time, rounded to slots, `magic` a `TimerMagic`, `topic_hash` the Java hash of the
        destination topic.
        """
        slot = self.slot(time_ms)
        position = self._append(
            TimerLogUnit(
                timer.LOG_UNIT_SIZE,
                slot.last_position,
                magic,
                write_ms,
                time_ms - write_ms,
                physical_offset,
                size,
                topic_hash,
                0,
            )
        )
        self._put_slot(time_ms, slot.after(position, magic))

    def units(self, time_ms: int) -> list[TimerLogUnit]:
        """Returns the units in the slot of a time, in the order in which they were added."""
        self.write()
        position, units = self.slot(time_ms).last_position, []
        while position != NO_POSITION:
            unit = self._unit(position)
            if unit is None or unit.previous_position >= position:
                break
            units.append(unit)
            position = unit.previous_position
        return units[::-1]

    def are_unused(self, time_ms: int, end_ms: int) -> bool:
        """Whether a range of more than one slot has never been used; False if it is unknown."""
        count, index = (end_ms - time_ms) // self._precision, timer.slot_index(time_ms, self._precision)
        if count <= 1 or self._slots:
            return False
        data = os.pread(self._wheel, count * timer.SLOT_SIZE, index * timer.SLOT_SIZE)
        return data.count(0) == count * timer.SLOT_SIZE

    def _append(self, unit: TimerLogUnit) -> int:
        end = timer.log_end_at(self.end, self._size)
        if end is not None:
            self.write()
            os.pwrite(self._log(self.end), timer.LOG_END.build(end), self.end % self._size)
            self.end += end.remaining
        position = self.end
        self._units.append(timer.LOG_UNIT.build(unit))
        self.end += timer.LOG_UNIT_SIZE
        return position

    def _log(self, position: int) -> int:
        """Returns the descriptor of the log file that contains a position; creates the file if it does not exist."""
        base = position - position % self._size
        descriptor = self._logs.get(base)
        if descriptor is None:
            descriptor = self._logs[base] = open_more(self._path(base), os.O_RDWR | os.O_CREAT)
            if os.fstat(descriptor).st_size < self._size:
                os.ftruncate(descriptor, self._size)
        return descriptor

    def _path(self, base: int) -> Path:
        return self._directory / file_names.mapped_file_name(base)

    def _unit(self, position: int) -> TimerLogUnit | None:
        if position < 0:  # a damaged slot or unit may state any position
            return None
        base = position - position % self._size
        if base not in self._logs and not self._path(base).is_file():
            return None
        return timer.unit_at(os.pread(self._log(position), timer.LOG_UNIT_SIZE, position % self._size))

    def _recover(self) -> int:
        """Adds units that the wheel may miss, from one file before the last flush on; returns the log's end."""
        bases = self._bases()
        if not bases:
            return 0
        flushed = min(self.checkpoint.last_timer_log_flush_position, bases[-1] + self._size)
        start = max(bases[0], flushed - flushed % self._size - self._size)
        position = start
        while True:
            unit = self._unit(position)
            if unit is None:
                following = position - position % self._size + self._size
                if self._is_end(position) and following in bases:
                    position = following
                    continue
                return position
            slot = self.slot(unit.deliver_time)
            if slot.last_position < position:
                self._put_slot(unit.deliver_time, slot.after(position, unit.magic))
                self.write()
            position += timer.LOG_UNIT_SIZE

    def _bases(self) -> list[int]:
        """Returns the start positions of the log's files, ascending; files with other names are ignored."""
        bases = (file_names.parse_mapped_file_name(path.name) for path in self._directory.iterdir())
        return sorted(base for base in bases if base is not None and base % self._size == 0)

    def _is_end(self, position: int) -> bool:
        return timer.is_log_end(os.pread(self._log(position), timer.LOG_END_SIZE, position % self._size), 0)

    def last_unit(self) -> TimerLogUnit | None:
        """Returns the last unit of the log; None if the log is empty."""
        self.write()
        position = self.end - timer.LOG_UNIT_SIZE
        if self.end % self._size == 0 and self.end:
            position = self.end - self._size + timer.last_unit_position(self._size)
        return self._unit(position) if position >= 0 else None

    def checkpoint_at(self, read_ms: int, queue_offset: int) -> TimerCheckpoint:
        """Returns a checkpoint: slots before `read_ms` are delivered, and messages before `queue_offset` enqueued."""
        last = self.checkpoint
        return TimerCheckpoint(
            read_ms, self.end, queue_offset, queue_offset, last.state_version, read_ms, last.counter + 1
        )

    def save(self, read_ms: int, queue_offset: int) -> None:
        """Writes the checkpoint; the arguments are those of `checkpoint_at`."""
        self.write()
        self.checkpoint = self.checkpoint_at(read_ms, queue_offset)
        self._check_path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = open_more(self._check_path, os.O_WRONLY | os.O_CREAT)
        try:
            os.pwrite(descriptor, timer.build_checkpoint(self.checkpoint), 0)
        finally:
            os.close(descriptor)

    def expire(self, min_physical_offset: int) -> None:
        """Deletes the oldest files of the timer log as long as the record of a file's last unit has been deleted."""
        for base in self._bases()[:-1]:
            unit = self._unit(base + timer.last_unit_position(self._size))
            if unit is None or unit.physical_offset >= min_physical_offset:
                break
            os.close(self._logs.pop(base))  # reading the unit opened it
            self._path(base).unlink()


def _check_size(path: Path, expected: int, key: str = "") -> None:
    """Raises LayoutError if a file exists and has another size; an empty one was created just before a kill."""
    size = path.stat().st_size if path.is_file() else 0
    if size not in (0, expected):
        where = f" ({key})" if key else ""
        raise LayoutError(f"expected {expected} bytes{where}, found {size}; a broker refuses to start with it", path)
