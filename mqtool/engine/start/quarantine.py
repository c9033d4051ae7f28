"""Quarantine: keeps bytes that recovery would cut or delete and that may contain messages.

Files are in `quarantine` in the store's root, which the broker does not read, named after their origin.
"""

import base64
import json
import logging
import os
from pathlib import Path
from typing import Any

from mqtool.engine.disk.files import Files
from mqtool.engine.disk.mapped_files import MappedFile
from mqtool.errors import LayoutError, NotAStoreError
from mqtool.records.record_search import holds_record
from mqtool.recovery.outcome import QueuePlan
from mqtool.recovery.settings import RecoverySettings
from mqtool.store import Message
from mqtool.store.files import ReadFile
from mqtool.store.index_file import list_index_files
from mqtool.store.store import open_store

_LOG = logging.getLogger(__name__)

DIRECTORY = "quarantine"
LISTING = "messages.jsonl"
"""Complete messages among the quarantined bytes, in a form that `mqtool append` reads."""


class Quarantine:
    """The quarantine directory of one opening of a store, at a time in ms since epoch.

    Attributes:
        moved: files in it, relative to the root.
    """

    def __init__(self, root: Path, files: Files, now: int) -> None:
        self._root = root
        self._files = files
        self._now = now
        self.moved: list[str] = []

    def list_messages(self, rows: list[dict[str, Any]]) -> None:
        """Writes the list of messages in the quarantined bytes. Durable on return."""
        target = self._target(self._root / LISTING, "")
        self._files.write_file(target, "".join(json.dumps(row) + "\n" for row in rows).encode())
        self._files.sync_directory(target.parent)

    def take_file(self, path: Path) -> None:
        """Moves a file. Durable on return."""
        target = self._target(path, "")
        self._files.rename(path, target)
        self._files.sync_directory(path.parent)
        self._files.sync_directory(target.parent)

    def keep(self, path: Path, position: int, data: bytes) -> None:
        """Writes a copy of a part of a file. Durable on return."""
        target = self._target(path, f".{position}-{position + len(data)}")
        self._files.write_file(target, data)
        self._files.sync_directory(target.parent)

    def keep_units(self, plan: QueuePlan) -> None:
        """Keeps the bytes after the end of each file of a queue, and those that recovery overwrites with units."""
        starts = {file.path: file.end for file in plan.files if not file.is_new}
        for path, position, _ in plan.appended:
            starts[path] = min(starts.get(path, position), position)
        for path, start in starts.items():
            data = read_data(path, start) if path.is_file() else b""
            if data:
                self.keep(path, start, data)

    def take_index_ahead(self, directory: Path, end: int) -> int | None:
        """Moves index files with entries after the end of the log, and all files after them.

        A file that ends after the end of the log would accept no keys of the records written there. Returns the
        physical offset from which the log must be indexed again; None if no file was moved.
        """
        files = list_index_files(directory)[0] if directory.is_dir() else []
        first = next((at for at, file in enumerate(files) if file.header.end_physical_offset >= end), len(files))
        for file in files[first:]:
            self.take_file(file.path)
        return min((file.header.begin_physical_offset for file in files[first:]), default=None)

    def _target(self, path: Path, suffix: str) -> Path:
        inside = path.relative_to(self._root) if path.is_relative_to(self._root) else Path(path.parent.name, path.name)
        target = self._root / DIRECTORY / f"{self._now}" / f"{inside}{suffix}"
        self._files.make_directory(target.parent)
        self.moved.append(str(target.relative_to(self._root)))
        _LOG.warning("moved to quarantine path=%s", target)
        return target

    def wipe_tail(self, file: MappedFile, *, keep_all: bool = False) -> int:
        """Zeroes the last segment after the end of the log, so that the bytes are never read as records.

        Bytes that may be records are copied to quarantine first, and with `keep_all` all others too. Durable on return.
        """
        data = read_data(file.file.path, file.wrote)
        if not data:
            return 0
        if keep_all or holds_record(data):
            self.keep(file.file.path, file.wrote, data)
        file.file.write(file.wrote, bytes(len(data)))
        file.file.sync()
        return len(data)


def wipe_units(files: tuple[MappedFile, ...]) -> None:
    """Zeroes each file after its last unit, so that the bytes are never read as units. Durable on return."""
    for file in files:
        data = read_data(file.file.path, file.wrote)
        if data:
            file.file.write(file.wrote, bytes(len(data)))
            file.file.sync()


def read_data(path: Path, start: int = 0) -> bytes:
    """Returns the bytes of a file from a position to the last that is not zero."""
    with ReadFile(path) as opened:
        return opened.read(start, opened.used_end(start) - start)


def list_cut_messages(
    root: "os.PathLike[str]", settings: RecoverySettings, cut_from: int, quarantine: Quarantine
) -> int:
    """Lists the complete messages from a physical offset on; durable on return. Call it before anything is truncated.

    Nothing is created if there is no message; returns how many there are.
    """
    directories = ",".join(str(path) for path in settings.commit_log_dirs)
    keys = {"storePathCommitLog": directories, "mappedFileSizeCommitLog": settings.segment_size}
    try:
        with open_store(os.fspath(root), keys) as store:
            messages = [message for message in store.messages(start=cut_from) if isinstance(message, Message)]
            rows = [_row(message) for message in messages if message.physical_offset >= cut_from]
    except (LayoutError, NotAStoreError):  # there is no log yet
        return 0
    if rows:
        quarantine.list_messages(rows)
    return len(rows)


def _row(message: Message) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "born_timestamp": message.born_timestamp,
        "born_host": str(message.born_host),
        "store_host": str(message.store_host),
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "properties": message.properties,
        "body_base64": base64.b64encode(message.raw_body).decode("ascii"),
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "store_timestamp": message.store_timestamp,
    }
