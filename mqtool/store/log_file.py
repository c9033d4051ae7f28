"""CommitLog files outside of a store: one segment, a directory of them, a compacted topic's log."""

from pathlib import Path

from mqtool.errors import NotAStoreError, StoreError
from mqtool.store.broker_config import BrokerConfig
from mqtool.store.commit_log import CommitLog
from mqtool.store.files import MappedFile, MappedFileList
from mqtool.store.known_file import KnownFile
from mqtool.store.layout import StoreLayout
from mqtool.store.store import Store


class LogFiles(Store):
    """Segments as a store that has a CommitLog and nothing else."""

    def __init__(self, path: Path, files: list[KnownFile]) -> None:
        """Takes the segments.

        Args:
            path: what the user named.
            files: of kind COMMIT_LOG.

        Raises:
            NotAStoreError: there are none.
        """
        if not files:
            raise NotAStoreError("holds no CommitLog segment", path)
        segments = tuple(sorted((_segment(file) for file in files), key=lambda segment: segment.base))
        self.path = path
        self.config = BrokerConfig()
        directories = tuple(dict.fromkeys(segment.path.parent for segment in segments))
        self.layout = StoreLayout(path, directories, MappedFileList(segments, ()), None, None, None, None, (), ())
        self.commit_log = CommitLog(segments)
        self._closed = False


def _segment(file: KnownFile) -> MappedFile:
    try:
        return MappedFile(file.path, file.base, file.path.stat().st_size, file.entries)
    except OSError as error:
        raise StoreError(f"cannot be opened: {error.strerror}", file.path) from error
