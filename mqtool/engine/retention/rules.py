"""Retention: which files are deleted, when, and why the others are kept. Time and disk usage are parameters.

`verdicts_of` decides; `Cleaner` deletes. Docs page: docs/engine.md. Source: DefaultMessageStore.CleanCommitLogService,
MappedFileQueue.deleteExpiredFileByTime, ConsumeQueueStore.CleanConsumeQueueService, IndexService.deleteExpiredFile,
UtilAll.isItTimeToDo (4.9.7, 5.5.0).
"""

from datetime import datetime, tzinfo
from enum import Enum
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mqtool.errors import FormatError, UsageError
from mqtool.formats import java
from mqtool.store.config.broker_config import BrokerConfig

HOUR_MS = 3_600_000
_WARNING_RANGE = (0.35, 0.90)
_FORCE_RANGE = (0.30, 0.85)
_USED_RANGE = (10, 95)

_PER_CENT = {"diskSpaceCleanForciblyRatio": "force_ratio", "diskSpaceWarningLevelRatio": "warning_ratio"}
_KEYS = {
    "fileReservedTime": "reserved_hours",
    "diskMaxUsedSpaceRatio": "max_used_per_cent",
    "deleteFileBatchMax": "batch_max",
    "deleteCommitLogFilesInterval": "file_interval_ms",
    "deleteConsumeQueueFilesInterval": "queue_interval_ms",
    "destroyMapedFileIntervalForcibly": "destroy_forcibly_ms",
}

KEYS = frozenset({*_KEYS, *_PER_CENT, "cleanFileForciblyEnable", "deleteWhen", "replicasPerDiskPartition"})
"""Broker's keys of the policy, which each run of retention reads again."""


class RetentionPolicy(Struct, frozen=True):
    """When files are deleted; the broker's keys and defaults."""

    reserved_hours: int = 72  # how long a file is kept after its last change (fileReservedTime)
    delete_hours: tuple[int, ...] = (4,)  # hours of the day at which expired files are deleted (deleteWhen)
    max_used_per_cent: int = 75  # disk usage above which expired files are deleted at any hour (diskMaxUsedSpaceRatio)
    # Disk usage above which files are deleted before they expire (diskSpaceCleanForciblyRatio).
    force_ratio: float = 0.85
    warning_ratio: float = 0.90  # disk usage above which messages are refused too (diskSpaceWarningLevelRatio)
    forcibly: bool = True  # whether files may be deleted before they expire (cleanFileForciblyEnable)
    batch_max: int = 10  # maximum number of segments deleted in one run (deleteFileBatchMax)
    file_interval_ms: int = 100  # and queue_interval_ms: pause between two files (deleteCommitLogFilesInterval, …)
    queue_interval_ms: int = 100
    destroy_forcibly_ms: int = 120_000  # how long to wait for a file in use (destroyMapedFileIntervalForcibly)
    zone: tzinfo | None = None  # time zone of `delete_hours`, None for the local one

    @property
    def max_used(self) -> float:
        """The used ratio above which expired files are deleted at any hour, clamped as in the broker."""
        lowest, highest = _USED_RANGE
        return min(max(self.max_used_per_cent, lowest), highest) / 100

    @property
    def force(self) -> float:
        """The force ratio, clamped."""
        return min(max(self.force_ratio, _FORCE_RANGE[0]), _FORCE_RANGE[1])

    @property
    def warning(self) -> float:
        """The warning ratio, clamped."""
        return min(max(self.warning_ratio, _WARNING_RANGE[0]), _WARNING_RANGE[1])


def policy_at_any_hour(config: BrokerConfig) -> RetentionPolicy:
    """Returns the policy of a broker's properties, but for its hours; raises UsageError for an invalid number."""
    values: dict[str, Any] = {}
    for key, name in (_KEYS | _PER_CENT).items():
        value = config.integer(key)
        if value is not None:
            values[name] = value / 100 if key in _PER_CENT else value
    forcibly = config.flag("cleanFileForciblyEnable")
    if forcibly is not None:
        values["forcibly"] = forcibly
    return RetentionPolicy(**values)


def policy_from_config(config: BrokerConfig) -> RetentionPolicy:
    """Returns the policy of a broker's properties; raises UsageError for an invalid value."""
    source = config.source or "configuration"
    policy, hours = policy_at_any_hour(config), config.text("deleteWhen")
    if hours is not None:
        policy = replace(policy, delete_hours=_hours_of(hours, source))
    replicas = config.integer("replicasPerDiskPartition") or 1  # CleanCommitLogService.isSpaceToDelete, 5.5.0
    if replicas > 1:
        raise UsageError(
            f"{source}: replicasPerDiskPartition: expected 1, found {replicas}. With it, a broker compares the size "
            "of its own files with a part of the disk; mqtool does not, and would delete more. Set it to 1 to "
            "delete by disk usage"
        )
    return policy


def _hours_of(text: str, source: str) -> tuple[int, ...]:
    """Parses deleteWhen (UtilAll.isItTimeToDo).

    In the broker, a piece that is no number ends each run of retention before it looks at the disks.
    """
    try:
        return tuple(java.parse_int(hour) for hour in java.split_drop_trailing(text, ";"))
    except FormatError as error:
        raise UsageError(
            f"{source}: deleteWhen: expected hours such as 04;16, found {text[:40]!r}, with which a broker deletes "
            "nothing except at hours before the first piece that is no number. Write numbers between semicolons, "
            "without blanks"
        ) from error


class Trigger(Enum):
    """Why a run of retention may delete files."""

    NONE = "neither the hour nor disk usage requires it"
    HOUR = "it is the hour of deletion"
    SPACE = "the disk is fuller than allowed"
    IMMEDIATE = "the disk is so full that unexpired files are deleted too"
    MANUAL = "it was asked for"


class DiskState(Struct, frozen=True):
    """Result of checking the disks."""

    trigger: Trigger  # SPACE, IMMEDIATE or NONE
    refuse: bool | None  # True to refuse messages, False to accept them again, None for no change
    full: frozenset[Path]  # directories in which no file may be created


def disk_state(policy: RetentionPolicy, commit_log: dict[Path, float], queues: float) -> DiskState:
    """Evaluates used ratios of disks (CleanCommitLogService.isSpaceToDelete); a ratio is -1 if unknown.

    `commit_log` has that of each CommitLog directory in which files are created (storePathCommitLog): the free space of
    read-only ones helps no new file. `queues` is that of the ConsumeQueues.
    """
    full = frozenset(path for path, ratio in commit_log.items() if ratio > policy.force)
    lowest = min(commit_log.values(), default=-1.0)
    refuse: bool | None = None
    very_full = Trigger.IMMEDIATE if policy.forcibly else Trigger.SPACE
    for ratio in (lowest, queues):
        if ratio > policy.warning:
            return DiskState(very_full, refuse=True, full=full)
        if ratio > policy.force:
            return DiskState(very_full, refuse=refuse, full=full)
        refuse = False
    for ratio in (lowest, queues):
        if ratio < 0 or ratio > policy.max_used:
            return DiskState(Trigger.SPACE, refuse=refuse, full=full)
    return DiskState(Trigger.NONE, refuse=refuse, full=full)


def trigger_of(policy: RetentionPolicy, now: int, disks: DiskState, *, manual: bool) -> Trigger:
    """Returns why files may be deleted in this run; `manual` if deletion was requested."""
    if disks.trigger is Trigger.IMMEDIATE:
        return Trigger.IMMEDIATE
    if datetime.fromtimestamp(now / 1000, policy.zone).hour in policy.delete_hours:
        return Trigger.HOUR
    if disks.trigger is Trigger.SPACE:
        return Trigger.SPACE
    return Trigger.MANUAL if manual else Trigger.NONE


class Verdict(Struct, frozen=True):
    """What this run of retention does to one file."""

    path: Path  # the file
    is_deleted: bool  # whether it is deleted in this run
    reason: str  # why, or why not
    is_early: bool = False  # whether it is deleted before it expires, because the disk is full


class EarlyDeletion(Struct, frozen=True):
    """Files of the CommitLog that were deleted before they expired, because the disk was too full."""

    at_ms: int  # when, ms since epoch
    paths: tuple[Path, ...]  # the files
    # By topic and queue id, the first queue offset that was deleted and the first that remains.
    queues: dict[tuple[str, int], tuple[int, int]]

    @property
    def messages(self) -> int:
        """Number of messages in them."""
        return sum(end - first for first, end in self.queues.values())


class Candidate(Struct, frozen=True):
    """A file as retention sees it: its path, and the time of its last change, ms since epoch."""

    path: Path
    modified: int


def verdicts_of(policy: RetentionPolicy, candidates: list[Candidate], now: int, trigger: Trigger) -> list[Verdict]:
    """Decides for each segment, oldest first, whether it is deleted: strictly from the front, never the last."""
    verdicts: list[Verdict] = []
    blocked = ""
    for number, file in enumerate(candidates):
        is_last = number == len(candidates) - 1
        stays = _LAST if is_last else blocked or _reason_to_keep(policy, file, number, now, trigger)
        if stays and not blocked:
            blocked = stays if trigger is Trigger.NONE else IN_ORDER
        is_early = not stays and not has_expired(policy, file, now)
        verdicts.append(Verdict(file.path, not stays, stays or _reason_to_delete(policy, file, now, trigger), is_early))
    return verdicts


_LAST = "the last file is always kept"
IN_ORDER = "files are deleted in order, and an earlier one is kept"


def expires_at(policy: RetentionPolicy, file: Candidate) -> int:
    """Returns when a file has been kept for its retention time, ms since the epoch."""
    return file.modified + policy.reserved_hours * HOUR_MS


def has_expired(policy: RetentionPolicy, file: Candidate, now: int) -> bool:
    """Returns whether the retention time of a file is over at a time, ms since the epoch."""
    return expires_at(policy, file) <= now


def _reason_to_keep(policy: RetentionPolicy, file: Candidate, number: int, now: int, trigger: Trigger) -> str:
    """Returns why a file is kept although all files before it are deleted; "" if it is deleted."""
    if trigger is Trigger.NONE:
        return trigger.value
    if trigger is not Trigger.IMMEDIATE and not has_expired(policy, file, now):
        hours = (expires_at(policy, file) - now) / HOUR_MS
        return f"it expires in {hours:.1f} h: fileReservedTime is {policy.reserved_hours}"
    return f"at most {policy.batch_max} files are deleted in one run" if number >= max(1, policy.batch_max) else ""


def _reason_to_delete(policy: RetentionPolicy, file: Candidate, now: int, trigger: Trigger) -> str:
    reason = "it has expired" if has_expired(policy, file, now) else "the disk is too full to wait until it expires"
    return f"{reason}; {trigger.value}"
