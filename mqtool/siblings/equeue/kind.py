"""EQueue's stores behind the common interface for kinds of stores: as rows, and as Arrow batches."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mqtool.errors import FormatError, UnreadableError
from mqtool.formats import equeue
from mqtool.records.damage import Damage
from mqtool.siblings import Row, Table
from mqtool.siblings.base import OpenedStore, is_position
from mqtool.siblings.equeue import CHUNKS, ENTRIES, MESSAGES, TABLES, explain, rebuild, salvage, verify
from mqtool.siblings.equeue.chunk import ChunkFile, ValidRun
from mqtool.siblings.equeue.listing import QueueFiles, is_store, settings_of
from mqtool.siblings.equeue.start import Refusal, Start, start
from mqtool.siblings.equeue.store import EQueueStore, StoredMessage
from mqtool.store.log.readable_parts import UnreadableParts
from mqtool.values import asdict
from mqtool.verify.findings import Finding

_TEXTS = ("topic", "tag", "message_id", "producer_address")


def message_batches(store: EQueueStore, chunk: str = "") -> Iterator[Any]:
    """Yields record batches of the messages of a chunk file, or of all, with damage between them."""
    for item in store.runs(chunk):
        if isinstance(item, Damage):
            yield item
            continue
        yield _messages(store.run_of(item) if isinstance(item, StoredMessage) else item)


def entry_batches(store: EQueueStore) -> Iterator[Any]:
    """Yields record batches of queue entries, and damage for chunks or parts that are missing or cannot be read."""
    from mqtool.siblings import arrow  # noqa: PLC0415 - pyarrow costs 100 ms at import

    for queue in store.queues:
        yield from store.unread_entries(queue)
        for item in store.entry_arrays(queue):
            if isinstance(item, Damage):
                yield item
                continue
            first, entries = item
            count = len(entries)
            yield arrow.record_batch(
                ENTRIES,
                {
                    "topic": [queue.topic] * count,
                    "queue_id": np.full(count, queue.queue_id),
                    "queue_offset": np.arange(first, first + count),
                    "message_position": entries["position_plus_one"] - 1,
                    "tag_code": entries["tag_code"],
                },
            )


def _messages(valid: ValidRun) -> Any:
    from mqtool.siblings import arrow  # noqa: PLC0415 - pyarrow costs 100 ms at import

    fields, run = valid.fields, valid.run
    fixed = fields.fixed
    none = np.zeros(len(run), np.int64)
    columns: dict[str, Any] = {
        name: arrow.texts(run.data, fields.starts.get(name, none), fields.lengths.get(name, none)) for name in _TEXTS
    }
    columns |= {name: fixed[name] for name in ("queue_id", "queue_offset", "code", "log_position")}
    for name in ("created", "stored"):
        columns[f"{name}_time"] = arrow.times(fixed[f"{name}_time"])
        columns[f"{name}_ticks"] = fixed[f"{name}_time"]
    columns |= {
        "position": valid.positions,
        "chunk_number": np.full(len(run), valid.chunk.header.chunk_number),
        "length": run.sizes,
        "body_size": fields.lengths["body"],
        "body": arrow.raw(run.data, fields.starts["body"], fields.lengths["body"]),
    }
    return arrow.record_batch(MESSAGES, columns)


class OpenedEQueue(OpenedStore):
    """An EQueue store, read-only."""

    tables = TABLES
    recognises = staticmethod(is_store)

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = EQueueStore(path, unreadable=UnreadableParts())

    def layout(self) -> Row:
        """Returns a description of the store, and what the broker would do to it on startup."""
        settings = settings_of(self.path, self.store.listing)
        try:
            prediction = start(self.path, settings, self.store.shape)
            outcome = _outcome(prediction.refusal)
        except UnreadableError as error:
            prediction, outcome = Start(notes=[f"what a start does is unknown: {error}"]), "unknown"
        queues = [
            {
                "topic": topic,
                "queue_id": queue_id,
                "min_offset": queue.min_offset,
                "next_offset": queue.next_offset,
                "chunks": len(queue.chunks),
            }
            for (topic, queue_id), queue in prediction.queues.items()
        ]
        ends = [chunk.global_end for chunk in prediction.messages.values()]
        prediction.close()
        return {
            "release": f"records as since EQueue {self.store.shape.name}",
            "message_chunk_size": settings.message_chunk_size,
            "queue_chunk_entries": settings.queue_chunk_entries,
            "message_chunks": len(self.store.chunks),
            "min_position": min((chunk.start for chunk in self.store.chunks), default=None),
            "max_position": max(ends, default=None),
            "queues": queues,
            "start": outcome,
            "oddities": [*prediction.notes, *(f"{path}: {why}" for path, why in self.store.unread.items())],
        }

    def rows(self, table: str) -> Iterator[Row | Damage]:
        """Yields messages, entries or chunks."""
        if table == ENTRIES.name:
            for queue in self.store.queues:
                yield from self._entries(queue)
        elif table == CHUNKS.name:
            yield from self._chunks()
        else:
            yield from self._messages()

    def parts(self, table: str) -> tuple[str, ...]:
        """Returns the names of all message chunks, missing ones included; entries and chunks are one part each."""
        return self.store.names or ("",) if table == MESSAGES.name else ("",)

    def batches(self, table: str, part: str = "") -> Iterator[Any] | None:
        """Yields messages or entries as record batches."""
        if table == CHUNKS.name:
            return None
        return entry_batches(self.store) if table == ENTRIES.name else message_batches(self.store, part)

    def rows_of_file(self, path: Path) -> tuple[Table, Iterator[Row | Damage]] | None:
        """Returns the messages of a message chunk, or the entries of a queue chunk, or why it is not read."""
        full_path = path.absolute()
        if any(listed.absolute() == full_path for listed in self.store.listing.messages):
            return MESSAGES, self._messages(path.name)
        for queue in self.store.queues:
            for chunk in queue.chunks:
                if chunk.absolute() == full_path:
                    return ENTRIES, self._entries(queue, chunk)
        return None

    def get(self, address: str) -> list[Row | Damage]:
        """Returns the message at an address: a global position, a message id, or TOPIC/QUEUE@OFFSET.

        Raises CorruptionError if there is no message at the position, UnreadableError if the system cannot read the
        message, or the entry at the queue offset.
        """
        position = self._position_of(address)
        return [] if position is None else [message_row(self.store.message_at(position))]

    def verify(self) -> Iterator[Finding]:
        """Yields a finding for each broken invariant."""
        return verify.verify(self.store)

    def explain(self) -> Row:
        """Returns what the broker would do to the messages on startup."""
        prediction = explain.explain(self.path)
        return {
            "verdict": prediction.verdict,
            "harmless": prediction.is_harmless,
            "starts": prediction.starts,
            "clears_root": prediction.clears_root,
            "write_position": prediction.write_position,
            "overwritten": prediction.overwritten,
            "missing": prediction.missing,
            "unserved": [
                {"topic": topic, "queue_id": queue_id, **asdict(item)}
                for (topic, queue_id), ones in prediction.unserved.items()
                for item in ones
            ],
            "cut": [
                {"topic": topic, "queue_id": queue_id, "queue_offset": offset}
                for (topic, queue_id), offsets in prediction.cut.items()
                for offset in offsets
            ],
            "silent": prediction.silent,
            "unknown": prediction.unknown,
        }

    def rebuild(self, out: Path, on_damage: Callable[[Damage], None]) -> list[Row]:
        """Writes queue chunks rebuilt from the message chunks."""
        plans = rebuild.write_queues(self.store, out, settings_of(self.path), on_damage)
        return [
            {
                "queue": f"{plan.topic}/{plan.queue_id}",
                "entries": len(plan.entries),
                "kept": plan.kept,
                "placed": plan.placed,
                "filled": plan.filled,
            }
            for plan in plans
        ]

    def salvage(self, target: Path | None) -> list[Row]:
        """Reports the readable messages of each chunk; with a target, also writes them to a new store."""
        if target is None:
            reports = salvage.scan(self.store)
        else:
            reports = salvage.salvage(self.path, target, settings_of(self.path))
        rows = [*(report.row() for report in reports), *salvage.rows_without_records(self.store, reports)]
        return sorted(rows, key=lambda row: str(row["file"]))

    def close(self) -> None:
        """Closes the store's files."""
        self.store.close()

    def _position_of(self, address: str) -> int | None:
        if is_position(address):
            return int(address)
        place, at, offset = address.rpartition("@")
        if at and is_position(offset):
            topic, _, queue_id = place.rpartition("/")
            queues = (q for q in self.store.queues if q.topic == topic and str(q.queue_id) == queue_id)
            entries = (self.store.entry_at(queue, int(offset)) for queue in queues)
            return next((entry.message_position for entry in entries if entry is not None), None)
        try:
            return equeue.parse_id(address).position
        except FormatError:
            return None

    def _messages(self, chunk: str = "") -> Iterator[Row | Damage]:
        for item in self.store.messages(chunk):
            yield message_row(item) if isinstance(item, StoredMessage) else item

    def _entries(self, queue: QueueFiles, chunk: Path | None = None) -> Iterator[Row | Damage]:
        """Yields the entries of a queue, or of one of its chunk files."""
        yield from self.store.unread_entries(queue, chunk)
        for item in self.store.entries(queue, chunk):
            if isinstance(item, Damage):
                yield item
                continue
            offset, entry = item
            yield {
                "topic": queue.topic,
                "queue_id": queue.queue_id,
                "queue_offset": offset,
                "message_position": entry.message_position,
                "tag_code": entry.tag_code,
            }

    def _chunks(self) -> Iterator[Row]:
        folders: list[list[ChunkFile]] = [self.store.chunks, *map(self.store.queue_chunks, self.store.queues)]
        for chunk in (chunk for chunks in folders for chunk in chunks):
            yield {
                "file": chunk.path.relative_to(self.path).as_posix(),
                "chunk_number": chunk.header.chunk_number,
                "capacity": chunk.header.capacity,
                "completed": chunk.is_finished,
                "data_size": chunk.room if chunk.is_finished else chunk.last_used(0, chunk.room),
                "start": chunk.start,
                "size": chunk.size,
            }


def _outcome(refusal: Refusal | None) -> str:
    return "ok" if refusal is None else f"{refusal.exception}: {refusal.path}: {refusal.message}"


KIND = OpenedEQueue


def message_row(message: StoredMessage) -> dict[str, Any]:
    """Returns a message as a row of `MESSAGES`; invalid UTF-8 becomes replacement characters, as in the broker."""
    record = message.record
    row = {
        **{name: getattr(record, name).decode("utf-8", "replace") for name in _TEXTS},
        "position": message.position,
        "chunk_number": message.chunk.header.chunk_number,
        "length": message.length,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "code": record.code,
        "log_position": record.log_position,
        "created_time": equeue.ticks_to_millis(record.created_time),
        "stored_time": equeue.ticks_to_millis(record.stored_time),
        "created_ticks": record.created_time,
        "stored_ticks": record.stored_time,
        "body_size": len(record.body),
        "body": record.body,
    }
    return {column.name: row[column.name] for column in MESSAGES.columns}
