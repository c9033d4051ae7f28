"""Admission: refuses stores that the engine must not write to, before a byte is written."""

import stat
from pathlib import Path
from typing import TYPE_CHECKING

from mqtool.engine.options import StoreOptions
from mqtool.errors import LayoutError, UnreadableError, UnsupportedFormatError
from mqtool.formats import checkpoint, codec, commit_log, file_names, index_file
from mqtool.formats.release import MEASURED
from mqtool.store.files import ReadFile, list_directory, obstruction, read_file
from mqtool.store.named_files import kind_of
from mqtool.store.queues.queue_database import PLACES

if TYPE_CHECKING:
    from mqtool.engine.start.recovery_executor import RecoveryExecutor

_MARKS = (file_names.LOCK, file_names.ABORT, file_names.ABORT_BACKUP, file_names.CHECKPOINT)
_ROCKSDB_MARKS = ("CURRENT", "MANIFEST-")
_MAGIC_FAMILY = commit_log.MAGIC_V1 & 0xFFFFFF00
"""The bytes that the magic codes of V1 and V2 have in common."""

_HEAD = codec.struct_of(commit_log.HEADS[0])
_STATED = [field.name for field in commit_log.HEADS[0]].index("physical_offset")


def check(root: Path, options: StoreOptions) -> None:
    """Refuses a directory by the files in it.

    Raises:
        UnsupportedFormatError: its log or its queues are of another kind, or of an unknown release.
        LayoutError: its index files have another size than the options state; the broker would misread them.
    """
    for name in _MARKS:
        try:
            mode = (root / name).stat().st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(mode):
            raise LayoutError(f"expected a regular file, found a {kind_of(mode)}; move it elsewhere", root / name)
    names = [entry.name for entry in list_directory(root)]
    if any(name.startswith(file_names.DLEDGER_PREFIX) for name in names):
        raise UnsupportedFormatError(f"{root}: contains a DLedger log; convert it with `mqtool convert dledger` first")
    if file_names.EPOCH_FILE in names:
        raise in_controller_mode(root)
    queue_names = [entry.name for place in PLACES for entry in list_directory(root / place)]
    if any(name.startswith(_ROCKSDB_MARKS) for name in queue_names):
        raise UnsupportedFormatError(
            f"{root}: its ConsumeQueues are in RocksDB; convert it with `mqtool convert rocksdb-queues` first"
        )
    _check_checkpoint(root / file_names.CHECKPOINT)
    if options.index:
        _check_index(root / file_names.INDEX, index_file.file_size(options.index_slots, options.index_entries))


def in_controller_mode(root: Path) -> UnsupportedFormatError:
    """Returns the error about a store that has an epoch file."""
    return UnsupportedFormatError(
        f"{root}: belongs to a broker in controller mode, whose epochs mqtool cannot continue; use a broker"
    )


def _check_checkpoint(path: Path) -> None:
    if not path.is_file():
        return
    data = read_file(path)
    known = checkpoint.CHECKPOINT.size
    if any(data[known:]):
        at = known + next(number for number, byte in enumerate(data[known:]) if byte)
        raise UnsupportedFormatError(
            f"{path}: expected zeros from byte {known} on, found {data[at]:#04x} at {at}: "
            "it was written by an unknown release; use a newer mqtool"
        )


def _check_index(directory: Path, expected: int) -> None:
    for entry in list_directory(directory):
        if not file_names.is_index_file_name(entry.name) or not entry.is_file():
            continue
        size = entry.stat().st_size
        if size not in (0, expected):
            raise LayoutError(
                f"expected an index file of {expected} bytes, found {size}; "
                "open the store with the index_slots and index_entries that it was created with",
                entry.path,
            )


def check_deleted(executor: "RecoveryExecutor") -> None:
    """Refuses a store of which recovery would delete a name whose bytes cannot be read.

    To a broker a link to a disk that is not mounted is a file of 0 bytes; it deletes the last one of a directory.

    Raises:
        UnreadableError: there is such a name.
    """
    for path in executor.deleted:
        if obstacle := obstruction(path):
            raise UnreadableError(
                f"is {obstacle}, and recovery would delete it; mount the disk that it leads to, or move it elsewhere "
                "if its content is lost",
                path,
            )


def check_cut(executor: "RecoveryExecutor") -> None:
    """Refuses a store whose log recovery would cut at a record of a version that the release does not know.

    Raises:
        UnsupportedFormatError: there is such a record.
    """
    state = executor.start.state
    end = state.scanned.end_offset
    file = state.log.find(end) if end is not None else None
    if file is None or end is None:
        return
    with ReadFile(file.path) as opened:
        head = opened.read(end - file.base, _HEAD.size).ljust(_HEAD.size, b"\0")
        total, magic = _HEAD.unpack(head)[:2]
        following = opened.read(end - file.base + total, commit_log.FRAME.size) if total > 0 else b""
    if _HEAD.unpack(head)[_STATED] != end or (magic & 0xFFFFFF00) != _MAGIC_FAMILY:
        return
    # One unknown magic code is a damaged record; two of them in a row are a version.
    is_known_to_5 = magic == commit_log.MAGIC_V2 and executor.start.settings.release < (5, 5)
    is_unknown = magic not in commit_log.RECORD_MAGICS and following[4:] == head[4:8]
    if is_known_to_5 or is_unknown:
        raise UnsupportedFormatError(
            f"{file.path} position {end - file.base}: a record of version {magic & 0xFFFFFFFF:08x}, which RocketMQ "
            f"{MEASURED[executor.start.settings.release]} does not know: it would cut the log here"
        )
