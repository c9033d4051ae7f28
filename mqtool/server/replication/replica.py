"""The store of a slave: stores the master's records unchanged, at the same physical offsets.

The engine's dispatch builds queues and index. Source: DefaultMessageStore.appendToCommitLog (4.9.7, 5.5.0).
"""

from pathlib import Path

from msgspec.structs import replace

from mqtool.engine.clock import SystemClock
from mqtool.engine.components import assemble
from mqtool.engine.disk.files import Files
from mqtool.engine.options import StoreOptions
from mqtool.engine.retention.rules import RetentionPolicy
from mqtool.engine.statuses import AppendFailedError
from mqtool.engine.store import MessageStore
from mqtool.errors import FormatError, StoreClosedError, StoreError
from mqtool.formats import commit_log, file_names
from mqtool.protocol.replication import Piece

KEEP_ALL = RetentionPolicy(
    reserved_hours=1_000_000, max_used_per_cent=100, force_ratio=1.0, warning_ratio=1.0, forcibly=False
)
"""Options with which the copy keeps records that the master has deleted; a full disk is reported when a write fails."""


class ReplicaStore(MessageStore):
    """A store to which only complete frames of another log can be appended. Only one thread may append."""

    @property
    def end(self) -> int:
        """Physical offset of the end of the log."""
        return self._components.log.queue.wrote_offset

    def last_bytes(self, count: int) -> bytes:
        """Returns the bytes before the end of the log: at most this many, and of one segment."""
        queue = self._components.log.queue
        file = queue.find(self.end - 1) if self.end else None
        if file is None:
            return b""
        start = max(file.file_from_offset, self.end - count)
        return bytes(self._components.log.read(start, self.end - start) or b"")

    def append(self, frame: Piece) -> None:
        """Appends a record, or a BLANK with the rest of its segment.

        The frame is in the page cache on return, and on disk after the next flush.

        Raises:
            StoreError: the frame does not continue the log, or cannot be written.
        """
        log = self._log
        size = len(frame.data)
        with log.lock:
            if self._closed:
                raise StoreClosedError("used after close", self.path)
            if frame.physical_offset != self.end:
                raise StoreError(f"physical offset {frame.physical_offset} does not follow {self.end}", self.path)
            try:
                blank = commit_log.is_blank(frame.data)
                file = log.make_room(size - commit_log.BLANK_SIZE if blank else size)
                if (here := file.file_from_offset + file.wrote) != frame.physical_offset:
                    raise StoreError(
                        f"segments are not the master's: its record at {frame.physical_offset} would be at {here}",
                        self.path,
                    )
                if not blank:
                    file.store_timestamp = _store_timestamp(frame.data)
                log.write(file, frame.data)
            except AppendFailedError as error:
                raise StoreError("the record cannot be written; check whether the disk is full", self.path) from error
        if self._loop.idle:
            self._loop.wake()


def open_replica(path: Path, options: StoreOptions, *, first_offset: int = 0) -> ReplicaStore:
    """Opens the copy; creates it if it does not exist.

    Args:
        path: root of the copy.
        options: file sizes of the master; records are written by position.
        first_offset: physical offset at which a new copy begins: the start of a segment of the master.

    Raises:
        StoreError: as for `engine.open_store`.
    """
    files, directory = Files(), path / file_names.COMMIT_LOG
    if first_offset and not (directory.is_dir() and any(directory.iterdir())):
        files.make_directory(directory)
        files.create(directory / file_names.mapped_file_name(first_offset), options.commit_log_file_size).close()
    components = assemble(
        path,
        replace(options, positional_writes=True, pool_buffers=0),
        KEEP_ALL,
        SystemClock(),
        files,
        None,
        background=True,
    )
    return ReplicaStore(components, ())


def _store_timestamp(record: bytes) -> int:
    try:
        return commit_log.parse_record(record).store_timestamp
    except FormatError as error:
        raise StoreError(f"the master sent an invalid record: {error}", "master") from error
