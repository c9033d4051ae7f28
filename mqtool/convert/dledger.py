"""Converts a store in DLedger mode to an ordinary store. RocketMQ itself has no tool for this direction.

Every record keeps its topic, queue, queue offset, times, body and properties. Its physical offset changes, since an
ordinary log has no entry headers, and with it `__CRC32#`, its own CRC, if it has one. All references to physical
offsets are updated: prepared_transaction_offset of commit records and units of the timer log. ConsumeQueues and index
are rebuilt. Offset message ids change too, since they contain the physical offset.
"""

from pathlib import Path

import numpy as np
from msgspec.structs import replace

from mqtool.convert.staging import ConversionResult, staging_directory
from mqtool.errors import UnsupportedFormatError
from mqtool.formats import checkpoint as checkpoint_format
from mqtool.formats import file_names, timer, topics
from mqtool.formats.checkpoint import Checkpoint
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.rebuild.files import OutputFiles, SegmentWriter
from mqtool.rebuild.job import KINDS, rebuild
from mqtool.rebuild.queue_writer import write_expired_queues
from mqtool.rebuild.settings import settings_of
from mqtool.records.damage import Damage
from mqtool.records.frames import Frames
from mqtool.store.config.rocksdb import has_data
from mqtool.store.files import copy_file, copy_tree, list_directory, list_mapped_files
from mqtool.store.queues.filter_bit_maps import bit_maps_of
from mqtool.store.store import Store, open_store
from mqtool.store.waiting.timer import read_log_file

_REFERRED = (topics.HALF_TOPIC.encode(), topics.TIMER_TOPIC.encode())
"""Topics whose records other data refer to by physical offset: commit records and the timer log."""

_COPIED = (file_names.CONFIG, file_names.COMPACTION, file_names.TIMER_WHEEL)
_MADE = (*KINDS, file_names.COMMIT_LOG, file_names.TIMER_LOG, file_names.CHECKPOINT)
_NEEDLESS = (
    file_names.LOCK,
    file_names.ABORT,
    file_names.ABORT_BACKUP,
    file_names.ABORT_NEW,
    file_names.ROCKSDB_STORE,
)


def convert(store: Store, target: Path, on_progress: OnProgress = ignore) -> ConversionResult:
    """Writes the messages of a store in DLedger mode, which is only read, to a new ordinary store.

    `on_progress` is called with the number of bytes of the old log converted so far, and their total. Raises
    UnsupportedFormatError if the store has no DLedger log, and as `staging_directory`.
    """
    if not any(segment.entries for segment in store.commit_log.segments):
        raise UnsupportedFormatError(f"{store.path}: has no DLedger log")
    with staging_directory(store.path, target) as staging:
        return _Conversion(store, staging, on_progress).run()


class _Conversion:
    def __init__(self, store: Store, staging: Path, on_progress: OnProgress) -> None:
        self._store = store
        self._staging = staging
        self._on_progress = on_progress
        self._old: list[np.ndarray] = []
        self._new: list[np.ndarray] = []
        self._found = ConversionResult(start=store.commit_log.min_offset)
        self._newest = 0

    def run(self) -> ConversionResult:
        """Writes the whole store."""
        result = self._found
        last = self._log()
        self._timer()
        for name in _COPIED:
            self._copy(name)
        self._checkpoint(last)
        self._derived()
        handled = {*_COPIED, *_MADE, *_NEEDLESS, *self._ledger_parts()}
        result.left_behind = [e.name for e in list_directory(self._store.path) if e.name not in handled]
        if has_data(self._store.path / file_names.ROCKSDB_STORE):
            result.left_behind.append(file_names.ROCKSDB_STORE)  # timers or transactions, with old offsets
        return result

    def _ledger_parts(self) -> set[str]:
        """Returns the names of the root's entries that hold the DLedger log."""
        place = self._store.layout.ledger
        assert place is not None
        inside = (path for path in (place.directory, *place.data) if path.is_relative_to(self._store.path))
        return {path.relative_to(self._store.path).parts[0] for path in inside}

    def _log(self) -> int:
        """Writes the segments; returns the physical offset of the last record."""
        log, result = self._store.commit_log, self._found
        ledger = next(segment for segment in log.segments if segment.entries)
        last, records = -1, 0
        with OutputFiles(self._staging) as output:
            writer = SegmentWriter(output, ledger.base, ledger.size)
            for segment in log.segments:
                if not segment.entries:
                    copy_file(segment.path, self._staging / file_names.COMMIT_LOG / segment.path.name)
            for item in log.walk():
                if isinstance(item, Damage):
                    result.damage.add(item)
                    continue
                records += len(item)
                self._newest = max(self._newest, int(item.column("store_timestamp").max()))
                plain = item.positions + item.base < ledger.base
                if plain.all():
                    last = item.base + int(item.positions[-1])
                    self._refer(item, item.positions + item.base)
                else:
                    places = writer.place(item.sizes)
                    self._refer(item, places)
                    writer.append(item, places, self._prepared(item))
                self._on_progress(item.base + int(item.positions[-1]) - log.min_offset, log.bytes_in_use)
            result.end, result.records = writer.end, records
        return writer.last_record if writer.last_record >= 0 else last

    def _refer(self, frames: Frames, places: np.ndarray) -> None:
        """Remembers old and new physical offsets of the records that other data may refer to."""
        rows = frames.rows_of(*_REFERRED)
        self._old.append((frames.positions + frames.base)[rows])
        self._new.append(places[rows])

    def _prepared(self, frames: Frames) -> np.ndarray:
        """Returns the new prepared_transaction_offset of each record."""
        stored = frames.column("prepared_transaction_offset").astype(np.int64)
        rows = np.flatnonzero(stored)
        if len(rows):
            stored[rows] = self._translated(stored[rows])
        return stored

    def _translated(self, offsets: np.ndarray) -> np.ndarray:
        """Maps old physical offsets to new ones; offsets without a known record are kept and counted as unresolved."""
        old, new = (np.concatenate([np.empty(0, np.int64), *parts]) for parts in (self._old, self._new))
        if not len(old):
            self._found.unresolved += len(offsets)
            return offsets
        at = np.minimum(np.searchsorted(old, offsets), len(old) - 1)
        known = old[at] == offsets
        self._found.unresolved += int((~known).sum())
        return np.where(known, new[at], offsets)

    def _timer(self) -> None:
        """Copies the timer log and updates the physical offsets in its units."""
        for file in list_mapped_files(self._store.path / file_names.TIMER_LOG).files:
            rows, is_unit = timer.log_rows(read_log_file(file.path))
            moved = rows.copy()
            moved["physical_offset"][is_unit] = self._translated(rows["physical_offset"][is_unit])
            target = self._staging / file_names.TIMER_LOG / file.path.name
            copy_file(file.path, target, [(0, moved.tobytes())])

    def _copy(self, name: str) -> None:
        source = self._store.path / name
        if source.is_dir():
            copy_tree(source, self._staging / name)
        elif source.is_file():
            copy_file(source, self._staging / name)

    def _checkpoint(self, last: int) -> None:
        """Writes the checkpoint of the new log. Fields that the source's release does not write stay 0."""
        old = self._store.checkpoint or Checkpoint()
        checkpoint = replace(
            old,
            physic_msg_timestamp=self._newest,
            logics_msg_timestamp=self._newest,
            index_msg_timestamp=0,
            confirm_physical_offset=max(last, 0) if old.confirm_physical_offset else 0,
            logics_physical_offset=self._found.end if old.logics_physical_offset else 0,
            master_flushed_offset=0,
        )
        (self._staging / file_names.CHECKPOINT).write_bytes(checkpoint_format.build(checkpoint))

    def _derived(self) -> None:
        """Builds ConsumeQueues and index from the new log."""
        settings = settings_of(self._store)
        out = self._staging.with_name("queues")
        with open_store(self._staging) as store:
            bit_maps = bit_maps_of(self._store) if settings.has_extension else None
            rebuilt = self._found.rebuilt = rebuild(store, out, settings, bit_maps=bit_maps)
            self._found.units = rebuilt.units
        for kind in KINDS:
            if (out / kind).exists():
                (out / kind).rename(self._staging / kind)
        write_expired_queues([self._store], self._staging, settings)
