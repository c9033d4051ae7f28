"""Timer wheel, timer log and timer checkpoint, against each other and the CommitLog.

Source: TimerWheel, TimerLog, TimerMessageStore (5.5.0).
"""

from pathlib import Path

import numpy as np

from mqtool.errors import StoreError
from mqtool.formats import commit_log, file_names, timer
from mqtool.store.files import MappedFile, ReadFile, list_mapped_files, read_file
from mqtool.verify.consume_queue import QueueFacts
from mqtool.verify.notebook import Notebook
from mqtool.verify.survey import Survey

TOPIC = "rmq_sys_wheel_timer"
_HEAD_SIZE = commit_log.field_offset("physical_offset") + 8
_TOTAL, _PHYSICAL = commit_log.field_offset("total_size"), commit_log.field_offset("physical_offset")


class TimerCheck:
    """Looks at a store's timer."""

    def __init__(self, survey: Survey, queue: QueueFacts | None, book: Notebook) -> None:
        """Takes the queue of parked messages, None if there is none."""
        self._survey = survey
        self._queue = queue
        self._book = book
        listed = list_mapped_files(survey.root / file_names.TIMER_LOG)
        self._files = listed.files
        self._positions = np.empty(0, np.int64)

    @property
    def is_there(self) -> bool:
        """Whether the store has a timer."""
        return bool(self._files) or (self._survey.root / file_names.TIMER_WHEEL).exists()

    def run(self) -> str:
        """Looks at all parts; returns in words what was looked at."""
        size = max((file.size for file in self._files), default=0)
        positions = []
        for number, file in enumerate(self._files):
            if file.size != size:
                self._book.add("timer-log-size", file.path, f"expected {size} bytes, found {file.size}")
            if number and self._files[number - 1].end < file.base:
                self._book.add("timer-log-gap", file.path, f"the file before ends at {self._files[number - 1].end}")
            positions.append(self._units(file))
        self._positions = np.concatenate(positions) if positions else np.empty(0, np.int64)
        checkpoint = self._checkpoint()
        slots = self._wheel(checkpoint)
        return f"{len(self._positions)} timer log unit(s), {slots} slot(s) that wait"

    def _units(self, file: MappedFile) -> np.ndarray:
        """Checks the units of one file; returns their positions."""
        with ReadFile(file.path) as opened:
            data = opened.read(0, min(opened.data_end(), file.size))
        found = []
        at = 0
        while at + timer.LOG_UNIT_SIZE <= len(data) and not timer.is_log_end(data, at):
            unit = timer.LOG_UNIT.parse(data, at)
            if unit.size == 0 and not any(data[at : at + timer.LOG_UNIT_SIZE]):
                break
            if unit.size != timer.LOG_UNIT_SIZE or not timer.is_magic_valid(unit.magic):
                if not self._survey.live:
                    self._book.add("timer-bad-unit", file.path, f"size {unit.size}, magic {unit.magic:#x}", position=at)
                break
            position = file.base + at
            previous = unit.previous_position
            if previous != timer.NO_POSITION and not self._is_before(previous, position):
                words = f"position {position} names {previous} as the one before it"
                self._book.add("timer-bad-chain", file.path, words, position=at)
            self._record(file, at, unit)
            found.append(position)
            at += timer.LOG_UNIT_SIZE
        return np.array(found, np.int64)

    def _is_before(self, previous: int, position: int) -> bool:
        """Whether a position can be that of an earlier unit; files that expired are not looked for."""
        if not 0 <= previous < position:
            return False
        file = next((file for file in self._files if file.base <= previous < file.end), None)
        return file is None or (previous - file.base) % timer.LOG_UNIT_SIZE == 0

    def _record(self, file: MappedFile, at: int, unit: timer.TimerLogUnit) -> None:
        survey, physical = self._survey, unit.physical_offset
        if physical < survey.min_offset or survey.has_dledger or (survey.live and physical >= survey.end):
            return
        head = self._head(physical)
        if len(head) == _HEAD_SIZE:
            total = int.from_bytes(head[_TOTAL : _TOTAL + 4], "big", signed=True)
            stated = int.from_bytes(head[_PHYSICAL : _PHYSICAL + 8], "big", signed=True)
            if total == unit.record_size and stated == physical:
                return
        words = f"no record of {unit.record_size} bytes at physical offset {physical}"
        span = (physical, physical + max(1, unit.record_size))
        self._book.add("timer-dangling-unit", file.path, words, position=at, span=span)

    def _head(self, physical: int) -> bytes:
        segment = next((s for s in self._survey.segments if s.base <= physical < s.end), None)
        if segment is None:
            return b""
        with ReadFile(segment.path) as opened:
            return opened.read(physical - segment.base, _HEAD_SIZE)

    def _checkpoint(self) -> timer.TimerCheckpoint:
        path = self._survey.root / file_names.CONFIG / file_names.TIMER_CHECKPOINT
        try:
            found = timer.parse_checkpoint(read_file(path))
        except StoreError:
            return timer.TimerCheckpoint()
        end = max((file.end for file in self._files), default=0)
        if found.last_timer_log_flush_position > end:
            words = f"lastTimerLogFlushPos {found.last_timer_log_flush_position}, the timer log ends at {end}"
            self._ahead(path, words)
        if self._queue is not None and found.last_timer_queue_offset > self._queue.max_offset and not self._survey.live:
            self._ahead(
                path,
                f"lastTimerQueueOffset {found.last_timer_queue_offset}, queue {TOPIC} ends at {self._queue.max_offset}",
            )
        return found

    def _ahead(self, path: Path, words: str) -> None:
        self._book.add("timer-checkpoint-ahead", path, words)

    def _wheel(self, checkpoint: timer.TimerCheckpoint) -> int:
        """Checks the slots that have not been delivered; returns how many there are."""
        path = self._survey.root / file_names.TIMER_WHEEL
        if not path.is_file():
            return 0
        with ReadFile(path) as file:
            if file.size != timer.WHEEL_FILE_SIZE:
                words = f"expected {timer.WHEEL_FILE_SIZE} bytes, found {file.size}"
                self._book.add("timer-wheel-size", path, words)
                return 0
            data = file.read(0, file.size)
        slots = np.frombuffer(data, timer.SLOT.dtype)
        times = slots["time"].astype(np.int64)
        waiting = np.flatnonzero(
            (times > 0)
            & (times * timer.DEFAULT_PRECISION_MS > checkpoint.last_read_time_ms)
            & (slots["last_position"] >= 0)
        )
        positions = set(self._positions.tolist())
        for row in waiting.tolist() if not self._survey.live else ():
            first, last = int(slots["first_position"][row]), int(slots["last_position"][row])
            for position in {first, last} - positions:
                if self._kept(position):
                    words = f"slot of {times[row] * timer.DEFAULT_PRECISION_MS} ms leads to position {position}"
                    self._book.add("timer-bad-slot", path, words, position=row * timer.SLOT_SIZE)
        return len(waiting)

    def _kept(self, position: int) -> bool:
        """Whether the timer log should have a position: expired files are gone."""
        return not self._files or position >= self._files[0].base
