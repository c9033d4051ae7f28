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

Interval = tuple[int, int]


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

    def besides(self, reported: Iterable[LostOffsets]) -> tuple[LostOffsets, ...]:
        """Returns the losses that are not reported otherwise."""
        taken = offsets_by_queue(reported)
        left = []
        for lost in self.queues:
            others = taken.get((lost.topic, lost.queue_id), [])
            if runs := tuple(run for first, last in lost.offsets for run in without(first, last, others)):
                left.append(LostOffsets(lost.topic, lost.queue_id, runs))
        return tuple(left)


NONE = KnownLosses(0, ())


def known_losses(root: Path, log_min: int = 0) -> KnownLosses:
    """Returns the record of a store whose log begins at a physical offset; raises LayoutError if it has another form.

    It is `NONE` if there is none, or if the log that lacks the messages has expired.
    """
    path = root / file_names.KNOWN_LOSSES
    if not path.exists():
        return NONE
    try:
        record = msgspec.json.decode(read_file(path), type=KnownLosses)
    except msgspec.MsgspecError as error:
        raise LayoutError(
            f"is not a valid record of losses: {error}; until it is corrected, gaps are reported as warnings", path
        ) from error
    if (record.schema, record.schema_version) != (SCHEMA, SCHEMA_VERSION):
        version = f"{record.schema} version {record.schema_version}"
        raise LayoutError(f"expected {SCHEMA} version {SCHEMA_VERSION}, found {version}", path)
    return record if log_min < record.log_end else NONE


def offsets_by_queue(parts: Iterable[LostOffsets]) -> dict[TopicQueue, list[tuple[int, int]]]:
    """Returns the lost offsets by queue; intervals of a queue may overlap."""
    lost: dict[TopicQueue, list[tuple[int, int]]] = {}
    for part in parts:
        lost.setdefault((part.topic, part.queue_id), []).extend(part.offsets)
    return lost


def offsets_by_name(parts: Iterable[LostOffsets]) -> dict[str, tuple[tuple[int, int], ...]]:
    """Returns the lost offsets by `topic/queue`, like `offsets_by_queue`."""
    return {f"{topic}/{queue_id}": tuple(lost) for (topic, queue_id), lost in offsets_by_queue(parts).items()}


def merged(parts: Iterable[Interval]) -> tuple[Interval, ...]:
    """Returns the union of intervals with inclusive ends, ascending."""
    union: list[Interval] = []
    for first, last in sorted(parts):
        if union and first <= union[-1][1] + 1:
            union[-1] = (union[-1][0], max(union[-1][1], last))
        else:
            union.append((first, last))
    return tuple(union)


def without(first: int, last: int, taken: Iterable[Interval]) -> list[Interval]:
    """Returns the parts of an interval that others do not cover."""
    left = []
    for low, high in merged(taken):
        if high < first or low > last:
            continue
        if low > first:
            left.append((first, low - 1))
        first = max(first, high + 1)
    if first <= last:
        left.append((first, last))
    return left


def content(log_end: int, queues: Iterable[LostOffsets]) -> bytes:
    """Returns the file's content."""
    return msgspec.json.format(msgspec.json.encode(KnownLosses(log_end, tuple(queues)))) + b"\n"
