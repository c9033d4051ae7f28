"""Rebuilds timer log, timer wheel and timer checkpoint from the topic of parked messages.

The broker reads `rmq_sys_wheel_timer` sequentially and gives each message that is not due yet a unit in the timer
log and a place in the wheel. All of this follows from the messages, except the second in which the broker did it:
the unit's write time. For a message that has been dequeued since, the delivered record contains it
(TIMER_ENQUEUE_MS). For a message that still waits, the second in which it was stored is used. Deliver times, order
and chains do not depend on the write time, except that a message near the end of the wheel's window might have been
rolled.
Source: TimerMessageStore.doEnqueue, convertMessage, recover; TimerLog.append; TimerWheel.putSlot (5.5.0).
"""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.errors import FormatError
from mqtool.formats import commit_log, file_names, java, properties, service_records, timer, topics
from mqtool.formats.commit_log import Record, SysFlag
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.rebuild.files import FileSequence, OutputFiles
from mqtool.rebuild.placement import Listing
from mqtool.records.damage import Damage
from mqtool.records.frames import Frames
from mqtool.store.store import Store
from mqtool.store.waiting.timer import log_file_size, roll_window, saved_checkpoint

TOPIC = topics.TIMER_TOPIC.encode()
_ENQUEUED = properties.TIMER_ENQUEUE_MS.encode()


class Parked(Struct, frozen=True):
    """A message in the timer topic: position of its record, deliver time, identity, and the name that it recalls."""

    queue_offset: int
    physical_offset: int
    size: int
    stored: int
    due: int
    key: str
    rolls: int
    recalls: str | None
    topic: str | None


class Placed(Struct, frozen=True):
    """A message and its slot, which it leaves at `due`, in ms; `done` if it has left the slot or must not enter it."""

    message: Parked
    write_time: int
    due: int
    magic: int
    done: bool


class TimerResult(Struct):
    """What was rebuilt."""

    parked: int = 0  # messages in the topic
    units: int = 0  # in the timer log
    passed: int = 0  # messages that were already due when the broker read them; they get no unit
    guessed: int = 0  # units whose write time no record contains
    waiting: int = 0  # messages in slots that have not been delivered
    last_read_time_ms: int = 0  # slots before this time have been delivered
    read_time_from: str = ""  # the source of `last_read_time_ms`
    # Messages that should have been delivered earlier but have no delivered record, because the log was cut after them
    # or damaged. The read time is moved back to deliver them, but not past a delivered message.
    missed: int = 0
    damage: Listing[Damage] = field(default_factory=Listing)  # ranges of the log without a record
    problems: Listing[str] = field(default_factory=Listing)  # messages that no broker could park, as sentences
    files: list[str] = field(default_factory=list)  # paths below the output directory


def rebuild_timer(store: Store, out: Path, on_progress: OnProgress = ignore) -> TimerResult:
    """Writes `timerwheel`, `timerlog/` and `config/timercheck` below a new or empty directory.

    The store is opened with its configuration (timerPrecisionMs, timerRollWindowSlot, mappedFileSizeTimerLog).
    """
    return _Rebuild(store, on_progress).run(out)


class _Rebuild:
    def __init__(self, store: Store, on_progress: OnProgress) -> None:
        config = store.config
        self._store = store
        self._on_progress = on_progress
        self._precision = config.timer_precision
        self._window = roll_window(config)
        self._file_size = log_file_size(store.path, config)
        self._parked: dict[int, Parked] = {}
        self._enqueued: dict[tuple[str, int], int] = {}
        self._slots: dict[int, timer.TimerSlot] = {}
        self._found = TimerResult()

    def run(self, out: Path) -> TimerResult:
        """Reads the log, then writes the files."""
        result, log = self._found, self._store.commit_log
        for item in log.walk():
            if isinstance(item, Damage):
                result.damage.add(item)
            else:
                self._read(item)
                done = item.base + int(item.positions[-1]) - log.min_offset
                self._on_progress(done, log.bytes_in_use)
        ordered = [self._parked[number] for number in sorted(self._parked)]
        result.parked = len(ordered)
        old = saved_checkpoint(self._store.path)
        placed = self._without_recalled([self._place(message, time) for message, time in self._timed(ordered)])
        placed = self._settle(placed, old)
        with OutputFiles(out) as output:
            end = self._write_log(output, placed)
            self._write_wheel(output)
            following = ordered[-1].queue_offset + 1 if ordered else 0
            checkpoint = timer.TimerCheckpoint(
                result.last_read_time_ms, end, following, following, old.state_version, old.timestamp, old.counter
            )
            name = f"{file_names.CONFIG}/{file_names.TIMER_CHECKPOINT}"
            output.write(name, timer.CHECKPOINT_FILE_SIZE, 0, timer.build_checkpoint(checkpoint))
        result.files.append(name)
        result.waiting = sum(slot.count for slot in self._slots.values() if self._is_open(slot, checkpoint))
        return result

    def _is_open(self, slot: timer.TimerSlot, checkpoint: timer.TimerCheckpoint) -> bool:
        return slot.time * self._precision >= checkpoint.last_read_time_ms

    def _read(self, frames: Frames) -> None:
        """Collects parked messages, and from delivered ones the times at which they were enqueued."""
        for row in sorted({*frames.rows_of(TOPIC), *frames.rows_with(_ENQUEUED)}):
            record = commit_log.parse_record(frames.view, int(frames.positions[row]))
            try:
                self._take(record, properties.decode(record.properties))
            except FormatError as error:
                self._found.problems.add(f"record at {record.physical_offset}: {error}")

    def _take(self, record: Record, named: dict[str, str]) -> None:
        is_parked = record.topic == TOPIC
        key = named.get(properties.UNIQUE_KEY, "")
        rolls = java.parse_long(named.get(properties.TIMER_ROLL_TIMES, "0"))
        if properties.TIMER_ENQUEUE_MS in named and properties.TIMER_OUT_MS in named and key:
            # a rolled message has a roll count one higher than that of the unit it came from
            before = rolls - 1 if is_parked else rolls
            self._enqueued[key, before] = java.parse_long(named[properties.TIMER_ENQUEUE_MS])
        if is_parked and record.queue_id == 0 and not record.sys_flag & SysFlag.TRANSACTION_PREPARED:
            due = java.parse_long(named.get(properties.TIMER_OUT_MS, ""))
            if due < 0:
                raise FormatError(f"{properties.TIMER_OUT_MS} is {due}", layout="timer message")
            self._parked[record.queue_offset] = Parked(
                record.queue_offset,
                record.physical_offset,
                record.total_size,
                record.store_timestamp,
                due,
                key,
                rolls,
                named.get(properties.TIMER_DEL_UNIQUE_KEY),
                named.get(properties.REAL_TOPIC),
            )

    def _write_log(self, output: OutputFiles, placed: list[Placed]) -> int:
        """Writes the units; returns the position after the last one."""
        log = FileSequence(output, file_names.TIMER_LOG, self._file_size)
        for entry in placed:
            end = timer.log_end_at(log.end, self._file_size)
            if end is not None:
                following = log.end + end.remaining
                log.append(timer.LOG_END.build(end)[: end.remaining])
                log.skip_to(following)
            log.append(timer.LOG_UNIT.build(self._unit(entry, log.end)))
        log.flush()
        self._found.units = len(placed)
        self._found.files += log.names
        return log.end

    def _timed(self, ordered: list[Parked]) -> Iterator[tuple[Parked, int]]:
        """Yields the messages that get a unit, with its write time."""
        now = 0
        for message in ordered:
            enqueued = self._enqueued.get((message.key, message.rolls)) if message.key else None
            now = enqueued if enqueued is not None else max(now, message.stored // self._precision * self._precision)
            if message.due < now:
                self._found.passed += 1
                continue
            self._found.guessed += enqueued is None
            yield message, now

    def _place(self, message: Parked, write_time: int) -> Placed:
        """Returns the slot of a message: that of its deliver time, or an earlier one from which it is rolled."""
        magic = timer.TimerMagic.DEFAULT
        due, is_rolled = timer.time_in_wheel(message.due, write_time, self._window, self._precision)
        if is_rolled:
            magic |= timer.TimerMagic.ROLL
        if message.recalls is not None:
            magic |= timer.TimerMagic.DELETE
        # delivery of a message without a key cannot be determined: it must not be delivered twice
        left = not message.key or message.recalls is not None or (message.key, message.rolls) in self._enqueued
        return Placed(message, write_time, due, int(magic), left)

    def _without_recalled(self, placed: list[Placed]) -> list[Placed]:
        """Returns the messages, those as done that a request in the same slot recalls."""
        named: dict[int, set[str]] = {}
        for entry in placed:
            if timer.is_recall(entry.magic) and entry.message.recalls is not None:
                named.setdefault(self._slot_time(entry), set()).add(entry.message.recalls)
        return (
            [replace(entry, done=entry.done or self._is_recalled(entry, named)) for entry in placed]
            if named
            else placed
        )

    def _is_recalled(self, placed: Placed, named: dict[int, set[str]]) -> bool:
        message = placed.message
        return service_records.is_recalled(message.topic, message.key, named.get(self._slot_time(placed), ()))

    def _settle(self, placed: list[Placed], old: timer.TimerCheckpoint) -> list[Placed]:
        """Determines the read time; returns the messages that get a unit: all, unless the read time has to move back.

        If it moves back, messages in between that have been delivered get no unit, except the last of all: the
        broker continues reading its queue after the message of the last unit (reviseQueueOffset).
        """
        result = self._found
        if old.last_read_time_ms > 0:
            result.last_read_time_ms, result.read_time_from = old.last_read_time_ms, file_names.TIMER_CHECKPOINT
        else:
            done = [
                self._slot_time(entry) for entry in placed if (entry.message.key, entry.message.rolls) in self._enqueued
            ]
            result.last_read_time_ms = max(done) if done else min(map(self._slot_time, placed), default=0)
            result.read_time_from = "the messages that were dequeued; the slot read last is read again"
        read_to = result.last_read_time_ms
        missed = [time for entry in placed if (time := self._slot_time(entry)) < read_to and not entry.done]
        if not missed:
            return placed
        result.missed, result.last_read_time_ms = len(missed), min(missed)
        result.read_time_from = f"the first of {len(missed)} message(s) that were due and have no record"
        requeued = [
            entry for entry in placed[:-1] if not entry.done or not min(missed) <= self._slot_time(entry) < read_to
        ]
        return [*requeued, placed[-1]]

    def _slot_time(self, placed: Placed) -> int:
        return placed.due // self._precision * self._precision

    def _unit(self, placed: Placed, position: int) -> timer.TimerLogUnit:
        message = placed.message
        index = timer.slot_index(placed.due, self._precision)
        slot = timer.slot_at(self._slots.get(index), placed.due // self._precision)
        self._slots[index] = slot.after(position, placed.magic)
        topic_hash = java.string_hash(message.topic) if message.topic is not None else 0
        return timer.TimerLogUnit(
            timer.LOG_UNIT_SIZE,
            slot.last_position,
            placed.magic,
            placed.write_time,
            placed.due - placed.write_time,
            message.physical_offset,
            message.size,
            topic_hash,
            0,
        )

    def _write_wheel(self, output: OutputFiles) -> None:
        name, size = file_names.TIMER_WHEEL, timer.WHEEL_FILE_SIZE
        output.write(name, size, 0, b"")
        for index, slot in sorted(self._slots.items()):
            output.write(name, size, index * timer.SLOT_SIZE, timer.SLOT.build(slot))
        self._found.files.append(name)
