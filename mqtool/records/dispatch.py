"""Dispatch: what the broker writes to queues and index for the records of the log.

`request_of` has the rule for one record: read it first. `Dispatcher` has it for columns: one call dispatches all
frames of a window, `native.logs` most of them, the form for one record those of multi-dispatch, inner batches and
numbers in properties. `tests/property/test_dispatch.py` compares the two. `queue_build` and `index_chains` decide where
units and keys are stored. Source: DispatchRequest, CommitLog.checkMessageAndReturnSize,
DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue, IndexService.buildIndex (4.9.7, 5.5.0),
ConsumeQueue.multiDispatchLmqQueue, MultiDispatchUtils (5.5.0), DefaultMessageStore.checkMultiDispatchQueue (4.9.7).
Docs page: docs/rebuild.md.
"""

from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from mqtool import native
from mqtool.errors import FormatError
from mqtool.formats import commit_log, index_file, java, properties
from mqtool.formats.commit_log import Record
from mqtool.formats.consume_queue import tags_code
from mqtool.formats.service_records import due
from mqtool.formats.topics import RETRY_PREFIX, SCHEDULE_TOPIC, SYSTEM_PREFIX, is_lmq
from mqtool.records.frames import Frames
from mqtool.records.number_sets import TopicTable

STORED_FIELDS = ("physical_offset", "size", "tags_code", "store_timestamp")
"""Fields of `QueueUnits` that units store, in their order; a ConsumeQueue has the first three."""

BATCH_FIELDS = (*STORED_FIELDS, "queue_offset", "batch_size")
"""Fields of `QueueUnits` in the order of `BatchConsumeQueueUnit`."""

_NEVER = (RETRY_PREFIX, SYSTEM_PREFIX)

_SPLITTER = ","

_PATH_SEPARATOR = "/"


class DispatchRules(Struct, frozen=True):
    """Settings of a broker that change dispatch."""

    index_tags: bool = True  # TAGS gets an index entry too (5.5)
    # INNER_MULTI_DISPATCH is followed (enableMultiDispatch). Records have the property with the offsets only if the
    # broker had this enabled.
    multi_dispatch: bool = True
    lmq_everywhere: bool = False  # also for retry, system and schedule topics (4.9)
    light_queues: bool = True  # names that begin with `%LMQ%` mean queue 0 (enableLmq)
    # Further queues with a slash in their name get no unit (5.5). False lists them too, for callers that report that
    # such a queue cannot be created.
    drops_paths: bool = False
    delay_levels: tuple[int, ...] = ()  # delay of each level in ms
    # Topics with BatchConsumeQueues (topic attribute queue.type=BatchCQ).
    batch_topics: frozenset[str] = field(default_factory=frozenset)


def rules_for(
    release: tuple[int, ...],
    *,
    multi_dispatch: bool,
    delay_levels: tuple[int, ...],
    batch_topics: frozenset[str] = frozenset(),
    light_queues: bool = True,
    drops_paths: bool = False,
) -> DispatchRules:
    """Returns the rules of a release, with options of `DispatchRules`.

    For a release that was detected, it is the one assumed for it (`formats.release.assumed_release`): a store is opened
    by that one next.
    """
    return DispatchRules(
        index_tags=release >= (5, 4),
        multi_dispatch=multi_dispatch,
        lmq_everywhere=release < (5,),
        light_queues=light_queues,
        drops_paths=drops_paths,
        delay_levels=delay_levels,
        batch_topics=batch_topics,
    )


class _Columns(Struct, frozen=True):
    """Rows as columns of equal length, which are the fields of a subclass."""

    row: np.ndarray  # int64, the frame of each row

    def __len__(self) -> int:
        return len(self.row)

    def select(self, which: "np.ndarray | slice") -> Self:
        """Returns the rows that a mask, an index array or a slice chooses."""
        return type(self)(*(getattr(self, name)[which] for name in self.__struct_fields__))

    def tuples(self, *names: str) -> Iterator[tuple[int, ...]]:
        """Yields some fields of each row."""
        return zip(*(getattr(self, name).tolist() for name in names), strict=True)


class QueueUnits(_Columns, frozen=True):
    """Units as columns of equal length, in the order in which the broker writes them."""

    row: np.ndarray  # int64, the frame of each unit; a frame has several units if it is dispatched to LMQs
    topic: np.ndarray  # int32, number in `Dispatcher.topics`
    queue_id: np.ndarray  # int32
    queue_offset: np.ndarray  # int64; in a BatchConsumeQueue that of the record's first message
    physical_offset: np.ndarray  # int64, as the record states it
    size: np.ndarray  # int32, total_size
    tags_code: np.ndarray  # int64; never an address in an extension
    store_timestamp: np.ndarray  # int64 ms
    batch_size: np.ndarray  # int16, messages in the record; more than 1 only in inner batches


class IndexKeys(_Columns, frozen=True):
    """Index keys as columns, in the broker's order: for each record the unique key, the words of KEYS, TAGS."""

    row: np.ndarray  # int64, the frame of each key; ascending
    key_hash: np.ndarray  # int32, as an index entry stores it
    physical_offset: np.ndarray  # int64, as the record states it
    store_timestamp: np.ndarray  # int64 ms


class Oddity(Struct, frozen=True):
    """A record that the broker could not dispatch as it is. Its plain unit is built nevertheless."""

    physical_offset: int
    detail: str


class Dispatched(Struct, frozen=True):
    """Result of dispatching some frames."""

    topic: np.ndarray  # int32 per frame, number in `Dispatcher.topics`
    units: QueueUnits  # and keys: for the queues and for the index
    keys: IndexKeys
    oddities: tuple[Oddity, ...]  # records that no broker can have written, or that no broker can read
    has_batches: bool  # whether a record has INNER_BASE, a number that recovery parses too


class FurtherQueues(NamedTuple):
    """The further queues that a record names."""

    queues: list[tuple[str, int]]  # name and queue offset of each, up to the first unreadable one
    problem: str = ""  # why others are missing, in words; "" if none are
    # Queue offset that Java cannot parse; None if there is none. At such a record the broker's dispatch stops forever;
    # if the numbers of names and offsets differ, it drops all of them.
    not_a_number: str | None = None


_NONE = FurtherQueues([])


def has_further_queues(topic: str) -> bool:
    """Whether 5.x dispatches records of a topic to further queues; 4.9 does so for every topic."""
    return topic != SCHEDULE_TOPIC and not topic.startswith(_NEVER)


def further_queues(topic: str, queues: str, offsets: str, rules: DispatchRules) -> FurtherQueues:
    """Returns the further queues of a record by INNER_MULTI_DISPATCH and INNER_MULTI_QUEUE_OFFSET, "" if missing."""
    if not queues.strip() or not offsets.strip() or not rules.multi_dispatch:
        return _NONE
    if not rules.lmq_everywhere and not has_further_queues(topic):
        return _NONE
    names, places = (java.split_drop_trailing(text, _SPLITTER) for text in (queues, offsets))
    if len(names) != len(places):
        problem = f"{len(names)} queues in INNER_MULTI_DISPATCH, {len(places)} in INNER_MULTI_QUEUE_OFFSET"
        return FurtherQueues([], problem)
    further: list[tuple[str, int]] = []
    for name, place in zip(names, places, strict=True):
        if rules.drops_paths and _PATH_SEPARATOR in name:
            continue
        try:
            further.append((name, java.parse_long(place)))
        except FormatError as error:
            return FurtherQueues(further, f"INNER_MULTI_QUEUE_OFFSET: {error}", place)
    return FurtherQueues(further)


def queue_id_of(name: str, own: int, rules: DispatchRules) -> int:
    """Returns the queue id of a record in a further queue; a light queue has only queue 0."""
    return 0 if rules.light_queues and is_lmq(name) else own


class DispatchRequest(NamedTuple):
    """One record."""

    topic: str  # and queue_id, queue_offset: its place in its queue, as stored
    queue_id: int
    queue_offset: int
    physical_offset: int  # as stored
    size: int  # total_size of the record in bytes
    tags_code: int  # Java hash of TAGS, or the deliver time of a delayed message
    store_timestamp: int  # ms since epoch
    sys_flag: int  # as stored
    properties: dict[str, str]  # decoded
    base_queue_offset: int  # and batch_size: of an inner batch; otherwise its queue offset and 1
    batch_size: int

    @property
    def is_queued(self) -> bool:
        """Whether the record gets a unit (CommitLogDispatcherBuildConsumeQueue)."""
        return commit_log.is_queued(self.sys_flag)

    @property
    def is_indexed(self) -> bool:
        """Whether the record's keys are indexed; those of rolled-back records are not (IndexService.buildIndex)."""
        return commit_log.is_indexed(self.sys_flag)

    def further_queues(self, rules: DispatchRules) -> FurtherQueues:
        """Returns the further queues that get a unit for the record."""
        names = self.properties.get(properties.INNER_MULTI_DISPATCH, "")
        offsets = self.properties.get(properties.INNER_MULTI_QUEUE_OFFSET, "")
        return further_queues(self.topic, names, offsets, rules)


def key_hashes(topic: str, values: dict[str, str], *, with_tags: bool) -> list[int]:
    """Returns the hashes to index of a record: of the unique key, of each word of KEYS and, in 5.5, of TAGS."""
    texts = [index_file.key_text(topic, word) for word in properties.keys_of(values)]
    if properties.UNIQUE_KEY in values:
        texts.insert(0, index_file.key_text(topic, values[properties.UNIQUE_KEY]))
    if with_tags and properties.TAGS in values:
        texts.append(index_file.tag_key_text(topic, values[properties.TAGS]))
    return [index_file.key_hash(text) for text in texts]


def request_of(record: Record, rules: DispatchRules) -> DispatchRequest:
    """Returns the request of a record.

    Raises FormatError if a property that must be a number is not; the broker treats such a record as damaged.
    """
    topic = java.decode_utf8(record.topic)
    values = properties.decode(record.properties)
    base, count = record.queue_offset, 1
    if properties.INNER_NUM in values and properties.INNER_BASE in values:
        base, count = java.parse_long(values[properties.INNER_BASE]), java.parse_short(values[properties.INNER_NUM])
    return DispatchRequest(
        topic,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        record.total_size,
        tags_code_of(topic, values, record.store_timestamp, rules),
        record.store_timestamp,
        record.sys_flag,
        values,
        base,
        count,
    )


def tags_code_of(topic: str, values: dict[str, str], store_timestamp: int, rules: DispatchRules) -> int:
    """Returns the tags code of a record; raises FormatError if its delay level must be a number and is not."""
    level_text = values.get(properties.DELAY_LEVEL) if topic == SCHEDULE_TOPIC else None
    time = due(store_timestamp, java.parse_int(level_text), rules.delay_levels) if level_text is not None else None
    return tags_code(values.get(properties.TAGS)) if time is None else time


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
        """Returns what the broker would write for valid frames (`Frames.valid`) in CommitLog order."""
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
        topic, values = java.decode_utf8(record.topic), properties.decode(record.properties)
        self.topic[row] = self.dispatcher.topics.number_of(topic)
        try:
            self.tags_code[row] = tags_code_of(topic, values, record.store_timestamp, rules)
        except FormatError:
            self.tags_code[row] = tags_code(values.get(properties.TAGS))
            self._add_oddity(row, f"DELAY is not a number: {values[properties.DELAY_LEVEL][:20]!r}")
        if keys:
            hashes = key_hashes(topic, values, with_tags=rules.index_tags)
            self._keys.append((np.full(len(hashes), row), np.array(hashes, np.int32)))
        further = values.get(properties.INNER_MULTI_DISPATCH), values.get(properties.INNER_MULTI_QUEUE_OFFSET)
        if rules.multi_dispatch and further[0] is not None and further[1] is not None:
            self._lmq.append((row, further[0], further[1]))
        if properties.INNER_BASE in values:
            self.has_batches = True
            if topic in rules.batch_topics and properties.INNER_NUM in values:
                self._batches[row] = values[properties.INNER_NUM], values[properties.INNER_BASE]

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
        columns = zip(("row", "topic", "queue_id", "queue_offset"), "qiiq", zip(*extra, strict=True), strict=True)
        changed = {name: np.array(column, kind) for name, kind, column in columns}
        chosen = units.select(np.searchsorted(row, changed["row"]))
        lmq = replace(chosen, **changed, batch_size=np.ones(len(extra), np.int16))
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
        further = further_queues(topic, queues, offsets, self.rules)
        if further.problem:
            self._add_oddity(frame, further.problem)
        own, number_of = int(self.frames.column("queue_id")[frame]), self.dispatcher.topics.number_of
        return [(frame, number_of(name), queue_id_of(name, own, self.rules), at) for name, at in further.queues]

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
