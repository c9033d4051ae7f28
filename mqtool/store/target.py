"""Opens what a path leads to: a store, CommitLog files outside of a store, files of another kind, a log that grows."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from mqtool.choices import FileKind
from mqtool.errors import NotAStoreError, StoreError
from mqtool.formats import dledger, file_names
from mqtool.records.damage import Damage, DamageKind
from mqtool.records.frames import Frames
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.files import MappedFile, MappedFileList, list_directory, obstruction
from mqtool.store.known_file import PLACES, QUEUE_PLACES, KnownFile, is_directory, recognise, recognise_all
from mqtool.store.layout import StoreLayout
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.log.message import Message
from mqtool.store.store import Store, open_store

_COMPACTED = file_names.COMPACTION_LOG.rpartition("/")[2]

INTERVAL = 0.2
"""Seconds between two looks."""


class CompactedLog(CommitLog):
    """The log of a compacted topic: its files have gaps between them, and the last one ends with zeros.

    Source: CompactionLog.replaceFiles, CompactionAppendEndMsgCallback (5.5.0).
    """

    def walk(self, start: int | None = None, end: int | None = None, **options: bool) -> Iterator[Frames | Damage]:
        """Walks the log as `CommitLog.walk` does; gaps between files and zeros at the end of a file are not damage."""
        ends = {segment.end for segment in self.segments}
        for item in super().walk(start, end, **options):
            if isinstance(item, Damage):
                is_gap = item.kind is DamageKind.MISSING and item.start in ends
                if is_gap or (item.kind is DamageKind.ZEROS and item.end in ends):
                    continue
            yield item


class LogFiles(Store):
    """Segments presented as a store with only a CommitLog."""

    def __init__(self, path: Path, files: list[KnownFile]) -> None:
        """Takes files of kind COMMIT_LOG, at least one."""
        segments = tuple(sorted(_segments(files), key=lambda segment: segment.base))
        self.path = path
        self.unlisted = {}
        self.config = BrokerConfig()
        directories = tuple(dict.fromkeys(segment.path.parent for segment in segments))
        self.layout = StoreLayout(path, directories, MappedFileList(segments, ()), None, None, None, None, (), ())
        is_compacted = all(_COMPACTED in segment.path.absolute().parts for segment in segments)
        self.commit_log = CompactedLog(segments) if is_compacted else CommitLog(segments)
        self._closed = False


def logs_of(path: Path, files: Sequence[KnownFile]) -> list[LogFiles]:
    """Returns the logs that files of kind COMMIT_LOG, at least one, form: one of all of them, or one of each directory.

    Compacted queues have physical offsets of their own, and so have copies of a log. Directories whose files continue
    each other are one log (MultiPathMappedFileQueue).
    """
    directories: dict[Path, list[KnownFile]] = {}
    for file in files:
        directories.setdefault(file.path.parent, []).append(file)
    bases = Counter(base for same in directories.values() for base in {file.base for file in same})
    if all(count == 1 for count in bases.values()) and all(file.topic is None for file in files):
        return [LogFiles(path, list(files))]
    return [LogFiles(directory, same) for directory, same in directories.items()]


def _segments(files: list[KnownFile]) -> list[MappedFile]:
    """Returns files as segments; what cannot be read is as long as most others."""
    sizes = [0 if obstruction(file.path) else _size(file.path) for file in files]
    usual = Counter(size for size in sizes if size).most_common(1)
    blocked = usual[0][0] if usual else 1
    return [
        MappedFile(file.path, file.base, size or (blocked if obstruction(file.path) else 0), file.entries)
        for file, size in zip(files, sizes, strict=True)
    ]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise StoreError(f"cannot be opened: {error.strerror}", path) from error


class Target(Struct, frozen=True):
    """What a path leads to: either stores or files."""

    # Whose records are to be read, each by its own physical offsets; they may have segments only.
    stores: Sequence[Store] = ()
    files: Sequence[KnownFile] = ()  # of one kind other than COMMIT_LOG, in order


def open_target(path: Path, kind: FileKind | None = None, config: Path | None = None) -> Target:
    """Opens a store, a part of one (commitlog, one queue, index, …), or a single file. The caller closes the stores.

    `kind` is what to read there: the part of a store, or the kind of an unknown file. Raises NotAStoreError,
    UnsupportedFormatError, StoreError or ConfigFileError if it cannot be read.
    """
    if not is_directory(path):
        return _target_of(path, [recognise(path, kind)])
    if is_part(path):
        files = recognise_all(path, kind)
        if not files:
            raise NotAStoreError(_nothing_found(path, kind), path)
        return _target_of(path, files)
    if path.absolute().name.startswith(file_names.DLEDGER_PREFIX):
        return open_target(path / (dledger.INDEX if kind is FileKind.DLEDGER_INDEX else dledger.DATA), kind, config)
    store = open_store(path, config)
    if kind is None or kind is FileKind.COMMIT_LOG:
        return Target(stores=[store])
    store.close()
    files = recognise_all(path, kind)
    if not files:
        raise NotAStoreError(_nothing_found(path, kind), path)
    return Target(files=files)


def _target_of(path: Path, files: list[KnownFile]) -> Target:
    return Target(stores=logs_of(path, files)) if files[0].kind is FileKind.COMMIT_LOG else Target(files=files)


def _nothing_found(path: Path, kind: FileKind | None) -> str:
    if not list_directory(path):
        return "the directory is empty"
    return f"holds no file of kind {kind}" if kind else "holds no file of a message store"


def is_part(path: Path) -> bool:
    """Whether a directory is part of a store rather than its root, by its name and its direct content."""
    if is_directory(path / file_names.COMMIT_LOG):
        return False
    full_path = path.absolute()
    parts = (*PLACES, *QUEUE_PLACES, file_names.CONFIG)
    if full_path.name in parts or full_path.parent.name in QUEUE_PLACES or full_path.parent.parent.name in QUEUE_PLACES:
        return True
    names = [entry.name for entry in list_directory(path)]
    return any(file_names.parse_mapped_file_name(n) is not None or file_names.is_index_file_name(n) for n in names)


def follow(
    path: Path, config: Path | None = None, *, wait: Callable[[], None] | None = None, **conditions: object
) -> Iterator[Message | Damage]:
    """Yields existing messages and then new ones; ends at the end of the range, otherwise never.

    An unfinished record at the end does not count yet. If the log is cut meanwhile, as by a recovering broker, that is
    reported as damage, and following continues from the new end. `wait` is called when there is nothing new; an
    exception that it raises ends the following. None sleeps for `INTERVAL`. Conditions are those of `Store.messages`,
    without limit.
    """
    pause = wait or (lambda: time.sleep(INTERVAL))
    at, until = conditions.pop("start", None), conditions.pop("end", None)
    position = at if isinstance(at, int) else None
    while True:
        with open_store(path, config) as store:
            log = store.commit_log
            end = log.max_offset
            if position is not None and position > end:
                detail = f"the log was cut from physical offset {position} while it was followed"
                yield Damage(end, position, DamageKind.MISSING, detail)
                position = end
            low = log.min_offset if position is None else position
            stop = min(end, until) if isinstance(until, int) else end
            if low < stop:
                yield from store.messages(start=low, end=stop, **conditions)
                position = stop
        if isinstance(until, int) and position is not None and position >= until:
            return
        pause()
