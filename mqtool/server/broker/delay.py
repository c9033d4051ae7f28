"""Delivers delayed messages: by delay level, and at their delivery time, with a resolution of one second.

Each delay level is a queue of the schedule topic, ordered by time; an offset per level states how far it has been
delivered. A timer message is first stored in the timer topic, then added to the slot of its delivery time in the timer
wheel (`timer_files`), and put into its own topic at that time. A recall handle cancels it before. Source:
ScheduleMessageService (4.9.7, 5.5.0), HookUtils.transformTimerMessage, TimerMessageStore, RecallMessageProcessor,
RecallMessageHandle (5.5.0).
"""

import base64
import binascii
import logging
from functools import lru_cache
from typing import NamedTuple

from mqtool.engine import PutStatus
from mqtool.engine.write.messages import OutgoingMessage
from mqtool.errors import FormatError, StoreError, UnavailableError, UsageError
from mqtool.formats import config_files, file_names, java, properties, service_records
from mqtool.formats.commit_log import is_queued
from mqtool.formats.config_files import DataVersion, DelayOffsets
from mqtool.formats.timer import CHECKPOINT, TimerLogUnit, TimerMagic, is_recall, time_in_wheel
from mqtool.formats.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from mqtool.protocol.command import Command, RequestCode, ResponseCode
from mqtool.server.broker.answers import RefusalError, ok, text
from mqtool.server.broker.broker import Broker, RequestProcessor, handles
from mqtool.server.broker.config import next_version
from mqtool.server.broker.messages import ParsedRecord, parsed_record, requeued
from mqtool.server.broker.timer_files import TimerFiles
from mqtool.server.net.peer import Peer
from mqtool.store.waiting.timer import log_file_size, read_rocksdb_timer, roll_window, saved_checkpoint

_LOG = logging.getLogger(__name__)

_LEVEL_AT_ONCE = 32

_VERSION = "v1"

PERIOD_S = 0.1
_EXPIRY_PERIOD_S = 30
"""Seconds between two checks for expired files of the timer log (TimerMessageStore.start, 5.5.0)."""
_AT_ONCE = 64
_ON_THE_WAY_MS = 1000
_SLOTS_AT_ONCE = 2000
_RECALL_TAG = "_RECALL_TAG_"
_WANTS = (properties.TIMER_DELAY_SEC, properties.TIMER_DELAY_MS, properties.TIMER_DELIVER_MS)
_topic_hash = lru_cache(1024)(java.string_hash)


class Schedule:
    """The service that delivers delayed messages."""

    def __init__(self, broker: Broker) -> None:
        """Loads delayOffset.json; raises ConfigFileError if it cannot be parsed."""
        self._broker = broker
        loaded = broker.persister.configs.load(file_names.DELAY_OFFSETS, config_files.parse_delay_offsets)
        self._loaded = loaded or DelayOffsets({})
        self._offsets = dict(self._loaded.offset_table)
        self._version = self._loaded.data_version
        self._changed = False
        self._levels = broker.messages.options.delays_ms
        broker.persister.register(file_names.DELAY_OFFSETS, self.encoded)

    def encoded(self) -> bytes:
        """Returns the current content of delayOffset.json."""
        version = (
            None if self._broker.release < (5, 0) else self._version or DataVersion(0, self._broker.clock.now(), 0)
        )
        offsets = DelayOffsets(dict(sorted(self._offsets.items())), version, self._loaded.extra)
        return config_files.build_delay_offsets(offsets, self._broker.persister.configs.style)

    def offset_of(self, level: int) -> int:
        """Returns the queue offset of the next message of a level (correctDelayOffset)."""
        lowest, highest = self._broker.messages.queue_bounds(SCHEDULE_TOPIC, level - 1)
        return min(max(self._offsets.get(level, 0), lowest), highest)

    def runtime(self) -> dict[str, object]:
        """Returns the offset and the end of the queue of each level that was used, under the names that tools use."""
        ends = {level: self._broker.messages.queue_bounds(SCHEDULE_TOPIC, level - 1)[1] for level in self._offsets}
        return {f"scheduleMessageOffset_{level}": f"{self._offsets[level]},{end}" for level, end in ends.items()}

    def persist(self) -> None:
        """Schedules writing the offsets if they have changed."""
        if self._changed:
            self._changed = False
            self._version = next_version(self._version, self._broker.release)
            self._broker.persister.mark(file_names.DELAY_OFFSETS)

    def turn(self) -> float:
        """Delivers the due messages of all levels; returns the seconds until the next run."""
        for level, delay in enumerate(self._levels, 1):
            self.deliver(level, delay)
        return PERIOD_S

    def deliver(self, level: int, delay: int) -> int:
        """Delivers the due messages of a level (from 1) with a delay in ms; returns their number."""
        broker, delivered = self._broker, 0
        while True:
            at = self.offset_of(level)
            result = broker.messages.get_message(SCHEDULE_TOPIC, level - 1, at, _LEVEL_AT_ONCE)
            now = self._broker.clock.now()
            for queue_offset, data in zip(result.queue_offsets, result.records, strict=True):
                is_done = True
                with broker.skipped.guard("delay", SCHEDULE_TOPIC, level - 1, queue_offset):
                    is_done = self._deliver_one(parsed_record(data), delay, now)
                if not is_done:
                    self._move(level, queue_offset)
                    return delivered
                delivered += 1
            if not result.records:
                self._move(level, result.next_begin_offset if at < result.max_offset else at)
                return delivered
            self._move(level, result.next_begin_offset)

    def _deliver_one(self, message: ParsedRecord, delay: int, now: int) -> bool:
        """Delivers a message; returns False if it is not due, or the store does not accept messages now.

        Raises FormatError or MessageRejectedError if it has no valid destination, or cannot be stored there.
        """
        broker = self._broker
        due = message.record.store_timestamp + delay
        if now < due <= now + delay:
            return False
        topic, queue_id = service_records.scheduled_destination(message.properties)
        result = broker.writer.deliver(requeued(message, topic, queue_id, message.properties, broker.store_host))
        if result.ok:
            broker.stats.put(topic, queue_id, 1, result.size)
        return result.ok

    def _move(self, level: int, offset: int) -> None:
        if self._offsets.get(level) != offset and (offset or level in self._offsets):
            self._offsets[level] = offset
            self._changed = True


class RecallHandle(NamedTuple):
    """Identifies a timer message to recall."""

    topic: str
    broker_name: str
    time_ms: int
    message_id: str

    @property
    def text(self) -> str:
        """The handle in the form that producers receive."""
        raw = f"{_VERSION} {self.topic} {self.broker_name} {self.time_ms} {self.message_id}"
        return base64.urlsafe_b64encode(java.encode_utf8(raw)).decode()


def parse_handle(handle: str) -> RecallHandle:
    """Parses a handle; raises RefusalError if it is invalid."""
    try:
        version, topic, broker_name, at, message_id = base64.urlsafe_b64decode(handle).decode("utf-8").split(" ")
        if version == _VERSION:
            return RecallHandle(topic, broker_name, java.parse_long(at), message_id)
    except (ValueError, FormatError, binascii.Error):
        pass
    raise RefusalError(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")


class Timer(RequestProcessor):
    """The timer of a broker."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._files: TimerFiles | None = None
        self._config = broker.settings.store_config()
        self._precision = max(1, broker.settings.number("timerPrecisionMs"))
        self._window = roll_window(self._config)
        self._read_ms = 0
        self._queue_offset = 0
        self._slot_done = 0
        self._is_refused = False
        self._is_dirty = False
        self._next_expiry = 0.0

    # -- on the way in -------------------------------------------------------------------------------------------

    def rewrite(self, message: OutgoingMessage) -> OutgoingMessage | PutStatus:
        """Rewrites a message with a delivery time for the timer topic; returns other messages unchanged.

        A 4.9 broker has no timer, so its messages are unchanged. Half messages are unchanged too: their delivery time
        applies when the transaction is committed.
        """
        if self._broker.release < (5, 0) or message.topic == TIMER_TOPIC or not is_queued(message.sys_flag):
            return message
        values = properties.decode(message.properties)
        property_name = next((name for name in _WANTS if name in values), None)
        if property_name is None or properties.TIMER_OUT_MS in values:
            return message
        if values.get(properties.DELAY_LEVEL, "0") not in ("", "0"):
            for name in _WANTS:
                values.pop(name, None)
            return message._replace(properties=properties.encode(values.items()))
        if not self._broker.settings.flag("timerWheelEnable"):
            return PutStatus.WHEEL_TIMER_NOT_ENABLE
        now = self._broker.clock.now()
        try:
            due = _due(property_name, java.parse_long(values[property_name]), now)
        except FormatError:
            return PutStatus.WHEEL_TIMER_MSG_ILLEGAL
        if due <= now:
            return PutStatus.WHEEL_TIMER_MSG_ILLEGAL if properties.TIMER_DEL_UNIQUE_KEY in values else message
        if due - now > self._broker.settings.number("timerMaxDelaySec") * 1000:
            return PutStatus.WHEEL_TIMER_MSG_ILLEGAL
        floor = due - due % self._precision
        values[properties.TIMER_OUT_MS] = str(floor - self._precision if floor == due else floor)
        values[properties.REAL_TOPIC] = message.topic
        values[properties.REAL_QUEUE_ID] = str(message.queue_id)
        return message._replace(topic=TIMER_TOPIC, queue_id=0, properties=properties.encode(values.items()))

    def handle_of(self, message: OutgoingMessage, broker_name: str, key: str) -> str | None:
        """Returns the recall handle of a message that was just stored; None if it is not a timer message."""
        parked = self.rewrite(message)
        if isinstance(parked, PutStatus) or parked.topic != TIMER_TOPIC:
            return None
        try:
            out = service_records.deliver_ms(properties.decode(parked.properties))
        except FormatError:  # a client sent it to the timer topic directly; it stays there
            return None
        return RecallHandle(message.topic, broker_name, out + 1, key).text

    @handles(RequestCode.RECALL_MESSAGE)
    async def recall(self, command: Command, peer: Peer) -> Command:
        """RECALL_MESSAGE: stores a message that cancels another one at its delivery time."""
        broker = self._broker
        if not broker.settings.flag("recallMessageEnable"):
            raise RefusalError(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        broker.check_open()
        if not broker.may_write and not broker.settings.flag("allowRecallWhenBrokerNotWriteable"):
            raise RefusalError(ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available")
        if broker.topics.get(topic := text(command, "topic")) is None:
            raise RefusalError(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist")
        handle = parse_handle(text(command, "recallHandle"))
        if handle.topic != topic:
            raise RefusalError(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != broker.settings.text("brokerName"):
            raise RefusalError(ResponseCode.ILLEGAL_OPERATION, "recall failed, broker service not available")
        left = handle.time_ms - self._broker.clock.now()
        if left <= 0 or left // 1000 >= broker.settings.number("timerMaxDelaySec"):
            raise RefusalError(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        values = {
            properties.TAGS: _RECALL_TAG,
            properties.UNIQUE_KEY: handle.message_id,
            properties.TIMER_DEL_UNIQUE_KEY: service_records.recall_name(
                handle.topic, handle.message_id, with_topic=broker.settings.flag("appendTopicForTimerDeleteKey")
            ),
            properties.TIMER_DELIVER_MS: str(handle.time_ms),
        }
        result = await broker.writer.store(
            OutgoingMessage(
                handle.topic,
                0,
                b"0",
                properties.encode(values.items()),
                born_host=broker.host_of(peer),
                store_host=broker.store_host,
            )
        )
        if not result.ok:
            _LOG.warning("recall not stored topic=%s status=%s", topic, result.status.value)
            raise RefusalError(ResponseCode.SYSTEM_ERROR, "recall failed, execute error")
        fields = {"msgId": handle.message_id, "MSG_REGION": broker.settings.text("regionId")}
        return command.reply(ResponseCode.SUCCESS, None, fields)

    @handles(RequestCode.GET_TIMER_CHECK_POINT)
    def check_point(self, command: Command, _peer: Peer) -> Command:
        """GET_TIMER_CHECK_POINT: returns the timer checkpoint for slaves."""
        self._broker.check_release_5(command)
        if self._files is None:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        return ok(command, data=CHECKPOINT.build(self._files.checkpoint_at(self._read_ms, self._queue_offset)))

    # -- delivery ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Opens the files and determines where to continue.

        Raises:
            LayoutError: a file has a size that the broker does not start with.
            UsageError, UnavailableError, StoreError: it is unknown which messages the timer in RocksDB has delivered.
        """
        self._broker.writer.rewrites.insert(0, (b"TIMER_", self.rewrite))
        if not self._broker.settings.flag("timerWheelEnable") or self._broker.release < (5, 0):
            return
        root, in_rocksdb = self._broker.root, self._read_in_rocksdb()
        self._files = files = TimerFiles(root, self._precision, log_file_size(root, self._config))
        now = self._floor(self._broker.clock.now())
        self._read_ms = self._floor(files.checkpoint.last_read_time_ms) or now
        self._queue_offset = max(files.checkpoint.last_timer_queue_offset, in_rocksdb)
        last = files.last_unit()
        message = self._parked(last) if last is not None else None
        if message is not None:
            self._queue_offset = max(self._queue_offset, message.record.queue_offset + 1)

    def _read_in_rocksdb(self) -> int:
        """Returns the queue offset up to which a timer in RocksDB has read the timer topic; 0 if there is none.

        Like the broker, the timer continues there (TimerMessageStore.recover). Without the key in the configuration it
        is unknown whether the broker has it; messages would be delivered again if it has.

        It is a UsageError if only the configuration can tell where to continue.
        """
        broker, key = self._broker, "timerRocksDBEnable"
        root, is_known = broker.root, key in broker.settings.values
        read, end = saved_checkpoint(root).last_timer_queue_offset, broker.messages.queue_bounds(TIMER_TOPIC, 0)[1]
        if not broker.settings.flag(key) and (is_known or read >= end):
            return 0
        try:
            stored = read_rocksdb_timer(root)
        except (StoreError, UnavailableError) as error:
            if is_known:
                raise
            _LOG.warning("cannot know whether timer messages from queue offset %d on were delivered: %s", read, error)
            return 0
        if not is_known and stored.queue_offset > read:
            raise UsageError(
                f"{root}: timercheck has read {TIMER_TOPIC} up to queue offset {read}, the timer in RocksDB up to "
                f"{stored.queue_offset}; give the broker's configuration with --config, or set {key}: true to continue "
                f"there, false to deliver the messages in between again"
            )
        if stored.is_waiting:
            _LOG.warning(
                "timer messages are waiting in %s; only a broker with %s delivers them", file_names.ROCKSDB_STORE, key
            )
        return min(stored.queue_offset, end)

    def close(self) -> None:
        """Writes the checkpoint and closes the files."""
        if self._files is not None:
            self._files.save(self._read_ms, self._queue_offset)
            self._files.close()
            self._files = None

    def turn(self) -> float:
        """Enqueues and delivers, saves the checkpoint, expires files; returns seconds to wait, 0 if more are due."""
        if self._files is None:
            return PERIOD_S
        now = self._broker.clock.now()
        self._enqueue(now)
        self._dequeue(now)
        if self._is_dirty:
            self._is_dirty = False
            self._files.save(self._read_ms, self._queue_offset)
        if self._broker.clock.monotonic() >= self._next_expiry:
            self._next_expiry = self._broker.clock.monotonic() + _EXPIRY_PERIOD_S
            self._files.expire(self._broker.messages.min_physical_offset)
        return 0 if self._read_ms < self._floor(now) and not self._is_refused else PERIOD_S

    @property
    def delivered_until(self) -> int:
        """Time before which all due messages have been delivered, in ms since epoch.

        While messages of the timer topic may be in dispatch, it is a second earlier.
        """
        if self._files is None:
            return 0
        highest = self._broker.messages.queue_bounds(TIMER_TOPIC, 0)[1]
        is_behind = highest > self._queue_offset or self._broker.long_polling.is_expected(TIMER_TOPIC, 0)
        return self._read_ms - (_ON_THE_WAY_MS if is_behind else 0)

    def runtime(self) -> dict[str, object]:
        """Returns the timer's statistics under the names that tools use."""
        highest = self._broker.messages.queue_bounds(TIMER_TOPIC, 0)[1]
        return {
            "timerReadBehind": max(0, self._broker.clock.now() - self._read_ms) // 1000 if self._files else 0,
            "timerOffsetBehind": max(0, highest - self._queue_offset) if self._files else 0,
            "timerCongestNum": 0,
            "timerEnqueueTps": 0.0,
            "timerDequeueTps": 0.0,
        }

    def _floor(self, time_ms: int) -> int:
        return time_ms - time_ms % self._precision

    def _enqueue(self, now: int) -> None:
        """Adds those messages of the timer topic to the wheel that are not in it yet."""
        assert self._files is not None
        try:
            self._enqueue_all(now)
        finally:
            self._files.write()

    def _enqueue_all(self, now: int) -> None:
        while True:
            result = self._broker.messages.get_message(TIMER_TOPIC, 0, self._queue_offset, _AT_ONCE)
            for queue_offset, data in zip(result.queue_offsets, result.records, strict=True):
                is_done = True
                with self._broker.skipped.guard("timer", TIMER_TOPIC, 0, queue_offset):
                    is_done = self._file(parsed_record(data), now)
                if not is_done:
                    return
                self._queue_offset = queue_offset + 1
                self._is_dirty = True
            if result.records:
                continue
            if result.resume_offset == self._queue_offset:
                return
            self._queue_offset = result.resume_offset
            if self._queue_offset == result.max_offset:
                return

    def _file(self, message: ParsedRecord, now: int) -> bool:
        """Adds a message to the wheel, or delivers it if its time has passed; returns False if the store is not ready.

        Raises FormatError or MessageRejectedError without a valid delivery time or destination.
        """
        assert self._files is not None
        values = message.properties
        due = service_records.deliver_ms(values)
        magic, write = TimerMagic.DEFAULT, self._floor(now)
        if properties.TIMER_DEL_UNIQUE_KEY in values:
            magic |= TimerMagic.DELETE
        if due < self._read_ms:
            return bool(magic & TimerMagic.DELETE) or self._deliver(message, write, now)
        if not magic & TimerMagic.DELETE:
            service_records.destination(values, default_queue="0")
        due, is_rolled = time_in_wheel(due, write, self._window, self._precision)
        if is_rolled:
            magic |= TimerMagic.ROLL
        record = message.record
        topic = values.get(properties.REAL_TOPIC)
        topic_hash = _topic_hash(topic) if topic else 0
        self._files.add(due, write, magic, record.physical_offset, record.total_size, topic_hash)
        return True

    def _dequeue(self, now: int) -> None:
        """Delivers the messages of all slots whose time has fully elapsed."""
        assert self._files is not None
        current = min(self._floor(now), self._read_ms + _SLOTS_AT_ONCE * self._precision)
        if self._files.are_unused(self._read_ms, current):  # after a long time in which the broker did not run
            self._read_ms, self._is_dirty = current, True
        while self._read_ms < current:
            units = self._files.units(self._read_ms)
            self._is_refused = not self._deliver_units(units, now)
            if self._is_refused:
                return
            self._slot_done = 0
            self._read_ms += self._precision
            self._is_dirty = self._is_dirty or bool(units) or self._read_ms == current

    def _deliver_units(self, units: list[TimerLogUnit], now: int) -> bool:
        """Delivers the messages of a slot; returns False if the store refuses one, which the next run then delivers."""
        recalled = set()
        for unit in units:
            if is_recall(unit.magic):
                message = self._parked(unit)
                if message is not None:
                    recalled.add(message.properties.get(properties.TIMER_DEL_UNIQUE_KEY, ""))
        for unit in units[self._slot_done :]:
            message = None if is_recall(unit.magic) else self._parked(unit)
            if message is not None and not self._is_recalled(message, recalled):
                is_done = True
                with self._broker.skipped.guard("timer", TIMER_TOPIC, 0, message.record.queue_offset):
                    roll = unit.magic & TimerMagic.ROLL
                    is_done = self._roll(message) if roll else self._deliver(message, unit.write_time, now)
                if not is_done:
                    return False
            self._slot_done += 1
        return True

    @staticmethod
    def _is_recalled(message: ParsedRecord, recalled: set[str]) -> bool:
        topic = message.properties.get(properties.REAL_TOPIC)
        return service_records.is_recalled(topic, message.unique_key, recalled)

    def _parked(self, unit: TimerLogUnit) -> ParsedRecord | None:
        """Returns the message of a timer log unit; None if it was deleted, or the unit does not point to a record."""
        data = self._broker.messages.message_at(unit.physical_offset)
        try:
            return parsed_record(data) if data is not None else None
        except FormatError as error:
            place = f"timer log unit at physical offset {unit.physical_offset}: {error}"
            self._broker.skipped.note("timer", TIMER_TOPIC, 0, -1 - unit.physical_offset, place)
            return None

    def _roll(self, message: ParsedRecord) -> bool:
        """Stores a message whose time is beyond the wheel in the timer topic again; returns False if it is refused."""
        rolls = service_records.roll_times(message.properties) + 1
        changed = {**message.properties, properties.TIMER_ROLL_TIMES: str(rolls)}
        return self._broker.writer.deliver(requeued(message, TIMER_TOPIC, 0, changed, self._broker.store_host)).ok

    def _deliver(self, message: ParsedRecord, enqueued: int, now: int) -> bool:
        """Puts a message with its delivery time into its own topic; returns False if the store refuses it now."""
        values = message.properties
        topic, queue_id = service_records.destination(values, default_queue="0")
        changed = {**values, properties.TIMER_ENQUEUE_MS: str(enqueued), properties.TIMER_DEQUEUE_MS: str(now)}
        result = self._broker.writer.deliver(requeued(message, topic, queue_id, changed, self._broker.store_host))
        if result.ok:
            self._broker.stats.put(topic, queue_id, 1, result.size)
        return result.ok


def _due(name: str, value: int, now: int) -> int:
    """Returns the delivery time, in ms since epoch, that a property of a message states."""
    if name == properties.TIMER_DELIVER_MS:
        return value
    return now + (value * 1000 if name == properties.TIMER_DELAY_SEC else value)
