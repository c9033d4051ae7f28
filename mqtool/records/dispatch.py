"""Dispatch in columns: what the broker would write to queues and index for the records of some frames.

The broker dispatches one record at a time (DispatchRequest). Here one call dispatches all frames of a window, and
only rare cases (multi-dispatch, inner batches, numbers in properties) are handled record by record. `queue_build` and
`index_build` decide where units and keys are stored. Source: CommitLog.checkMessageAndReturnSize,
DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue, ConsumeQueue.multiDispatchLmqQueue, IndexService.buildIndex
(4.9.7, 5.5.0). Docs page: docs/rebuild.md.
"""

from typing import Any

import numpy as np

from mqtool.errors import FormatError
from mqtool.formats import commit_log, java
from mqtool.formats import properties as names
from mqtool.formats.delay_levels import due
from mqtool.formats.topics import SCHEDULE_TOPIC
from mqtool.native import native
from mqtool.records import multi_dispatch
from mqtool.records.dispatched import Dispatched, DispatchRules, IndexKeys, Oddity, QueueUnits
from mqtool.records.frames import Frames
from mqtool.records.topics import TopicTable
from mqtool.records.trailers import Trailers, trailers_of
from mqtool.records.words import index_hashes, java_hashes, joined_hashes


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
        compiled = native()
        rest = None if compiled is None or not len(frames) else window.add_compiled(compiled.logs, keys=keys)
        for trailers in trailers_of(frames if rest is None else frames.select(rest)):
            if rest is not None:
                trailers.rows = rest[trailers.rows]
            window.add(trailers, keys=keys)
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

    def add(self, trailers: Trailers, *, keys: bool) -> None:
        """Computes topics, tags codes and keys of one buffer of trailers."""
        topic = self.dispatcher.topics.numbers_of(trailers)
        self.topic[trailers.rows] = topic
        starts, lengths = trailers.property_slices.value_of(names.TAGS)
        tagged = np.flatnonzero(lengths > 0)
        hashes, units = java_hashes(trailers.data, starts[tagged], lengths[tagged])
        self.tags_code[trailers.rows[tagged]] = hashes.view(np.int32)
        if keys:
            self._add_keys(trailers, topic, names.UNIQUE_KEY)
            self._add_keys(trailers, topic, names.KEYS)
            if self.rules.index_tags:
                marked = self.dispatcher.topics.tag_hashes[topic[tagged]]
                self._keys.append((trailers.rows[tagged], joined_hashes(marked, hashes, units)))
        self._delay(trailers, topic)
        self._find_lmq(trailers)
        self._find_batches(trailers, topic)

    def add_compiled(self, logs: Any, *, keys: bool) -> np.ndarray:
        """Computes topics, tags codes and keys by `native.logs`; returns the records that it leaves out."""
        frames, table = self.frames, self.dispatcher.topics
        starts, lengths = frames.topic_start, frames.topic_length
        positions = (starts, lengths, frames.properties_start, frames.properties_length)
        room = int(frames.properties_length.sum()) + 2 * len(frames) if keys else 0
        key_rows, hashes = np.empty(room, np.int64), np.empty(room, np.uint32)
        others = np.empty(len(frames), np.int64)
        arrays = (self.topic, self.tags_code, key_rows, hashes, others)
        options = (table.slots, self.dispatcher.schedule, keys, self.rules.index_tags)
        done = logs.dispatch(frames.data, *positions, *options, 0, 0, 0, *arrays)
        while (row := done[0]) < len(frames):  # its topic is new
            table.learn(frames.data[starts[row] : starts[row] + lengths[row]].tobytes())
            done = logs.dispatch(frames.data, *positions, *options, *done, *arrays)
        _, key_count, other_count = done
        self._keys.append((key_rows[:key_count], hashes[:key_count]))
        return others[:other_count]

    def _add_keys(self, trailers: Trailers, topic: np.ndarray, name: str) -> None:
        starts, lengths = trailers.property_slices.value_of(name)
        spaces = _spaces(trailers, starts, lengths) if name == names.KEYS else np.empty(0, np.int64)
        rows = np.flatnonzero(lengths > 0)
        starts, lengths = starts[rows], lengths[rows]
        if len(spaces):
            rows, starts, lengths = _words(rows, starts, lengths, spaces)
        hashes, units = java_hashes(trailers.data, starts, lengths)
        left = self.dispatcher.topics.key_hashes[topic[rows]]
        self._keys.append((trailers.rows[rows], joined_hashes(left, hashes, units)))

    def _delay(self, trailers: Trailers, topic: np.ndarray) -> None:
        """Replaces the tag's hash by the deliver time in records of the schedule topic."""
        delayed = np.flatnonzero(topic == self.dispatcher.schedule)
        if not len(delayed):
            return
        starts, lengths = trailers.property_slices.value_of(names.DELAY_LEVEL)
        seen: dict[bytes, int | None] = {}
        for row in delayed[lengths[delayed] > 0].tolist():
            text = trailers.data[starts[row] : starts[row] + lengths[row]].tobytes()
            if text not in seen:
                seen[text] = _level(text)
            level, frame = seen[text], int(trailers.rows[row])
            if level is None:
                self._add_oddity(frame, f"DELAY is not a number: {text[:20]!r}")
            elif (time := due(int(self.times[frame]), level, self.rules.delay_levels)) is not None:
                self.tags_code[frame] = time

    def _find_lmq(self, trailers: Trailers) -> None:
        if not self.rules.multi_dispatch:
            return
        queues, offsets = (
            _texts(trailers, name) for name in (names.INNER_MULTI_DISPATCH, names.INNER_MULTI_QUEUE_OFFSET)
        )
        for row in queues.keys() & offsets.keys():
            self._lmq.append((int(trailers.rows[row]), queues[row], offsets[row]))

    def _find_batches(self, trailers: Trailers, topic: np.ndarray) -> None:
        self.has_batches = self.has_batches or len(trailers.property_slices.named(names.INNER_BASE)) > 0
        batch_topics = [self.dispatcher.topics.number_of(name) for name in self.rules.batch_topics]
        if not batch_topics or not np.isin(topic, batch_topics).any():
            return
        counts, bases = _texts(trailers, names.INNER_NUM), _texts(trailers, names.INNER_BASE)
        both = counts.keys() & bases.keys()
        self._batches.update((int(trailers.rows[row]), (counts[row], bases[row])) for row in both)

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
        first = self._keys[0][0] if self._keys else np.empty(0, np.int64)
        if len(self._keys) == 1:
            row, hashes = self._keys[0]
        elif self._keys and all(np.array_equal(rows, first) for rows, _ in self._keys[1:]):
            row = np.repeat(first, len(self._keys))  # each record has one key of each sort
            hashes = np.stack([part for _, part in self._keys], axis=1).reshape(-1)
        else:
            row = np.concatenate([rows for rows, _ in self._keys] or [first])
            hashes = np.concatenate([part for _, part in self._keys] or [np.empty(0, np.uint32)])
            order = np.argsort(row, kind="stable")
            row, hashes = row[order], hashes[order]
        kept = is_indexed(self.frames)[row]
        if not kept.all():
            row, hashes = row[kept], hashes[kept]
        return IndexKeys(row, index_hashes(hashes), self.offsets[row], self.times[row])


def is_queued(frames: Frames) -> np.ndarray:
    """Returns which records get a unit, bool per frame; the columnar form of `commit_log.is_queued`."""
    return np.asarray(frames.column("sys_flag") & commit_log.SysFlag.TRANSACTION_PREPARED == 0)


def is_indexed(frames: Frames) -> np.ndarray:
    """Returns which records' keys are indexed, bool per frame; the columnar form of `commit_log.is_indexed`."""
    rollback = commit_log.SysFlag.TRANSACTION_ROLLBACK
    return np.asarray(frames.column("sys_flag") & commit_log.TRANSACTION_MASK != rollback)


def _spaces(trailers: Trailers, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns the positions of all spaces inside values; each row of the trailers has at most one value."""
    is_present = lengths > 0
    column = (starts - trailers.row_start)[is_present]
    if not len(column):
        return column
    low, high = int(column.min()), int((column + lengths[is_present]).max())
    if not (trailers.table[:, low:high] == ord(names.KEY_SEPARATOR)).any():
        return column[:0]
    spaces = np.flatnonzero(trailers.data == ord(names.KEY_SEPARATOR))
    spaces = spaces[(spaces >= trailers.row_start[0]) & (spaces < trailers.row_start[-1] + trailers.width)]
    row = trailers.row_of(spaces)
    return spaces[(spaces >= starts[row]) & (spaces < starts[row] + lengths[row])]


def _words(
    rows: np.ndarray, starts: np.ndarray, lengths: np.ndarray, spaces: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Splits values at their spaces; empty words are left out."""
    ends = starts + lengths
    owner = np.searchsorted(ends, spaces, side="right")
    first = np.sort(np.concatenate([starts, spaces + 1]))
    size = np.sort(np.concatenate([ends, spaces])) - first
    kept = size > 0
    return np.repeat(rows, np.bincount(owner, minlength=len(rows)) + 1)[kept], first[kept], size[kept]


def _texts(trailers: Trailers, name: str) -> dict[int, str]:
    """Returns the values of a rare property, by row of the trailers."""
    if not len(trailers.property_slices.named(name)):
        return {}
    starts, lengths = trailers.property_slices.value_of(name)
    texts = {}
    for row in np.flatnonzero(lengths > 0).tolist():
        value = trailers.data[starts[row] : starts[row] + lengths[row]].tobytes()
        texts[row] = java.decode_utf8(value)
    return texts


def _level(text: bytes) -> int | None:
    try:
        return java.parse_int(java.decode_utf8(text))
    except FormatError:
        return None
