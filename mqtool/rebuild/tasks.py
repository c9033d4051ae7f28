"""A rebuild of queues and index in tasks that share nothing but a directory, as a cluster runs them.

In a first round, a task for each segment writes its units, by groups of queues, and its index keys. In a second one, a
task for each group, and for each index file, reads its share of every segment in log order and writes its files.
Batches and their order are those of one process, so the files have the same bytes. Each attempt at a task has a
directory of its own. Files are taken only from attempts whose results arrived, so what others wrote does not count.
"""

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any
from uuid import uuid4
from zipfile import ZipFile

import numpy as np
from msgspec import Struct, field, msgpack
from msgspec.structs import replace

from mqtool.errors import StoreError
from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT
from mqtool.formats.index_file import IndexHeader
from mqtool.jobs.atomic import writing
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.rebuild.files import OutputFiles
from mqtool.rebuild.job import claims_of
from mqtool.rebuild.metadata import Surveyor
from mqtool.rebuild.parts import BatchBuilder, DispatchBatch, Part, RebuildScope, parts_of, walk_part
from mqtool.rebuild.placement import LISTED, HoleBudget
from mqtool.rebuild.queue_writer import QueueName, UnitBatch
from mqtool.rebuild.settings import RebuildSettings
from mqtool.rebuild.sink import BitMaps, Claims, IndexWriter, Result, Sink, index_name
from mqtool.records.dispatch import IndexKeys
from mqtool.records.index_chains import IndexFileBuilder
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.store import Store, open_store

_GROUPS = 256
"""Groups of queues; one task writes the queues of a group."""
_BUFFERED = 64 << 20
"""Bytes of units that a walk collects before it writes them, about."""
_STEP = 1 << 20
"""Index keys read at a time."""
_KEY = np.dtype([("key_hash", "i4"), ("physical_offset", "i8"), ("store_timestamp", "i8")])
_UNITS, _KEYS = "units.zip", "keys"


class Job(Struct, frozen=True):
    """What every task needs; paths are absolute, and those under which all tasks reach the files."""

    store: Path
    config: BrokerConfig
    settings: RebuildSettings
    scope: RebuildScope
    log_bytes: int
    attempts: Path  # directory in which each attempt makes its own
    bit_maps: BitMaps | None = None
    has_survey: bool = False  # whether the log is surveyed, too
    walked: tuple[Path, ...] = ()  # directories that the first round wrote, in log order
    key_ends: tuple[int, ...] = ()  # number of keys up to the end of each of them

    def begin(self) -> Path:
        """Makes the directory of an attempt."""
        attempt = self.attempts / uuid4().hex
        with writing(attempt):
            attempt.mkdir()
        return attempt


class Answer(Struct):
    """What a task has read or written, and the directory with its files."""

    attempt: Path
    result: Result = field(default_factory=Result)
    groups: set[int] = field(default_factory=set)  # that have units
    batch_topics: set[str] = field(default_factory=set)  # as in `DispatchBatch`
    # Of each batch: number of keys, whether its last record has none, and the time after which it names index files.
    batches: list[tuple[int, bool, int]] = field(default_factory=list)
    surveyor: Surveyor | None = None
    fill_units: int = 0  # taken from the `HoleBudget`


class WalkTask(Struct, frozen=True):
    """Reads one segment."""

    part: Part

    def run(self, job: Job) -> Answer:
        """Writes its units and keys."""
        surveyor = Surveyor(is_first=False) if job.has_survey else None
        answer = Answer(job.begin(), surveyor=surveyor)
        builder = BatchBuilder(job.settings.rules, job.scope, surveyor.add if surveyor else None)
        with (
            writing(answer.attempt),
            ZipFile(answer.attempt / _UNITS, "w") as archive,
            (answer.attempt / _KEYS).open("wb") as keys,
        ):
            units = _Units(archive, answer)
            for batch in walk_part(self.part, builder, job.scope):
                _note(answer, batch)
                units.add(batch)
                if batch.keys is not None:
                    keys.write(_key_rows(batch.keys).tobytes())
            units.flush()
        return answer


def _note(answer: Answer, batch: DispatchBatch) -> None:
    answer.result.add_read(batch)
    answer.batch_topics |= batch.batch_topics
    for oddity in batch.oddities:
        answer.result.oddities.add(oddity)
    if answer.surveyor is not None:
        for damage in batch.damage:
            answer.surveyor.survey.damage.add(damage)
    keys = batch.keys
    if keys is None or not batch.records:
        return
    answer.result.keys += len(keys)
    if len(keys):  # see `spread`, and how `IndexWriter.add` names files
        is_last_without = bool(keys.row[-1] < batch.records - 1)
        answer.batches.append((len(keys), is_last_without, int(keys.store_timestamp[0])))
    else:
        answer.batches.append((0, True, batch.last_time))


class _Units:
    """Units of a segment on their way into an archive, whose members are named GROUP/NUMBER."""

    def __init__(self, archive: ZipFile, answer: Answer) -> None:
        self._archive, self._answer = archive, answer
        self._waiting: defaultdict[int, list[list[Any]]] = defaultdict(list)
        self._buffered = 0
        self._unwritable: set[QueueName] = set()

    def add(self, batch: DispatchBatch) -> None:
        for name, units in batch.queues:
            if name.is_path:
                arrays = [column.tobytes() for column in (units.offsets, units.units, units.times, units.counts)]
                self._waiting[_group_of(name)].append([name.topic, name.queue_id, arrays, units.properties])
                self._buffered += sum(map(len, arrays)) + sum(map(len, units.properties or ()))
            elif name not in self._unwritable and len(self._unwritable) < LISTED:
                self._unwritable.add(name)
                self._answer.result.unwritable.add(name)
        if self._buffered > _BUFFERED:
            self.flush()

    def flush(self) -> None:
        for group, rows in self._waiting.items():
            self._archive.writestr(f"{group}/{len(self._archive.filelist)}", msgpack.encode(rows))
        self._answer.groups |= self._waiting.keys()
        self._waiting.clear()
        self._buffered = 0


def _group_of(name: QueueName) -> int:
    return zlib.crc32(f"{name.topic}/{name.queue_id}".encode()) % _GROUPS


def _units_of(directory: Path, group: int) -> Iterator[list[tuple[QueueName, UnitBatch]]]:
    """Yields the units of a group in a segment, in the order in which they were added."""
    columns: list[np.dtype[Any]] = [np.dtype("i8"), CONSUME_QUEUE_UNIT.dtype, np.dtype("i8"), np.dtype("i2")]
    with ZipFile(directory / _UNITS) as archive:
        for member in archive.namelist():
            if not member.startswith(f"{group}/"):
                continue
            queues = []
            for topic, queue_id, arrays, properties in msgpack.decode(archive.read(member)):
                pairs = zip(arrays, columns, strict=True)  # an extension changes the units
                offsets, units, times, counts = (np.frombuffer(bytearray(data), kind) for data, kind in pairs)
                queues.append((QueueName(topic, queue_id), UnitBatch(offsets, units, times, counts, properties)))
            yield queues


def _key_rows(keys: IndexKeys) -> np.ndarray:
    rows = np.empty(len(keys), _KEY)
    for name in _KEY.names or ():
        rows[name] = getattr(keys, name)
    return rows


class QueueTask(Struct, frozen=True):
    """Writes the queues of one group."""

    group: int

    def run(self, job: Job) -> Answer:
        """Writes all their files."""
        answer = Answer(job.begin())
        with ExitStack() as opened, OutputFiles(answer.attempt) as output:

            @cache
            def of_store() -> Claims:
                return claims_of(opened.enter_context(open_store(job.store, job.config)))

            def claims(name: QueueName, offset: int) -> int | None:
                return of_store()(name, offset)  # only units that are not consecutive need it

            scope = replace(job.scope, index=False)
            sink = Sink(output, job.settings, scope, job.log_bytes, claims, job.bit_maps)
            before = sink.budget.remaining
            for directory in job.walked:
                for queues in _units_of(directory, self.group):
                    sink.add(DispatchBatch(0, queues=queues))
            answer.result = sink.finish()
            answer.fill_units = before - sink.budget.remaining
        return answer


class IndexTask(Struct, frozen=True):
    """Writes one index file."""

    name: str
    number: int  # files before it

    def run(self, job: Job) -> Answer:
        """Writes its entries and slots."""
        answer = Answer(job.begin())
        slots, places = job.settings.index_slots, job.settings.index_entries
        first = self.number * (places - 1)
        before = None
        for keys in _keys_between(job, max(0, first - 1), first):
            time, offset = int(keys.store_timestamp[-1]), int(keys.physical_offset[-1])
            before = IndexHeader(time, time, offset, offset, 0, places)
        with OutputFiles(answer.attempt) as output:
            writer = IndexWriter(output, slots, places)
            writer.only(self.name, IndexFileBuilder(slots, places, before))
            for keys in _keys_between(job, first, first + places - 1):
                writer.fill(keys)
            writer.finish()
        return answer


def _keys_between(job: Job, start: int, stop: int) -> Iterator[IndexKeys]:
    """Yields the keys with numbers from `start` to `stop`, among all keys of the log."""
    for directory, low, high in zip(job.walked, (0, *job.key_ends), job.key_ends, strict=False):
        for first in range(max(low, start), min(high, stop), _STEP):
            count = min(first + _STEP, high, stop) - first
            rows = np.fromfile(directory / _KEYS, _KEY, count, offset=(first - low) * _KEY.itemsize)
            yield IndexKeys(np.zeros(count, np.int64), *(rows[name] for name in _KEY.names or ()))


Task = WalkTask | QueueTask | IndexTask
Runner = Callable[[Job, list[Task], str, OnProgress], list[Answer]]
"""`run(job, tasks, what, on_progress)` returns the answers in the order of the tasks; `what` describes them."""


def rebuild_in_tasks(
    store: Store,
    work: Path,
    settings: RebuildSettings,
    scope: RebuildScope,
    run: Runner,
    *,
    bit_maps: BitMaps | None = None,
    surveyor: Surveyor | None = None,
    on_progress: OnProgress = ignore,
) -> Result:
    """Rebuilds as `job.rebuild` does, into the directory `store` of a work directory (`atomic.staged_directory`).

    The paths of both are absolute. A `surveyor` has seen the whole log on return. Raises StoreError, also where the
    holes of all queues together are more than one process would fill; what `run` raises.
    """
    log, attempts = store.commit_log, work / "attempts"
    attempts.mkdir()
    scope = replace(scope, properties=bit_maps is not None)
    job = Job(store.path, store.config, settings, scope, log.bytes_in_use, attempts, bit_maps, surveyor is not None)
    walks: list[Task] = [WalkTask(part) for part in parts_of(log, scope, cut=False)]
    walked = run(job, walks, f"read {len(walks)} segments", lambda done, total: on_progress(done, 2 * total))
    if surveyor is not None:
        for answer in walked:
            surveyor.join(answer.surveyor or Surveyor())
        surveyor.is_complete = True
    topics = frozenset[str]().union(*(answer.batch_topics for answer in walked))
    if topics and scope.queues:  # as `job.rebuild`, which starts again
        rules = replace(settings.rules, batch_topics=settings.rules.batch_topics | topics)
        job = replace(job, settings=replace(settings, rules=rules), has_survey=False)
        walked = run(job, walks, f"read {len(walks)} segments again", ignore)
    names = _index_names([row for answer in walked for row in answer.batches], settings.index_entries - 1)
    ends = tuple(accumulate(answer.result.keys for answer in walked))
    job = replace(job, walked=tuple(answer.attempt for answer in walked), key_ends=ends)
    groups = sorted(set[int]().union(*(answer.groups for answer in walked)))
    tasks: list[Task] = [*map(QueueTask, groups), *(IndexTask(name, number) for number, name in enumerate(names))]
    written = run(job, tasks, f"write {len(tasks)} parts", lambda done, total: on_progress(total + done, 2 * total))
    if sum(answer.fill_units for answer in written) > HoleBudget(job.log_bytes).remaining:
        reason = "its queues lack so many messages that their places are not filled in tasks; leave out --spark"
        raise StoreError(reason, store.path)
    for answer in written:
        _take(answer.attempt, work / "store")
    return _joined(walked, written, names)


def _index_names(batches: Sequence[tuple[int, bool, int]], room: int) -> list[str]:
    """Returns the names that `IndexWriter` gives the index files; `room` is for the keys of one."""
    names: list[str] = []
    total = 0
    for count, is_last_without, time in batches:
        total += count
        begun = -(-total // room) + (is_last_without and total % room == 0)
        while len(names) < begun:
            names.append(index_name(time, None, names[-1] if names else ""))
    return names


def _take(source: Path, target: Path) -> None:
    """Moves the files of a directory into another one, which may have some of its directories and none of its files."""
    for path in source.iterdir():
        place = target / path.name
        if place.is_dir():
            _take(path, place)
        else:
            path.rename(place)


def _joined(walked: Sequence[Answer], written: Sequence[Answer], names: list[str]) -> Result:
    """Returns the results of all tasks as one, everything in the order of one process."""
    whole = Result(index_files=names)
    for result in (answer.result for answer in (*walked, *written)):
        whole.next_offset = max(whole.next_offset, result.next_offset)
        for count in ("records", "units", "keys", "queues", "damaged_bytes"):
            setattr(whole, count, getattr(whole, count) + getattr(result, count))
        whole.damage.extend(result.damage.items, result.damage.count)
        whole.oddities.extend(result.oddities.items, result.oddities.count)
    unwritable = list(dict.fromkeys(name for answer in walked for name in answer.result.unwritable.items))[:LISTED]
    whole.unwritable.extend(unwritable, len(unwritable))
    notes = (note for answer in written for note in answer.result.notes.items)
    in_order = sorted(notes, key=lambda note: (note[0].topic, note[0].queue_id))
    whole.notes.extend(in_order, sum(answer.result.notes.count for answer in written))
    return whole
