"""The state of the store when the check began: its files, the end of the log, whether a broker is running.

All tasks, in any process, use one survey, so that a store that is being written to is checked as of one moment. It
is plain data that is sent to worker processes. `Recovery` is how far back the broker's recovery would start, and
therefore what it repairs, as far as `verify` needs it. Source: ConsumeQueue.recover, MappedFileQueue.doLoad (4.9.7,
5.5.0).
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
from msgspec import Struct, field

from mqtool.errors import StoreError
from mqtool.formats import file_names, index_file
from mqtool.formats.codec import Unit
from mqtool.formats.config_files import BATCH_QUEUES, SIMPLE_QUEUES
from mqtool.formats.consume_queue import BATCH_CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT
from mqtool.formats.index_file import ENTRY, HEADER, HEADER_SIZE
from mqtool.formats.release import Release, release_of
from mqtool.formats.topics import SCHEDULE_TOPIC
from mqtool.records.damage import Damage, Tail
from mqtool.records.dispatch import DispatchRules
from mqtool.records.index_chains import time_diffs
from mqtool.store import Store
from mqtool.store.config.rules import DELAY_LEVELS_KEY, is_possible_delay
from mqtool.store.files import LARGEST, MappedFile, ReadFile, is_regular, list_directory, list_mapped_files, obstruction
from mqtool.store.index_file import Shape, shape_of
from mqtool.store.layout import LedgerPlace, queue_directories
from mqtool.store.lock import lock_holder
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.log.log_walk import QueueStartIndex
from mqtool.store.log.selection import Globs
from mqtool.store.queues.consume_queue import Queue, UnitCache
from mqtool.store.queues.rocksdb_queues import has_queues_only_in_database
from mqtool.store.version import Version
from mqtool.verify.findings import Severity

CHUNK_BYTES = 1 << 20
"""Approximate bytes of units read at a time."""

_FILES_SCANNED = 3
"""Number of a queue's last files that recovery reads."""


class IndexPlan(Struct, frozen=True):
    """The index files of a store, and the begin time of each."""

    files: tuple[tuple[Path, int], ...] = ()  # path and length, oldest first
    strays: tuple[Path, ...] = ()  # other files in index/
    shape: Shape | None = None  # of all of them, None if it is unknown
    # Physical offset of each file's first entry, int64 ascending; without files that have no entries.
    starts: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    # The begin time in the same file's header.
    begins: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    def times(self, physical: np.ndarray, stored: np.ndarray) -> np.ndarray:
        """Returns the seconds that entries state (IndexFile.putKey); the records' physical offsets are ascending."""
        if not len(physical) or not len(self.starts):
            return np.zeros(len(physical), np.int64)
        low, high = np.searchsorted(self.starts, physical[[0, -1]], side="right") - 1
        at = low if low == high else np.searchsorted(self.starts, physical, side="right") - 1
        begin = self.begins[np.maximum(at, 0)]
        return time_diffs(stored, begin)


def plan_index(store: Store) -> IndexPlan:
    """Examines the index files of a store.

    A shape that most newest entries of some file fit is taken, too: a damaged file is to be compared with the log as
    well as the others.
    """
    files, strays = [], []
    directory = store.path / file_names.INDEX
    for entry in list_directory(directory):
        is_index = file_names.is_index_file_name(entry.name) and is_regular(entry)
        if is_index:
            files.append((directory / entry.name, entry.stat().st_size))
        else:
            strays.append(directory / entry.name)
    shape = shape_of(store.disk_index_files(), store.config, may_be_damaged=True) if files else None
    firsts = sorted(first for path, _ in files if shape and (first := _first_entry(path, shape)))
    columns = np.array(firsts, np.int64).reshape(-1, 2)
    return IndexPlan(tuple(files), tuple(strays), shape, columns[:, 0], columns[:, 1])


def _first_entry(path: Path, shape: Shape) -> tuple[int, int] | None:
    """Returns the physical offset of a file's first entry, and the begin time; None if it has no entries."""
    try:
        with ReadFile(path) as file:
            header = HEADER.parse_start(file.read(0, HEADER_SIZE))
            data = file.read(index_file.entry_position(1, shape.slots), ENTRY.size)
    except StoreError:
        return None
    if len(data) < ENTRY.size or not any(data):
        return None
    return ENTRY.parse(data).physical_offset, header.begin_timestamp


class QueueFiles(Struct, frozen=True):
    """A queue's files."""

    topic: str  # and queue_id: of the queue
    queue_id: int
    is_batch: bool  # 46-byte units below batchconsumequeue/, else 20-byte units below consumequeue/
    path: Path  # its directory
    files: tuple[MappedFile, ...]  # by file_from_offset
    strays: tuple[Path, ...]  # other files in the directory

    @property
    def key(self) -> tuple[str, int]:
        """Topic and queue id."""
        return self.topic, self.queue_id

    @property
    def unit(self) -> Unit:  # type: ignore[type-arg]
        """Layout of its units."""
        return BATCH_CONSUME_QUEUE_UNIT if self.is_batch else CONSUME_QUEUE_UNIT

    @property
    def first_offset(self) -> int:
        """Number of the first unit on disk; for ConsumeQueues its queue offset."""
        return self.files[0].base // self.unit.size if self.files else 0

    def chunks(self) -> Iterator[tuple[MappedFile, int, np.ndarray]]:
        """Yields (file, number of the first unit in that file, units); unwritten ends of files are left out."""
        for file in self.files:
            for first, units in unit_chunks(file, self.unit):
                yield file, first, units


def unit_chunks(
    file: MappedFile,
    unit: "Unit",  # type: ignore[type-arg]
    memory: memoryview | None = None,
) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (number of the first unit, units) of one file up to its last extent with data.

    Each chunk is read into `memory`, `CHUNK_BYTES`, if it is given: then units are only valid until the next ones are
    taken.
    """
    step = CHUNK_BYTES // unit.size
    with ReadFile(file.path) as opened:
        end = -(-min(opened.data_end(), file.size) // unit.size)
        for first in range(0, end, step):
            position, count = first * unit.size, min(step, end - first) * unit.size
            data: bytes | memoryview
            if memory is None:
                data = opened.read(position, count)
            else:
                data = memory[: opened.read_into(position, memory[:count])]
            units = unit.rows(data)
            if len(units):
                yield first, units


class Survey(Struct, frozen=True, dict=True):
    """The moment that is judged."""

    root: Path  # the store's root as the user named it
    config: Path | None  # the file of `--config`, if there was one
    segments: tuple[MappedFile, ...]  # of the CommitLog, by physical offset
    last_used: int  # number of the last segment that holds anything
    min_offset: int  # and end: bounds of the log; `end` is after its last record
    end: int
    # Files after the last segment that hold bytes but no record, and what these are.
    behind: tuple[tuple[MappedFile, Tail], ...]
    queues: tuple[QueueFiles, ...]  # all queues by topic and queue id
    live: bool  # a broker holds the lock
    clean_stop: bool  # there is no abort file
    version: Version  # which release wrote the store
    rules: DispatchRules  # how records are dispatched
    delays_given: bool = False  # the configuration states messageDelayLevel; else `rules` has what most units show
    topics: tuple[str, ...] | None = None  # globs that narrow the check, None for all
    ledger: LedgerPlace | None = None  # place of the DLedger log in use, None without one
    has_dledger: bool = False  # and has_rocksdb: parts of the log or the queues are there and not read
    has_rocksdb: bool = False
    throttle: int | None = None  # bytes per second and process, None for no limit
    timeline: bool = False  # whether messages are counted by topic and minute
    broker: str | None = None  # release whose next start is evaluated; None for the detected one
    index: IndexPlan = field(default_factory=IndexPlan)  # the index files
    failure: str = ""  # why the end of the log could not be found, "" if it was; if not, `end` is the last file's
    # Directories that cannot be listed, with the reason: what is in them is unknown.
    unlisted: Mapping[Path, str] = field(default_factory=dict)

    def is_other_delay(self, topic: str, delay: int) -> bool:
        """Whether a delay in ms fits some other messageDelayLevel: it is one of a level, and none is configured."""
        return topic == SCHEDULE_TOPIC and not self.delays_given and is_possible_delay(delay)

    @property
    def release(self) -> Release:
        """The known release whose rules apply."""
        return self.version.release

    @property
    def releases(self) -> tuple[Release, ...]:
        """The releases of which one opens the store next: the given one, or those that may have written it."""
        return self.version.releases if self.broker is None else (release_of(self.broker),)

    @property
    def with_index(self) -> bool:
        """Whether the index is compared with the log: it cannot be narrowed to topics."""
        return self.topics is None and self.index.shape is not None

    def start_index(self) -> QueueStartIndex:
        """Returns the record starts according to the queues."""
        cache = UnitCache()
        kinds = {False: SIMPLE_QUEUES, True: BATCH_QUEUES}
        return QueueStartIndex(
            lambda: [
                Queue(*queue.key, kinds[queue.is_batch], queue.path, lambda: (self.min_offset, self.end), cache)
                for queue in self.queues
            ]
        )

    def is_unlisted(self, queue: tuple[str, int]) -> bool:
        """Whether a queue may have files in a directory that cannot be listed."""
        trees = [self.root / tree for tree in (file_names.CONSUME_QUEUE, file_names.BATCH_CONSUME_QUEUE)]
        places = [place for tree in trees for place in (tree, tree / queue[0], tree / queue[0] / str(queue[1]))]
        return bool(self.unlisted) and any(place in self.unlisted for place in places)

    @cached_property
    def _globs(self) -> Globs:
        return Globs(self.topics)

    def includes(self, topic: str) -> bool:
        """Whether a topic was requested."""
        return self._globs.matches(topic)


def survey(
    store: Store,
    topics: tuple[str, ...] | None = None,
    *,
    throttle: int | None = None,
    timeline: bool = False,
    broker: str | None = None,
) -> Survey:
    """Surveys a store."""
    queues = tuple(queue for queue in _queues(store.path) if queue.path not in store.unlisted)
    live = lock_holder(store.path) is not None
    log, tails, failure = _end_of_log(store, live=live)
    try:
        return Survey(
            root=store.path,
            config=store.config.file,
            segments=log.segments,
            last_used=len(log.segments) - 1 if failure else log.last_used if log.segments else 0,
            min_offset=log.min_offset,
            end=log.segments[-1].end if failure and log.segments else max(log.max_offset, log.min_offset),
            behind=tails,
            queues=queues,
            live=live,
            clean_stop=store.clean_stop,
            version=store.version,
            rules=store.dispatch_rules,
            delays_given=bool(store.config.values.get(DELAY_LEVELS_KEY)),
            topics=topics,
            ledger=store.layout.ledger,
            has_dledger=store.layout.has_unread_ledger,
            has_rocksdb=has_queues_only_in_database(store.path, store.config),
            throttle=throttle,
            broker=broker,
            timeline=timeline,
            index=plan_index(store),
            failure=failure or _unlisted_log(store),
            unlisted=store.unlisted,
        )
    finally:
        log.close()


def _unlisted_log(store: Store) -> str:
    """Returns why the log's directories could not be listed, "" if they were."""
    return next((f"{path}: {why}" for path, why in store.unlisted.items() if store.layout.is_of_log(path)), "")


def correctly_named(files: tuple[MappedFile, ...], size: int | None) -> tuple[MappedFile, ...]:
    """Returns the segments whose names are multiples of the segment size; the others' contents have no valid offset."""
    return tuple(file for file in files if not size or file.base % size == 0 or file.size != size)


def _end_of_log(store: Store, *, live: bool) -> tuple[CommitLog, tuple[tuple[MappedFile, Tail], ...], str]:
    """Returns the result of `_used_log`; if segments cannot be read, all segments and the reason."""
    try:
        log, tails = _used_log(store, live=live)
        _ = log.max_offset, store.commit_log.max_offset  # it has misnamed segments too
    except StoreError as error:
        return CommitLog(store.layout.log_segments), (), str(error)
    return log, tails, ""


def _used_log(store: Store, *, live: bool) -> tuple[CommitLog, tuple[tuple[MappedFile, Tail], ...]]:
    """Returns the log up to the last segment that contains a record, and what the files after it contain if not zeros.

    A copy of another segment, or garbage, is data but not part of the log.
    """
    known = store.layout.commit_log_size
    files = correctly_named(store.layout.segments, known.value if known else None)
    tails: list[tuple[MappedFile, Tail]] = []
    while True:
        log = CommitLog(files, store.newest_records)
        log.start_index = store.commit_log.start_index
        if not log.segments or log.last_used == 0 or live:
            return log, tuple(tails)
        walk = log.walk_segment(log.last_used, crc=False)
        if any(not isinstance(item, Damage) for item in walk) or walk.tail is None or walk.ended_by_blank:
            return log, tuple(tails)
        segment = log.segments[log.last_used]
        tails.append((segment, walk.tail))
        log.close()
        files = tuple(file for file in files if file.base < segment.base)


def _queues(root: Path) -> Iterator[QueueFiles]:
    queue_files = []
    for name, is_batch in ((file_names.CONSUME_QUEUE, False), (file_names.BATCH_CONSUME_QUEUE, True)):
        for topic, queue_id, path in queue_directories(root / name):
            listed = list_mapped_files(path)
            queue_files.append(QueueFiles(topic, queue_id, is_batch, path, listed.files, listed.strays))
    yield from sorted(queue_files, key=lambda queue: (queue.topic, queue.queue_id, queue.is_batch))


def stray_file(path: Path, offset: str, release: Release, *, is_last: bool) -> tuple[int | None, str, Severity | None]:
    """Returns its length, a description, and its severity if that differs from the finding's default.

    The length is None for a directory; `offset` is the name that the file should have. Since 5.5 a broker skips
    directories, and deletes an empty file that sorts after all others (`is_last`).
    """
    if path.is_dir():
        return None, "a directory", None if release < (5, 0) else Severity.NOTE
    length = path.stat().st_size if path.is_file() else 0
    evidence = f"{length} bytes; its name is not a {offset} of 20 digits"
    if obstacle := obstruction(path):
        evidence = (
            f"expected a regular file, found {obstacle}: what it should contain cannot be read; mount or restore it"
        )
    if path.name == file_names.UNFINISHED:
        evidence = (
            "left by an interrupted change: run the same mqtool apply again, or mqtool undo; move it out of the "
            "store only if .mqtool/journal does not exist"
        )
    if length > LARGEST:
        evidence = f"{length} bytes, more than a broker can map ({LARGEST})"
    return length, evidence, Severity.WARNING if length == 0 and is_last and release >= (5, 0) else None


class Recovery(Struct, frozen=True):
    """What the next start reads."""

    # Physical offset from which records are dispatched again; None if none are (after a clean stop).
    scan_start: int | None

    def repairs_records(self, start: int) -> bool:
        """Whether records from a physical offset on are dispatched again."""
        return self.scan_start is not None and start >= self.scan_start

    def repairs_units(self, queue: QueueFiles, first: int, start: int) -> bool:
        """Whether the next start writes units again, from unit number `first` on, for records from offset `start` on.

        Recovery must discard them first: it reads only the last files of a queue, and ends the queue at the first
        invalid unit.
        """
        if not self.repairs_records(start):
            return False
        looked_at = queue.files[-_FILES_SCANNED:]
        return not looked_at or first * queue.unit.size >= looked_at[0].base


def recovery_plan(survey: Survey, store: Store) -> Recovery:
    """Returns what the next start would read; nothing if a segment needed to determine this cannot be read.

    In that case the log's check is unknown, and no finding depends on what a start would repair.
    """
    try:
        return Recovery(None if survey.live else store.recovery_start)
    except StoreError:
        return Recovery(None)
