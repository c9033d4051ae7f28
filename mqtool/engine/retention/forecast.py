"""Predicts retention: which file is deleted when, why others are kept, and which messages in each are still unread.

Only reads, also while a broker is running. The rules are those that the engine applies (`retention`); committed
consumer offsets determine which messages a group has not read. Docs page: docs/engine.md.
"""

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mqtool.engine.disk.files import Files
from mqtool.engine.retention import rules
from mqtool.engine.retention.rules import HOUR_MS, Candidate, DiskState, RetentionPolicy, Trigger
from mqtool.engine.start.detect import log_directories
from mqtool.errors import UnreadableError
from mqtool.formats import topics
from mqtool.records.queue_build import is_ext_file_before_log, is_file_before_log
from mqtool.store import Store
from mqtool.store.groups.unread import Needed, combined, cuts, first_needed, needed_by_segment
from mqtool.store.paths import real_path
from mqtool.store.queues.consume_queue import ExtUnits, Queue, units_from
from mqtool.words import moment


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
    needed: Needed  # what somebody still needs of it


class Forecast(Struct, frozen=True):
    """What the next run of retention does."""

    at: int  # time that it is for, ms since epoch
    trigger: Trigger  # why it may delete files
    used: float  # used fraction of the fullest disk on which files are created, 0 to 1; -1 if it is unknown
    files: tuple[FileForecast, ...]  # of the log, oldest first
    count: int  # number of them that are deleted, from the first on
    withheld: tuple[FileForecast, ...]  # those that are kept only because somebody needs their messages
    followers: tuple[str, ...]  # files of queues and index that follow the log, relative to the root
    freed: int  # bytes of the deleted files, with their followers

    @property
    def deleted(self) -> tuple[FileForecast, ...]:
        """The files that are deleted."""
        return self.files[: self.count]

    @property
    def words(self) -> str:
        """How many messages are deleted and kept, and which of them somebody still needs."""
        parts = (self.deleted, self.withheld, self.files)
        messages, kept, total = (sum(file.messages for file in files) for files in parts)
        words = f"deletes {messages} of {total} messages"
        if self.deleted or not self.withheld:
            words += f": {combined(file.needed for file in self.deleted).words}"
        if self.withheld:
            words += f"; keeps {kept} in expired files: {combined(file.needed for file in self.withheld).words}"
        return words


def expiry_after_start(store: Store, now: int, kept: int | None = None) -> str:
    """Returns what a broker that is started deletes although somebody needs it, and the keys that prevent it.

    These are the messages in the files that have expired at a given time (ms), deleted by the next `deleteWhen`, or, if
    the disk is so full that the broker deletes unexpired files too, in all files but the last. How full the disk is
    counts only where broker.conf names this directory: another one may be a copy. It is "" if nobody needs a message in
    these files. The start itself deletes all segments but the first `kept`.
    """
    policy = replace(rules.policy_at_any_hour(store.config), batch_max=len(store.commit_log.segments))
    is_here = any(real_path(path) == real_path(store.path) for path in store.config.paths("storePathRootDir"))
    used = None if is_here else 0.0
    disks, ratio = _disks(store, policy, used)
    is_full = disks.trigger is Trigger.IMMEDIATE
    oldest = [Candidate(file.path, _modified(Files(), file.path)) for file in store.commit_log.segments[:kept][:-1][:1]]
    if not oldest or not (is_full or rules.has_expired(policy, oldest[0], now)):
        return ""
    prediction = forecast(store, policy, now, used=used, manual=True, kept=kept)
    if not combined(file.needed for file in prediction.deleted):
        return ""
    why = f", because {ratio:.0%} of the disk are used," if is_full else ""
    return (
        f"retention then{why} {prediction.words}; to keep its {prediction.count} segment(s) until the groups have "
        f"caught up, first write {longer_retention(store, oldest[0].modified, now)}"
    )


def _disks(store: Store, policy: RetentionPolicy, used: float | None) -> tuple[DiskState, float]:
    """Returns the state of the disks on which files are created, and the used fraction of the fullest one."""
    files = Files()
    writable, _ = log_directories(store.layout, store.config)
    logs = {path: files.used_ratio(path) if used is None else used for path in writable}
    queues = files.used_ratio(store.path) if used is None else used
    return rules.disk_state(policy, logs, queues), max((*logs.values(), queues))


def longer_retention(store: Store, modified: int, now: int) -> str:
    """Returns what to write into broker.conf to keep a file for its retention time once more, from now (ms) on."""
    hours = math.ceil((now - modified) / HOUR_MS) + rules.policy_at_any_hour(store.config).reserved_hours
    return (
        f"fileReservedTime={hours} and cleanFileForciblyEnable=false into broker.conf, which keeps the oldest until "
        f"{moment(modified + hours * HOUR_MS)} UTC"
    )


def forecast(
    store: Store,
    policy: RetentionPolicy,
    now: int,
    *,
    used: float | None = None,
    manual: bool = False,
    keep_needed: bool = False,
    kept: int | None = None,
) -> Forecast:
    """Returns what retention does at a given time (ms).

    Args:
        store, policy, now: open for reading; the rules; ms since epoch.
        used: used fraction of every disk, 0 to 1; None to read it from the disks.
        manual: deletion is requested, at any hour.
        keep_needed: keep files from the first on whose messages somebody still needs. A broker does not.
        kept: how many segments are there then, from the first on; by default all.
    """
    files = Files()
    disks, ratio = _disks(store, policy, used)
    trigger = rules.trigger_of(policy, now, disks, manual=manual)
    segments = store.commit_log.segments[:kept]
    candidates = [Candidate(file.path, _modified(files, file.path)) for file in segments]
    verdicts = rules.verdicts_of(policy, candidates, now, trigger)
    bases = [file.base for file in segments]
    needed = needed_by_segment(store)[:kept]
    count = expired = sum(verdict.is_deleted for verdict in verdicts)
    if keep_needed:
        count, first = first_needed(store, needed[:expired])
        for number in range(count, expired):
            reason = rules.IN_ORDER if number > count else _NEEDED
            needed[number] = needed[number] if number > count else first
            verdicts[number] = replace(verdicts[number], is_deleted=False, reason=reason)
    messages, times = messages_by_segment(store, bases), _times(policy, candidates, now, trigger)
    listed = tuple(
        FileForecast(
            file.path,
            file.base,
            file.size,
            candidate.modified,
            verdict.is_deleted,
            verdict.reason,
            now if verdict.is_deleted else time,
            *of_file,
        )
        for file, candidate, verdict, time, *of_file in zip(
            segments, candidates, verdicts, times, messages, needed, strict=True
        )
    )
    derived = derived_files_before(store, segments[count].base) if count else []
    followers = tuple(path.relative_to(store.path).as_posix() for path in derived)
    freed = sum(file.size for file in listed[:count]) + sum(path.stat().st_size for path in derived)
    return Forecast(now, trigger, ratio, listed, count, listed[count:expired], followers, freed)


_NEEDED = "somebody still needs its messages"


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
        latest = max(latest, rules.expires_at(policy, candidate))
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


def messages_by_segment(store: Store, bases: list[int]) -> list[int]:
    """Returns the number of messages in each segment, given their first physical offsets."""
    counts = np.zeros(len(bases), np.int64)
    for queue in store.queues():
        if not topics.is_lmq(queue.topic):
            offsets, physical = units_from(queue, max(queue.min_offset, 0))
            ends = np.append(offsets, queue.max_offset)
            counts += np.diff(ends[cuts(physical, bases)])
    return counts.tolist()


def derived_files_before(store: Store, lowest: int) -> list[Path]:
    """Returns files of queues and index that retention deletes once the log begins at a physical offset.

    Source: ConsumeQueue.deleteExpiredFile and correctMinOffset, IndexService.deleteExpiredFile (4.9.7, 5.5.0).
    """
    paths = []
    for queue in store.disk_queues():
        for number, file in enumerate(queue.files[:-1]):
            last_unit = queue.unit_at(number, file.size // queue.unit_size - 1).tobytes()
            if not is_file_before_log(last_unit, lowest):
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
    return [file.path for file in files if is_ext_file_before_log(file.end, tags_code)]
