"""Sets aside the front of the log and what points only there; sets aside, renames or pads files.

Finds records that only one file holds, and that would be lost with it.
"""

import os
from pathlib import Path

from msgspec import Struct

from mqtool.engine.retention.forecast import derived_files_before
from mqtool.errors import LayoutError, UsageError
from mqtool.formats import commit_log, file_names
from mqtool.formats.topics import TopicQueue
from mqtool.records.frames import Frames
from mqtool.records.record_search import records_anywhere
from mqtool.repair.changes import Pad, RenameSegments, SetAside, Trim
from mqtool.repair.paths import check_name, inside
from mqtool.repair.staged_files import StagedFiles, check_queues
from mqtool.store.copies import copy_file
from mqtool.store.files import MappedFile, ReadFile
from mqtool.store.groups.unread import combined, needed_by_segment
from mqtool.store.known_losses import LostOffsets, content, known_losses
from mqtool.store.log.commit_log import Segment
from mqtool.store.store import Store
from mqtool.store.waiting.held_back import waiting_by_segment
from mqtool.verify import verify
from mqtool.verify.losses import merged


class SoleRecords(Struct, frozen=True):
    """Records of a file that are not in the store's CommitLog."""

    count: int  # how many
    first: int  # and last: smallest and largest physical offset that they state
    last: int

    def __str__(self) -> str:
        """Returns the records in words."""
        return f"{self.count} record(s) found nowhere else (physical offsets {self.first} to {self.last})"


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
    count = sum(segment.size for segment in removed)
    staged.notes.append(f"{len(removed)} segments, {count} bytes: the log will begin at physical offset {begins}")
    for path in derived_files_before(store, begins):
        staged.remove(path)
    staged.notes.extend(combined(needed_by_segment(store)[: len(removed)]).notes)
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
            staged.notes.append(f"{name}: another change puts a new file in its place")
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
            staged.notes.append(f"{name}: a BLANK at position {end} leads from the last record to the next segment")
        staged.put(name, out / name, keep_time=True)
        staged.notes.append(f"{name}: from {segment.size} to {known.value} bytes ({known.evidence})")
    _record_losses(store, change.lost, out, staged)
    staged.read_log(store)


def _record_losses(store: Store, known: tuple[LostOffsets, ...] | None, out: Path, staged: StagedFiles) -> None:
    """Adds the losses of a store to its record, so that `verify` expects them; `undo` removes it with the others."""
    lost: dict[TopicQueue, list[tuple[int, int]]] = {}
    losses = verify(store).losses.offsets if known is None else known
    for part in (*losses, *known_losses(store.path).queues):
        lost.setdefault((part.topic, part.queue_id), []).extend(part.offsets)
    if losses:
        queues = [LostOffsets(*queue, merged(offsets)) for queue, offsets in sorted(lost.items())]
        (out / file_names.KNOWN_LOSSES).write_bytes(content(store.commit_log.max_offset, queues))
        staged.put(file_names.KNOWN_LOSSES, out / file_names.KNOWN_LOSSES)
        count = sum(last - first + 1 for part in losses for first, last in part.offsets)
        staged.notes.append(f"{file_names.KNOWN_LOSSES}: {count} message(s) are lost already; verify will expect that")


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
