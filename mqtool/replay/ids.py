"""Writes old and new positions of replayed messages to a file of JSON Lines."""

import json
import os
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from mqtool.errors import UsageError
from mqtool.ingest.bulk_ingest import Ack
from mqtool.jobs.atomic import writing
from mqtool.jobs.resume import open_after
from mqtool.replay.originals import Original


class IdsFile:
    """Writes the file from its start, or continues it after the bytes that an earlier run made durable."""

    def __init__(self, path: Path | None, known_bytes: int, *, resumes: bool) -> None:
        """Opens the file.

        Args:
            path: the file; None writes nothing.
            known_bytes: length that an earlier run had made durable; anything after it is cut off.
            resumes: whether an earlier run is continued.

        Raises:
            UsageError: the file exists although no earlier run is continued, or is shorter than the earlier run left
                it.
            StoreError: the file cannot be written.
        """
        self._file: IO[bytes] | None = None
        if path is None:
            return
        with writing(path):
            if not resumes and path.exists() and path.stat().st_size:
                raise UsageError(f"{path}: is there already; name a new file")
            self._file = open_after(path, known_bytes)

    def write(self, original: Original, ack: Ack) -> None:
        """Writes a line with the old and the new position of a message."""
        if self._file is None:
            return
        old = {name: value for name, value in original.place.items() if name not in ("topic", "unique_key")}
        line: dict[str, Any] = {
            "topic": original.place.get("topic"),
            "unique_key": original.place.get("unique_key"),
            "position": original.position[0],
            "old": old,
            "new": None,
            "reason": ack.reason or None,
        }
        if ack.stored:
            line["new"] = {
                "topic": ack.topic,
                "queue_id": ack.queue_id,
                "queue_offset": ack.queue_offset,
                "physical_offset": ack.physical_offset,
                "offset_message_id": ack.offset_message_id,
            }
        self._file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))
        self._file.write(b"\n")

    def flush(self) -> int:
        """Makes the file durable; returns its length in bytes."""
        if self._file is None:
            return 0
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()
