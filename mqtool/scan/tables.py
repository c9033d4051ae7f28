"""The tables that SQL sees besides the messages: what the other files of a store say, and what is wrong with it."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from mqtool.errors import StoreError
from mqtool.export.schema import DAMAGE_SCHEMA, TIMESTAMP
from mqtool.export.sources import Source
from mqtool.export.task import damage_batch
from mqtool.records.damage import Damage
from mqtool.scan.dataset import MessagesDataset, RowsDataset, Stores
from mqtool.store.consume_queue import Queue, has_record
from mqtool.store.pending import pending_messages
from mqtool.store.store import Store

Rows = Iterator[dict[str, Any]]


def _schema(*fields: tuple[str, Any]) -> Any:
    return pa.schema([pa.field("broker", pa.string()), *(pa.field(name, kind) for name, kind in fields)])


QUEUE_UNITS = _schema(
    ("topic", pa.string()),
    ("queue_id", pa.int32()),
    ("queue_offset", pa.int64()),
    ("physical_offset", pa.int64()),
    ("size", pa.int32()),
    ("tags_code", pa.int64()),
)
INDEX_ENTRIES = _schema(
    ("file", pa.string()),
    ("number", pa.int32()),
    ("key_hash", pa.int32()),
    ("physical_offset", pa.int64()),
    ("store_timestamp", TIMESTAMP),
    ("previous", pa.int32()),
)
OFFSETS = _schema(
    ("consumer_group", pa.string()),
    ("topic", pa.string()),
    ("queue_id", pa.int32()),
    ("consumer_offset", pa.int64()),
    ("min_offset", pa.int64()),
    ("max_offset", pa.int64()),
    ("lag", pa.int64()),
)
PENDING = _schema(
    ("kind", pa.string()),
    ("topic", pa.string()),
    ("consumer_group", pa.string()),
    ("stored_topic", pa.string()),
    ("queue_id", pa.int32()),
    ("queue_offset", pa.int64()),
    ("physical_offset", pa.int64()),
    ("due", TIMESTAMP),
    ("since", TIMESTAMP),
    ("tries", pa.int32()),
    ("unique_key", pa.string()),
    ("origin", pa.string()),
    ("unknown", pa.string()),
)
FINDINGS = _schema(
    ("code", pa.string()),
    ("severity", pa.string()),
    ("file", pa.string()),
    ("position", pa.int64()),
    ("physical_offset", pa.int64()),
    ("topic", pa.string()),
    ("queue_id", pa.int32()),
    ("lost_bytes", pa.int64()),
    ("lost_messages", pa.int64()),
    ("evidence", pa.string()),
    ("next_step", pa.string()),
)
TOPICS = _schema(
    ("topic", pa.string()),
    ("read_queues", pa.int32()),
    ("write_queues", pa.int32()),
    ("perm", pa.int32()),
    ("message_type", pa.string()),
    ("queues", pa.int32()),
    ("messages", pa.int64()),
)
SEGMENTS = _schema(
    ("file", pa.string()),
    ("physical_offset", pa.int64()),
    ("size", pa.int64()),
    ("first_time", TIMESTAMP),
)


def _opened(stores: Stores) -> Iterator[tuple[Source, Store]]:
    for source in stores.sources:
        with source.open() as store:
            yield source, store


def _queue_units(stores: Stores) -> Rows:
    for source, store in _opened(stores):
        for queue in store.queues():
            yield from _units_of(source, queue)


def _units_of(source: Source, queue: Queue) -> Rows:
    for number, file in enumerate(queue.files):
        units = queue.units_of(number)
        if queue.is_batch:
            offsets = units["base_queue_offset"].astype(np.int64)
        else:
            offsets = np.arange(len(units), dtype=np.int64) + file.base // queue.unit_size
        for at in np.flatnonzero(has_record(units)).tolist():
            unit = units[at]
            yield {
                "broker": source.broker,
                "topic": queue.topic,
                "queue_id": queue.queue_id,
                "queue_offset": int(offsets[at]),
                "physical_offset": int(unit["physical_offset"]),
                "size": int(unit["size"]),
                "tags_code": int(unit["tags_code"]),
            }


def _index_entries(stores: Stores) -> Rows:
    for source, store in _opened(stores):
        for file in store.index_files():
            begin = file.header.begin_timestamp
            names = file.entries.dtype.names or ()
            for number, entry in enumerate(file.entries.tolist(), 1):
                named = dict(zip(names, entry, strict=True))
                yield {
                    "broker": source.broker,
                    "file": file.path.name,
                    "number": number,
                    "key_hash": named["key_hash"],
                    "physical_offset": named["physical_offset"],
                    "store_timestamp": begin + named["time_diff"] * 1000,
                    "previous": named["previous"],
                }


def _offsets(stores: Stores) -> Rows:
    for source, store in _opened(stores):
        for lag in store.lags():
            yield {
                "broker": source.broker,
                "consumer_group": lag.group,
                **{name: getattr(lag, name) for name in OFFSETS.names[2:]},
            }


def _pending(stores: Stores) -> Rows:
    for source, store in _opened(stores):
        for one in pending_messages(store):
            row = {name: getattr(one, name, None) for name in PENDING.names}
            yield row | {
                "broker": source.broker,
                "kind": str(one.kind),
                "consumer_group": one.group,
                "unknown": one.problem,
            }


def _findings(stores: Stores) -> Rows:
    from mqtool.verify.store import verify  # noqa: PLC0415 - all checks are loaded with it

    for source, store in _opened(stores):
        for finding in verify(store).findings:
            row = {name: getattr(finding, name, None) for name in FINDINGS.names}
            yield row | {"broker": source.broker, "severity": str(finding.severity)}


def _topics(stores: Stores) -> Rows:
    for source, store in _opened(stores):
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
    for source, store in _opened(stores):
        for segment in store.commit_log.segments:
            try:
                first = store.commit_log.record(segment.base).store_timestamp
            except StoreError:
                first = None
            yield {
                "broker": source.broker,
                "file": segment.path.name,
                "physical_offset": segment.base,
                "size": segment.size,
                "first_time": first,
            }


def _damage(stores: Stores) -> Rows:
    for source, store in _opened(stores):
        found = [item for item in store.commit_log.walk() if isinstance(item, Damage)]
        yield from damage_batch(found, source.broker, source.path).to_pylist()


_MADE: dict[str, tuple[Any, Callable[[Stores], Rows]]] = {
    "queue_units": (QUEUE_UNITS, _queue_units),
    "index_entries": (INDEX_ENTRIES, _index_entries),
    "offsets": (OFFSETS, _offsets),
    "pending": (PENDING, _pending),
    "findings": (FINDINGS, _findings),
    "topics": (TOPICS, _topics),
    "segments": (SEGMENTS, _segments),
    "damage": (DAMAGE_SCHEMA, _damage),
}

TABLES = ("messages", "message_keys", *_MADE)
"""Names of all tables; docs/sql.md describes them."""


def tables_of(stores: Stores) -> dict[str, Any]:
    """Returns the tables of stores by name, each a `pyarrow.dataset.Dataset` that reads nothing yet."""
    made = {name: RowsDataset(stores, schema, rows) for name, (schema, rows) in _MADE.items()}
    return {"messages": MessagesDataset(stores), "message_keys": MessagesDataset(stores, keyed=True), **made}
