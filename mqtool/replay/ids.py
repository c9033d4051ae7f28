"""Old and new positions of replayed messages, as a file of JSON Lines."""

import json
import os
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from mqtool.errors import StoreError, UsageError
from mqtool.ingest.bulk_ingest import Ack
from mqtool.jobs.resume import open_after
from mqtool.replay.originals import Original


class IdsFile:
    """A file that is written from its beginning, or from where an earlier run had made it durable."""

    def __init__(self, path: Path | None, known_bytes: int, *, resumes: bool) -> None:
        """Opens it.

        Args:
            path: None for no file.
            known_bytes: of an earlier run, which are kept.
            resumes: whether there was one.

        Raises:
            UsageError: it is there, and no earlier run is known; or it is shorter than one left it.
            StoreError: it cannot be written.
        """
        self._file: IO[bytes] | None = None
        if path is None:
            return
        try:
            if not resumes and path.exists() and path.stat().st_size:
                raise UsageError(f"{path}: is there already; name a new file")
            self._file = open_after(path, known_bytes)
        except OSError as error:
            raise StoreError(f"cannot be written: {error.strerror}", path) from error

    def write(self, original: Original, ack: Ack) -> None:
        """Adds a line."""
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
        """Makes it durable; returns its length."""
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
