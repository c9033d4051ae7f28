"""Components: the parts of an open store; assembled, flushed and shut down in the right order.

Source: DefaultMessageStore.load/start/shutdown (4.9.7, 5.5.0).
"""

import errno
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from mqtool.engine.clock import Clock
from mqtool.engine.config_files import ConfigFiles
from mqtool.engine.disk.allocator import Allocator
from mqtool.engine.disk.files import Files
from mqtool.engine.disk.mapped_files import MappedFileQueue
from mqtool.engine.dispatcher import Dispatcher
from mqtool.engine.flusher import Flusher, StoreCheckpoint
from mqtool.engine.index import Index
from mqtool.engine.options import StoreOptions, rules_of
from mqtool.engine.queues import Queues
from mqtool.engine.read import Reader, Searcher
from mqtool.engine.retention.cleaner import Cleaner
from mqtool.engine.retention.rules import RetentionPolicy
from mqtool.engine.service import DispatchLoop, Service
from mqtool.engine.start.detect import check_admission
from mqtool.engine.start.lock import AbortMark, LastShutdown, StoreLock
from mqtool.engine.start.recovery_executor import RecoveryExecutor, RecoveryResult, drop_unflushed
from mqtool.engine.statuses import RunningFlag, RunningFlags
from mqtool.engine.write.commit_log import CommitLog
from mqtool.engine.write.queue_offsets import QueueOffsets
from mqtool.errors import ReadOnlyStoreError, StoreError, StoreLockedError
from mqtool.formats import file_names

if TYPE_CHECKING:
    from mqtool.engine.dispatcher import BitMapOf

_LOG = logging.getLogger(__name__)


class Components(Struct):
    """The parts of one open store, in the order in which `assemble` builds them."""

    root: Path
    options: StoreOptions
    recovered: RecoveryResult
    lock: StoreLock
    abort: AbortMark
    flags: RunningFlags
    offsets: QueueOffsets
    log: CommitLog
    queues: Queues
    index: Index | None
    dispatcher: Dispatcher
    checkpoint: StoreCheckpoint
    flusher: Flusher
    loop: DispatchLoop
    service: Service | None
    cleaner: Cleaner
    reader: Reader
    searcher: Searcher
    clock: Clock


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Turns an OSError into a StoreError that names the file and what to do."""
    try:
        yield
    except OSError as error:
        where = Path(error.filename) if isinstance(error.filename, str) else path
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise ReadOnlyStoreError(f"cannot be written: {error.strerror}; check owner and mount", where) from error
        raise StoreError(f"{error.strerror or error}; check the disk, then reopen the store", where) from error


def assemble(
    root: Path,
    options: StoreOptions,
    policy: RetentionPolicy,
    clock: Clock,
    files: Files,
    bit_map_of: "BitMapOf | None",
    *,
    background: bool,
) -> Components:
    """Locks, recovers and starts a store; arguments and errors as `open_store`."""
    root = root.absolute()  # files are opened as they are needed, perhaps after a change of the working directory
    options = replace(
        options,
        commit_log_dirs=tuple(directory.absolute() for directory in options.commit_log_dirs),
        read_only_dirs=tuple(directory.absolute() for directory in options.read_only_dirs),
    )
    with named_errors(root), ExitStack() as undo:
        lock = StoreLock(root)
        lock.test()
        check_admission(root, options)
        undo.callback(lock.release)
        writable = options.commit_log_dirs or (root / file_names.COMMIT_LOG,)
        abort = AbortMark(files, root, release=options.release)
        executor, last_shutdown = _locked_plan(root, options, (*writable, *options.read_only_dirs), files, abort, lock)
        store = _opened(root, options, writable, files, clock, background=background)
        recovered = _recover(store, executor, last_shutdown, clock.now())
        components = _connected(store, recovered, lock, abort, policy, clock, bit_map_of, background=background)
        undo.pop_all()
    if components.service is not None:
        components.log.allocator.start()
        components.service.start()
    return components


class _OpenedFiles(Struct):
    """The files of a store, opened."""

    root: Path
    options: StoreOptions
    files: Files
    checkpoint: StoreCheckpoint
    log: MappedFileQueue
    queues: Queues
    index: Index | None
    batch_topics: frozenset[str]


def _opened(
    root: Path, options: StoreOptions, writable: tuple[Path, ...], files: Files, clock: Clock, *, background: bool
) -> _OpenedFiles:
    checkpoint = StoreCheckpoint(files, root / file_names.CHECKPOINT, release=options.release)
    batch_topics = ConfigFiles(root, files, release=options.release).batch_topics()
    log = MappedFileQueue(files, writable, options.commit_log_file_size, options.read_only_dirs)
    queues = Queues(options, files, root, batch_topics)
    index = Index(options, files, root / file_names.INDEX, clock, background=background) if options.index else None
    return _OpenedFiles(root, options, files, checkpoint, log, queues, index, batch_topics)


def _recover(store: _OpenedFiles, executor: RecoveryExecutor, last_shutdown: LastShutdown, now: int) -> RecoveryResult:
    """Carries out the recovery, and takes its result into the checkpoint."""
    recovered = executor.carry_out(store.files, store.log, store.queues, store.index, last_shutdown, now)
    store.checkpoint.set(**executor.checkpoint_fields())
    if not recovered.clean_stop:  # what recovery read from the page cache may not be on disk yet
        for file in (*store.log.files, *(file for queue in store.queues.all() for file in queue.files.files)):
            file.file.sync()
    # Also after a clean stop: the checkpoint of a release before 5.5 states no offset, a missing one nothing.
    store.checkpoint.set(logics_physical_offset=recovered.end)
    return recovered


def _connected(
    store: _OpenedFiles,
    recovered: RecoveryResult,
    lock: StoreLock,
    abort: AbortMark,
    policy: RetentionPolicy,
    clock: Clock,
    bit_map_of: "BitMapOf | None",
    *,
    background: bool,
) -> Components:
    """Returns the parts that work on the files, connected; marks the store as open."""
    options, queues, index, checkpoint = store.options, store.queues, store.index, store.checkpoint
    flags = RunningFlags()
    offsets = QueueOffsets(release=options.release, batch_topics=store.batch_topics)
    for queue in queues.all():
        offsets.set_next(queue.topic, queue.queue_id, queue.max_offset)
    allocator = Allocator(store.files, store.log, options.reserve_bytes, lock=options.lock_memory)
    log = CommitLog(options, store.log, allocator, offsets, flags, clock)
    dispatcher = Dispatcher(rules_of(options, store.batch_topics), log, queues, index, flags, bit_map_of)
    dispatcher.reput_from_offset = recovered.end
    flusher = Flusher(options, log, queues, dispatcher, checkpoint, flags, clock)
    if index is not None:
        index.when_full = flusher.index_file_is_full
        index.flush_full_files(checkpoint.values.index_msg_timestamp)
    loop = DispatchLoop(options, log, dispatcher, flusher, flags, clock)
    log.before_roll = loop.relieve
    cleaner = Cleaner(policy, store.files, log, queues, index, flags, clock, store.root)
    reader = Reader(options, log, queues)
    abort.create()
    checkpoint.flush()
    return Components(
        store.root,
        options,
        recovered,
        lock,
        abort,
        flags,
        offsets,
        log,
        queues,
        index,
        dispatcher,
        checkpoint,
        flusher,
        loop,
        Service(options, loop, flusher, cleaner.turn) if background else None,
        cleaner,
        reader,
        Searcher(reader, queues, index),
        clock,
    )


def _locked_plan(
    root: Path, options: StoreOptions, directories: tuple[Path, ...], files: Files, abort: AbortMark, lock: StoreLock
) -> tuple[RecoveryExecutor, LastShutdown]:
    """Locks the store; after a power cut, removes what may be half written.

    Returns the planned recovery, and how the last writer of the store ended. Raises StoreLockedError if another process
    has opened the store in the meantime.
    """
    last_shutdown = abort.last_shutdown()
    # The plan checks the lock file as a broker does, so the lock is taken after it; a process that opened the store in
    # between has left its mark.
    executor = RecoveryExecutor(root, options, directories)
    files.make_directory(root)
    lock.acquire()
    if abort.last_shutdown() is not last_shutdown:
        raise StoreLockedError("a broker or another mqtool has just had the store open; try again", root)
    if last_shutdown is LastShutdown.POWER_CUT:
        discarded_from = drop_unflushed(root, options, directories, files)
        lock.release()
        executor = RecoveryExecutor(root, options, directories, discarded_from)
        lock.acquire()
    return executor, last_shutdown


def flush_all(components: Components) -> int:
    """Flushes log, queues, index and checkpoint; returns the flushed offset of the log."""
    flushed = components.flusher.flush_log()
    components.flusher.flush_queues()
    if components.index is not None:
        components.index.flush()
    components.checkpoint.flush()
    return flushed


def shut_down(components: Components) -> None:
    """Stops the threads, dispatches and flushes the rest, deletes `abort` if all was written, releases the lock."""
    try:
        if components.service is not None:
            components.service.stop()
        components.cleaner.stop()
        with components.log.lock:  # waits for a put in progress; those that wait for it find FENCED, and are refused
            pass
        components.log.allocator.stop()
        components.flusher.flush_log()
        components.loop.stop()
        components.loop.turn()
        flush_all(components)
        if components.index is not None:
            components.index.reclaim()
        if components.flags.only(RunningFlag.FENCED) and components.loop.behind == 0:
            components.abort.remove()
        else:
            _LOG.warning("abort file kept flags=%s behind=%d", components.flags, components.loop.behind)
    finally:
        with suppress(OSError):
            components.queues.close()
        if components.index is not None:
            components.index.close()
        components.log.queue.close()
        components.lock.release()
