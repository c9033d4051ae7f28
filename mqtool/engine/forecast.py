"""Retention as a forecast: which file goes when, why the others stay, and what consumers have not read in each.

Only reads, beside a running broker too. The rules are those that the engine carries out (`retention`); which messages
a group has still to read is told by its committed offsets. Docs page: docs/engine.md.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np

from mqtool.engine import retention
from mqtool.engine.files import Files
from mqtool.engine.retention import HOUR_MS, Candidate, RetentionPolicy, Trigger
from mqtool.store import Store
from mqtool.store.consume_queue import Queue
from mqtool.store.files import MappedFile


@dataclass(frozen=True, slots=True)
class Unread:
    """Messages in one file that a group has not read yet.

    Attributes:
        group, topic, queue_id: whose, and of which queue.
        first, last: queue offsets, inclusive.
    """

    group: str
    topic: str
    queue_id: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class FileForecast:
    """What becomes of one file of the log.

    Attributes:
        path: the file.
        base: physical offset of its first byte.
        size: its bytes.
        modified: ms since epoch; its age counts from then on.
        goes: whether the next turn of retention removes it.
        reason: why, or why not.
        goes_at: ms since epoch: when it goes if the disk stays as it is; None for the last file, which never goes.
        unread: messages in it that groups have still to read.
    """

    path: Path
    base: int
    size: int
    modified: int
    goes: bool
    reason: str
    goes_at: int | None
    unread: tuple[Unread, ...]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the next turn of retention does.

    Attributes:
        trigger: why it removes anything at all.
        used: how full the fullest of the disks is, 0 to 1; -1 if that cannot be told.
        files: of the log, oldest first.
        followers: files of queues and index that follow the log, relative to the root.
    """

    trigger: Trigger
    used: float
    files: tuple[FileForecast, ...]
    followers: tuple[str, ...]


def forecast(
    store: Store, policy: RetentionPolicy, now: int, *, used: float | None = None, manual: bool = False
) -> Forecast:
    """Says what retention does at a time.

    Args:
        store: open for reading.
        policy: the rules.
        now: ms since epoch.
        used: how full every disk is, 0 to 1; None to look.
        manual: deletion was asked for, whatever the hour.

    Raises:
        StoreError: a file cannot be read.
    """
    files = Files()
    logs = {path: files.used_ratio(path) if used is None else used for path in store.layout.commit_log_dirs}
    queues = files.used_ratio(store.path) if used is None else used
    disks = retention.look_at_disks(policy, logs, queues)
    trigger = retention.trigger_of(policy, now, disks, manual=manual)
    segments = store.commit_log.segments
    candidates = [Candidate(one.path, files.modified(one.path)) for one in segments]
    verdicts = retention.judge(policy, candidates, now, trigger)
    unread = _unread(store, [one.base for one in segments])
    times = _times(policy, candidates, now, trigger)
    found = tuple(
        FileForecast(
            one.path,
            one.base,
            one.size,
            candidate.modified,
            verdict.goes,
            verdict.reason,
            now if verdict.goes else time,
            held,
        )
        for one, candidate, verdict, time, held in zip(segments, candidates, verdicts, times, unread, strict=True)
    )
    gone = sum(one.goes for one in found)
    return Forecast(trigger, max((*logs.values(), queues)), found, _followers(store, segments, gone))


_LAST = int(datetime(9999, 12, 30, tzinfo=UTC).timestamp() * 1000)
"""What expires later never does: no calendar has a date for it."""


def _times(policy: RetentionPolicy, candidates: list[Candidate], now: int, trigger: Trigger) -> list[int | None]:
    """Returns when each file goes: expired, at an hour of deletion, not before those in front of it; None for never."""
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


def _unread(store: Store, bases: list[int]) -> list[tuple[Unread, ...]]:
    """Returns for each file of the log what groups have still to read in it."""
    held: list[list[Unread]] = [[] for _ in bases]
    for lag in store.lags():
        queue = store.queue(lag.topic, lag.queue_id)
        if queue is None or not lag.lag:
            continue
        places = _places(queue, max(lag.consumer_offset, lag.min_offset or 0))
        for (first, last), file in zip(_spans(places, bases), held, strict=True):
            if first <= last:
                file.append(Unread(lag.group, lag.topic, lag.queue_id, first, last))
    return [tuple(one) for one in held]


def _places(queue: Queue, start: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns queue offset and physical offset of each unit from a queue offset on, in order."""
    offsets, physical = [], []
    for number, file in enumerate(queue.files):
        if file.end // queue.unit_size <= start and not queue.is_batch:
            continue
        units = queue.units_of(number)
        if queue.is_batch:
            numbers = units["base_queue_offset"].astype(np.int64)
        else:
            numbers = np.arange(len(units), dtype=np.int64) + file.base // queue.unit_size
        wanted = (numbers >= start) & (numbers < queue.max_offset) & (units["size"] > 0)
        offsets.append(numbers[wanted])
        physical.append(units["physical_offset"][wanted].astype(np.int64))
    empty = np.empty(0, np.int64)
    return np.concatenate(offsets or [empty]), np.concatenate(physical or [empty])


def _spans(places: tuple[np.ndarray, np.ndarray], bases: list[int]) -> list[tuple[int, int]]:
    """Returns first and last queue offset that lies in each file; first behind last where there is none."""
    offsets, physical = places
    cuts = [*np.searchsorted(physical, bases).tolist(), len(physical)]
    return [(int(offsets[begin]), int(offsets[end - 1])) if begin < end else (0, -1) for begin, end in pairwise(cuts)]


def _followers(store: Store, segments: tuple[MappedFile, ...], gone: int) -> tuple[str, ...]:
    """Returns files of queues and index whose last entry lies before the log's new minimum; never the last of each."""
    if not gone:
        return ()
    lowest = segments[gone].base
    found = []
    for queue in store.queues():
        for number, file in enumerate(queue.files[:-1]):
            units = queue.units_of(number)
            if not len(units) or int(units["physical_offset"][-1]) >= lowest:
                break
            found.append(file.path)
    for index in store.disk_index_files()[:-1]:
        if index.header.end_physical_offset >= lowest:
            break
        found.append(index.path)
    return tuple(path.relative_to(store.path).as_posix() for path in found)
