"""Messages and entries of an EQueue store as Arrow record batches, without one object for each."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from mqtool.records.damage import Damage
from mqtool.siblings import arrow
from mqtool.siblings.equeue import ENTRIES, MESSAGES
from mqtool.siblings.equeue.runs import ValidRun
from mqtool.siblings.equeue.store import EQueueStore, StoredMessage

_TEXTS = ("topic", "tag", "message_id", "producer_address")


def message_batches(store: EQueueStore, chunk: str = "") -> Iterator[Any]:
    """Yields record batches of messages, with damage between them.

    Args:
        store: the store.
        chunk: file name of the only chunk to read; "" for all.
    """
    for item in store.runs(chunk):
        if isinstance(item, Damage):
            yield item
            continue
        yield _messages(store.run_of(item) if isinstance(item, StoredMessage) else item)


def entry_batches(store: EQueueStore) -> Iterator[Any]:
    """Yields record batches of queue entries, and damage for chunks or parts that are missing or cannot be read."""
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
