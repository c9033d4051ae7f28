"""Power-loss recovery: removes bytes that a power cut may have left half written, before recovery reads them.

A power cut loses pages of the page cache in any order. The broker, started after one, accepts every queue unit that
looks valid and every record whose body matches its CRC. Both can be wrong: a unit with half its bytes, a record
with zeros for properties. The engine stores the machine's boot id in `abort`. If the store is opened under another
boot id, queue units that no flush has confirmed are zeroed, and the log is ended at the first record after the
confirmed position whose trailer was not written. The scan of the log then begins at that position or before it, so
that dispatch writes every zeroed unit again. A kill needs none of this, and a store of the broker, which stores no
boot id, is recovered exactly as the broker recovers it.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mqtool.engine.disk.files import Files
from mqtool.engine.options import StoreOptions
from mqtool.formats import checkpoint, commit_log, file_names
from mqtool.formats.checkpoint import Checkpoint
from mqtool.formats.codec import Unit
from mqtool.formats.consume_queue import BATCH_CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT, PRE_BLANK_SIZE_FIELD
from mqtool.formats.release import Release
from mqtool.records.frames import Frames
from mqtool.records.walk import intact_run
from mqtool.store.files import MappedFile, ReadFile, list_mapped_files
from mqtool.store.layout import queue_directories

_LOG = logging.getLogger(__name__)

_QUEUE_TREES: tuple[tuple[str, Unit[Any]], ...] = (
    (file_names.CONSUME_QUEUE, CONSUME_QUEUE_UNIT),
    (file_names.BATCH_CONSUME_QUEUE, BATCH_CONSUME_QUEUE_UNIT),
)
_SECTOR = 512


def drop_unflushed(root: Path, options: StoreOptions, directories: tuple[Path, ...], files: Files) -> int:
    """Removes bytes that a power cut may have left half written. Durable on return; may be repeated.

    The caller holds the lock. Returns the physical offset from which records must be dispatched again; queues keep the
    units of records before it.
    """
    path = root / file_names.CHECKPOINT
    stored = checkpoint.parse(path.read_bytes()) if path.is_file() else Checkpoint()
    log = list_mapped_files(*directories).files
    flushed = _flushed_offset(stored, log, release=options.release)
    _LOG.warning("the machine has restarted: distrusting what follows physical_offset=%d", flushed)
    _close_at_torn_record(log, flushed, files)
    for name, unit in _QUEUE_TREES:
        for _, _, directory in queue_directories(root / name):
            _drop_units(directory, unit, flushed, files)
    return flushed


def _flushed_offset(stored: Checkpoint, log: tuple[MappedFile, ...], *, release: Release) -> int:
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


def _frames(file: MappedFile, start: int) -> Iterator[Frames]:
    """Yields the valid records of a file from a physical offset on, up to the first bytes that are not one."""
    with ReadFile(file.path) as opened:
        yield from intact_run(opened.read, file.base, max(0, start - file.base), file.size)


def _close_at_torn_record(log: tuple[MappedFile, ...], flushed: int, files: Files) -> None:
    """Zeroes the head of the first record after an offset whose trailer was not completely written."""
    for file in log:
        if file.end <= flushed:
            continue
        for frames in _frames(file, max(flushed, file.base)):
            torn = np.flatnonzero(_torn(frames))
            if len(torn):
                physical = frames.base + int(frames.positions[torn[0]])
                _LOG.warning("a record was not written completely physical_offset=%d", physical)
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


def _overwrite(files: Files, listed: MappedFile, position: int, count: int) -> None:
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
