"""Predicts retention: which file is deleted when, why others are kept, and which messages in each are still unread.

Only reads, also while a broker is running. The rules are those that the engine applies (`retention`); committed
consumer offsets determine which messages a group has not read. Docs page: docs/engine.md.
"""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
from msgspec import Struct

from mqtool.engine.disk.files import Files
from mqtool.engine.retention import rules
from mqtool.engine.retention.rules import HOUR_MS, Candidate, RetentionPolicy, Trigger
from mqtool.engine.start.detect import log_directories
from mqtool.errors import UnreadableError
from mqtool.formats import topics
from mqtool.records.queue_build import is_ext_file_expired, is_file_expired
from mqtool.store import Store
from mqtool.store.files import MappedFile
from mqtool.store.queues.consume_queue import Queue, units_from
from mqtool.store.queues.consume_queue_ext import ExtUnits
from mqtool.store.waiting.held_back import Undelivered, waiting_by_segment


class Unread(Struct, frozen=True):
    """Messages in one file that a group has not read yet."""

    group: str  # and topic, queue_id: consumer group and queue
    topic: str
    queue_id: int
    first: int  # and last: queue offsets, inclusive
    last: int


class FileForecast(Struct, frozen=True):
    """The prediction for one file of the log."""

    path: Path  # the file
    base: int  # physical offset of its first byte
    size: int  # in bytes
    modified: int  # ms since epoch; the start of its retention time
    is_deleted: bool  # whether the next run of retention deletes it
    reason: str  # why, or why not
    # When it is deleted if disk usage does not change, ms since epoch; None for the last file (never).
    deleted_at: int | None
    messages: int  # in it, as its queues name them; copies in light queues are not counted
    unread: tuple[Unread, ...]  # messages in it that consumer groups have not read
    # Messages in it that the broker has not delivered, or that were popped and not acknowledged.
    waiting: tuple[Undelivered, ...]


class Forecast(Struct, frozen=True):
    """What the next run of retention does."""

    trigger: Trigger  # why it may delete files
    used: float  # used fraction of the fullest disk on which files are created, 0 to 1; -1 if it is unknown
    files: tuple[FileForecast, ...]  # of the log, oldest first
    followers: tuple[str, ...]  # files of queues and index that follow the log, relative to the root


def forecast(
    store: Store, policy: RetentionPolicy, now: int, *, used: float | None = None, manual: bool = False
) -> Forecast:
    """Returns what retention does at a given time.

    Args:
        store: open for reading.
        policy: the rules.
        now: ms since epoch.
        used: used fraction of every disk, 0 to 1; None to read it from the disks.
        manual: deletion is requested, at any hour.

    Raises:
        StoreError: a file cannot be read.
    """
    files = Files()
    writable, _ = log_directories(store.layout, store.config)
    logs = {path: files.used_ratio(path) if used is None else used for path in writable}
    queues = files.used_ratio(store.path) if used is None else used
    disks = rules.disk_state(policy, logs, queues)
    trigger = rules.trigger_of(policy, now, disks, manual=manual)
    segments = store.commit_log.segments
    candidates = [Candidate(file.path, _modified(files, file.path)) for file in segments]
    verdicts = rules.verdicts_of(policy, candidates, now, trigger)
    bases = [file.base for file in segments]
    messages, unread = _messages(store, bases), _unread(store, bases)
    waiting = [messages for _, messages in waiting_by_segment(store)]
    times = _times(policy, candidates, now, trigger)
    listed = tuple(
        FileForecast(
            file.path,
            file.base,
            file.size,
            candidate.modified,
            verdict.is_deleted,
            verdict.reason,
            now if verdict.is_deleted else time,
            count,
            of_groups,
            of_broker,
        )
        for file, candidate, verdict, time, count, of_groups, of_broker in zip(
            segments, candidates, verdicts, times, messages, unread, waiting, strict=True
        )
    )
    deleted = sum(file.is_deleted for file in listed)
    return Forecast(trigger, max((*logs.values(), queues)), listed, _followers(store, segments, deleted))


def _modified(files: Files, path: Path) -> int:
    try:
        return files.modified(path)
    except OSError as error:
        raise UnreadableError(f"cannot be inspected: {error.strerror}", path) from error


_LAST = int(datetime(9999, 12, 30, tzinfo=UTC).timestamp() * 1000)
"""Files whose retention ends later count as never deleted, because `datetime` cannot represent the date."""


def _times(policy: RetentionPolicy, candidates: list[Candidate], now: int, trigger: Trigger) -> list[int | None]:
    """Returns when each file is deleted (expired, at a deletion hour, after all files before it); None for never."""
    times: list[int | None] = []
    latest = now
    for candidate in candidates[:-1]:
        latest = max(latest, candidate.modified + policy.reserved_hours * HOUR_MS)
        at_any_hour = trigger in (Trigger.SPACE, Trigger.IMMEDIATE)
        if latest > _LAST:
            times.append(None)
        else:
            times.append(latest if at_any_hour else _next_hour(policy, latest))
    return [*times, None] if candidates else []


def _next_hour(policy: RetentionPolicy, time: int) -> int | None:
    moment = datetime.fromtimestamp(time / 1000, policy.zone)
    for _ in range(25):
        if moment.hour in policy.delete_hours:
            return int(moment.timestamp() * 1000)
        moment = (moment + timedelta(hours=1)).replace(minute=0, second=0, microsecond=0)
    return None


def _messages(store: Store, bases: list[int]) -> list[int]:
    """Returns the number of messages in each segment."""
    counts = np.zeros(len(bases), np.int64)
    for queue in store.queues():
        if not topics.is_lmq(queue.topic):
            offsets, physical = units_from(queue, max(queue.min_offset, 0))
            ends = np.append(offsets, queue.max_offset)
            counts += np.diff(ends[_cuts(physical, bases)])
    return counts.tolist()


def _unread(store: Store, bases: list[int]) -> list[tuple[Unread, ...]]:
    """Returns for each segment the number of messages in it that groups have not read."""
    unread: list[list[Unread]] = [[] for _ in bases]
    for lag in store.lags():
        queue = store.queue(lag.topic, lag.queue_id)
        if queue is None or not lag.lag:
            continue
        places = units_from(queue, max(lag.consumer_offset, lag.min_offset or 0))
        for (first, last), file in zip(_spans(places, bases), unread, strict=True):
            if first <= last:
                file.append(Unread(lag.group, lag.topic, lag.queue_id, first, last))
    return [tuple(intervals) for intervals in unread]


def _spans(places: tuple[np.ndarray, np.ndarray], bases: list[int]) -> list[tuple[int, int]]:
    """Returns the first and last queue offset in each file; first > last if there is none."""
    offsets, physical = places
    cuts = _cuts(physical, bases)
    return [(int(offsets[begin]), int(offsets[end - 1])) if begin < end else (0, -1) for begin, end in pairwise(cuts)]


def _cuts(physical: np.ndarray, bases: list[int]) -> list[int]:
    """Returns the index of the first unit of each segment, and the number of units."""
    return [*np.searchsorted(physical, bases).tolist(), len(physical)]


def derived_files_before(store: Store, lowest: int) -> list[Path]:
    """Returns files of queues and index that retention deletes once the log begins at a physical offset.

    Source: ConsumeQueue.deleteExpiredFile and correctMinOffset, IndexService.deleteExpiredFile (4.9.7, 5.5.0).
    """
    paths = []
    for queue in store.disk_queues():
        for number, file in enumerate(queue.files[:-1]):
            last_unit = queue.unit_at(number, file.size // queue.unit_size - 1).tobytes()
            if not is_file_expired(last_unit, lowest):
                break
            paths.append(file.path)
        paths += _ext_files_before(store, queue, lowest)
    for index in store.disk_index_files()[:-1]:
        if index.header.end_physical_offset >= lowest:
            break
        paths.append(index.path)
    return paths


def _ext_files_before(store: Store, queue: Queue, lowest: int) -> list[Path]:
    """Returns files of a queue's extension that retention deletes once the log begins at a physical offset."""
    files = () if queue.is_batch else ExtUnits(store.path, queue.topic, queue.queue_id).files
    first = queue.first_unit(lambda units: units["physical_offset"] >= lowest) if files else None
    if first is None:
        return []
    tags_code = int(first[2]["tags_code"])
    return [file.path for file in files if is_ext_file_expired(file.end, tags_code)]


def _followers(store: Store, segments: tuple[MappedFile, ...], count: int) -> tuple[str, ...]:
    """Returns files of queues and index that are deleted along with the first segments."""
    paths = derived_files_before(store, segments[count].base) if count else []
    return tuple(path.relative_to(store.path).as_posix() for path in paths)
