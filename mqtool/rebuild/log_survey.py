"""What a CommitLog implies about a broker's configuration: topics, queues, groups, delivered delay levels."""

from dataclasses import dataclass, field

import numpy as np

from mqtool.formats import properties as names
from mqtool.formats.commit_log import SysFlag
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.rebuild.dispatch_batch import BatchBuilder, RebuildScope
from mqtool.rebuild.listing import Listing
from mqtool.rebuild.parts import parts_of, walk_part
from mqtool.rebuild.queue_writer import QueueName
from mqtool.records.damage import Damage
from mqtool.records.dispatch import Dispatcher
from mqtool.records.dispatched import Dispatched, DispatchRules
from mqtool.records.frames import Frames
from mqtool.records.trailers import trailers_of
from mqtool.records.words import java_hashes
from mqtool.store.store import Store


@dataclass(slots=True)
class QueueRange:
    """The extent of one queue according to the log.

    Attributes:
        first, next: smallest queue offset in a record, and the largest plus one.
        last_physical: physical offset after the newest record.
    """

    first: int
    next: int
    last_physical: int


@dataclass(slots=True)
class LogSurvey:
    """The result of one pass over the whole log.

    Attributes:
        queues: range of each queue.
        multi_tag_topics: topics with a record whose sysFlag has MULTI_TAG.
        batch_topics: topics with inner batches.
        served: schedule queue id to the first queue offset that has not been delivered, as far as the log proves it.
        records, last_record, last_time: number of records; physical offset and store timestamp of the newest.
        damage: ranges without a record.
    """

    queues: dict[QueueName, QueueRange] = field(default_factory=dict)
    multi_tag_topics: set[str] = field(default_factory=set)
    batch_topics: set[str] = field(default_factory=set)
    served: dict[int, int] = field(default_factory=dict)
    records: int = 0
    last_record: int = 0
    last_time: int = 0
    damage: Listing[Damage] = field(default_factory=Listing)


class Surveyor:
    """Collects a survey from the windows of a log, passed in log order.

    Attributes:
        survey: what was seen so far.
        is_complete: the whole log has been seen; set by the caller that walks it.
    """

    def __init__(self) -> None:
        self.survey = LogSurvey()
        self.is_complete = False
        self._waiting: list[np.ndarray] = []
        self._delivered: list[np.ndarray] = []

    def add(self, dispatcher: Dispatcher, frames: Frames, dispatched: Dispatched) -> None:
        """Adds some frames and their dispatch result to the survey."""
        self._ranges(dispatcher, dispatched)
        self._flags(dispatcher, frames, dispatched)
        if self._waiting or (dispatched.topic == dispatcher.schedule).any():
            self._delays(dispatcher, frames, dispatched)  # nothing was delivered before the first parked message
        survey = self.survey
        survey.records += len(frames)
        survey.last_record = int(frames.column("physical_offset")[-1])
        survey.last_time = int(frames.select(slice(-1, None)).column("store_timestamp")[0])

    def _ranges(self, dispatcher: Dispatcher, dispatched: Dispatched) -> None:
        units = dispatched.units
        if not len(units):
            return
        key = (units.topic.astype(np.int64) << 32) | (units.queue_id.astype(np.int64) & 0xFFFFFFFF)
        distinct, place = np.unique(key, return_inverse=True)
        low = np.full(len(distinct), np.iinfo(np.int64).max)
        high, end = np.full(len(distinct), -1), np.zeros(len(distinct), np.int64)
        np.minimum.at(low, place, units.queue_offset)
        np.maximum.at(high, place, units.queue_offset + units.batch_size)
        np.maximum.at(end, place, units.physical_offset + units.size)
        for index, number in enumerate(distinct.tolist()):
            queue_id = number & 0xFFFFFFFF
            topic = dispatcher.topics.names[number >> 32]
            name = QueueName(topic, queue_id - (1 << 32) if queue_id >> 31 else queue_id)
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

    def _delays(self, dispatcher: Dispatcher, frames: Frames, dispatched: Dispatched) -> None:
        """Matches parked and delivered messages by unique key, born timestamp and number of retries."""
        born = frames.column("born_timestamp").astype(np.uint64)
        retries = frames.column("reconsume_times").view(np.uint32).astype(np.uint64)
        for trailers in trailers_of(frames):
            if not len(trailers.property_slices.named(names.DELAY_LEVEL)):
                continue
            delayed = trailers.property_slices.value_of(names.DELAY_LEVEL)[1] > 0
            starts, lengths = trailers.property_slices.value_of(names.UNIQUE_KEY)
            rows = np.flatnonzero(delayed & (lengths > 0))
            hashes, _ = java_hashes(trailers.data, starts[rows], lengths[rows])
            of_frame = trailers.rows[rows]
            mark = (hashes.astype(np.uint64) << np.uint64(32)) ^ (born[of_frame] << np.uint64(6)) ^ retries[of_frame]
            parked = dispatched.topic[of_frame] == dispatcher.schedule
            self._delivered.append(mark[~parked])
            self._waiting.append(
                np.stack(
                    [
                        mark[parked],
                        frames.column("queue_id")[of_frame[parked]].astype(np.uint64),
                        frames.column("queue_offset")[of_frame[parked]].astype(np.uint64),
                    ]
                )
            )

    def finish(self) -> LogSurvey:
        """Computes how far each delay level has been delivered, and returns the survey."""
        if self._waiting:
            waiting = np.concatenate(self._waiting, axis=1)
            delivered = np.concatenate(self._delivered)
            served = _all_delivered(waiting[0], delivered)
            for queue_id in np.unique(waiting[1]).tolist():
                mine = waiting[1] == queue_id
                offsets, done = waiting[2][mine].astype(np.int64), served[mine]
                # a level's messages are delivered in order: none after the last delivered one has been delivered
                self.survey.served[queue_id] = int(offsets[done].max()) + 1 if done.any() else int(offsets.min())
        return self.survey


def _all_delivered(parked: np.ndarray, delivered: np.ndarray) -> np.ndarray:
    """Returns a bool for each parked message: as many were delivered with its mark as were parked with it.

    A group that failed twice on the same try of a message parks two records with one mark; one delivery proves neither.
    """
    marks, place, count = np.unique(parked, return_inverse=True, return_counts=True)
    ordered = np.sort(delivered)
    found = np.searchsorted(ordered, marks, "right") - np.searchsorted(ordered, marks, "left")
    return np.asarray((found >= count)[place])


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
