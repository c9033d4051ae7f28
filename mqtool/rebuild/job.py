"""Runs a whole rebuild, in one process or several, from the beginning or from where an earlier run stopped.

Or rebuilds a single index file; where it begins follows from the file before it.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mqtool import native
from mqtool.errors import StoreError, UsageError
from mqtool.formats import file_names, index_file
from mqtool.jobs.atomic import writing
from mqtool.jobs.pool import ahead
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.jobs.resume import ResumeFile
from mqtool.rebuild.files import OutputFiles
from mqtool.rebuild.metadata import Surveyor
from mqtool.rebuild.parts import BatchBuilder, DispatchBatch, RebuildScope, batches_of_workers, parts_of, walk_part
from mqtool.rebuild.queue_writer import QueueName
from mqtool.rebuild.settings import RebuildSettings
from mqtool.rebuild.sink import BitMaps, Claims, IndexWriter, Result, Sink
from mqtool.records.index_chains import IndexFileBuilder
from mqtool.store.files import ReadFile
from mqtool.store.index_file import IndexFile
from mqtool.store.log.commit_log import CommitLog, Fingerprint, fingerprint_before, matches
from mqtool.store.log.misplaced_bytes import claim_at
from mqtool.store.paths import is_inside, real_path, require_regular
from mqtool.store.queues.consume_queue import Queue
from mqtool.store.store import Store
from mqtool.values import asdict

KINDS = (
    file_names.CONSUME_QUEUE,
    file_names.CONSUME_QUEUE_EXT,
    file_names.BATCH_CONSUME_QUEUE,
    file_names.INDEX,
)
"""Directories that a rebuild of queues or index creates."""
_CREATED = (*KINDS, file_names.CONFIG, file_names.CHECKPOINT, file_names.TIMER_LOG, file_names.TIMER_WHEEL)
"""Files and directories that any rebuild creates."""

_STATE_VERSION = 2
_AHEAD = 4
"""Windows that may be dispatched before they are written."""
_STEP = 1 << 16
"""Entries read at a time."""


class Options(Struct, frozen=True):
    """How to run a rebuild."""

    # Processes that read the log. With extension modules and more than one job, a second thread does the writing.
    jobs: int = 1
    state: Path | None = None  # checkpoint file of the run; None for none
    resume: bool = False  # continue from the checkpoint file
    state_interval: int = 1 << 30  # bytes of the log between two checkpoints


def rebuild(
    store: Store,
    out: Path,
    settings: RebuildSettings,
    scope: RebuildScope | None = None,
    options: Options | None = None,
    *,
    claims: Claims | None = None,
    bit_maps: BitMaps | None = None,
    surveyor: Surveyor | None = None,
    on_progress: OnProgress = ignore,
) -> Result:
    """Rebuilds queues and index from a store's CommitLog, into a new or empty directory.

    `claims` are what the units of old queues show, by default those of the store; `bit_maps` are for queues with an
    extension. A `surveyor` also gets every window, if this process reads the whole log in one pass. On return all data
    has been passed to the operating system, but nothing is synced to disk. Raises UsageError if the directory is not
    empty, it or the checkpoint file is inside the store, the checkpoint file would replace another file, or the log has
    changed since it was written. Raises StoreError.
    """
    scope, options = replace(scope or RebuildScope(), properties=bit_maps is not None), options or Options()
    check(store, out, resume=options.resume)
    state = earlier = None
    if options.state is not None:
        _require_outside(store, options.state)
        state = _State(options.state, _fingerprint(store, settings, scope))
        earlier = state.load(store.commit_log, resume=options.resume)
    while True:
        try:
            with OutputFiles(out) as output:
                sink = Sink(
                    output, settings, scope, store.commit_log.bytes_in_use, claims or claims_of(store), bit_maps
                )
                if earlier is not None:
                    sink.resume(earlier)
                return _run(store, sink, settings, scope, options, state, surveyor, on_progress)
        except _NewBatchTopicsError as new:
            # their queues were started as ConsumeQueues: start again, now that their kind is known
            _remove_output(out)
            rules = replace(settings.rules, batch_topics=settings.rules.batch_topics | new.topics)
            settings, earlier, surveyor = replace(settings, rules=rules), None, None


def claims_of(store: Store) -> Claims:
    """Returns what the units of a store's queues show about its records."""

    @cache
    def queues() -> dict[QueueName, Queue]:
        return {QueueName(queue.topic, queue.queue_id): queue for queue in store.disk_queues() if not queue.is_batch}

    def claimed(name: QueueName, offset: int) -> int | None:
        queue = queues().get(name)
        claim = None if queue is None else claim_at(store.commit_log, queue, offset)
        return claim.physical_offset if claim is not None and claim.is_confirmed else None

    return claimed


class _NewBatchTopicsError(Exception):
    """Inner batches showed that some topics have BatchConsumeQueues."""

    def __init__(self, topics: set[str]) -> None:
        super().__init__(topics)
        self.topics = topics


def check(store: Store, out: Path, *, resume: bool) -> None:
    """Raises the errors that `rebuild` would raise before it writes anything."""
    aside = real_path(store.path) / file_names.ASIDE
    if not is_inside(out, aside):
        _require_outside(store, out)
    try:
        taken = sorted(entry.name for entry in os.scandir(out)) if out.exists() else []
    except OSError as error:
        raise StoreError(f"cannot be used as a directory: {error.strerror}", out) from error
    if taken and not resume:
        raise UsageError(f"{out}: expected a new or empty directory, found {taken[0]} in it")


@contextlib.contextmanager
def removed_on_error(out: Path) -> Iterator[None]:
    """Removes what a run has written into a new or empty directory if it ends with an error."""
    existed = out.exists()
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to report
            _remove_output(out)
            if not existed:
                out.rmdir()
        raise


class _State:
    """The checkpoint file of a run. It also contains what must be unchanged when the run is resumed."""

    def __init__(self, path: Path, fingerprint: dict[str, Any]) -> None:
        require_regular(path)
        self._file = ResumeFile(path, _STATE_VERSION, "a rebuild")
        self._fingerprint = json.loads(json.dumps(fingerprint))

    def load(self, log: CommitLog, *, resume: bool) -> dict[str, Any] | None:
        """Returns the state from which to continue, None to start afresh; refuses the file of another run."""
        try:
            stored = self._file.load()
        except OSError as error:
            raise StoreError(f"cannot be read: {error.strerror}", self._file.path) from error
        if stored is None:
            return None
        if "state" not in stored:
            raise self._file.refuse("it has no state")
        if not resume:
            return None
        if stored.get("of") != self._fingerprint:
            reason = "is the state of another run: store, selection and settings must be unchanged"
            raise UsageError(f"{self._file.path}: {reason}")
        read = self._log_read(stored)
        if read is not None and not matches(log, read):
            reason = (
                f"the log has changed before physical offset {read.offset + read.count}, up to which the interrupted "
                "run had read it; remove its output and start again without --resume"
            )
            raise UsageError(f"{self._file.path}: {reason}")
        state: dict[str, Any] = stored["state"]
        return state

    def _log_read(self, stored: dict[str, Any]) -> Fingerprint | None:
        """Returns the fingerprint of the last bytes that the stopped run had read; None if it had read none."""
        try:
            return None if stored["log"] is None else Fingerprint(**stored["log"])
        except (KeyError, TypeError) as error:
            raise self._file.refuse(f"it has no fingerprint of the log: {error!r}") from error

    def save(self, state: dict[str, Any], log: Fingerprint | None) -> None:
        """Replaces the state of the sink, and the fingerprint of the last bytes of the log that were read."""
        with writing(self._file.path):
            self._file.save({"of": self._fingerprint, "log": None if log is None else asdict(log), "state": state})

    def remove(self) -> None:
        """Deletes the file at the end."""
        self._file.remove()


def _require_outside(store: Store, path: Path) -> None:
    for part in (store.path, *store.layout.commit_log_dirs):
        if is_inside(path, part):
            raise UsageError(f"{path}: expected a directory outside of {part}: mqtool writes nothing into a store")


def _run(
    store: Store,
    sink: Sink,
    settings: RebuildSettings,
    scope: RebuildScope,
    options: Options,
    state: _State | None,
    surveyor: Surveyor | None,
    on_progress: OnProgress,
) -> Result:
    first, total = store.commit_log.min_offset, store.commit_log.bytes_in_use
    resumed_at = sink.result.next_offset or None
    todo = scope if resumed_at is None else replace(scope, start=max(resumed_at, scope.start or 0))
    noted = resumed_at or first
    for batch in _batches(store, settings, todo, options.jobs, surveyor if todo == scope else None):
        if batch.batch_topics and scope.queues:
            raise _NewBatchTopicsError(batch.batch_topics)
        sink.add(batch)
        done = sink.result.next_offset
        on_progress(min(max(done - first, 0), total), total)
        if state is not None and done - noted >= options.state_interval:
            state.save(sink.state(), fingerprint_before(store.commit_log, done))
            noted = done
    result = sink.finish()
    if state is not None:
        state.remove()
    return result


def _batches(
    store: Store, settings: RebuildSettings, scope: RebuildScope, jobs: int, surveyor: Surveyor | None
) -> Iterator[DispatchBatch]:
    batches = _walked(store, settings, scope, surveyor)
    if jobs > 1 and native.in_use():
        yield from ahead(batches, _AHEAD)  # a thread: compiled passes and the system's calls leave the other one alone
        return
    if jobs > 1:
        parts = list(parts_of(store.commit_log, scope, cut=True))
        if len(parts) > 1:
            yield from batches_of_workers(parts, settings.rules, scope, jobs)
            return
    yield from batches


def _walked(
    store: Store, settings: RebuildSettings, scope: RebuildScope, surveyor: Surveyor | None
) -> Iterator[DispatchBatch]:
    builder = BatchBuilder(settings.rules, scope, surveyor.add if surveyor else None)
    for part in parts_of(store.commit_log, scope, cut=False):
        for batch in walk_part(part, builder, scope):
            if surveyor is not None:
                for damage in batch.damage:
                    surveyor.survey.damage.add(damage)
            yield batch
    if surveyor is not None:
        surveyor.is_complete = True


def _fingerprint(store: Store, settings: RebuildSettings, scope: RebuildScope) -> dict[str, Any]:
    """Returns what must be unchanged when a run is resumed."""
    return {
        "store": str(real_path(store.path)),
        "log_begins_at": store.commit_log.min_offset,
        "wanted": asdict(scope),
        "settings": {name: str(value) for name, value in asdict(settings).items() if name not in ("evidence", "rules")},
        "rules": {
            name: sorted(value) if isinstance(value, frozenset) else value
            for name, value in asdict(settings.rules).items()
        },
    }


def _remove_output(out: Path) -> None:
    """Removes what a run has written into a directory that was empty before."""
    for created in _CREATED:
        path = out / created
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def rebuild_index_file(
    store: Store, out: Path, settings: RebuildSettings, name: str, on_progress: OnProgress = ignore
) -> Result:
    """Rebuilds one index file under its name, which determines its position among the others; it need not exist.

    Raises UsageError if the file before it is not full, so that the beginning of this one is unknown and the whole
    index must be rebuilt.
    """
    if not file_names.is_index_file_name(name):
        raise UsageError(f"{name!r}: expected the 17 digits of an index file's name")
    check(store, out, resume=False)
    earlier = [file for file in store.disk_index_files() if file.path.name < name]
    builder, start, skip = _beginning(earlier, settings)
    scope = RebuildScope(queues=False, start=start)
    result, total = Result(index_files=[name]), store.commit_log.bytes_in_use
    with OutputFiles(out) as output:
        writer = IndexWriter(output, settings.index_slots, settings.index_entries)
        writer.only(name, builder)
        batch_builder = BatchBuilder(settings.rules, scope)
        batches = (
            b for part in parts_of(store.commit_log, scope, cut=False) for b in walk_part(part, batch_builder, scope)
        )
        for batch in batches:
            skip = _add(writer, batch, start, skip, result)
            on_progress(batch.end - store.commit_log.min_offset, total)
            if writer.is_full:
                break
        writer.finish()
    return result


def _beginning(earlier: list[IndexFile], settings: RebuildSettings) -> tuple[IndexFileBuilder, int | None, int]:
    """Returns the empty file, its first record, and how many of its keys are in earlier files (oldest first)."""
    if not earlier:
        return IndexFileBuilder(settings.index_slots, settings.index_entries), None, 0
    before = earlier[-1]
    head = before.header
    if before.size != index_file.file_size(settings.index_slots, settings.index_entries) or (
        before.entry_count != settings.index_entries - 1
    ):
        raise UsageError(f"{before.path}: expected a full file before the new one; rebuild the complete index")
    builder = IndexFileBuilder(settings.index_slots, settings.index_entries, head)
    return builder, head.end_physical_offset, _keys_before(earlier, head.end_physical_offset, settings)


def _keys_before(earlier: list[IndexFile], physical_offset: int, settings: RebuildSettings) -> int:
    """Returns how many keys of a record end the last of some full files, and those before it that have no others."""
    total = 0
    for file in reversed(earlier):
        count = _trailing(file, physical_offset, settings)
        total += count
        if count < settings.index_entries - 1:
            break
    return total


def _trailing(file_before: IndexFile, physical_offset: int, settings: RebuildSettings) -> int:
    """Returns how many of a full file's last entries belong to a record."""
    total, end = 0, settings.index_entries
    with ReadFile(file_before.path) as file:
        while end > 1:
            first = max(1, end - _STEP)
            at = index_file.entry_position(first, settings.index_slots)
            data = file.read(at, (end - first) * index_file.ENTRY_SIZE)
            entries = np.frombuffer(data, index_file.ENTRY.dtype)
            others = np.flatnonzero(entries["physical_offset"] != physical_offset)
            if len(others):
                return total + len(entries) - 1 - int(others[-1])
            total, end = total + len(entries), first
    return total


def _add(writer: IndexWriter, batch: DispatchBatch, start: int | None, skip: int, result: Result) -> int:
    result.add_read(batch)
    if batch.keys is None:
        return skip
    keys = batch.keys
    skipped = int((keys.physical_offset[:skip] == start).sum()) if skip else 0
    keys = keys.select(slice(skipped, None))
    result.keys += writer.fill(keys)
    return skip - skipped if batch.records == 0 else 0
