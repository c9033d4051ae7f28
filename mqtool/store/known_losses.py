"""The record of losses that a repair could not avoid: queue offsets without a message, so that a check expects them.

It is a file in the root of a store, which no broker reads. It names each loss, so that every other one is reported.
Docs page: docs/verify.md.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from mqtool.errors import LayoutError
from mqtool.formats import file_names
from mqtool.formats.topics import TopicQueue
from mqtool.store.files import read_file

SCHEMA = "mqtool.known-losses"
SCHEMA_VERSION = 1


class LostOffsets(Struct, frozen=True, forbid_unknown_fields=True):
    """Lost messages of one queue."""

    topic: str  # and queue_id: of the queue
    queue_id: int
    offsets: tuple[tuple[int, int], ...]  # first and last queue offsets, both included, ascending and not adjacent


class KnownLosses(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file."""

    log_end: int  # end of the log when it was written: a gap before a later record is another loss
    queues: tuple[LostOffsets, ...]  # with lost messages
    schema: str = SCHEMA
    schema_version: int = SCHEMA_VERSION

    def includes(self, queue: TopicQueue, first: int, last: int, before: int) -> bool:
        """Whether the loss of queue offsets `first` to `last`, before the record at a physical offset, is known."""
        return before < self.log_end and any(
            (lost.topic, lost.queue_id) == queue and any(low <= first and last <= high for low, high in lost.offsets)
            for lost in self.queues
        )


NONE = KnownLosses(0, ())


def known_losses(root: Path) -> KnownLosses:
    """Returns the record of a store, `NONE` if there is none; raises LayoutError if it has another form."""
    path = root / file_names.KNOWN_LOSSES
    if not path.exists():
        return NONE
    try:
        record = msgspec.json.decode(read_file(path), type=KnownLosses)
    except msgspec.MsgspecError as error:
        raise LayoutError(f"is no record of losses: {error}; without it, gaps are warnings", path) from error
    if (record.schema, record.schema_version) != (SCHEMA, SCHEMA_VERSION):
        version = f"{record.schema} version {record.schema_version}"
        raise LayoutError(f"expected {SCHEMA} version {SCHEMA_VERSION}, found {version}", path)
    return record


def offsets_by_queue(parts: Iterable[LostOffsets]) -> dict[TopicQueue, list[tuple[int, int]]]:
    """Returns the lost offsets by queue; intervals of a queue may overlap."""
    lost: dict[TopicQueue, list[tuple[int, int]]] = {}
    for part in parts:
        lost.setdefault((part.topic, part.queue_id), []).extend(part.offsets)
    return lost


def offsets_by_name(parts: Iterable[LostOffsets]) -> dict[str, tuple[tuple[int, int], ...]]:
    """Returns the lost offsets by `topic/queue`, like `offsets_by_queue`."""
    return {f"{topic}/{queue_id}": tuple(lost) for (topic, queue_id), lost in offsets_by_queue(parts).items()}


def content(log_end: int, queues: Iterable[LostOffsets]) -> bytes:
    """Returns the file's content."""
    return msgspec.json.format(msgspec.json.encode(KnownLosses(log_end, tuple(queues)))) + b"\n"
