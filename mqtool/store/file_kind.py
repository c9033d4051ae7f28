"""Kinds of files, and how to recognise them by their bytes."""

from pathlib import Path

from mqtool.choices import FileKind
from mqtool.errors import FormatError, StoreError
from mqtool.formats import checkpoint, commit_log, dledger, epoch, timer
from mqtool.formats.consume_queue import (
    BATCH_CONSUME_QUEUE_UNIT,
    BATCH_UNIT_SIZE,
    CONSUME_QUEUE_UNIT,
    PRE_BLANK,
    UNIT_SIZE,
    parse_ext_unit,
)
from mqtool.store.index.index_file import IndexFile


def has_magic(head: bytes) -> bool:
    """Whether bytes begin like a record or a BLANK."""
    if len(head) < commit_log.FRAME.size:
        return False
    total, magic = commit_log.FRAME.unpack_from(head)
    return total > 0 and magic in (*commit_log.RECORD_MAGICS, commit_log.MAGIC_BLANK)


def holds_entries(head: bytes) -> bool:
    """Whether bytes begin with a DLedger entry whose body begins like a record."""
    if len(head) < dledger.ENTRY_HEADER_SIZE:
        return False
    entry = dledger.ENTRY.parse(head)
    is_header = entry.magic == dledger.MAGIC_ENTRY and entry.size == entry.body_length + dledger.ENTRY_HEADER_SIZE
    return is_header and has_magic(head[dledger.ENTRY_HEADER_SIZE :])


def kind_of(path: Path, head: bytes) -> FileKind | None:
    """Returns the kind that a file's bytes prove, None if they prove none.

    Args:
        path: the file.
        head: its first bytes, 4096 of them if it has so many.
    """
    size = path.stat().st_size
    if has_magic(head) or holds_entries(head):
        return FileKind.COMMIT_LOG
    if not any(head):
        return None
    tests = (
        (FileKind.CONFIG, head.lstrip()[:1] == b"{"),
        (FileKind.TIMER_LOG, _is_timer_log(head)),
        (FileKind.BATCH_CONSUME_QUEUE, size % BATCH_UNIT_SIZE == 0 and _is_batch_queue(head)),
        (FileKind.CONSUME_QUEUE, size % UNIT_SIZE == 0 and _is_queue(head)),
        (FileKind.CHECKPOINT, size == checkpoint.FILE_SIZE and _is_checkpoint(head)),
        (FileKind.CONSUME_QUEUE_EXT, _is_ext(head)),
        (FileKind.EPOCH_FILE, _is_epoch(head)),
    )
    return next((kind for kind, holds in tests if holds), None) or _if_index(path)


def _is_timer_log(head: bytes) -> bool:
    unit = timer.unit_at(head)
    return unit is not None and unit.reserved == 0


def _is_batch_queue(head: bytes) -> bool:
    unit = BATCH_CONSUME_QUEUE_UNIT.parse(head)
    return unit.is_valid and unit.compacted_offset == -1 and unit.reserved == 0


def _is_queue(head: bytes) -> bool:
    count = min(len(head) // UNIT_SIZE, 8)
    units = [CONSUME_QUEUE_UNIT.parse(head, number * UNIT_SIZE) for number in range(count)]
    used = [unit for unit in units if any((unit.physical_offset, unit.size, unit.tags_code))]
    real = [unit for unit in used if unit != PRE_BLANK]
    ends = [0, *(unit.physical_offset + unit.size for unit in real)]
    fits = all(
        unit.size >= commit_log.MIN_RECORD_SIZE and unit.physical_offset >= end
        for unit, end in zip(real, ends, strict=False)
    )
    return bool(used) and used == units[: len(used)] and fits


def _is_checkpoint(head: bytes) -> bool:
    parsed = checkpoint.parse(head)
    times = (parsed.physic_msg_timestamp, parsed.logics_msg_timestamp, parsed.index_msg_timestamp)
    return all(0 <= value < 1 << 42 for value in times) and not any(head[checkpoint.CHECKPOINT.size :])


def _is_ext(head: bytes) -> bool:
    try:
        return parse_ext_unit(head) is not None
    except FormatError:
        return False


def _is_epoch(head: bytes) -> bool:
    try:
        return bool(epoch.parse(head))
    except FormatError:
        return False


def _if_index(path: Path) -> FileKind | None:
    try:
        return FileKind.INDEX_FILE if IndexFile(path).slot_count else None
    except StoreError:
        return None
