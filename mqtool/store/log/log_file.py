"""CommitLog files outside of a store: one segment, a directory of them, a compacted topic's log."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from mqtool.errors import StoreError
from mqtool.formats import file_names
from mqtool.records.damage import Damage, DamageKind
from mqtool.records.frames import Frames
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.files import MappedFile, MappedFileList, obstruction
from mqtool.store.known_file import KnownFile
from mqtool.store.layout import StoreLayout
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.store import Store

_COMPACTED = file_names.COMPACTION_LOG.rpartition("/")[2]


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
        """Takes the segments.

        Args:
            path: what the user named.
            files: of kind COMMIT_LOG; at least one.
        """
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
    """Returns the logs that segments form: one of all of them, or one of each directory.

    Compacted queues have physical offsets of their own, and so have copies of a log. Directories whose files continue
    each other are one log (MultiPathMappedFileQueue).

    Args:
        path: what the user named.
        files: of kind COMMIT_LOG; at least one.
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
