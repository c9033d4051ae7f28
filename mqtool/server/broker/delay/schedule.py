"""Delivers delayed messages when the time of their delay level has passed.

Each level is a queue of the schedule topic, ordered by time; an offset per level states how far it has been delivered.
Source: ScheduleMessageService (4.9.7, 5.5.0).
"""

import time

from mqtool.formats import config_files, file_names, service_records
from mqtool.formats.config_files import DataVersion, DelayOffsets
from mqtool.formats.service_records import parse_delay_levels
from mqtool.formats.topics import SCHEDULE_TOPIC
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.parsed_record import ParsedRecord, parsed_record, requeued
from mqtool.server.broker.tables.config_persister import next_version

_PERIOD_S = 0.1
_AT_ONCE = 32


class Schedule:
    """The service that delivers delayed messages."""

    def __init__(self, broker: Broker) -> None:
        """Loads delayOffset.json.

        Raises:
            ConfigFileError: the file cannot be parsed.
        """
        self._broker = broker
        loaded = broker.persister.configs.load(file_names.DELAY_OFFSETS, config_files.parse_delay_offsets)
        self._loaded = loaded or DelayOffsets({})
        self._offsets = dict(self._loaded.offset_table)
        self._version = self._loaded.data_version
        self._changed = False
        self._levels = parse_delay_levels(broker.settings.text("messageDelayLevel"))
        broker.persister.register(file_names.DELAY_OFFSETS, self._build)

    def _build(self) -> bytes:
        version = (
            None if self._broker.release < (5, 5) else self._version or DataVersion(0, time.time_ns() // 1_000_000, 0)
        )
        offsets = DelayOffsets(dict(sorted(self._offsets.items())), version, self._loaded.extra)
        return config_files.build_delay_offsets(offsets, self._broker.persister.configs.style)

    def encoded(self) -> bytes:
        """Returns the current content of delayOffset.json."""
        return self._build()

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
        return _PERIOD_S

    def deliver(self, level: int, delay: int) -> int:
        """Delivers the due messages of one level; returns their number.

        Args:
            level: delay level, from 1.
            delay: its delay in ms.
        """
        broker, delivered = self._broker, 0
        while True:
            at = self.offset_of(level)
            result = broker.messages.get_message(SCHEDULE_TOPIC, level - 1, at, _AT_ONCE)
            now = time.time_ns() // 1_000_000
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

        Raises:
            FormatError, MessageRejectedError: the message has no valid destination, or cannot be stored there.
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
