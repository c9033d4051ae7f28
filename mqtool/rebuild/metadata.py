"""Composes config/*.json and the checkpoint from the files that the store still has and from what its log proves.

A survey of the log has its topics, queues, and how far each delay level was delivered. A readable file is kept entry by
entry and only completed. Guesses are made so that nothing is lost: a topic gets the queues that its records need, with
read and write permission; a consumer rather gets a message twice than not at all. Every guess is reported.
"""

from pathlib import Path

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.formats import checkpoint as checkpoint_format
from mqtool.formats import config_files, file_names, properties
from mqtool.formats.checkpoint import Checkpoint
from mqtool.formats.commit_log import SysFlag
from mqtool.formats.config_files import (
    BATCH_QUEUES,
    CLEANUP_POLICY,
    COMPACTION,
    QUEUE_TYPE,
    ConsumerOffsets,
    DataVersion,
    DelayOffsets,
    GroupConfig,
    SubscriptionGroups,
    TopicConfig,
    Topics,
)
from mqtool.formats.config_json import json_style
from mqtool.formats.topics import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_QUEUES,
    SCHEDULE_TOPIC,
    group_of_retry,
    is_lmq,
)
from mqtool.jobs.atomic import writing
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.rebuild.parts import BatchBuilder, RebuildScope, parts_of, walk_part
from mqtool.rebuild.placement import Listing
from mqtool.rebuild.queue_writer import QueueName
from mqtool.records.damage import Damage
from mqtool.records.dispatch import Dispatched, Dispatcher, DispatchRules
from mqtool.records.frames import Frames
from mqtool.records.queue_build import queue_numbers, queue_of
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.log.message import messages_of
from mqtool.store.queues.consume_queue import Queue, has_record
from mqtool.store.store import Store
from mqtool.store.waiting.held_back import PARKING_TOPICS, ParkingEvent, delivered_offsets, event_of

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
    """Collects a survey from the windows of a log, passed in log order."""

    def __init__(self, *, is_first: bool = True) -> None:
        """Starts at the beginning of the log, or not: messages may have been parked before then."""
        self.survey = LogSurvey()  # what was seen so far
        self.is_complete = False  # the whole log has been seen; set by the caller that walks it
        self._delays: list[np.ndarray] = []
        self._is_first = is_first

    def add(self, dispatcher: Dispatcher, frames: Frames, dispatched: Dispatched) -> None:
        """Adds some frames and their dispatch result to the survey."""
        self._ranges(dispatcher, dispatched)
        self._flags(dispatcher, frames, dispatched)
        parked = dispatched.topic == dispatcher.schedule
        if self._delays or parked.any() or not self._is_first:  # nothing was delivered before the first parked message
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

    def join(self, later: "Surveyor") -> None:
        """Adds what another surveyor saw of the next part of the log, in a process with the same PYTHONHASHSEED."""
        mine, other = self.survey, later.survey
        for name, extent in other.queues.items():
            known = mine.queues.setdefault(name, extent)
            known.first, known.next = min(known.first, extent.first), max(known.next, extent.next)
            known.last_physical = max(known.last_physical, extent.last_physical)
        mine.multi_tag_topics |= other.multi_tag_topics
        mine.batch_topics |= other.batch_topics
        mine.records += other.records
        if other.records:
            mine.last_record, mine.last_time = other.last_record, other.last_time
        mine.damage.extend(other.damage.items, other.damage.count)
        self._delays += later._delays

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
    """Walks the whole log once."""
    surveyor, log, nothing = Surveyor(), store.commit_log, RebuildScope(queues=False, index=False)
    builder = BatchBuilder(rules, nothing, surveyor.add)
    for part in parts_of(log, nothing, cut=False):
        for batch in walk_part(part, builder, nothing):
            for damage in batch.damage:
                surveyor.survey.damage.add(damage)
            on_progress(batch.end - log.min_offset, log.bytes_in_use)
    return surveyor.finish()


class Guess(Struct, frozen=True):
    """A value that no file contains and that was guessed."""

    file: str  # that contains it
    item: str  # topic, group, queue or level
    value: str  # what was written
    reason: str  # why this value was chosen


class ComposedFiles(Struct):
    """The composed files."""

    files: dict[str, bytes] = field(default_factory=dict)  # path below the output directory to bytes
    guesses: list[Guess] = field(default_factory=list)  # guessed values in them
    unconfigured: list[str] = field(default_factory=list)  # topics with records but without a configuration


def composable(store: Store) -> frozenset[str]:
    """Returns the paths of the files that `compose` would produce for a store."""
    names = (file_names.TOPICS, file_names.SUBSCRIPTION_GROUPS, file_names.DELAY_OFFSETS)
    written = store.metadata.offset_tables.written
    return frozenset((*(f"{file_names.CONFIG}/{name}" for name in names), written, file_names.CHECKPOINT))


def compose(store: Store, survey: LogSurvey, source: Store | None = None) -> ComposedFiles:
    """Returns the files that a broker would need to serve a store, which may still lack what `source` shows."""
    composer = _Composer(store, survey, source or store)
    composer.topics()
    composer.groups()
    composer.consumer_offsets()
    composer.delay_offsets()
    composer.checkpoint()
    return composer.composed


def write(composed: ComposedFiles, out: Path) -> None:
    """Writes the files below a directory; existing files are replaced."""
    for name, data in composed.files.items():
        path = out / name
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


class _Composer:
    def __init__(self, store: Store, survey: LogSurvey, source: Store) -> None:
        self.composed = ComposedFiles()
        self._store = store
        self._metadata = store.metadata
        self._survey = survey
        self._release = source.version.release
        self._compacted = source.path / file_names.COMPACTION_LOG
        self._style = json_style(self._release)
        self._ranges = _ranges(store, survey)

    def _guess(self, file: str, item: str, value: object, reason: str) -> None:
        self.composed.guesses.append(Guess(file, item, str(value), reason))

    def _version(self, known: DataVersion | None) -> DataVersion:
        if known is not None:
            return known
        return DataVersion(1, self._survey.last_time, None if self._release < (5, 0) else 0)

    def _put(self, name: str, data: bytes) -> None:
        self.composed.files[f"{file_names.CONFIG}/{name}"] = data

    def topics(self) -> None:
        """Keeps configured topics, extended to the queues that exist; adds missing topics.

        The name of a renamed directory of queues is not a topic.
        """
        known = self._metadata.topics_file
        table = dict(known.topic_config_table) if known else {}
        counts: dict[str, int] = {}
        renamed = (
            set()
            if self._survey.damage
            else {
                (queue.topic, queue.queue_id)
                for queue in self._store.disk_queues()
                if QueueName(queue.topic, queue.queue_id) not in self._survey.queues
                and is_in_log(self._store.commit_log, queue)
            }
        )
        for name in self._ranges:
            # light message queues have no configuration
            if not is_lmq(name.topic) and (name.topic, name.queue_id) not in renamed:
                counts[name.topic] = max(counts.get(name.topic, 0), name.queue_id + 1)
        for topic, count in sorted(counts.items()):
            if topic not in table:
                self.composed.unconfigured.append(topic)
                table[topic] = self._guessed_topic(topic, count)
            elif table[topic].read_queue_nums < count:
                table[topic] = replace(table[topic], read_queue_nums=count)
                self._guess(file_names.TOPICS, topic, f"readQueueNums {count}", "that many queues have records")
        topics = Topics(table, self._version(known.data_version if known else None), known.extra if known else {})
        self._put(file_names.TOPICS, config_files.build_topics(topics, self._style))

    def _guessed_topic(self, topic: str, count: int) -> TopicConfig:
        if topic == SCHEDULE_TOPIC:
            count = max(count, SCHEDULE_QUEUES)
        is_batch = topic in self._survey.batch_topics
        filter_type = "MULTI_TAG" if topic in self._survey.multi_tag_topics else "SINGLE_TAG"
        reason = (
            "as many queues as have records; read and write, as for any topic that the broker creates automatically"
        )
        self._guess(file_names.TOPICS, topic, f"{count} queues, perm 6", reason)
        known = {QUEUE_TYPE: BATCH_QUEUES} if is_batch else {}
        if (self._compacted / topic).is_dir():
            known[CLEANUP_POLICY] = COMPACTION
        attributes = None if self._release < (5, 0) else known
        return TopicConfig(topic, count, count, topic_filter_type=filter_type, attributes=attributes)

    def groups(self) -> None:
        """Keeps configured groups; adds groups that have retry or dead-letter topics, or consumer offsets."""
        known = self._metadata.groups_file
        table = dict(known.subscription_group_table) if known else {}
        with_offsets = set(self._metadata.consumer_offsets)
        prefixes = (RETRY_PREFIX, DEAD_LETTER_PREFIX)
        retries = {name.topic for name in self._ranges if name.topic.startswith(prefixes)}
        named = {group_of_retry(topic, table.keys() | with_offsets) for topic in retries}
        for group in sorted(named | with_offsets):
            if group and group not in table:
                table[group] = GroupConfig(group)
                self._guess(
                    file_names.SUBSCRIPTION_GROUPS,
                    group,
                    "the broker's defaults",
                    "it has a retry or dead-letter topic, or consumer offsets",
                )
        groups = SubscriptionGroups(
            table, self._version(known.data_version if known else None), known.extra if known else {}
        )
        self._put(file_names.SUBSCRIPTION_GROUPS, config_files.build_groups(groups, self._style))

    def consumer_offsets(self) -> None:
        """Keeps consumer offsets, at most the end of their queue; 0 if they are negative or the queue does not exist.

        An offset below the start of the queue is kept. A broker answers it with the start (OFFSET_TOO_SMALL), and one
        with tiered storage still has the messages (TieredMessageStore.getMessageAsync, 5.5.0).
        """
        tables = self._metadata.offset_tables
        known = tables.offsets or ConsumerOffsets({}, data_version=None)
        has_lmq = known.lmq_offset_table is not None
        name = tables.written.rpartition("/")[2]
        offsets = {
            key: {queue_id: self._bounded(name, key, queue_id, offset) for queue_id, offset in table.items()}
            for key, table in known.offset_table.items()
        }
        lmq = {key: self._bounded(name, key, 0, offset) for key, offset in (known.lmq_offset_table or {}).items()}
        version = known.data_version if self._release < (5, 0) else self._version(known.data_version)
        kept = ConsumerOffsets(offsets, lmq if has_lmq else None, known.pull_offset_table, version, known.extra)
        self._put(name, config_files.build_consumer_offsets(kept, self._style))

    def _bounded(self, file: str, key: str, queue_id: int, offset: int) -> int:
        topic, group = config_files.split_topic_group(key)
        bounds = self._ranges.get(QueueName(topic, queue_id))
        if bounds is None and offset > 0:
            reason = f"{offset} is in a queue that does not exist, whose next message gets queue offset 0"
            self._guess(file, f"{group} {topic}/{queue_id}", 0, reason)
            return 0
        if bounds is None or 0 <= offset <= bounds.next:
            return offset
        bound = min(max(offset, 0), bounds.next)
        reason = (
            "an offset cannot be negative" if offset < 0 else f"{offset} is past the end of the queue, {bounds.next}"
        )
        self._guess(file, f"{group} {topic}/{queue_id}", bound, reason)
        return bound

    def delay_offsets(self) -> None:
        """Keeps the next offset of each level, unless the log proves that later messages are delivered.

        A level without an offset gets the one after the last message that is proved to be delivered.
        """
        known = self._metadata.delay_file
        table = dict(known.offset_table) if known else {}
        for queue_id, offset in sorted(self._survey.served.items()):
            level = queue_id + 1
            queue = self._ranges.get(QueueName(SCHEDULE_TOPIC, queue_id))
            if level in table and queue is not None and max(offset, queue.first) <= table[level] <= queue.next:
                continue
            table[level] = offset
            self._guess(
                file_names.DELAY_OFFSETS, f"level {level}", offset, "the log has no delivery of a later message"
            )
        for level, offset in sorted(table.items()):
            self._delay_inside(table, level, offset)
        version = self._version(known.data_version if known else None)
        delays = DelayOffsets(table, version, known.extra if known else {})
        self._put(file_names.DELAY_OFFSETS, config_files.build_delay_offsets(delays, self._style))

    def _delay_inside(self, table: dict[int, int], level: int, offset: int) -> None:
        """Clamps the offset of a level to its queue; removes it if the queue does not exist."""
        queue = self._ranges.get(QueueName(SCHEDULE_TOPIC, level - 1))
        if queue is None and offset > 0:
            del table[level]
            self._guess(file_names.DELAY_OFFSETS, f"level {level}", "no position", f"{offset} is of a missing queue")
        elif queue is not None and not queue.first <= offset <= queue.next:
            table[level] = min(max(offset, queue.first), queue.next)
            reason = f"{offset} is outside of the queue, which holds {queue.first} to {queue.next}"
            self._guess(file_names.DELAY_OFFSETS, f"level {level}", table[level], reason)

    def checkpoint(self) -> None:
        """Writes timestamps that mark the log, and the queues rebuilt from it, as complete up to the last record."""
        survey, known = self._survey, self._store.checkpoint or Checkpoint()
        full = [
            file.header.end_timestamp
            for file in self._store.disk_index_files()
            if file.max_entries is not None and file.header.index_count >= file.max_entries
        ]
        index_time = max((time for time in full if time <= survey.last_time), default=0)
        checkpoint = Checkpoint(
            survey.last_time,
            survey.last_time,
            index_time,
            self._master_flushed_offset(known.master_flushed_offset),
            0 if self._release < (5, 0) else survey.last_record,
            0 if self._release < (5, 5) else survey.last_record,
        )
        reason = "times and offsets of the last record and the last full index file"
        self._guess(file_names.CHECKPOINT, "all fields", checkpoint.physic_msg_timestamp, reason)
        self.composed.files[file_names.CHECKPOINT] = checkpoint_format.build(checkpoint)

    def _master_flushed_offset(self, known: int) -> int:
        """Returns the one field that cannot be derived from the log; 0 if the stored value is impossible."""
        if checkpoint_format.is_possible_offset(known, self._store.commit_log.max_offset):
            return known
        self._guess(file_names.CHECKPOINT, "master_flushed_offset", 0, f"{known} is not a possible offset of this log")
        return 0


def is_in_log(log: CommitLog, queue: Queue) -> bool:
    """Whether all units of a queue point into the present log, none into the expired part.

    If the log is intact and has no message of such a queue, its units point to records of other queues.
    """
    units = queue.units()
    at = units["physical_offset"][has_record(units)]
    return bool(len(at) and (at >= log.min_offset).all() and (at < log.max_offset).all())


def _ranges(store: Store, survey: LogSurvey) -> dict[QueueName, QueueRange]:
    """Returns the range of every queue according to the log; for queues without a record, according to their files."""
    ranges = dict(survey.queues)
    for queue in store.disk_queues():
        name = QueueName(queue.topic, queue.queue_id)
        if name not in ranges:
            ranges[name] = QueueRange(max(0, queue.min_offset), queue.max_offset, queue.max_physical_offset)
    return ranges
