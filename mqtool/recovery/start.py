"""A broker's start, from the first file it reads to the moment it runs, and the shutdown after it.

The order decides what has already happened when a step fails: tables, log, queues, checkpoint, index, recovery, and
only then the lock. Source: DefaultMessageStore.load, start, shutdown, StoreCheckpoint (4.9.7, 5.5.0).
"""

import itertools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mqtool.errors import FormatError
from mqtool.formats import checkpoint, file_names, java, timer
from mqtool.formats.config_files import BATCH_QUEUES, SIMPLE_QUEUES
from mqtool.formats.topics import TopicQueue
from mqtool.records.record_check import HeapExhausted
from mqtool.recovery.action_log import Action, ActionLog, StartFailed, StartHung, load_fails, throws
from mqtool.recovery.commit_log import LogRecovery
from mqtool.recovery.configuration import last_tried_file, load_table, load_tables
from mqtool.recovery.dispatch import dispatch_from_queues
from mqtool.recovery.mapped_files import LENGTH_NOT_MATCHED, Segments, is_a_directory, list_entries
from mqtool.recovery.queues import BatchQueue, SimpleQueue
from mqtool.recovery.reading import NOT_COMPACTED, QueueReading
from mqtool.recovery.settings import RecoverySettings
from mqtool.recovery.state import StoreState
from mqtool.store.files import is_file, read_file
from mqtool.store.known_file import is_directory
from mqtool.store.layout import queue_directories
from mqtool.store.queues.consume_queue import last_queue_offset
from mqtool.store.waiting.timer import checkpoint_path


class StartResult(Struct):
    """How a start ended."""

    loaded: bool = False  # load() got past its files: positions are known
    started: bool = False  # start() was entered
    exit: int | None = None  # the process's exit code; None if it runs or hangs
    refusal: str | None = None  # the broker's message
    hung: str | None = None  # where it hangs

    @property
    def runs(self) -> bool:
        """Whether the broker serves clients."""
        return self.exit is None and self.hung is None


class Start:
    """One start of one store."""

    def __init__(
        self,
        settings: RecoverySettings,
        lock_holder: int | None = None,
        checked: Mapping[int, np.ndarray] | None = None,
    ) -> None:
        """Takes a store in its present state, the process that holds its lock, and checked records, see `predict`."""
        self.actions = ActionLog()
        self.lock_holder = lock_holder
        self.settings = settings
        self.state = StoreState(settings, self.actions, checked)  # the store, as far as the start has come
        self.result = StartResult()  # how it ended
        self.abort = settings.root / file_names.ABORT
        self.had_abort = self.abort.is_file()

    def run(self) -> StartResult:
        """Runs the start and, if it succeeds, a clean shutdown."""
        at_once = False
        try:
            self._construct()
            self._load()
            self.result.loaded = True
            self.result.started = True
            self._start()
        except StartFailed as end:
            self.result.exit, self.result.refusal, at_once = end.exit, end.refusal, end.at_once
        except HeapExhausted as end:
            self.result.exit, self.result.refusal = -1, end.refusal
        except StartHung as hang:
            self.result.hung = hang.where
        finally:
            self.state.segments.close()
        if self.result.hung is None and not at_once:
            self._stop()
        return self.result

    def _construct(self) -> None:
        if self.settings.whole_broker:
            topics = load_tables(self.settings, self.actions)
            if self.settings.release >= (5, 0):
                types = {name: topic.queue_type for name, topic in topics.items()}
                self.state.queue_types = {name: kind for name, kind in types.items() if kind != SIMPLE_QUEUES}
            if self.settings.compaction_sizes is not None:
                self.state.compacted_topics = frozenset(name for name, topic in topics.items() if topic.is_compacted)
        lock = self.settings.root / file_names.LOCK
        if lock.is_dir():
            raise load_fails(is_a_directory(lock))
        if self.settings.whole_broker and self.settings.timer_wheel:
            self._open_timer()

    def _open_timer(self) -> None:
        """Opens the timer's files as the constructors of TimerCheckpoint and TimerWheel do (5.5.0)."""
        wheel = self.settings.root / file_names.TIMER_WHEEL
        for path in (checkpoint_path(self.settings.root), wheel):
            if is_directory(path):
                raise load_fails(is_a_directory(path))
        size = wheel.stat().st_size if is_file(wheel) else 0
        if size not in (0, timer.WHEEL_FILE_SIZE):
            raise load_fails(f"Timer wheel length:{size} != expected:{timer.WHEEL_FILE_SIZE}")

    def _load(self) -> None:
        state, actions = self.state, self.actions
        state.clean_stop = not self.abort.exists()
        for part in self.settings.unmodelled_parts:
            actions.log_undecided(part)
        if not state.clean_stop:
            actions.log_reason("abort exists: the store was not shut down cleanly and is recovered abnormally")
        entries = [entry for path in self.settings.commit_log_dirs for entry in list_entries(path) or []]
        state.log.load(entries, release=self.settings.release)
        self._note_gaps()
        self._load_queues()
        load_compaction(state)
        state.note_loaded()
        self._load_checkpoint()
        state.index.load(clean_stop=state.clean_stop, index_timestamp=state.checkpoint.index_msg_timestamp)
        for queue in state.queues.values():
            queue.recover()
        self._recover_log()
        state.note_offsets()
        self._after_recovery()

    def _recover_log(self) -> None:
        LogRecovery(self.state).run()

    def _after_recovery(self) -> None:
        refusal = self.state.index.refusal
        if refusal and self.settings.release >= (5, 0):
            self.actions.log_reason("the index cannot be loaded: load() fails, but only after recovery (5.5)")
            raise load_fails(refusal)
        if refusal:
            self.actions.log_accepted(
                f"the index is unusable from then on: {refusal} (IndexService.load, result ignored by 4.9)"
            )
        if self.settings.release >= (5, 0) and not self.settings.whole_broker:
            return
        if self.settings.whole_broker:
            self._load_timer_log()
        if load_table(self.settings, self.actions, file_names.DELAY_OFFSETS) is None:
            path = self.settings.root / file_names.CONFIG / file_names.DELAY_OFFSETS
            raise load_fails(f"load {last_tried_file(path, release=self.settings.release)} Failed")

    def _load_timer_log(self) -> None:
        """Loads the timer log after the store and before the table of delayed messages (BrokerController, 5.5.0)."""
        size = self.settings.timer_log_size
        if size is not None:
            directory = self.settings.root / file_names.TIMER_LOG
            files = Segments(directory, size, self.actions)
            files.load(list_entries(directory) or [], release=self.settings.release)

    def _note_gaps(self) -> None:
        files = self.state.log.files
        for before, after in itertools.pairwise(files):
            if after.base - before.base != self.settings.segment_size:
                self.actions.log_accepted(
                    f"segments {before.path.name} and {after.path.name} are not contiguous"
                    + (": one ERROR in the log" if self.settings.release >= (5, 0) else "")
                    + "; messages between them cannot be read"
                )

    def _load_queues(self) -> None:
        self._load_queue_tree(file_names.CONSUME_QUEUE, SIMPLE_QUEUES)
        if self.settings.release >= (5, 0):
            self._load_queue_tree(file_names.BATCH_CONSUME_QUEUE, BATCH_QUEUES)

    def _load_queue_tree(self, tree: str, kind: str) -> None:
        """Loads every directory topic/number, in the order in which the system lists them."""
        for topic in list_entries(self.settings.root / tree) or []:
            for entry in list_entries(topic.path) or []:
                try:
                    queue_id = java.parse_int(entry.name)
                except FormatError:
                    self.actions.log_accepted(
                        f"{tree}/{topic.name}/{entry.name} is not a queue id: the broker skips it"
                    )
                    continue
                self._load_queue(topic.name, queue_id, kind)

    def _load_queue(self, topic: str, queue_id: int, kind: str) -> None:
        expected = self.state.queue_types.get(topic, SIMPLE_QUEUES)
        if self.settings.release >= (5, 0) and expected != kind:
            reason = f"The queue type of topic: {topic} should be {kind}, but is {expected}"
            raise load_fails(f"load exception java.lang.RuntimeException: {reason}")
        make = SimpleQueue if kind == SIMPLE_QUEUES else BatchQueue
        queue = make(topic, queue_id, self.settings, self.actions)
        self.state.queues[topic, queue_id] = queue
        queue.load(list_entries(queue.files.directory) or [])

    def _load_checkpoint(self) -> None:
        path = self.settings.root / file_names.CHECKPOINT
        if path.is_dir():
            raise load_fails(f"load exception {is_a_directory(path)}")
        if not path.exists():
            self.actions.do(Action.CREATE, path, checkpoint.FILE_SIZE)
            self.state.loaded_checkpoint = self.state.checkpoint
            return
        data = read_file(path)
        if len(data) < checkpoint.FILE_SIZE:
            self.actions.do(Action.GROW, path, checkpoint.FILE_SIZE)
            self.actions.log_accepted(
                f"checkpoint has {len(data)} bytes: the broker pads it with zeros, so missing fields are 0"
            )
        self.state.checkpoint = self.state.loaded_checkpoint = checkpoint.parse(data)

    def _start(self) -> None:
        holder = self.lock_holder
        if holder is not None:
            self.actions.log_reason(
                f"process {holder} holds the lock; the broker notices this only in start(), after load() has cut and "
                "deleted files"
            )
            raise throws(f"java.lang.RuntimeException: {self._lock_words}")
        self._dispatch_rest()
        self._create_abort()

    def _dispatch_rest(self) -> None:
        if self.settings.release < (5, 0) or self.settings.recheck_reput:
            dispatch_from_queues(self.state)
            self.state.note_offsets()
        else:
            self.state.reput_from = self._confirm_offset

    @property
    def _lock_words(self) -> str:
        if self.settings.release >= (5, 4):
            return "Lock failed, MQ already started, lock status: null"
        return "Lock failed,MQ already started"

    @property
    def _confirm_offset(self) -> int:
        return self.state.flushed_where if self.settings.sync_flush else self.state.log.max_offset

    def _create_abort(self) -> None:
        if self.settings.release < (5, 0):
            if not self.abort.exists():
                self.actions.do(Action.CREATE, self.abort)
            return
        if not self.abort.exists():
            self.actions.do(Action.CREATE, self.abort)
        if self.abort.is_dir():
            raise throws(is_a_directory(self.abort))
        backup = self.settings.root / file_names.ABORT_BACKUP
        if backup.is_dir():
            raise throws(is_a_directory(backup))
        self.actions.do(Action.WRITE if backup.exists() else Action.CREATE, backup)
        self.actions.do(Action.WRITE, self.abort)

    def _stop(self) -> None:
        """Follows shutdown(): before 5.4 only after a successful start, since then after every one."""
        if self.settings.release < (5, 4) and not self.result.runs:
            return
        if self.settings.release >= (5, 0) and self.state.loaded_checkpoint is not None:
            self.state.index.flush_all()
        self._write_checkpoint()
        end = self.state.log.max_offset if self.settings.release < (5, 0) else self._confirm_offset
        if self.state.is_writeable and end == self.state.reput_from and self.abort_present:
            self.actions.do(Action.DELETE, self.abort)

    @property
    def abort_present(self) -> bool:
        """Whether the file exists after the steps so far."""
        created = any(step.path == self.abort and step.action is Action.CREATE for step in self.actions.steps)
        return created or self.abort.exists()

    def _write_checkpoint(self) -> None:
        state = self.state
        if state.loaded_checkpoint is None:
            return
        if state.last_queued is not None:
            fields = {"logics_msg_timestamp": state.last_queued.store_timestamp}
            if self.settings.release >= (5, 5):
                fields["logics_physical_offset"] = state.last_queued.physical_offset
            state.update_checkpoint(**{name: value for name, value in fields.items() if value > 0})
            if self.settings.is_slave or self.settings.dledger is not None:
                state.update_checkpoint(physic_msg_timestamp=state.last_queued.store_timestamp)
        if state.index.full_until is not None:
            state.update_checkpoint(index_msg_timestamp=state.index.full_until)
        if state.checkpoint != state.loaded_checkpoint:
            self.actions.do(Action.WRITE, self.settings.root / file_names.CHECKPOINT)


def load_compaction(state: StoreState) -> None:
    """Loads the compacted logs and notes the ends of those that are served."""
    sizes, root = state.settings.compaction_sizes, state.settings.root
    if sizes is None:
        return
    for topic, queue_id, log in queue_directories(root / file_names.COMPACTION_LOG):
        queue = root / file_names.COMPACTION_CONSUME_QUEUE / topic / str(queue_id)
        if not queue.is_dir():
            continue
        try:
            names = [_load(state, directory, size) for directory, size in zip((log, queue), sizes, strict=True)]
        except StartFailed as failure:
            if LENGTH_NOT_MATCHED not in failure.refusal:
                raise load_fails(f"load compactionLog {topic}:{queue_id} exception: {failure.refusal}") from failure
            state.actions.log_accepted(f"compacted topic {topic}/{queue_id} is not served: {failure.refusal}")
            continue
        for part, only in (("log", names[0] - names[1]), ("consumeQueue", names[1] - names[0])):
            if only:
                other = "consumeQueue" if part == "log" else "log"
                reason = f"{part} file mismatch with {other} file {min(only)}"
                raise load_fails(f"load compactionLog {topic}:{queue_id} exception: {reason}")
        state.compacted_ends[topic, queue_id] = last_queue_offset(root, topic, queue_id)


def _load(state: StoreState, directory: Path, size: int) -> set[str]:
    files = Segments(directory, size, state.actions)
    files.load(list_entries(directory) or [], release=state.settings.release)
    return {file.path.name for file in files.files}


def without_uncompacted(state: StoreState, key: TopicQueue, reading: QueueReading) -> QueueReading:
    """Returns what consumers get of a queue: of a compacted one no message after the end of its own log.

    Messages before that end count as delivered: compaction removes them on purpose.
    """
    if key[0] not in state.compacted_topics:
        return reading
    dispatched = state.reput_from if state.clean_stop else (state.scanned.from_offset or 0)
    last = state.compacted_ends.get(key, -1)
    missing = (reading.offsets > last) & (reading.physical >= 0) & (reading.physical < dispatched)
    return replace(reading, states=np.where(missing, np.int8(NOT_COMPACTED), reading.states))
