"""Dispatch in columns: what the broker would write to queues and index for the records of some frames.

The broker dispatches one record at a time (DispatchRequest). Here one call dispatches all frames of a window:
`native.logs` most of them, `dispatch_request` those of multi-dispatch, inner batches and numbers in properties.
`queue_build` and `index_build` decide where units and keys are stored. Source: CommitLog.checkMessageAndReturnSize,
DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue, ConsumeQueue.multiDispatchLmqQueue, IndexService.buildIndex
(4.9.7, 5.5.0). Docs page: docs/rebuild.md.
"""

import numpy as np

from mqtool import native
from mqtool.errors import FormatError
from mqtool.formats import commit_log, java
from mqtool.formats import properties as names
from mqtool.formats.consume_queue import tags_code
from mqtool.formats.topics import SCHEDULE_TOPIC
from mqtool.records import multi_dispatch
from mqtool.records.dispatch_request import key_hashes, tags_code_of
from mqtool.records.dispatched import Dispatched, DispatchRules, IndexKeys, Oddity, QueueUnits
from mqtool.records.frames import Frames
from mqtool.records.topics import TopicTable


class Dispatcher:
    """Dispatches one window after another; topics keep their numbers.

    Attributes:
        rules: settings of the broker.
        topics: number of each topic seen so far.
        schedule: number of the schedule topic.
    """

    def __init__(self, rules: DispatchRules | None = None) -> None:
        self.rules = rules or DispatchRules()
        self.topics = TopicTable()
        self.schedule = self.topics.number_of(SCHEDULE_TOPIC)

    def dispatch(self, frames: Frames, *, keys: bool = True) -> Dispatched:
        """Returns what the broker would write for valid frames (`Frames.valid`).

        Args:
            frames: in CommitLog order.
            keys: whether to compute index keys; if False there are none.
        """
        window = _Window(frames, self)
        others = window.add_compiled(keys=keys).tolist() if native.in_use() else range(len(frames))
        for row in others:
            window.add(row, keys=keys)
        return window.dispatched()


class _Window:
    """The frames of one call, and the results so far."""

    def __init__(self, frames: Frames, dispatcher: Dispatcher) -> None:
        self.frames = frames
        self.dispatcher = dispatcher
        self.rules = dispatcher.rules
        self.topic = np.zeros(len(frames), np.int32)
        self.tags_code = np.zeros(len(frames), np.int64)
        self.offsets = frames.column("physical_offset")
        self.times = frames.column("store_timestamp")
        self.queued = is_queued(frames)
        self.oddities: list[Oddity] = []
        self.has_batches = False
        self._keys: list[tuple[np.ndarray, np.ndarray]] = []
        self._lmq: list[tuple[int, str, str]] = []
        self._batches: dict[int, tuple[str, str]] = {}

    def add(self, row: int, *, keys: bool) -> None:
        """Computes topic, tags code and keys of one record."""
        frames, rules = self.frames, self.rules
        record = commit_log.parse_record(frames.view, int(frames.positions[row]))
        topic, values = java.decode_utf8(record.topic), names.decode(record.properties)
        self.topic[row] = self.dispatcher.topics.number_of(topic)
        try:
            self.tags_code[row] = tags_code_of(topic, values, record.store_timestamp, rules)
        except FormatError:
            self.tags_code[row] = tags_code(values.get(names.TAGS))
            self._add_oddity(row, f"DELAY is not a number: {values[names.DELAY_LEVEL][:20]!r}")
        if keys:
            hashes = key_hashes(topic, values, with_tags=rules.index_tags)
            self._keys.append((np.full(len(hashes), row), np.array(hashes, np.int32)))
        if rules.multi_dispatch and {names.INNER_MULTI_DISPATCH, names.INNER_MULTI_QUEUE_OFFSET} <= values.keys():
            further = values[names.INNER_MULTI_DISPATCH], values[names.INNER_MULTI_QUEUE_OFFSET]
            self._lmq.append((row, *further))
        if names.INNER_BASE in values:
            self.has_batches = True
            if topic in rules.batch_topics and names.INNER_NUM in values:
                self._batches[row] = values[names.INNER_NUM], values[names.INNER_BASE]

    def add_compiled(self, *, keys: bool) -> np.ndarray:
        """Computes topics, tags codes and keys by `native.logs`; returns the records that it leaves out."""
        frames, table = self.frames, self.dispatcher.topics
        starts, lengths = frames.topic_start, frames.topic_length
        room = int(frames.properties_length.sum()) + 2 * len(frames) if keys else 0
        key_rows, hashes = np.empty(room, np.int64), np.empty(room, np.int32)
        others = np.empty(len(frames), np.int64)
        row = key_count = other_count = 0
        while True:
            row, key_count, other_count = native.logs.dispatch(
                frames.data,
                starts,
                lengths,
                frames.properties_start,
                frames.properties_length,
                table.slots,
                self.dispatcher.schedule,
                keys,
                self.rules.index_tags,
                row,
                key_count,
                other_count,
                self.topic,
                self.tags_code,
                key_rows,
                hashes,
                others,
            )
            if row == len(frames):
                break
            table.learn(frames.data[starts[row] : starts[row] + lengths[row]].tobytes())  # a new topic
        self._keys.append((key_rows[:key_count], hashes[:key_count]))
        return others[:other_count]

    def _add_oddity(self, frame: int, detail: str) -> None:
        self.oddities.append(Oddity(int(self.offsets[frame]), detail))

    def dispatched(self) -> Dispatched:
        """Returns the result."""
        return Dispatched(self.topic, self._units(), self._index_keys(), tuple(self.oddities), self.has_batches)

    def _units(self) -> QueueUnits:
        """Returns a unit for each record in no transaction or in a committed one, LMQ units after its own."""
        frames = self.frames
        units = QueueUnits(
            np.arange(len(frames)),
            self.topic,
            frames.column("queue_id"),
            frames.column("queue_offset"),
            self.offsets,
            frames.column("total_size"),
            self.tags_code,
            self.times,
            np.ones(len(frames), np.int16),
        )
        if not self.queued.all() or self._batches:
            units = units.select(self.queued)  # copies, so that offsets of batches may be changed
            self._set_batches(units.row, units.queue_offset, units.batch_size)
        row = units.row
        extra = [unit for queue in sorted(self._lmq) for unit in self._lmq_units(*queue)]
        if not extra:
            return units
        chosen = units.select(np.searchsorted(row, np.array([unit[0] for unit in extra])))
        changed = [np.array(column, kind) for column, kind in zip(zip(*extra, strict=True), "qiiq", strict=True)]
        lmq = QueueUnits(
            changed[0],
            changed[1],
            changed[2],
            changed[3],
            chosen.physical_offset,
            chosen.size,
            chosen.tags_code,
            chosen.store_timestamp,
            np.ones(len(extra), np.int16),
        )
        order = np.argsort(np.concatenate([row, lmq.row]), kind="stable")
        joined = (
            np.concatenate([getattr(units, name), getattr(lmq, name)])[order] for name in QueueUnits.__struct_fields__
        )
        return QueueUnits(*joined)

    def _set_batches(self, row: np.ndarray, queue_offset: np.ndarray, batch_size: np.ndarray) -> None:
        for frame, (count, base) in self._batches.items():
            at = int(np.searchsorted(row, frame))
            if at == len(row) or row[at] != frame or self._topic_name(frame) not in self.rules.batch_topics:
                continue
            try:
                batch_size[at], queue_offset[at] = java.parse_short(count), java.parse_long(base)
            except FormatError as error:
                self._add_oddity(frame, f"INNER_NUM or INNER_BASE: {error}")

    def _topic_name(self, frame: int) -> str:
        return self.dispatcher.topics.names[int(self.topic[frame])]

    def _lmq_units(self, frame: int, queues: str, offsets: str) -> list[tuple[int, int, int, int]]:
        """Returns (frame, topic, queue id, queue offset) of each further queue of a record."""
        topic = self._topic_name(frame)
        if not self.queued[frame] or topic in self.rules.batch_topics:
            return []
        further = multi_dispatch.further_queues(topic, queues, offsets, self.rules)
        if further.problem:
            self._add_oddity(frame, further.problem)
        own, number_of = int(self.frames.column("queue_id")[frame]), self.dispatcher.topics.number_of
        return [
            (frame, number_of(name), multi_dispatch.queue_id_of(name, own, self.rules), at)
            for name, at in further.queues
        ]

    def _index_keys(self) -> IndexKeys:
        row = np.concatenate([rows for rows, _ in self._keys] or [np.empty(0, np.int64)])
        hashes = np.concatenate([part for _, part in self._keys] or [np.empty(0, np.int32)])
        if len(self._keys) > 1:
            order = np.argsort(row, kind="stable")
            row, hashes = row[order], hashes[order]
        kept = is_indexed(self.frames)[row]
        if not kept.all():
            row, hashes = row[kept], hashes[kept]
        return IndexKeys(row, hashes, self.offsets[row], self.times[row])


def is_queued(frames: Frames) -> np.ndarray:
    """Returns which records get a unit, bool per frame; the columnar form of `commit_log.is_queued`."""
    return np.asarray(frames.column("sys_flag") & commit_log.SysFlag.TRANSACTION_PREPARED == 0)


def is_indexed(frames: Frames) -> np.ndarray:
    """Returns which records' keys are indexed, bool per frame; the columnar form of `commit_log.is_indexed`."""
    rollback = commit_log.SysFlag.TRANSACTION_ROLLBACK
    return np.asarray(frames.column("sys_flag") & commit_log.TRANSACTION_MASK != rollback)
