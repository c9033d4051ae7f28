"""Result of a salvage: content of the new store, and losses by topic, queue and consumer group."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from mqtool.commands import Opened, command
from mqtool.errors import StoreError, UnreadableError
from mqtool.rebuild.compaction import CompactedQueue
from mqtool.recovery.losses import ranges
from mqtool.repair.salvage.merge import Hole
from mqtool.repair.salvage.unit_evidence import ForeignRecords
from mqtool.store.known_losses import known_losses
from mqtool.store.queues.consume_queue import Queue, has_record
from mqtool.store.store import Store
from mqtool.values import asdict
from mqtool.verify import Losses
from mqtool.verify.findings import GroupLoss


class QueueRow(Struct, frozen=True):
    """One queue."""

    topic: str  # and queue_id: names the queue
    queue_id: int
    min_offset: int  # and max_offset: in the new store
    max_offset: int
    salvaged: int  # messages in the new store
    lost: int  # messages that existed provably and are missing now
    lost_offsets: tuple[tuple[int, int], ...]  # (first, last) queue offsets of these, both inclusive

    def as_dict(self) -> dict[str, Any]:
        """Returns the queue as JSON values."""
        return asdict(self) | {"lost_offsets": _text(self.lost_offsets)}


class SalvageResult(Struct):
    """The complete result."""

    store: Path  # and target: old root and new one
    target: Path
    copies: tuple[Path, ...]  # further copies that were read
    compact: bool  # whether records moved
    records: int = 0  # in the new store
    records_by_copy: list[int] = field(default_factory=list)  # how many came from each copy, `store` first
    bytes: int = 0  # of these records
    purged_records: int = 0  # and purged_bytes: of topics that were left out on request; no loss
    purged_bytes: int = 0
    holes: list[Hole] = field(default_factory=list)  # ranges of the old log that hold nothing provable
    has_unread: bool = False  # bytes could not be read that may hold records, and no copy has these
    has_unread_tables: bool = False  # topics, groups and positions could not be read
    has_unread_queues: bool = False  # units that may prove further losses could not be read
    queues: list[QueueRow] = field(default_factory=list)  # what is there and what is lost, by topic and queue id
    groups: list[GroupLoss] = field(default_factory=list)  # what the losses mean for consumer groups
    conflicts: int = 0  # records that differ between copies where no checksum decides; those of `store` were taken
    # Physical offsets of records that could be proved but not kept in place.
    unplaced: list[int] = field(default_factory=list)
    index_files: list[str] = field(default_factory=list)  # names
    # File below config/ to where it came from: "copied", or why it was rebuilt.
    config: dict[str, str] = field(default_factory=dict)
    map_file: Path | None = None  # with the moves, of a compacted store
    notes: list[str] = field(default_factory=list)  # in words
    broker_conf: object = None  # configuration that the stores were read with; see `commands.Opened`
    verify: str = "unknown"  # state that `mqtool verify` gives the new store
    starts: bool = True  # whether a broker starts on the new store, as far as that can be predicted
    # Commands that put the new store in the place of `store`; empty if something is missing from it that can still be
    # had, if a broker is running on `store`, or if the log of `store` is outside of it.
    put_in_place: tuple[str, ...] = ()

    @property
    def next_steps(self) -> list[str]:
        """Commands that check the new store and put it in place."""
        new = Opened(self.target, self.broker_conf)
        return [command("verify", new), command("explain-start", new), *self.put_in_place]

    @property
    def lost(self) -> int:
        """Messages that existed provably and are missing now."""
        return sum(queue.lost for queue in self.queues)

    @property
    def lost_bytes(self) -> int:
        """Bytes of the old log without a provable record."""
        return sum(hole.end - hole.start for hole in self.holes)

    @property
    def is_complete(self) -> bool:
        """Whether no loss is known, and a broker starts on the new store."""
        unread = self.has_unread or self.has_unread_tables or self.has_unread_queues
        return self.starts and not (self.lost or self.holes or self.unplaced or unread)

    def as_dict(self) -> dict[str, Any]:
        """Returns the result as JSON values."""
        return {
            "store": str(self.store),
            "target": str(self.target),
            "copies": [str(path) for path in self.copies],
            "compact": self.compact,
            "complete": self.is_complete,
            "records": self.records,
            "bytes": self.bytes,
            "purged_records": self.purged_records,
            "purged_bytes": self.purged_bytes,
            "records_by_copy": self.records_by_copy,
            "lost_messages": self.lost,
            "lost_bytes": self.lost_bytes,
            "conflicts": self.conflicts,
            "unplaced": self.unplaced,
            "verify": self.verify,
            "map_file": None if self.map_file is None else str(self.map_file),
            "queues": [row.as_dict() for row in self.queues],
            "holes": [asdict(hole) for hole in self.holes],
            "groups": [asdict(loss) for loss in self.groups],
            "config_files": [{"file": name, "source": source} for name, source in self.config.items()],
            "index_files": self.index_files,
            "notes": self.notes,
            "next_steps": self.next_steps,
        }


def _text(offsets: Iterable[tuple[int, int]]) -> str:
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in offsets)


def add_losses(
    result: SalvageResult,
    sources: Sequence[Store],
    missing_ranges: Sequence[tuple[int, int]],
    foreign: Sequence[tuple[int, ForeignRecords]],
    new_store: Store,
    moved: Callable[[np.ndarray], np.ndarray],
    compacted: Iterable[CompactedQueue] = (),
) -> None:
    """Adds the losses of queues and groups to the result, given the ranges that the new log lacks, in order.

    A unit of an old queue that points into a range without a provable record proves a message. So does a queue offset
    that the records around it skip. A unit that points into a segment of another broker's log proves a message unless
    the new queue has that record at its queue offset; an offset that one of its records skips proves none. Compacted
    queues have messages that the log has no longer. A queue that cannot be read makes the result incomplete.
    """
    new = {(queue.topic, queue.queue_id): queue for queue in new_store.disk_queues()}
    missing: dict[tuple[str, int], list[np.ndarray]] = {}
    replaced: dict[tuple[str, int], list[np.ndarray]] = {}
    others = moved(np.array([at for _, part in foreign for at in part.kept], np.int64))
    renumbered = np.array([at for _, part in foreign for at in part.moved], np.int64)
    for number, store in enumerate(sources):
        with contextlib.suppress(StoreError):  # `verify` reports it
            for part in known_losses(store.path).queues:
                missing.setdefault((part.topic, part.queue_id), []).append(_spread(part.offsets))
        replacing = [(part.start, part.end) for source, part in foreign if source == number]
        for queue in store.disk_queues():
            if queue.is_batch:
                continue
            try:
                lost, _, _ = _units_into(queue, missing_ranges, store.commit_log.min_offset)
                taken, physical, sizes = _units_into(queue, replacing, store.commit_log.min_offset)
            except UnreadableError as error:
                result.has_unread_queues = True
                name = f"{queue.topic}/{queue.queue_id}"
                result.notes.append(f"which messages of {name} its units prove is unknown, more may be lost: {error}")
                continue
            key = queue.topic, queue.queue_id
            missing.setdefault(key, []).append(lost)
            is_there = _has_units(new.get(key), taken, moved(physical), sizes) & ~np.isin(physical, renumbered)
            replaced.setdefault(key, []).append(taken[~is_there])
    log_min = new_store.commit_log.min_offset
    kept = {}
    for rebuilt in compacted:
        kept[rebuilt.name] = rebuilt.offsets
        missing.setdefault(rebuilt.name, []).append(rebuilt.lost)
    for key in sorted(set(missing) | set(new)):
        salvaged, holes = _offsets(new.get(key), log_min, others)
        lost = np.setdiff1d(np.concatenate([holes, *missing.get(key, [])]), kept.get(key, salvaged))
        lost = np.union1d(lost, np.concatenate([*replaced.get(key, []), lost[:0]]))
        if len(salvaged) or len(lost):
            queue_or_none = new.get(key)
            low, high = (queue_or_none.min_offset, queue_or_none.max_offset) if queue_or_none else (0, 0)
            result.queues.append(QueueRow(*key, low, high, len(salvaged), len(lost), tuple(ranges(lost.tolist()))))
    result.groups = list(_groups(result, sources[0]).groups)


def _spread(parts: Iterable[tuple[int, int]]) -> np.ndarray:
    return np.concatenate([np.arange(first, last + 1, dtype=np.int64) for first, last in parts])


def _units_into(
    queue: Queue, ranges: Sequence[tuple[int, int]], log_min: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns queue offset, physical offset and size of units that point into given ranges, without expired ones."""
    starts, ends = np.array(ranges, np.int64).reshape(-1, 2).T
    units = queue.units()
    physical = units["physical_offset"].astype(np.int64)
    at = np.searchsorted(starts, physical, side="right") - 1
    inside = (at >= 0) & has_record(units) & (physical >= log_min)
    inside[inside] &= physical[inside] < ends[at[inside]]
    return np.flatnonzero(inside) + queue.first_offset, physical[inside], units["size"][inside]


def _has_units(queue: Queue | None, offsets: np.ndarray, physical: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Returns a bool for each queue offset: whether its unit leads to a given place and has a given size."""
    if queue is None or not len(offsets):
        return np.zeros(len(offsets), bool)
    units, rows = queue.units(), offsets - queue.first_offset
    there = (rows >= 0) & (rows < len(units))
    unit = units[np.where(there, rows, 0)]
    return np.asarray(there & (unit["physical_offset"] == physical) & (unit["size"] == size))


def _offsets(queue: Queue | None, log_min: int, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the queue offsets that have a message, and the offsets between them that have none.

    A unit whose record has expired, which only shows where its queue continues, does not count, and neither do offsets
    before one of the records `others`, which are of another log.
    """
    none = np.empty(0, np.int64)
    if queue is None:
        return none, none
    units = queue.units()
    if queue.is_batch:
        units = units[units["physical_offset"] >= log_min]
        sizes = units["batch_size"].astype(np.int64)
        first = np.repeat(units["base_queue_offset"].astype(np.int64) - np.cumsum(sizes) + sizes, sizes)
        return first + np.arange(sizes.sum()), none
    real = has_record(units) & (units["physical_offset"] >= log_min)
    stands_in = np.zeros(len(units), bool)  # a hole has the unit of the message after it
    stands_in[:-1] = units["physical_offset"][:-1] == units["physical_offset"][1:]
    return (
        np.flatnonzero(real & ~stands_in) + queue.first_offset,
        np.flatnonzero(real & stands_in & ~np.isin(units["physical_offset"], others)) + queue.first_offset,
    )


def _groups(result: SalvageResult, store: Store) -> Losses:
    rows = {(row.topic, row.queue_id): row.lost_offsets for row in result.queues if row.lost}
    groups = []
    for group, topics in sorted(store.metadata.consumer_offsets.items()):
        for topic, offsets in sorted(topics.items()):
            for queue_id, offset in sorted(offsets.items()):
                lost = rows.get((topic, queue_id), ())
                unread = sum(max(0, last - max(first, offset) + 1) for first, last in lost)
                total = sum(last - first + 1 for first, last in lost)
                if total:
                    groups.append(GroupLoss(group, topic, queue_id, offset, total - unread, unread))
    return Losses(groups=tuple(groups))
