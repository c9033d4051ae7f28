"""The SQL tables besides the messages: the contents of the store's other files, and the findings of verify."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from mqtool.export.schema import DAMAGE_SCHEMA, TIMESTAMP
from mqtool.export.sources import Source
from mqtool.export.task import damage_batch
from mqtool.records.damage import Damage
from mqtool.scan.dataset import MessagesDataset, Stores, TableDataset
from mqtool.store.describe import store_time
from mqtool.store.queues.consume_queue import Queue, has_record
from mqtool.store.store import Store
from mqtool.store.waiting.pending import pending_messages

Rows = Iterator[dict[str, Any]]
BATCH_ROWS = 1 << 16


_KINDS = {
    name: kind
    for kind, names in (
        (pa.int32(), "queue_id number key_hash previous tries read_queues write_queues perm queues"),
        (pa.int64(), "queue_offset physical_offset tags_code consumer_offset min_offset max_offset lag position"),
        (pa.int64(), "lost_bytes lost_messages messages"),
        (TIMESTAMP, "store_timestamp due since first_time"),
    )
    for name in names.split()
}
"""Types of the columns that are not text."""


def _schema(names: str, **kinds: Any) -> Any:
    """Returns the schema of a table with the broker and columns of some names; `kinds` has further types."""
    known = _KINDS | kinds
    return pa.schema([pa.field(name, known.get(name, pa.string())) for name in ("broker", *names.split())])


QUEUE_UNITS = _schema("topic queue_id queue_offset physical_offset size tags_code", size=pa.int32())
INDEX_ENTRIES = _schema("file number key_hash physical_offset store_timestamp previous")
OFFSETS = _schema("consumer_group topic queue_id consumer_offset min_offset max_offset lag")
PENDING = _schema(
    "kind topic consumer_group stored_topic queue_id queue_offset physical_offset due since tries unique_key origin "
    "unknown"
)
FINDINGS = _schema(
    "code severity file position physical_offset topic queue_id lost_bytes lost_messages evidence next_step"
)
TOPICS = _schema("topic read_queues write_queues perm message_type queues messages")
SEGMENTS = _schema("file physical_offset size first_time", size=pa.int64())


def _opened(stores: Stores, *, needs_log: bool = False) -> Iterator[tuple[Source, Store]]:
    """Yields the stores; `needs_log` for tables that would be empty if the log is missing."""
    for source in stores.sources:
        with source.open(needs_log=needs_log) as store:
            yield source, store


def _queue_units(stores: Stores) -> Iterator[Any]:
    for source, store in _opened(stores):
        store.require_queues()
        for queue in store.queues():
            yield from _units_of(source, queue)


def _units_of(source: Source, queue: Queue) -> Iterator[Any]:
    for number, file in enumerate(queue.files):
        all_units = queue.units_of(number)
        for start in range(0, len(all_units), BATCH_ROWS):
            units = all_units[start : start + BATCH_ROWS]
            rows = np.flatnonzero(has_record(units))
            if queue.is_batch:
                offsets = units["base_queue_offset"].astype(np.int64)
            else:
                offsets = np.arange(start, start + len(units), dtype=np.int64) + file.base // queue.unit_size
            known = {"broker": source.broker, "topic": queue.topic, "queue_id": queue.queue_id}
            fields = {name: units[name][rows] for name in ("physical_offset", "size", "tags_code")}
            yield _batch(QUEUE_UNITS, len(rows), known, {"queue_offset": offsets[rows], **fields})


def _index_entries(stores: Stores) -> Iterator[Any]:
    for source, store in _opened(stores):
        for file in store.index_files():
            known = {"broker": source.broker, "file": file.path.name}
            begin, all_entries = file.header.begin_timestamp, file.entries
            for start in range(0, len(all_entries), BATCH_ROWS):
                entries = all_entries[start : start + BATCH_ROWS]
                fields = {name: entries[name] for name in ("key_hash", "physical_offset", "previous")}
                numbers = np.arange(start + 1, start + 1 + len(entries))
                times = entries["time_diff"].astype(np.int64) * 1000 + begin
                columns = {"number": numbers, "store_timestamp": times, **fields}
                yield _batch(INDEX_ENTRIES, len(entries), known, columns)


def _batch(schema: Any, count: int, known: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    """Returns a batch of constant columns (`known`) and columns from arrays of numbers (`arrays`)."""
    columns = []
    for field in schema:
        if field.name in known:
            columns.append(pa.repeat(pa.scalar(known[field.name], field.type), count))
            continue
        values = arrays[field.name]
        if pa.types.is_timestamp(field.type):
            columns.append(pa.array(values).view(field.type))
        else:
            columns.append(pa.array(np.ascontiguousarray(values, field.type.to_pandas_dtype()), field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _by_row(schema: Any, rows: Callable[[Stores], Rows]) -> Callable[[Stores], Iterator[Any]]:
    """Returns a function that makes the batches of a table row by row, for tables with few rows."""

    def made(stores: Stores) -> Iterator[Any]:
        left = rows(stores)
        while some := list(islice(left, BATCH_ROWS)):
            yield pa.RecordBatch.from_pylist(some, schema)

    return made


def _offsets(stores: Stores) -> Rows:
    for source, store in _opened(stores):
        for lag in store.lags():
            yield {
                "broker": source.broker,
                "consumer_group": lag.group,
                **{name: getattr(lag, name) for name in OFFSETS.names[2:]},
            }


def _pending(stores: Stores) -> Rows:
    for source, store in _opened(stores, needs_log=True):
        for message in pending_messages(store):
            row = {name: getattr(message, name, None) for name in PENDING.names}
            yield row | {
                "broker": source.broker,
                "kind": str(message.kind),
                "consumer_group": message.group,
                "unknown": message.problem,
            }


def _findings(stores: Stores) -> Rows:
    from mqtool.verify.store import verify  # noqa: PLC0415 - all checks are loaded with it

    for source, store in _opened(stores):
        for finding in verify(store).findings:
            row = {name: getattr(finding, name, None) for name in FINDINGS.names}
            yield row | {"broker": source.broker, "severity": str(finding.severity)}


def _topics(stores: Stores) -> Rows:
    for source, store in _opened(stores):
        store.require_queues()
        queues: dict[str, list[Queue]] = {}
        for queue in store.queues():
            queues.setdefault(queue.topic, []).append(queue)
        known = store.metadata.topics
        for topic in sorted({*queues, *known}):
            config, mine = known.get(topic), queues.get(topic, [])
            yield {
                "broker": source.broker,
                "topic": topic,
                "read_queues": config.read_queue_nums if config else None,
                "write_queues": config.write_queue_nums if config else None,
                "perm": config.perm if config else None,
                "message_type": config.message_type if config else None,
                "queues": len(mine),
                "messages": sum(max(0, queue.max_offset - max(0, queue.min_offset)) for queue in mine),
            }


def _segments(stores: Stores) -> Rows:
    for source, store in _opened(stores, needs_log=True):
        for segment in store.commit_log.segments:
            yield {
                "broker": source.broker,
                "file": segment.path.name,
                "physical_offset": segment.base,
                "size": segment.size,
                "first_time": store_time(store, segment.first_record),
            }


def _damage(stores: Stores) -> Rows:
    for source, store in _opened(stores, needs_log=True):
        damages = [item for item in store.commit_log.walk() if isinstance(item, Damage)]
        yield from damage_batch(damages, source.broker, source.path).to_pylist()


_MADE: dict[str, tuple[Any, Callable[[Stores], Iterator[Any]]]] = {
    "queue_units": (QUEUE_UNITS, _queue_units),
    "index_entries": (INDEX_ENTRIES, _index_entries),
    "offsets": (OFFSETS, _by_row(OFFSETS, _offsets)),
    "pending": (PENDING, _by_row(PENDING, _pending)),
    "findings": (FINDINGS, _by_row(FINDINGS, _findings)),
    "topics": (TOPICS, _by_row(TOPICS, _topics)),
    "segments": (SEGMENTS, _by_row(SEGMENTS, _segments)),
    "damage": (DAMAGE_SCHEMA, _by_row(DAMAGE_SCHEMA, _damage)),
}


def tables_of(stores: Stores) -> dict[str, Any]:
    """Returns the tables of stores by name, each a `pyarrow.dataset.Dataset` that reads nothing yet."""
    tables = {name: TableDataset(stores, schema, batches) for name, (schema, batches) in _MADE.items()}
    return {"messages": MessagesDataset(stores), "message_keys": MessagesDataset(stores, keyed=True), **tables}
