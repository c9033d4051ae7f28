"""RecoveryExecutor: plans what recovery will do to a store, then does it.

`recovery` computes a start of the broker without changing a byte; this module applies the result: it deletes files,
sets positions, writes units and keys. A store that the broker would refuse is refused with the same error, and nothing
is changed. Docs page: docs/engine.md.

Before that, power-loss recovery removes bytes that a power cut may have left half written. A power cut loses pages of
the page cache in any order. The broker, started after one, accepts every queue unit that looks valid and every record
whose body matches its CRC. Both can be wrong: a unit with half its bytes, a record with zeros for properties. The
engine stores the machine's boot id in `abort`. If the store is opened under another boot id, queue units that no flush
has confirmed are zeroed, and the log is ended at the first record after the confirmed position whose trailer was not
written. The scan of the log then begins at that position or before it, so that dispatch writes every zeroed unit
again. A kill needs none of this, and a store of the broker, which stores no boot id, is recovered exactly as the
broker recovers it.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, structs

from mqtool.choices import RecoveryMode
from mqtool.engine.disk.files import Files
from mqtool.engine.disk.mapped_files import MappedFile, MappedFileQueue
from mqtool.engine.index import Index, reindex
from mqtool.engine.options import StoreOptions, rules_of
from mqtool.engine.queues import AnyQueue, Queues
from mqtool.engine.start.lock import LastShutdown
from mqtool.engine.start.quarantine import Quarantine, list_cut_messages, read_data, wipe_units
from mqtool.errors import LayoutError, StoreError, UnreadableError, UnsupportedFormatError
from mqtool.formats import checkpoint, codec, commit_log, file_names
from mqtool.formats.checkpoint import Checkpoint
from mqtool.formats.codec import Unit
from mqtool.formats.config_files import BATCH_QUEUES
from mqtool.formats.consume_queue import BATCH_CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT, PRE_BLANK_SIZE_FIELD
from mqtool.formats.release import MEASURED, Release
from mqtool.records.dispatch import IndexKeys
from mqtool.records.frames import Frames
from mqtool.records.record_check import RecoveryRules
from mqtool.records.record_search import holds_record
from mqtool.records.walk import intact_run
from mqtool.recovery.action_log import Action
from mqtool.recovery.index import SimulatedIndex, read_header
from mqtool.recovery.mapped_files import entry_of
from mqtool.recovery.outcome import FilePlan, Plan, QueuePlan
from mqtool.recovery.predict import outcome_of
from mqtool.recovery.settings import RecoverySettings
from mqtool.recovery.start import Start
from mqtool.store.files import MappedFile as ListedFile
from mqtool.store.files import ReadFile, list_mapped_files, obstruction
from mqtool.store.layout import queue_directories

_LOG = logging.getLogger(__name__)

_MAGIC_FAMILY = commit_log.MAGIC_V1 & 0xFFFFFF00
"""The bytes that the magic codes of V1 and V2 have in common."""
_HEAD = codec.struct_of(commit_log.HEADS[0])
_STATED = commit_log.HEAD_NAMES.index("physical_offset")

_QUEUE_TREES: tuple[tuple[str, Unit[Any]], ...] = (
    (file_names.CONSUME_QUEUE, CONSUME_QUEUE_UNIT),
    (file_names.BATCH_CONSUME_QUEUE, BATCH_CONSUME_QUEUE_UNIT),
)
_SECTOR = 512


class RecoveryResult(Struct, frozen=True):
    """What recovery did to a store."""

    clean_stop: bool  # whether it was shut down cleanly
    scanned_from: int | None  # physical offset from which records were checked; None if there was nothing to check
    end: int  # physical offset at which the log continues
    records: int  # number of records checked
    dispatched: int  # number of records dispatched to queues and index
    deleted: tuple[str, ...]  # deleted files, relative to the root
    quarantined: tuple[str, ...]  # files moved to quarantine instead, relative to the root
    why: tuple[str, ...]  # the rules that were applied
    accepted: tuple[str, ...]  # damage that the broker accepts, which is still there
    # With careful recovery, the number of complete messages in what was cut; they are listed in the quarantine.
    cut_messages: int = 0


class _RecordingIndex(SimulatedIndex):
    """The model of the index that also stores the keys added to it."""

    def __init__(self, settings: RecoverySettings, plan: Start) -> None:
        super().__init__(settings, plan.actions)
        self.keys: list[tuple[IndexKeys, int]] = []

    def put(self, keys: IndexKeys, records: int) -> None:
        """Adds keys as the model does, and keeps them."""
        self.keys.append((keys, records))
        super().put(keys, records)


class RecoveryExecutor:
    """Plans the recovery of a store; `carry_out` recovers it once."""

    def __init__(
        self, root: Path, options: StoreOptions, directories: tuple[Path, ...], discarded_from: int | None = None
    ) -> None:
        """Computes the start, with the directories of all segments, also of read-only ones; nothing is changed.

        Raises LayoutError with the broker's message if the broker would refuse the store; StoreError if it would never
        finish starting; UnreadableError if recovery would delete a name whose bytes cannot be read;
        UnsupportedFormatError if recovery would cut the log at a record of a version that the release does not know.
        """
        self._root = root
        self._options = options
        self._settings = settings_of(root, options, directories, discarded_from)
        self._start = Start(self._settings)
        self._index = _RecordingIndex(self._settings, self._start)
        self._start.state.index = self._index
        self._start.run()
        self._outcome = outcome_of(self._start, read_log=False)
        if self._outcome.refusal is not None:
            raise LayoutError(f"cannot be opened: {self._outcome.refusal}", self._root)
        if self._outcome.hung is not None:
            release = MEASURED[self._settings.release]
            raise StoreError(f"RocketMQ {release} would never finish starting: {self._outcome.hung}", self._root)
        self._refuse_to_delete_unreadable()
        self._refuse_to_cut_unknown_version()

    def _refuse_to_delete_unreadable(self) -> None:
        """To a broker a link to a disk that is not mounted is a file of 0 bytes; it deletes the last of a directory."""
        for path in self.deleted:
            if obstacle := obstruction(path):
                raise UnreadableError(
                    f"is {obstacle}, and recovery would delete it; mount the disk that it leads to, or move it "
                    "elsewhere if its content is lost",
                    path,
                )

    def _refuse_to_cut_unknown_version(self) -> None:
        end, release = self._start.state.scanned.end_offset, self._settings.release
        file = self._start.state.log.find(end) if end is not None else None
        if file is None or end is None:
            return
        with ReadFile(file.path) as opened:
            head = opened.read(end - file.base, _HEAD.size).ljust(_HEAD.size, b"\0")
            total, magic = _HEAD.unpack(head)[:2]
            following = opened.read(end - file.base + total, commit_log.FRAME.size) if total > 0 else b""
        if _HEAD.unpack(head)[_STATED] != end or (magic & 0xFFFFFF00) != _MAGIC_FAMILY:
            return
        # One unknown magic code is a damaged record; two of them in a row are a version.
        is_known_to_5 = magic == commit_log.MAGIC_V2 and release < (5, 0)
        is_unknown = magic not in commit_log.RECORD_MAGICS and following[4:] == head[4:8]
        if is_known_to_5 or is_unknown:
            raise UnsupportedFormatError(
                f"{file.path} position {end - file.base}: a record of version {magic & 0xFFFFFFFF:08x}, which RocketMQ "
                f"{MEASURED[release]} does not know: it would cut the log here"
            )

    @property
    def _plan(self) -> Plan:
        assert self._outcome.plan is not None
        return self._outcome.plan

    @property
    def deleted(self) -> list[Path]:
        """Files that `carry_out` deletes or moves to quarantine; never `abort`, its backup or `lock`."""
        marks = {self._root / name for name in (file_names.ABORT, file_names.ABORT_BACKUP, file_names.LOCK)}
        steps = self._plan.steps
        return [step.path for step in steps if step.action is Action.DELETE and step.path not in marks]

    def carry_out(
        self,
        files: Files,
        log: MappedFileQueue,
        queues: Queues,
        index: Index | None,
        last_shutdown: LastShutdown,
        now: int,
    ) -> RecoveryResult:
        """Applies the plan to a log, queues and an index that are empty so far.

        The files that the plan was computed from are unchanged, since the caller holds the lock. A store that a broker
        wrote is recovered as the broker would. One that this engine wrote also gets a complete index and zeros after
        the end of the log, and records that would be lost are moved to quarantine. If it raises OSError, the next
        opening repeats it.
        """
        plan, outcome = self._plan, self._outcome
        is_ours = last_shutdown in (LastShutdown.KILL, LastShutdown.POWER_CUT)
        is_careful = self._options.recovery is RecoveryMode.CAREFUL
        quarantine = Quarantine(self._root, files, now)
        end = max((segment.base + segment.end for segment in plan.segments), default=0)
        cut = list_cut_messages(self._root, self._settings, end, quarantine) if is_careful else 0
        lost_from = self._lost_keys_from() if last_shutdown is LastShutdown.KILL or is_careful else None
        if last_shutdown is LastShutdown.POWER_CUT:
            lost_from = 0  # headers and names prove nothing: all that the files left do not hold is indexed again
        deleted = self._delete(files, quarantine if is_ours or is_careful else None, keep_all=is_careful)
        log.files = tuple(_restored(files, segment, log.file_size) for segment in plan.segments)
        log.set_end(log.max_offset)
        self._restore_queues(files, queues, quarantine if is_careful else None)
        if (is_ours or is_careful) and log.last is not None:
            quarantine.wipe_tail(log.last, keep_all=is_careful)
        if index is not None:
            ahead = quarantine.take_index_ahead(self._root / file_names.INDEX, log.max_offset) if is_careful else None
            self._restore_index(index, log, min((at for at in (lost_from, ahead) if at is not None), default=None))
        return RecoveryResult(
            outcome.clean_stop,
            plan.scan_from,
            log.max_offset,
            outcome.effort.scanned_records,
            outcome.effort.dispatched_records,
            tuple(map(self._name, deleted)),
            tuple(quarantine.moved),
            outcome.why,
            outcome.accepted,
            cut,
        )

    def _restore_index(self, index: Index, log: MappedFileQueue, lost_from: int | None) -> None:
        """Adds the keys that recovery found; if `lost_from` is not None, all keys of the log from there on."""
        index.load()
        if lost_from is None:
            for keys, records in self._index.keys:
                index.put_many(keys, records)
        else:
            reindex(log, index, lost_from, rules_of(self._options, frozenset()))

    def _restore_queues(self, files: Files, queues: Queues, quarantine: Quarantine | None) -> None:
        for (topic, queue_id), queue_plan in self._plan.queues.items():
            if queue_plan.files:
                queue = queues.add_recovered(topic, queue_id, is_batch=queue_plan.kind == BATCH_QUEUES)
                if queue is None:
                    continue
                bounds = self._start.state.queues[topic, queue_id]
                if quarantine is not None:
                    quarantine.keep_units(queue_plan)
                _restore_queue(files, queue, queue_plan)
                if quarantine is not None:
                    wipe_units(queue.files.files)
                queue.set_bounds(bounds.min_offset, bounds.max_offset, queue_plan.max_physical_offset)
        queues.flush()

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self._root) if path.is_relative_to(self._root) else path)

    def checkpoint_fields(self) -> dict[str, int]:
        """Returns the checkpoint after recovery; its index timestamp covers only what the index files prove."""
        values = self._plan.checkpoint
        return {name: value for name, value in structs.asdict(values).items() if name != "index_msg_timestamp"}

    def _delete(self, files: Files, quarantine: Quarantine | None, *, keep_all: bool) -> list[Path]:
        """Deletes the files that recovery deletes, or moves them to quarantine."""
        segments = {path for directory in self._settings.commit_log_dirs for path in directory.glob("*")}
        deleted = self.deleted
        for path in deleted:
            if quarantine is not None and self._is_worth_keeping(path, segments, keep_all=keep_all):
                quarantine.take_file(path)
            else:
                _LOG.warning("recovery deletes path=%s", path)
                files.remove(path)
        for directory in {path.parent for path in deleted}:
            files.sync_directory(directory)
        return deleted

    @staticmethod
    def _is_worth_keeping(path: Path, segments: set[Path], *, keep_all: bool) -> bool:
        if keep_all:
            return path.is_file() and bool(read_data(path))
        return path in segments and holds_record(read_data(path))

    def _lost_keys_from(self) -> int | None:
        """Returns the offset from which the log must be indexed again, None if recovery deletes no index file."""
        headers = [
            read_header(entry_of(step.path))
            for step in self._plan.steps
            if step.action is Action.DELETE and step.path.parent.name == file_names.INDEX and step.path.is_file()
        ]
        begun = [header.begin_physical_offset for header in headers if header.entry_count > 0]
        if not begun:
            return self._plan.scan_from if headers else None
        return min(begun)


def settings_of(
    root: Path, options: StoreOptions, directories: tuple[Path, ...], discarded_from: int | None = None
) -> RecoverySettings:
    """Returns the model's settings for a store that is opened with these options."""
    rules = structs.replace(
        options.rules or RecoveryRules(release=options.release),
        release=options.release,
        index_enabled=options.index,
        delay_levels_ms=options.delays_ms,
    )
    return RecoverySettings(
        **structs.asdict(rules),
        root=root,
        commit_log_dirs=directories,
        segment_size=options.commit_log_file_size,
        queue_file_size=options.consume_queue_file_size,
        batch_file_size=options.batch_consume_queue_file_size,
        index_slots=options.index_slots,
        index_entries=options.index_entries,
        whole_broker=(root / file_names.CONFIG).is_dir(),
        sync_flush=options.sync,
        multi_dispatch=options.multi_dispatch,
        lmq=options.lmq,
        discarded_from=discarded_from,
    )


def _restored(files: Files, plan: FilePlan, size: int) -> MappedFile:
    return MappedFile(files.open(plan.path, size), plan.base, wrote=plan.end)


def _restore_queue(files: Files, queue: AnyQueue, plan: QueuePlan) -> None:
    """Opens a queue's files and writes the units that recovery adds to them; they are not flushed yet."""
    size = queue.files.file_size
    for file_plan in plan.files:
        if file_plan.is_new:
            files.make_directory(file_plan.path.parent)
            files.create(file_plan.path, size).close()
            files.sync_directory(file_plan.path.parent)
    restored = {file_plan.path: _restored(files, file_plan, size) for file_plan in plan.files}
    for path, position, units in plan.appended:
        restored[path].file.write(position, units)
        restored[path].flushed = min(restored[path].flushed, position)
    queue.files.files = tuple(restored.values())
    unflushed = [file.file_from_offset + file.flushed for file in restored.values() if file.flushed < file.wrote]
    queue.files.set_end(min(unflushed, default=queue.files.max_offset))


def drop_unflushed(root: Path, options: StoreOptions, directories: tuple[Path, ...], files: Files) -> int:
    """Removes bytes that a power cut may have left half written. Durable on return; may be repeated.

    The caller holds the lock. Returns the physical offset from which records must be dispatched again; queues keep the
    units of records before it.
    """
    path = root / file_names.CHECKPOINT
    stored = checkpoint.parse(path.read_bytes()) if path.is_file() else Checkpoint()
    log = list_mapped_files(*directories).files
    flushed = _flushed_offset(stored, log, release=options.release)
    _LOG.warning("the machine has restarted; records that follow are not trusted physical_offset=%d", flushed)
    _close_at_torn_record(log, flushed, files)
    for name, unit in _QUEUE_TREES:
        for _, _, directory in queue_directories(root / name):
            _drop_units(directory, unit, flushed, files)
    return flushed


def _flushed_offset(stored: Checkpoint, log: tuple[ListedFile, ...], *, release: Release) -> int:
    """Returns the physical offset up to which log and queues are known to be flushed, at least where the log begins.

    A checkpoint that 4.9 or 5.0 to 5.3 wrote states times only. They prove the records before the first one that is as
    new as the older of the two times, even if the clock was set back.
    """
    flushed = log[0].base if log else 0
    if release >= (5, 5) and stored.logics_physical_offset > 0:
        return max(flushed, stored.logics_physical_offset)
    limit = min(stored.physic_msg_timestamp, stored.logics_msg_timestamp)
    for file in log:
        for frames in _frames(file, file.base):
            times = frames.column("store_timestamp")
            older = int(np.argmax(times >= limit)) if (times >= limit).any() else len(times)
            if older:
                flushed = int(frames.positions[older - 1] + frames.sizes[older - 1]) + frames.base
            if older < len(times):
                return flushed
    return flushed


def _frames(file: ListedFile, start: int) -> Iterator[Frames]:
    """Yields the valid records of a file from a physical offset on, up to the first bytes that are not one."""
    with ReadFile(file.path) as opened:
        yield from intact_run(opened.read, file.base, max(0, start - file.base), file.size)


def _close_at_torn_record(log: tuple[ListedFile, ...], flushed: int, files: Files) -> None:
    """Zeroes the head of the first record after an offset whose trailer was not completely written."""
    for file in log:
        if file.end <= flushed:
            continue
        for frames in _frames(file, max(flushed, file.base)):
            torn = np.flatnonzero(_torn(frames))
            if len(torn):
                physical = frames.base + int(frames.positions[torn[0]])
                _LOG.warning("record not written completely physical_offset=%d", physical)
                _overwrite(files, file, physical - file.base, commit_log.FRAME.size)
                return


def _torn(frames: Frames) -> np.ndarray:
    """Which records have properties that end in a zero byte, at their end or at the end of a sector."""
    data, ends = frames.data, frames.positions + frames.sizes
    torn = (frames.properties_length > 0) & (data[ends - 1] == 0)
    tail = frames.body_start + frames.body_length + frames.base
    at = -(-(tail + 1) // _SECTOR) * _SECTOR - 1 - frames.base
    rows = np.flatnonzero(at < frames.properties_start + frames.properties_length - 1)
    while len(rows):
        inside = (at[rows] < frames.properties_start[rows] - 2) | (at[rows] >= frames.properties_start[rows])
        torn[rows] |= inside & (data[at[rows]] == 0)
        at[rows] += _SECTOR
        rows = rows[at[rows] < ends[rows] - 1]
    return torn


def _overwrite(files: Files, listed: ListedFile, position: int, count: int) -> None:
    """Writes zeros into a file. Durable on return."""
    file = files.open(listed.path, listed.size)
    try:
        file.write(position, bytes(count))
        file.sync()
    finally:
        file.close()


def _drop_units(directory: Path, unit: Unit[Any], flushed: int, files: Files) -> None:
    """Zeroes the first unit whose record is at or after an offset, and all units after it.

    A file without any unit is deleted: recovery would read its first zeros as a unit.
    """
    kept = True
    for listed in list_mapped_files(directory).files:
        if not kept:
            files.remove(listed.path)
            continue
        with ReadFile(listed.path) as opened:
            data = opened.read(0, min(listed.size, -(-opened.data_end() // unit.size) * unit.size))
        units = unit.rows(data)
        good = (units["physical_offset"] >= 0) & (units["size"] > 0) & (units["physical_offset"] < flushed)
        run = len(good) if good.all() else int(np.argmin(good))
        if not (units[:run]["size"] != PRE_BLANK_SIZE_FIELD).any():  # only fillers at the start of a queue
            files.remove(listed.path)
            kept = False
            continue
        if run * unit.size < len(data):
            _overwrite(files, listed, run * unit.size, len(data) - run * unit.size)
        kept = run == listed.size // unit.size
    files.sync_directory(directory)
