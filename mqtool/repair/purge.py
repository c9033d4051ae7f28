"""Removes messages: blanks their bodies in place, or purges topics from the log.

A purge moves the records of other topics together, past the old end of the log, to physical offsets that the old log
did not have. So no old address, in an offset message id or in a queue, leads to another message; a broker treats
messages of purged topics like those that retention has deleted. Their queues keep their queue offsets and groups keep
their positions, because a queue always keeps its last file (ConsumeQueue.deleteExpiredFile, 4.9.7 and 5.5.0).
"""

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Collection
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from mqtool.errors import CorruptionError, RefusedError, UnsupportedFormatError, UsageError
from mqtool.formats import checkpoint, commit_log, file_names, java, properties, timer
from mqtool.formats.commit_log import Record, SysFlag
from mqtool.jobs.atomic import write_new
from mqtool.rebuild.files import OutputFiles
from mqtool.rebuild.job import rebuild
from mqtool.rebuild.parts import RebuildScope
from mqtool.rebuild.queue_writer import NOWHERE
from mqtool.rebuild.settings import settings_of
from mqtool.records.damage import Damage
from mqtool.records.number_sets import among
from mqtool.repair.changes import Purge, Redact
from mqtool.repair.derived import replace_index
from mqtool.repair.salvage.merge import MovedLog, Run, blank_between
from mqtool.repair.staged_files import Moves, StagedFiles, check_queues
from mqtool.store.config.rocksdb import has_data
from mqtool.store.files import MappedFile, copy_file, list_directory, list_mapped_files
from mqtool.store.groups.unread import combined, needed_by_segment
from mqtool.store.known_losses import NONE, content, known_losses
from mqtool.store.layout import epoch_file, has_epochs
from mqtool.store.log.selection import Selection
from mqtool.store.queues.consume_queue import Queue, has_record
from mqtool.store.store import Store, open_store
from mqtool.store.topics import purgeable_topics
from mqtool.store.waiting.pending import pending_messages
from mqtool.store.waiting.timer import read_log_file
from mqtool.words import size as bytes_text

BLANK = b" "
"""What every byte of a redacted body becomes."""

_COMPRESSION = int(SysFlag.COMPRESSED) | commit_log.COMPRESSION_MASK
_SEPARATOR = bytes((properties.VALUE_END,))
_ROCKSDB_KEYS = ("timerRocksDBEnable", "transRocksDBEnable", "indexRocksDBEnable")
"""Keys with which a broker refers to records from rocksdbstore/ (TimerRocksDBRecord, TransRocksDBRecord, 5.5.0)."""
_NEW, _DERIVED = "new", "derived"
"""Directories for the new log, a store of its own, and for its index."""


def redact(store: Store, change: Redact, out: Path, staged: StagedFiles) -> None:
    """Blanks the bodies of records."""
    patches: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    log = store.commit_log
    if not change.physical_offsets:
        raise UsageError("nothing to redact: no message was chosen")
    for offset in sorted(set(change.physical_offsets)):
        try:
            record = log.record_at(offset)
        except CorruptionError as error:
            raise UsageError(f"expected the physical offset of a message: {error}") from error
        where = f"{java.decode_utf8(record.topic)}/{record.queue_id}@{record.queue_offset}"
        number = log.segment_at(offset)
        assert number is not None
        if not record.body.strip(BLANK):
            staged.notes.append(f"physical offset {offset}, {where}: there is nothing to blank")
            continue
        patches[number].append((offset - log.segments[number].base, redacted(record)))
        digest = hashlib.sha256(record.body).hexdigest()
        staged.notes.append(f"physical offset {offset}, {where}: body of {len(record.body)} bytes, sha256 {digest}")
    for number, of_segment in patches.items():
        path = log.segments[number].path
        name = staged.name(path)
        copy_file(path, out / name, of_segment)
        staged.put(name, out / name, keep_time=True)
    staged.notes.append(
        "the quarantine keeps the old bodies until its undo data is discarded; keys and properties, "
        "slaves, backups and exports keep theirs"
    )
    if list_directory(store.path / file_names.COMPACTION):
        staged.notes.append(f"{file_names.COMPACTION}/ may hold copies of messages of compacted topics")


def redacted(record: Record) -> bytes:
    """Returns a record with a blank body of the same length; raises UnsupportedFormatError for a batch of messages.

    The COMPRESSED flag is cleared, because the new body is not compressed: a consumer that cannot decompress one
    message drops all messages that came with it (MessageDecoder.decode, 4.9.7 and 5.5.0).
    """
    if record.sys_flag & SysFlag.INNER_BATCH:
        raise UnsupportedFormatError(
            f"physical offset {record.physical_offset}: its body is a batch of messages; redact supports only single "
            "messages"
        )
    body = BLANK * len(record.body)
    redacted_record = replace(
        record, body=body, body_crc=commit_log.body_crc(body), sys_flag=record.sys_flag & ~_COMPRESSION
    )
    data = commit_log.build_record(redacted_record)
    return properties.renew_crc32(data) if record.properties.endswith(_SEPARATOR) else data


def purge(store: Store, change: Purge, out: Path, staged: StagedFiles) -> None:
    """Builds a log without some topics, and new versions of all files that contain physical offsets.

    Raises UnsupportedFormatError if queues, timers, transactions or the index are in RocksDB, or the broker runs in
    controller mode; RefusedError if log or queues are damaged.
    """
    names = purgeable_topics([store], change.topics)
    _check(store)
    counts, moves, last_time = _move_log(store, names, out, staged)
    if not counts["records"]:
        raise UsageError(f"{store.path}: the log holds no message of {', '.join(names)}")
    for queue in store.disk_queues():
        _move_queue(store, queue, names, moves, out, staged)
    _move_index(store, out, staged)
    _move_timer(store, moves, out, staged)
    _move_checkpoint(store, moves, last_time, out, staged)
    _move_known_losses(store, names, moves, out, staged)
    staged.read_settings(store)
    _add_notes(store, names, counts, moves, staged)


def _check(store: Store) -> None:
    check_queues(store)
    kept = store.path / file_names.ROCKSDB_STORE
    enabled = [f"{key}=true" for key in _ROCKSDB_KEYS if store.config.flag(key)]
    if enabled or has_data(kept):
        raise UnsupportedFormatError(
            f"{kept}: {enabled[0] if enabled else 'has data'}: timers, transactions or an index in this RocksDB refer "
            "to records by physical offset and cannot be changed; if no broker uses it, move it elsewhere first"
        )
    epochs = epoch_file(store.path, store.config)
    if store.config.flag("enableControllerMode") or has_epochs(store.path, store.config):
        raise UnsupportedFormatError(
            f"{epochs}: the broker is in controller mode, and its replicas have the same physical offsets, so one of "
            "them cannot be purged alone"
        )
    if store.layout.misplaced or store.layout.displaced:
        raise _damaged(store, "segments with a wrong name")


def _damaged(store: Store, what: str) -> RefusedError:
    return RefusedError(
        "damage",
        f"{what}: run mqtool plan repair first; or mqtool salvage --compact --without-topic, which leaves damage out",
        store.path,
    )


# -- the log -----------------------------------------------------------------------------------------------------


def _move_log(store: Store, names: tuple[str, ...], out: Path, staged: StagedFiles) -> tuple[Counter[str], Moves, int]:
    """Writes the new log.

    Returns how many "records" and "bytes" are purged, where the others are now, and the store time of the last one, ms,
    or 0.
    """
    log = store.commit_log
    known = store.layout.commit_log_size
    size = known.value if known is not None else log.segments[0].size
    begins = -(-log.segments[-1].end // size) * size
    chosen, purged = Selection.of(topics=names), [np.empty(0, np.int64)]
    counts: Counter[str] = Counter()
    last_time = 0
    with OutputFiles(out / _NEW) as files:
        new_log = MovedLog(files, size, lambda start, end: blank_between(log, start, end), start=begins)
        for item in log.walk():
            if isinstance(item, Damage):
                raise _damaged(store, f"{item.kind} at physical offset {item.start}")
            selected = chosen.narrow(item)
            purged.append(selected.positions + selected.base)
            counts["records"] += len(selected)
            counts["bytes"] += int(selected.sizes.sum())
            if not len(item):
                continue
            new_log.add(Run(0, item), selected.positions)
            kept = item.select(~np.isin(item.positions, selected.positions))
            last_time = int(kept.column("store_timestamp")[-1]) if len(kept) else last_time
        first = f"{file_names.COMMIT_LOG}/{file_names.mapped_file_name(begins)}"
        if not files.exists(first):  # nothing is left: a log without a file would begin at 0 again
            files.write(first, size, 0, b"")
    moves = new_log.moves
    staged.moves, staged.purged = moves, np.concatenate(purged)
    for segment in log.segments:
        staged.remove(segment.path)
    directories = store.layout.commit_log_dirs or (store.path / file_names.COMMIT_LOG,)
    for file in list_mapped_files(out / _NEW / file_names.COMMIT_LOG).files:
        _imitate_age(store, moves, file)
        staged.put(staged.name(directories[0] / file.path.name), file.path)
    return counts, moves, last_time


def _imitate_age(store: Store, moves: Moves, file: MappedFile) -> None:
    """Gives a new segment the modification time of the old one with its last record; retention goes by it."""
    origin = moves.origin(file.end)
    number = None if origin is None else store.commit_log.segment_at(origin)
    if number is not None:
        status = store.commit_log.segments[number].path.stat()
        os.utime(file.path, ns=(status.st_atime_ns, status.st_mtime_ns))


# -- what leads into the log -------------------------------------------------------------------------------------


def _move_queue(
    store: Store, queue: Queue, names: Collection[str], moves: Moves, out: Path, staged: StagedFiles
) -> None:
    """Updates the physical offsets in the units of a queue."""
    files = queue.files
    if queue.topic in names:
        for file in files[:-1]:
            staged.remove(file.path)
        files = files[-1:]
    for number, file in enumerate(queue.files):
        if file not in files:
            continue
        units = queue.units_of(number)
        physical = units["physical_offset"].astype(np.int64)
        mine = has_record(units) & (physical >= store.commit_log.min_offset)
        is_purged = mine & among(physical, staged.purged)
        new = np.where(mine, moves.records(physical), physical)
        if (new[mine & ~is_purged] < 0).any():
            raise _damaged(store, f"queue {queue.topic}/{queue.queue_id} points to no record")
        new[is_purged] = np.maximum(physical[is_purged], NOWHERE)
        if is_purged.any() and queue.topic not in names:
            staged.notes.append(
                f"{queue.topic}/{queue.queue_id}: {int(is_purged.sum())} messages of the topics are in this queue too, "
                "and are removed from it"
            )
        _patch_physical_offsets(file.path, units, new, out, staged)


def _patch_physical_offsets(path: Path, rows: np.ndarray, physical: np.ndarray, out: Path, staged: StagedFiles) -> None:
    """Writes a copy of a file of units with other physical offsets. `rows` are all its present units."""
    changed = np.flatnonzero(rows["physical_offset"] != physical)
    if not len(changed):
        return
    first, end = int(changed[0]), int(changed[-1]) + 1
    patched = rows[first:end].copy()
    patched["physical_offset"] = physical[first:end]
    inner = staged.name(path)
    copy_file(path, out / inner, [(first * rows.dtype.itemsize, patched.tobytes())])
    staged.put(inner, out / inner, keep_time=True)


def _move_index(store: Store, out: Path, staged: StagedFiles) -> None:
    """Rebuilds the index from the new log, without entries of purged messages."""
    if not store.disk_index_files():
        return
    with open_store(out / _NEW) as moved:
        rebuild(moved, out / _DERIVED, settings_of(store), RebuildScope(queues=False))
    directory = out / _DERIVED / file_names.INDEX
    replace_index(store, sorted(directory.iterdir()) if directory.is_dir() else [], staged)


def _move_timer(store: Store, moves: Moves, out: Path, staged: StagedFiles) -> None:
    """Updates the physical offsets in the units of the timer log; the wheel has none."""
    for file in list_mapped_files(store.path / file_names.TIMER_LOG).files:
        rows, is_unit = timer.log_rows(read_log_file(file.path))
        physical = rows["physical_offset"].astype(np.int64)
        new = moves.records(physical)
        is_moved = is_unit & (physical >= store.commit_log.min_offset) & (new >= 0)
        _patch_physical_offsets(file.path, rows, np.where(is_moved, new, physical), out, staged)


def _move_checkpoint(store: Store, moves: Moves, last_time: int, out: Path, staged: StagedFiles) -> None:
    """Updates the physical offsets of the checkpoint, and limits its times to that of the last record.

    An offset of 0 means that there is none.
    """
    old = store.checkpoint
    if old is None:
        return
    moved = {name: moves.position(getattr(old, name)) for name in checkpoint.OFFSETS if getattr(old, name) > 0}
    moved |= {name: min(getattr(old, name), last_time) for name in checkpoint.TIMES}
    new = replace(old, **moved)
    if new != old:
        write_new(out / file_names.CHECKPOINT, checkpoint.build(new))
        staged.put(file_names.CHECKPOINT, out / file_names.CHECKPOINT, keep_time=True)


def _move_known_losses(store: Store, names: Collection[str], moves: Moves, out: Path, staged: StagedFiles) -> None:
    """Updates the end of the log for which losses are known, and leaves out those of topics that are purged."""
    known = known_losses(store.path)
    if known != NONE:
        left = [lost for lost in known.queues if lost.topic not in names]
        write_new(out / file_names.KNOWN_LOSSES, content(moves.position(known.log_end), left))
        staged.put(file_names.KNOWN_LOSSES, out / file_names.KNOWN_LOSSES, keep_time=True)


# -- what to know before -----------------------------------------------------------------------------------------


def _add_notes(store: Store, names: tuple[str, ...], counts: Counter[str], moves: Moves, staged: StagedFiles) -> None:
    log = store.commit_log
    old = sum(segment.path.stat().st_blocks * 512 for segment in log.segments)
    new = sum(path.stat().st_blocks * 512 for name, path in staged.files.items() if path.parent.name == "commitlog")
    staged.notes += [
        f"{counts['records']} messages of {', '.join(names)}, {counts['bytes']} bytes, are removed from the log",
        f"every physical offset changes: the log begins at {moves.start}, past {log.max_offset}, its present end",
        "offset message ids, including those in ORIGIN_MESSAGE_ID of retries, become invalid; unique keys stay valid",
        f"the log takes {bytes_text(old)} on disk, {bytes_text(new)} afterwards, and both until mqtool discard-undo",
        "the topics stay, empty, and their next messages get the next queue offsets; positions of groups stay valid",
        "a slave has the old physical offsets: empty it, so that it copies the new log",
    ]
    staged.notes += combined(needed_by_segment(store, names)).notes
    _note_waiting(store, names, staged)
    staged.notes += [
        f"{name}: {file_names.COMPACTION} has copies of its messages, which stay"
        for name in names
        if (store.path / file_names.COMPACTION_LOG / name).exists()
    ]


def _note_waiting(store: Store, names: Collection[str], staged: StagedFiles) -> None:
    """Notes which waiting messages of the topics are kept elsewhere, and which are deleted."""
    stay: Counter[tuple[str, str]] = Counter()
    go: Counter[tuple[str, str]] = Counter()
    for message in pending_messages(store):
        if message.stored_topic in names:
            go[message.kind.value, message.stored_topic] += 1
        elif message.topic in names or message.origin in names:
            stay[message.kind.value, message.stored_topic] += 1
    staged.notes += [
        f"{count} {kind} message(s) of these topics are waiting in {topic}: they stay and will be delivered"
        for (kind, topic), count in sorted(stay.items())
    ]
    staged.notes += [
        f"{count} {kind} message(s) of {topic} are not delivered yet and are removed"
        for (kind, topic), count in sorted(go.items())
    ]
