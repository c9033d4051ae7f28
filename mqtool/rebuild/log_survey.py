"""What a CommitLog implies about a broker's configuration: topics, queues, groups, delivered delay levels."""

import numpy as np
from msgspec import Struct, field

from mqtool.formats import properties
from mqtool.formats.commit_log import SysFlag
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.rebuild.dispatch_batch import BatchBuilder, RebuildScope
from mqtool.rebuild.listing import Listing
from mqtool.rebuild.parts import parts_of, walk_part
from mqtool.rebuild.queue_writer import QueueName
from mqtool.records.damage import Damage
from mqtool.records.dispatch import Dispatched, Dispatcher, DispatchRules
from mqtool.records.frames import Frames
from mqtool.records.queue_build import queue_numbers, queue_of
from mqtool.store.log.message import messages_of
from mqtool.store.store import Store
from mqtool.store.waiting.deliveries import PARKING_TOPICS, ParkingEvent, delivered_offsets, event_of

_PARKING = np.dtype([("mark", "i8"), ("at", "i8"), ("is_parked", "?"), ("queue_id", "i4"), ("queue_offset", "i8")])
"""A record that is parked in a delay level or delivered from one, with the hash of its identity."""


class QueueRange(Struct):
    """The extent of one queue according to the log."""

    first: int  # and next: smallest queue offset in a record, and the largest plus one
    next: int
    last_physical: int  # physical offset after the newest record


class LogSurvey(Struct):
    """The result of one pass over the whole log."""

    queues: dict[QueueName, QueueRange] = field(default_factory=dict)  # range of each queue
    multi_tag_topics: set[str] = field(default_factory=set)  # topics with a record whose sysFlag has MULTI_TAG
    batch_topics: set[str] = field(default_factory=set)  # topics with inner batches
    # Schedule queue id to the first queue offset that has not been delivered, as far as the log proves it.
    served: dict[int, int] = field(default_factory=dict)
    records: int = 0  # and last_record, last_time: number of records; physical offset and store timestamp of the newest
    last_record: int = 0
    last_time: int = 0
    damage: Listing[Damage] = field(default_factory=Listing)  # ranges without a record


class Surveyor:
    """Collects a survey from the windows of a log, passed in log order.

    Attributes:
        survey: what was seen so far.
        is_complete: the whole log has been seen; set by the caller that walks it.
    """

    def __init__(self) -> None:
        self.survey = LogSurvey()
        self.is_complete = False
        self._delays: list[np.ndarray] = []

    def add(self, dispatcher: Dispatcher, frames: Frames, dispatched: Dispatched) -> None:
        """Adds some frames and their dispatch result to the survey."""
        self._ranges(dispatcher, dispatched)
        self._flags(dispatcher, frames, dispatched)
        parked = dispatched.topic == dispatcher.schedule
        if self._delays or parked.any():  # nothing was delivered before the first parked message
            self._delays.append(_delays_of(frames, parked))
        survey = self.survey
        survey.records += len(frames)
        survey.last_record = int(frames.column("physical_offset")[-1])
        survey.last_time = int(frames.select(slice(-1, None)).column("store_timestamp")[0])

    def _ranges(self, dispatcher: Dispatcher, dispatched: Dispatched) -> None:
        units = dispatched.units
        if not len(units):
            return
        distinct, place = np.unique(queue_numbers(units.topic, units.queue_id), return_inverse=True)
        low = np.full(len(distinct), np.iinfo(np.int64).max)
        high, end = np.full(len(distinct), -1), np.zeros(len(distinct), np.int64)
        np.minimum.at(low, place, units.queue_offset)
        np.maximum.at(high, place, units.queue_offset + units.batch_size)
        np.maximum.at(end, place, units.physical_offset + units.size)
        for index, number in enumerate(distinct.tolist()):
            name = QueueName(*queue_of(number, dispatcher.topics.names))
            extent = self.survey.queues.setdefault(name, QueueRange(int(low[index]), int(high[index]), 0))
            extent.first, extent.next = min(extent.first, int(low[index])), max(extent.next, int(high[index]))
            extent.last_physical = max(extent.last_physical, int(end[index]))

    def _flags(self, dispatcher: Dispatcher, frames: Frames, dispatched: Dispatched) -> None:
        sys_flag = frames.column("sys_flag")
        for flag, topics in (
            (SysFlag.MULTI_TAGS, self.survey.multi_tag_topics),
            (SysFlag.INNER_BATCH, self.survey.batch_topics),
        ):
            numbers = np.unique(dispatched.topic[np.flatnonzero(sys_flag & flag)]).tolist()
            topics.update(dispatcher.topics.names[number] for number in numbers)

    def finish(self) -> LogSurvey:
        """Computes how far each delay level has been delivered, and returns the survey."""
        if self._delays:
            delivered_at = delivered_offsets(
                ParkingEvent(mark, at, is_parked, not is_parked)
                for part in self._delays
                for mark, at, is_parked, *_ in part.tolist()
            )
            parked = np.concatenate([part[part["is_parked"]] for part in self._delays])
            is_delivered = np.isin(parked["at"], np.array(sorted(delivered_at), np.int64))
            for queue_id in np.unique(parked["queue_id"]).tolist():
                of_level = parked["queue_id"] == queue_id
                offsets, delivered = parked["queue_offset"][of_level], is_delivered[of_level]
                # a level's messages are delivered in order: none after the last delivered one has been delivered
                served = int(offsets[delivered].max()) + 1 if delivered.any() else int(offsets.min())
                self.survey.served[queue_id] = served
        return self.survey


def _delays_of(frames: Frames, parked: np.ndarray) -> np.ndarray:
    """Returns the frames that are parked in a delay level or delivered from one, in log order."""
    rows = np.array(frames.rows_with(properties.mark(properties.DELAY_LEVEL)), np.int64)
    delays = [
        (hash(event.identity), event.physical_offset, is_parked, message.queue_id, message.queue_offset)
        for is_parked, message in zip(parked[rows].tolist(), messages_of(frames.select(rows)), strict=True)
        if properties.DELAY_LEVEL in message.properties and (is_parked or message.topic not in PARKING_TOPICS)
        if (event := event_of(message)) is not None
    ]
    return np.array(delays, _PARKING)


def survey_log(store: Store, rules: DispatchRules, on_progress: OnProgress = ignore) -> LogSurvey:
    """Walks the whole log once.

    Args:
        store: opened; only read.
        rules: for dispatch.
        on_progress: called with bytes of the log.
    """
    surveyor, log, nothing = Surveyor(), store.commit_log, RebuildScope(queues=False, index=False)
    builder = BatchBuilder(rules, nothing, surveyor.add)
    for part in parts_of(log, nothing, cut=False):
        for batch in walk_part(part, builder, nothing):
            for damage in batch.damage:
                surveyor.survey.damage.add(damage)
            on_progress(batch.end - log.min_offset, log.bytes_in_use)
    return surveyor.finish()
