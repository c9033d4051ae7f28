"""Changes of the files of the log: cuts off its end or sets aside its front; sets aside, renames or pads files.

A broker that cuts its log only moves a position back. The bytes stay, and a later record that ends just before one
of them makes it part of the log again. Here they become zeros, and log, queues, index, checkpoint and consumer offsets
agree on the new end. Records that only one file holds would be lost with it: they are found before it is set aside.
"""

import os
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mqtool.engine.retention.forecast import derived_files_before, messages_by_segment
from mqtool.errors import LayoutError, StoreError, UsageError
from mqtool.formats import checkpoint as checkpoint_format
from mqtool.formats import commit_log, config_files, file_names, index_file
from mqtool.formats.config_json import json_style
from mqtool.formats.consume_queue import BATCH_CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT
from mqtool.formats.index_file import HEADER
from mqtool.jobs.atomic import write_new
from mqtool.records.damage import Damage
from mqtool.records.frames import Frames
from mqtool.records.index_chains import chain
from mqtool.records.record_search import records_anywhere
from mqtool.repair.changes import Pad, RecordLosses, RenameSegments, SetAside, Trim, Truncate
from mqtool.repair.offsets import data_version
from mqtool.repair.paths import check_name, inside
from mqtool.repair.staged_files import StagedFiles, check_queues
from mqtool.store.config.metadata import require_readable
from mqtool.store.files import MappedFile, ReadFile, copy_file, list_directory, read_file
from mqtool.store.groups.unread import combined, needed_by_segment
from mqtool.store.index_file import IndexFile
from mqtool.store.known_losses import LostOffsets, content, known_losses, merged, offsets_by_queue
from mqtool.store.log.commit_log import Segment
from mqtool.store.queues.consume_queue import Queue, has_record
from mqtool.store.store import Store
from mqtool.store.waiting.held_back import waiting_by_segment
from mqtool.verify import verify
from mqtool.words import size


class SoleRecords(Struct, frozen=True):
    """Records of a file that are not in the store's CommitLog."""

    count: int  # how many
    first: int  # and last: smallest and largest physical offset that they state
    last: int

    def __str__(self) -> str:
        """Returns the records in words."""
        return f"{self.count} record(s) that exist nowhere else (physical offsets {self.first} to {self.last})"


def sole_records(store: Store, path: Path) -> SoleRecords | None:
    """Returns the records of any file that the CommitLog does not hold in other files; None if there are none."""
    count, first, last = 0, 0, 0
    own = _segment_of(store, path)
    with ReadFile(path) as file:
        for position, record in records_anywhere(file):
            at = record.physical_offset
            inside = own is not None and own.base <= at < own.end
            if not inside and store.commit_log.read(at, record.total_size) == file.read(position, record.total_size):
                continue
            first, last = (at, at) if not count else (min(first, at), max(last, at))
            count += 1
    return SoleRecords(count, first, last) if count else None


def _segment_of(store: Store, path: Path) -> Segment | None:
    """Returns the segment for a file, found by name because a store may have very many."""
    base = file_names.parse_mapped_file_name(path.name)
    index = store.commit_log.segment_at(base) if base is not None else None
    segment = store.commit_log.segments[index] if index is not None else None
    return segment if segment is not None and segment.path == path else None


def trim(store: Store, change: Trim, _out: Path, staged: StagedFiles) -> None:
    """Removes the oldest segments, and files of queues and index that point to nothing else.

    It keeps what the broker's own cleaning keeps: the last file of each queue and of the index, and every file from the
    first on whose last entry is still valid (CleanCommitLogService, ConsumeQueue.deleteExpiredFile,
    IndexService.deleteExpiredFile, 4.9.7 and 5.5.0).
    """
    check_queues(store)
    log = store.commit_log
    removed = trimmed(store, change)
    if not removed:
        raise UsageError(f"nothing to trim: no segment before the last one ends at or before {change.before}")
    begins = log.segments[len(removed)].base
    for segment in removed:
        staged.remove(segment.path)
        staged.unhashed.add(staged.name(segment.path))
    count = sum(messages_by_segment(store, [segment.base for segment in log.segments])[: len(removed)])
    needed = combined(needed_by_segment(store)[: len(removed)])
    staged.notes.append(
        f"{len(removed)} segments, {size(sum(segment.size for segment in removed))}: {count} messages are removed, "
        f"{needed.words}: the log will begin at physical offset {begins}"
    )
    for path in derived_files_before(store, begins):
        staged.remove(path)
    staged.notes.extend(needed.notes)
    staged.notes.extend(
        messages.words_of(segment)
        for segment, waiting in waiting_by_segment(store)
        if segment.base < begins
        for messages in waiting
    )
    staged.read_log(store, full=False)


def trimmed(store: Store, change: Trim) -> list[MappedFile]:
    """Returns the segments that a change sets aside: never the last one in use."""
    log = store.commit_log
    return [segment for segment in log.segments[: log.last_used] if segment.end <= change.before]


_REBUILT = tuple(f"{name}/" for name in (file_names.CONSUME_QUEUE, file_names.CONSUME_QUEUE_EXT, file_names.INDEX))
"""Where a rebuild may need the name of a file that is in the way; the old one is kept for `undo` either way."""


def set_aside(store: Store, change: SetAside, _out: Path, staged: StagedFiles) -> None:
    """Moves files out of the way."""
    for name in change.files:
        path = inside(store.path, check_name(name, store.path))
        if not path.is_file():
            raise UsageError(f"{path}: expected a file to set aside")
        if name in staged.files and name.startswith(_REBUILT):
            staged.notes.append(f"{name}: another change creates a new file in its place")
        else:
            staged.remove(path)
        sole = sole_records(store, path)
        if sole is not None:
            staged.notes.append(f"{name} holds {sole}: mqtool discard-undo will refuse to delete it")
    staged.read_log(store, full=False)


def rename_segments(store: Store, change: RenameSegments, out: Path, staged: StagedFiles) -> None:
    """Renames segments to the physical offsets of their records."""
    by_name = {staged.name(segment.path): segment for segment in store.layout.misplaced}
    targets = {}
    for name in change.files:
        segment = by_name.get(check_name(name, store.path))
        if segment is None:
            raise UsageError(f"{name}: expected a CommitLog file whose records belong at a free physical offset")
        directories = store.layout.commit_log_dirs or (store.path / file_names.COMMIT_LOG,)
        directory = segment.path.parent if segment.path.parent in directories else directories[0]
        targets[name] = directory / file_names.mapped_file_name(segment.base)
    for name, target in targets.items():
        source, renamed = store.path / name, out / staged.name(target)
        copy_file(source, renamed)
        status = source.stat()
        renamed.chmod(status.st_mode & 0o7777)
        os.utime(renamed, ns=(status.st_atime_ns, status.st_mtime_ns))
        staged.put(staged.name(target), renamed)
        staged.notes.append(f"{name} becomes {staged.name(target)}: its records state these physical offsets")
    for name in targets:
        if name not in staged.files:
            staged.remove(store.path / name)
    staged.read_log(store)


def pad(store: Store, change: Pad, out: Path, staged: StagedFiles) -> None:
    """Extends segments to the length of the others, or cuts zeros after that length off.

    Zeros end the log: a broker that scans them cuts everything after. So if the log continues in a later segment, a
    BLANK is written after the last intact record (CommitLog.checkMessageAndReturnSize, 4.9.7 and 5.5.0).
    """
    known = store.layout.commit_log_size
    assert known is not None
    if not known.is_certain:
        raise LayoutError(known.doubt, store.path)
    by_name = {staged.name(segment.path): segment for segment in store.layout.commit_log.files}
    for name in change.files:
        segment = by_name.get(check_name(name, store.path))
        if segment is None or not is_padded(segment, known.value):
            size = "none" if segment is None else f"{segment.size} bytes"
            raise UsageError(
                f"{name}: expected a segment of another length than {known.value} bytes, with zeros after that; "
                f"found {size}"
            )
        end = _needs_blank(store, segment)
        if end is None:
            copy_file(segment.path, out / name, zeros_from=known.value, size=known.value)
        else:
            blank = commit_log.build_blank(known.value - end)
            copy_file(segment.path, out / name, [(end, blank)], zeros_from=end, size=known.value)
            staged.notes.append(
                f"{name}: a BLANK at position {end} fills the space from the last record to the next segment"
            )
        staged.put(name, out / name, keep_time=True)
        staged.notes.append(f"{name}: from {segment.size} to {known.value} bytes ({known.evidence})")
    staged.read_log(store)


def record_losses(store: Store, change: RecordLosses, out: Path, staged: StagedFiles) -> None:
    """Adds the losses of a store to its record, so that `verify` expects them; `undo` removes it with the others."""
    losses = verify(store).losses.offsets if change.lost is None else change.lost
    lost = offsets_by_queue((*losses, *known_losses(store.path).queues))
    if losses:
        queues = [LostOffsets(*queue, merged(offsets)) for queue, offsets in sorted(lost.items())]
        (out / file_names.KNOWN_LOSSES).write_bytes(content(store.commit_log.max_offset, queues))
        staged.put(file_names.KNOWN_LOSSES, out / file_names.KNOWN_LOSSES)
        count = sum(last - first + 1 for part in losses for first, last in part.offsets)
        staged.notes.append(
            f"{file_names.KNOWN_LOSSES}: {count} message(s) are already lost; verify will expect them to be missing"
        )


def is_padded(segment: MappedFile, size: int) -> bool:
    """Whether a segment has another length than a size, and nothing but zeros where it is to be extended or cut."""
    if segment.size <= size:
        return 0 < segment.size < size
    with ReadFile(segment.path) as file:
        return not file.has_data(size)


def _needs_blank(store: Store, segment: MappedFile) -> int | None:
    """Returns the position after the last record of a segment, if the log continues without a BLANK leading there."""
    log = store.commit_log
    number = next((number for number, other in enumerate(log.segments) if other.path == segment.path), None)
    if number is None or number >= log.last_used:
        return None
    walk = log.walk_segment(number)
    end = 0
    for item in walk:
        if isinstance(item, Frames):
            end = item.base + int(item.positions[-1] + item.sizes[-1]) - segment.base
    head = log.read(segment.base + end, commit_log.FRAME.size)
    known = store.layout.commit_log_size
    assert known is not None
    return None if head == commit_log.build_blank(known.value - end)[: len(head)] and head else end


class Cut(Struct, frozen=True):
    """The new end of the log."""

    end: int  # physical offset after the last record that stays
    last_time: int  # store time of that record; 0 if no record stays
    loses_nothing: bool  # only bytes after the end of the log are removed


def truncate(store: Store, change: Truncate, out: Path, staged: StagedFiles) -> None:
    """Cuts the store; queues, and positions that would change, must not be in a RocksDB that is not read."""
    check_queues(store)
    cut = find_cut(store, change.at)
    _cut_log(store, cut, out, staged)
    ends = {}
    for queue in store.disk_queues():
        end = _cut_queue(queue, cut, out, staged)
        if end is not None:
            ends[queue.topic, queue.queue_id] = end
    for index in store.disk_index_files():
        if index.header.end_physical_offset >= cut.end:
            _cut_index(store, index, cut, out, staged)
    _cut_checkpoint(store, cut, out, staged)
    if list_directory(store.path / file_names.TIMER_LOG):
        staged.notes.append(
            "the timer's files are not cut: run mqtool verify to list entries that point past the new end"
        )
    _cut_offsets(store, ends, out, staged)
    staged.notes.insert(0, f"the log will end at physical offset {cut.end}")
    staged.read_log(store)


def find_cut(store: Store, at: int) -> Cut:
    """Returns the new end of the log if everything from a physical offset on is removed.

    Raises UsageError if neither a record nor damage begins there, nor the log ends there; or if nothing would be left.
    """
    log = store.commit_log
    loses_nothing = at == log.max_offset
    number = log.segment_at(at)
    if at == log.min_offset or not log.min_offset < at <= log.max_offset:
        raise UsageError(
            f"--at {at}: expected a physical offset after {log.min_offset}, where the log begins, up to "
            f"{log.max_offset}, where it ends"
        )
    if number is None or at == log.segments[number].base:
        number = len(log.segments) - 1 if number is None else number - 1
    end, last_time = _walk_to(store, number, at)
    while last_time == 0 and number:
        number -= 1
        _, last_time = _walk_to(store, number, at)
    return Cut(at if loses_nothing else end, last_time, loses_nothing)


def _walk_to(store: Store, number: int, at: int) -> tuple[int, int]:
    """Returns the end of the last record of a segment before an offset, or the offset itself; and its store time."""
    segment, walk = store.commit_log.segments[number], store.commit_log.walk_segment(number, crc=False)
    end, last_time = segment.base, 0
    for item in walk:
        if isinstance(item, Damage):
            if item.start == at:
                return at, last_time
            if item.start < at < item.end:
                raise UsageError(f"--at {at} is inside of damage that begins at {item.start}: cut there")
            continue
        starts = item.positions + item.base
        if starts[-1] >= at:
            if at not in starts:
                near = int(starts[starts < at][-1]) if (starts < at).any() else segment.base
                raise UsageError(f"--at {at}: expected the start of a record; one starts at {near}")
            before = item.select(starts < at)
            return at, int(before.column("store_timestamp")[-1]) if len(before) else last_time
        end = int(starts[-1] + item.sizes[-1])
        last_time = int(item.column("store_timestamp")[-1])
    if segment.base < at < segment.end and at not in (walk.end, walk.last_record_end):
        raise UsageError(f"--at {at}: expected the start of a record; the last one of its file ends at {end}")
    return (at if at < segment.end else end), last_time


def _cut_log(store: Store, cut: Cut, out: Path, staged: StagedFiles) -> None:
    size = store.layout.commit_log_size
    for segment in store.commit_log.segments:
        if segment.end <= cut.end:
            continue
        position = max(0, cut.end - segment.base)
        with ReadFile(segment.path) as file:
            used = file.has_data(position)
        if segment.base >= cut.end:
            if used or not cut.loses_nothing:
                staged.remove(segment.path)
        elif used:
            name = staged.name(segment.path)
            copy_file(segment.path, out / name, zeros_from=position)
            if size is not None and segment.size < size.value:  # no broker starts with a shorter one
                os.truncate(out / name, size.value)
            staged.put(name, out / name, keep_time=True)


def _cut_queue(queue: Queue, cut: Cut, out: Path, staged: StagedFiles) -> int | None:
    """Cuts one queue; returns the queue offset at which it continues, None if it does not change."""
    layout = BATCH_CONSUME_QUEUE_UNIT if queue.is_batch else CONSUME_QUEUE_UNIT
    first: int | None = None
    count, is_empty = 0, False
    for number, file in enumerate(queue.files):
        data = read_file(file.path, 1 << 32)
        units = layout.rows(data)
        beyond = np.flatnonzero(has_record(units) & (units["physical_offset"] >= cut.end))
        if not len(beyond):
            continue
        at = int(beyond[0])
        count += int(has_record(units[at:]).sum())
        if first is None:
            first = int(units["base_queue_offset"][at]) if queue.is_batch else file.base // layout.size + at
        if at:
            name = staged.name(file.path)
            copy_file(file.path, out / name, zeros_from=at * layout.size)
            staged.put(name, out / name)
            continue
        staged.remove(file.path)
        if number == 0 and file.base:
            staged.notes.append(f"{queue.topic}/{queue.queue_id}: no message is left; the queue will begin at 0 again")
            is_empty = True
    if first is not None:
        staged.notes.append(f"{queue.topic}/{queue.queue_id}: {count} units from queue offset {first} on are removed")
    return 0 if is_empty else first


def _cut_index(store: Store, index: IndexFile, cut: Cut, out: Path, staged: StagedFiles) -> None:
    slots = index.slot_count
    if slots is None or not index.entry_count:
        staged.complete = False
        staged.notes.append(
            f"{index.path.name}: cannot be cut, because its number of slots is unknown; rebuild the index"
        )
        return
    entries = index.entries
    beyond = np.flatnonzero(entries["physical_offset"] >= cut.end)
    kept = entries[: int(beyond[0])] if len(beyond) else entries
    if not len(kept):
        staged.remove(index.path)
        return
    last = int(kept["physical_offset"][-1])
    try:
        time = store.commit_log.record(last).store_timestamp
    except StoreError:
        time = index.header.begin_timestamp + int(kept["time_diff"][-1]) * 1000
    heads = np.zeros(slots, index_file.SLOT_TYPE)
    header = replace(
        index.header,
        end_timestamp=time,
        end_physical_offset=last,
        index_count=len(kept) + 1,
        hash_slot_count=int((chain(heads, kept["key_hash"] % slots, 1) == 0).sum()),
    )
    head = HEADER.build(header) + heads.tobytes()
    name = staged.name(index.path)
    copy_file(index.path, out / name, [(0, head)], zeros_from=index_file.entry_position(len(kept) + 1, slots))
    staged.put(name, out / name)


def _cut_checkpoint(store: Store, cut: Cut, out: Path, staged: StagedFiles) -> None:
    """Moves the checkpoint back to the new end of the log."""
    known, path = store.checkpoint, store.path / file_names.CHECKPOINT
    if known is None or not path.is_file():
        return
    bounds = dict.fromkeys(checkpoint_format.TIMES, cut.last_time) | dict.fromkeys(checkpoint_format.OFFSETS, cut.end)
    new = replace(known, **{name: min(getattr(known, name), bound) for name, bound in bounds.items()})
    if new != known:
        write_new(out / file_names.CHECKPOINT, checkpoint_format.build(new))
        staged.put(file_names.CHECKPOINT, out / file_names.CHECKPOINT)


def _cut_offsets(store: Store, ends: dict[tuple[str, int], int], out: Path, staged: StagedFiles) -> None:
    """Moves consumer offsets back to the new ends; otherwise groups would skip what is written there next."""
    if ends:
        advice = (
            "positions past the new ends of the queues could not be moved back, so groups would skip the messages "
            "written there next; run mqtool salvage instead, and compare the positions with the new store"
        )
        require_readable(store.path / file_names.CONFIG, store.config, advice)
    tables = store.metadata.offset_tables
    known, name = tables.offsets, tables.written
    if known is None:
        return
    is_lmq = known.lmq_offset_table is not None

    def bound(key: str, queue_id: int, offset: int) -> int:
        topic, group = config_files.split_topic_group(key)
        end = ends.get((topic, queue_id), offset)
        if offset > end:
            staged.notes.append(f"group {group}: consumer offset of {topic}/{queue_id} is reset from {offset} to {end}")
        return min(offset, end)

    table = {
        key: {queue_id: bound(key, queue_id, offset) for queue_id, offset in offsets.items()}
        for key, offsets in known.offset_table.items()
    }
    lmq = {key: bound(key, 0, offset) for key, offset in (known.lmq_offset_table or {}).items()} if is_lmq else None
    if (table, lmq) == (known.offset_table, known.lmq_offset_table):
        return
    style = json_style(store.version.release)
    version = data_version(store, tables.read)
    new = replace(known, offset_table=table, lmq_offset_table=lmq, data_version=version)
    write_new(out / name, config_files.build_consumer_offsets(new, style))
    staged.put(name, out / name)
