"""StoreCheckpoint: timestamps up to which the files of a store are on disk, for the next recovery.

Source: StoreCheckpoint (4.9.7, 5.5.0).
"""

import threading
from pathlib import Path

from msgspec.structs import replace

from mqtool.engine.disk.files import Files
from mqtool.formats import checkpoint
from mqtool.formats.checkpoint import Checkpoint
from mqtool.formats.release import Release

_FIELDS_OF_4_9 = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")


class StoreCheckpoint:
    """The file and its values in memory. Safe to use from several threads.

    Attributes:
        flushed_timestamp: store timestamp up to which the log is on disk. Every flush sets it in memory only.
    """

    def __init__(self, files: Files, path: Path, *, release: Release) -> None:
        """Reads the file if it exists."""
        self._files = files
        self._path = path
        self._release = release
        self._guard = threading.Lock()
        self._written: Checkpoint | None = None
        self.flushed_timestamp = 0
        self._values = checkpoint.parse(path.read_bytes()) if path.is_file() else Checkpoint()

    @property
    def values(self) -> Checkpoint:
        """The values as they will be written next."""
        if self.flushed_timestamp > self._values.physic_msg_timestamp:
            return replace(self._values, physic_msg_timestamp=self.flushed_timestamp)
        return self._values

    def advance(self, **fields: int) -> None:
        """Increases fields; a field never decreases."""
        with self._guard:
            higher = {name: value for name, value in fields.items() if value > getattr(self._values, name)}
            if higher:
                self._values = replace(self._values, **higher)

    def set(self, **fields: int) -> None:
        """Sets fields, also to smaller values: after recovery has truncated the log."""
        with self._guard:
            self._values = replace(self._values, **fields)

    def flush(self) -> None:
        """Writes the values if they have changed. Durable on return.

        Raises:
            OSError: the old values may still be on disk, or a mixture at sector granularity.
        """
        with self._guard:
            values = written = self.values
            if values == self._written:
                return
            if self._release < (5, 5):  # fields that 4.9 does not know stay zero
                values = Checkpoint(**{name: getattr(values, name) for name in _FIELDS_OF_4_9})
            if not self._path.exists():
                self._files.create(self._path, checkpoint.FILE_SIZE)
                self._files.sync_directory(self._path.parent)
            file = self._files.open(self._path, checkpoint.FILE_SIZE)
            try:
                file.write(0, checkpoint.build(values))
                file.sync()
            finally:
                file.close()
            self._written = written
