"""A single file of a store, wherever it is: recognised by its name, its place and its bytes."""

import os
import stat
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mqtool.choices import FileKind
from mqtool.errors import FormatError, NotAStoreError, StoreError, UnreadableError, UnsupportedFormatError
from mqtool.formats import checkpoint, codec, commit_log, dledger, epoch, file_names, timer
from mqtool.formats.consume_queue import (
    BATCH_CONSUME_QUEUE_UNIT,
    BATCH_UNIT_SIZE,
    CONSUME_QUEUE_UNIT,
    PRE_BLANK,
    UNIT_SIZE,
    parse_ext_unit,
)
from mqtool.store.files import ReadFile, is_absent, list_directory, obstruction
from mqtool.store.index_file import IndexFile

_HEAD = 4096

_BY_NAME = {
    file_names.CHECKPOINT: FileKind.CHECKPOINT,
    file_names.TIMER_WHEEL: FileKind.TIMER_WHEEL,
    file_names.TIMER_CHECKPOINT: FileKind.TIMER_CHECKPOINT,
    file_names.TIMER_METRICS: FileKind.CONFIG,
    file_names.TRANSACTION_METRICS: FileKind.CONFIG,
    file_names.COMPACTION_POSITIONS.rpartition("/")[2]: FileKind.CONFIG,
    file_names.EPOCH_FILE: FileKind.EPOCH_FILE,
    file_names.ABORT: FileKind.MARKER,
    file_names.LOCK: FileKind.MARKER,
    file_names.BROKER_IDENTITY: FileKind.MARKER,
    file_names.BROKER_IDENTITY_TEMP: FileKind.MARKER,
}

QUEUE_PLACES = {
    file_names.CONSUME_QUEUE: FileKind.CONSUME_QUEUE,
    file_names.CONSUME_QUEUE_EXT: FileKind.CONSUME_QUEUE_EXT,
    file_names.BATCH_CONSUME_QUEUE: FileKind.BATCH_CONSUME_QUEUE,
    file_names.COMPACTION_CONSUME_QUEUE.rpartition("/")[2]: FileKind.BATCH_CONSUME_QUEUE,
    file_names.COMPACTION_LOG.rpartition("/")[2]: FileKind.COMMIT_LOG,
}
"""Directories of TOPIC/QUEUE/FILE."""

PLACES = {
    file_names.COMMIT_LOG: FileKind.COMMIT_LOG,
    file_names.TIMER_LOG: FileKind.TIMER_LOG,
    file_names.INDEX: FileKind.INDEX_FILE,
}
"""Directories of files."""

_OFFSET_HEAD = codec.struct_of(
    tuple(field for field in commit_log.HEADS[0] if field.offset <= commit_log.field_offset("physical_offset"))
)

_ROCKSDB = ("CURRENT", "IDENTITY", "LOCK", "MANIFEST-", "OPTIONS-")

_VIEWS = (
    (FileKind.INDEX_FILE, FileKind.INDEX_HEADER),
    (FileKind.DLEDGER_ENTRY, FileKind.COMMIT_LOG),
)
"""Two views of the same files."""

_LEDGER_KINDS = {"": FileKind.MARKER, dledger.DATA: FileKind.COMMIT_LOG, dledger.INDEX: FileKind.DLEDGER_INDEX}


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
    """Returns the kind that a file's bytes prove, None if they prove none; `head` is the first 4096 of them."""
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
    times = (getattr(parsed, name) for name in checkpoint.TIMES)
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


class KnownFile(Struct, frozen=True):
    """A file and what is known about it."""

    path: Path  # of the file
    kind: FileKind  # kind of its content
    base: int = 0  # file_from_offset, from a 20-digit name or the first record; 0 if unknown
    topic: str | None = None  # and queue_id: of a queue's file, from its place; None if unknown
    queue_id: int | None = None
    entries: bool = False  # of kind COMMIT_LOG, and its records are bodies of DLedger entries


def recognise(path: Path, kind: FileKind | None = None) -> KnownFile:
    """Recognises one ordinary file; opening anything else could block. A given kind overrides name and content.

    Raises NotAStoreError if it is not a file of a store; UnsupportedFormatError for a snapshot of DLedger or RocksDB;
    StoreError if it cannot be opened.
    """
    _require_file(path)
    topic, queue_id = _queue_of(path)
    head = _head(path)
    base = _base(path, head)
    entries = holds_entries(head) or _ledger_part(path) == dledger.DATA
    if kind is not None:
        return KnownFile(path, kind, base, topic, queue_id, entries=entries)
    _refuse_foreign(path)
    named = _by_place(path)
    recognised = kind_of(path, head) if named is None or named is FileKind.COMMIT_LOG else None
    if named is None and recognised is None:
        raise NotAStoreError("is not a known file of a message store; name its kind with --kind", path)
    chosen = recognised or named
    assert chosen is not None
    return KnownFile(path, chosen, base, topic, queue_id, entries=entries)


def recognise_all(directory: Path, kind: FileKind | None = None) -> list[KnownFile]:
    """Returns the recognised files below a directory, of one kind if it is given, in the order of their names.

    They include files that cannot be read, if they have the place or the name of a file of the kind: whoever reads them
    meets the error.
    """
    listed = next((views for views in _VIEWS if kind in views), (kind,))
    recognised: list[KnownFile | Path] = []
    for path in _files_below(directory, depth=4):
        known = _recognised(path)
        if isinstance(known, KnownFile) and kind is not None:
            is_entries = known.entries or kind is not FileKind.DLEDGER_ENTRY
            known = replace(known, kind=kind) if known.kind in listed and is_entries else None
        if known is not None:
            recognised.append(known)
    chosen = kind or next((known.kind for known in recognised if isinstance(known, KnownFile)), None)
    if chosen is None:
        return []
    files = [known if isinstance(known, KnownFile) else _unread(known, chosen) for known in recognised]
    return [known for known in files if known.kind is chosen]


def _recognised(path: Path) -> KnownFile | Path | None:
    """Returns a file of a directory; its path if its bytes and place do not show the kind, None if it is foreign."""
    try:
        return recognise(path)
    except UnsupportedFormatError:
        return None
    except StoreError as error:
        if not isinstance(error, UnreadableError) and not obstruction(path):
            return None
    try:
        _refuse_foreign(path)
    except UnsupportedFormatError:
        return None
    kind = _by_place(path)
    if kind is not None:
        return _unread(path, kind)
    is_named = file_names.parse_mapped_file_name(path.name) is not None or file_names.is_index_file_name(path.name)
    return path if is_named else None


def _unread(path: Path, kind: FileKind) -> KnownFile:
    base = file_names.parse_mapped_file_name(path.name) or 0
    return KnownFile(path, kind, base, *_queue_of(path), entries=_ledger_part(path) == dledger.DATA)


def _files_below(directory: Path, depth: int) -> list[Path]:
    """Lists files without following links to directories, which may form a loop."""
    paths: list[Path] = []
    for entry in sorted(list_directory(directory), key=lambda entry: _numbers_first(entry.name)):
        if entry.is_dir(follow_symlinks=False):
            if depth:
                paths.extend(_files_below(Path(entry.path), depth - 1))
        else:
            paths.append(Path(entry.path))
    return paths


def _numbers_first(name: str) -> tuple[bool, int, str]:
    is_number = name.isascii() and name.isdigit()
    return not is_number, int(name) if is_number else 0, name


def _require_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        kind = NotAStoreError if is_absent(error) else UnreadableError
        raise kind(f"cannot be opened: {error.strerror}", path) from error
    if not stat.S_ISREG(mode):
        raise NotAStoreError("is neither an ordinary file nor a directory", path)


def _head(path: Path) -> bytes:
    with ReadFile(path) as file:
        return file.read(0, _HEAD)


def _refuse_foreign(path: Path) -> None:
    parents = [part.name for part in path.absolute().parents]
    if _ledger_part(path) not in (None, "", dledger.DATA, dledger.INDEX):
        raise UnsupportedFormatError(f"{path}: belongs to a snapshot of a DLedger log, which is not read")
    in_rocksdb = parents[0] == file_names.ROCKSDB_STORE or path.suffix == ".sst"
    if in_rocksdb or any(path.name.startswith(name) for name in _ROCKSDB):
        raise UnsupportedFormatError(f"{path}: belongs to a RocksDB, which is not read")


def _ledger_part(path: Path) -> str | None:
    """Returns which directory of a DLedger log contains a file, "" for the log's own; None if none does."""
    parents = [part.name for part in path.absolute().parents]
    within = next((n for n, name in enumerate(parents) if name.startswith(file_names.DLEDGER_PREFIX)), None)
    return None if within is None else parents[within - 1] if within else ""


def _by_place(path: Path) -> FileKind | None:
    name = path.name.removesuffix(file_names.BACKUP_SUFFIX)
    ledger = _ledger_part(path)
    if ledger == "" or (ledger is not None and file_names.parse_mapped_file_name(name) is not None):
        return _LEDGER_KINDS.get(ledger)
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name.endswith(".json"):
        return FileKind.CONFIG
    if name.startswith(f"{file_names.TIMER_WHEEL}."):
        return FileKind.TIMER_WHEEL
    parents = [part.name for part in path.absolute().parents]
    if file_names.is_index_file_name(name) and parents[0] == file_names.INDEX:
        return FileKind.INDEX_FILE
    if file_names.parse_mapped_file_name(name) is None:
        return None
    if len(parents) > 2 and parents[2] in QUEUE_PLACES:
        return QUEUE_PLACES[parents[2]]
    return PLACES.get(parents[0])


def _queue_of(path: Path) -> tuple[str | None, int | None]:
    queue, topic, place, *_ = [*(part.name for part in path.absolute().parents), "", "", ""]
    if place in QUEUE_PLACES and queue.isascii() and queue.isdigit():
        return topic, int(queue)
    return None, None


def _base(path: Path, head: bytes) -> int:
    named = file_names.parse_mapped_file_name(path.name)
    if named is not None:
        return named
    if holds_entries(head):
        return max(0, dledger.ENTRY.parse(head).position)
    try:  # a copy under another name: its first record says where it was
        return max(0, commit_log.parse_record(head).physical_offset)
    except FormatError:
        return _stated_offset(head)


def _stated_offset(head: bytes) -> int:
    """Returns the physical offset stated by a record that is longer than the head, 0 if there is no record."""
    if len(head) < _OFFSET_HEAD.size or not has_magic(head):
        return 0
    return max(0, int(_OFFSET_HEAD.unpack_from(head)[-1]))


def is_directory(path: Path) -> bool:
    """Whether a path is a directory; a symlink loop is not, nor is what the system does not let be looked at."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises for both
