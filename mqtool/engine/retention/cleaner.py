"""Cleaner: performs retention on an open store, and deletes topics. Rules and sources are in `retention`."""

import logging
import threading
from collections import deque
from pathlib import Path

from mqtool.engine.clock import Clock
from mqtool.engine.disk.files import ClosedFileError, Files
from mqtool.engine.disk.mapped_files import MappedFile, MappedFileQueue
from mqtool.engine.index import Index
from mqtool.engine.queues import AnyQueue, BatchQueue, ConsumeQueue, Queues
from mqtool.engine.retention import rules
from mqtool.engine.retention.rules import Candidate, DiskState, EarlyDeletion, RetentionPolicy, Verdict
from mqtool.engine.statuses import RunningFlag, RunningFlags
from mqtool.engine.write.commit_log import CommitLog
from mqtool.formats.topics import is_system_topic
from mqtool.records.queue_build import is_ext_file_before_log, is_file_before_log

_LOG = logging.getLogger(__name__)

_QUEUE_GRACE_MS = 60_000
_EXT_GRACE_MS = 1_000
_MAX_KEPT = 1_000


class Cleaner:
    """Runs retention, one run at a time. Other threads may append, flush, read and delete topics during a run.

    Attributes:
        early_deletions: files deleted before they expired, oldest first; the caller removes those that it has
            reported.
    """

    def __init__(
        self,
        policy: RetentionPolicy,
        files: Files,
        log: CommitLog,
        queues: Queues,
        index: Index | None,
        flags: RunningFlags,
        clock: Clock,
        root: Path,
    ) -> None:
        self.policy = policy
        self._files = files
        self._log = log
        self._queues = queues
        self._index = index
        self._flags = flags
        self._clock = clock
        self._root = root
        self._manual_turns = 0
        self._cleaned_to = -1
        self._early: set[Path] = set()
        self._running = threading.Lock()
        self._stopped = False
        self.early_deletions: deque[EarlyDeletion] = deque(maxlen=_MAX_KEPT)

    def request(self, turns: int = 20) -> None:
        """Requests deletion in the next runs, at any hour (executeDeleteFilesManually)."""
        self._manual_turns = turns

    def verdicts(self) -> list[Verdict]:
        """Returns what the next run would do to each segment, without doing it."""
        now = self._clock.now()
        trigger = rules.trigger_of(self.policy, now, self._disks(), manual=self._manual_turns > 0)
        return rules.verdicts_of(self.policy, self._candidates(), now, trigger)

    def turn(self) -> list[Path]:
        """One run: the log first; then queues and index, if the log's minimum offset has increased since.

        Returns the files that were deleted.
        """
        with self._running:
            return [] if self._stopped else self._turn()

    def stop(self) -> None:
        """Waits for a run in progress; later ones do nothing."""
        with self._running:
            self._stopped = True

    def _turn(self) -> list[Path]:
        disks = self._disks()
        self._log.queue.full_directories = disks.full
        self._refuse(disks.refuse)
        verdicts = self.verdicts()
        self._manual_turns = max(0, self._manual_turns - 1)
        self._early |= {verdict.path for verdict in verdicts if verdict.is_early}
        before = self._min_offsets() if self._early else {}
        removed = self._finish_removal() + self._clean_log([verdict for verdict in verdicts if verdict.is_deleted])
        derived = self._clean_derived()
        self._report_early([path for path in removed if path in self._early], before)
        return removed + derived

    def _refuse(self, refuse: bool | None) -> None:
        """Starts or stops refusing messages; None for no change. Logs each change once."""
        if refuse is None or refuse == (RunningFlag.DISK_FULL in self._flags):
            return
        if refuse:
            self._flags.set(RunningFlag.DISK_FULL)
            limit = round(self.policy.warning * 100)
            _LOG.error("NEW MESSAGES ARE REFUSED because the disk is more than %d %% full; free space", limit)
        else:
            self._flags.clear(RunningFlag.DISK_FULL)
            _LOG.warning("new messages are accepted again: there is enough disk space")

    def _min_offsets(self) -> dict[tuple[str, int], int]:
        return {(queue.topic, queue.queue_id): max(0, queue.min_offset) for queue in self._queues.all()}

    def _report_early(self, paths: list[Path], before: dict[tuple[str, int], int]) -> None:
        """Records and logs files deleted before they expired, since their messages may not have been read."""
        if not paths:
            return
        self._early.difference_update(paths)
        after = self._min_offsets()
        deleted = {key: (first, after[key]) for key, first in before.items() if after.get(key, first) > first}
        deletion = EarlyDeletion(self._clock.now(), tuple(paths), deleted)
        self.early_deletions.append(deletion)
        _LOG.error(
            "UNEXPIRED MESSAGES WERE DELETED because the disk is too full files=%d messages=%d queues=%d; free space, "
            "or set cleanFileForciblyEnable=false to refuse new messages instead",
            len(paths),
            deletion.messages,
            len(deleted),
        )

    def _disks(self) -> DiskState:
        log = {path: self._files.used_ratio(path) for path in self._log.queue.directories}
        return rules.disk_state(self.policy, log, self._files.used_ratio(self._root))

    def _candidates(self) -> list[Candidate]:
        candidates = []
        for file in self._log.queue.files:
            try:
                candidates.append(Candidate(file.file.path, self._files.modified(file.file.path)))
            except FileNotFoundError:
                if file.available:
                    raise
        return candidates

    def _finish_removal(self) -> list[Path]:
        """Deletes the first file if an earlier run could not because it was being read (reDeleteHangedFile)."""
        queue = self._log.queue
        first = queue.files[0] if len(queue.files) > 1 else None
        if first is None or first.available or not self._delete(queue, first, self.policy.destroy_forcibly_ms):
            return []
        return [first.file.path]

    def _clean_log(self, verdicts: list[Verdict]) -> list[Path]:
        removed: list[Path] = []
        for verdict in verdicts:
            file = self._log.queue.files[0]
            if file.file.path != verdict.path:
                continue
            if removed:
                self._clock.sleep(self.policy.file_interval_ms / 1000)
            if not self._delete(self._log.queue, file, self.policy.destroy_forcibly_ms):
                break
            _LOG.info("removed path=%s reason=%s", verdict.path, verdict.reason)
            removed.append(verdict.path)
        return removed

    def _delete(self, queue: MappedFileQueue, file: MappedFile, forcibly_ms: int) -> bool:
        return queue.delete(file, self._clock.now(), forcibly_ms)

    def _clean_derived(self) -> list[Path]:
        lowest = self._log.queue.min_offset
        if lowest <= self._cleaned_to:
            return []
        removed = []
        for queue in self._queues.all():
            deleted = []
            for file in queue.files.files[:-1]:
                if not _is_before_log(queue, file, lowest) or not self._delete(queue.files, file, _QUEUE_GRACE_MS):
                    break
                deleted.append(file.file.path)
            queue.correct_min_offset(lowest)
            if isinstance(queue, ConsumeQueue):
                deleted += self._clean_ext(queue)
            if deleted:
                self._clock.sleep(self.policy.queue_interval_ms / 1000)
            removed += deleted
        if self._index is not None:
            removed += self._index.delete_before(lowest)
        self._cleaned_to = lowest
        return removed

    def _clean_ext(self, queue: ConsumeQueue) -> list[Path]:
        """Deletes the files of a queue's extension that end before the address in its first unit."""
        first = queue.unit(queue.min_offset) if queue.ext is not None else None
        if queue.ext is None or first is None:
            return []
        files = queue.ext.files
        return [
            file.file.path
            for file in files.files
            if is_ext_file_before_log(file.end, first[2]) and self._delete(files, file, _EXT_GRACE_MS)
        ]

    def expired_queues(self) -> list[AnyQueue]:
        """Returns the queues whose last record ended before the log, except those of system topics."""
        lowest = self._log.queue.min_offset
        queues = (queue for queue in self._queues.all() if not is_system_topic(queue.topic))
        return [queue for queue in queues if 0 <= _last_record_end(queue) < lowest]

    def delete_topic(self, topic: str) -> int:
        """Deletes every queue of a topic; returns how many.

        Records stay in the log, and a recovery that scans them creates the queues again.
        """
        queues = [queue for queue in self._queues.all() if queue.topic == topic]
        for queue in queues:
            self._queues.delete(queue)
        return len(queues)


def _is_before_log(queue: AnyQueue, file: MappedFile, lowest: int) -> bool:
    """Whether a file of a queue may be deleted once the log begins at `lowest`."""
    try:
        last_unit = file.file.read((file.size // queue.unit_size - 1) * queue.unit_size, queue.unit_size)
    except ClosedFileError:  # deleted with its topic, or an earlier run could not remove its name
        return True
    return is_file_before_log(last_unit, lowest)


def _last_record_end(queue: AnyQueue) -> int:
    """Returns the physical offset after the record of a queue's last unit; -1 if it has none (getLastOffset)."""
    if isinstance(queue, BatchQueue):
        return max((unit.physical_offset + unit.size for unit in queue.units_from(queue.max_offset - 1)), default=-1)
    unit = queue.unit(queue.max_offset - 1)
    return unit[0] + unit[1] if unit is not None and unit[0] >= 0 and unit[1] > 0 else -1
