"""Append to a fresh store until every queue holds its units; the messages and the JSON lines are StoreBench.java's.

    python benchmarks/engine_append.py DIR [size=1024] [messages=500000] [threads=1] [batch=1] [pool=0] [index=true] [warm=2.0]
                                         [sync=] [reserve=BYTES] [built=within|before]
                                         [column=4096]

`rate` is until the last put returned, `dispatched_rate` until queues and index hold everything. The clock covers
building each message's properties and the put. With `batch=many` messages go through `put_many` in columns of `column`;
with `built=before` these are there before the clock starts, as they are where they come from a table. MQTOOL_NATIVE=0 in
the environment measures the rules in Python.
"""

import json
import os
import resource
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from engine_messages import Shape, arguments, fail_unless, options_from

from mqtool import native
from mqtool.engine import MessageStore, StoreOptions, open_store
from mqtool.engine.write.columns import MessageColumns
from mqtool.engine.write.messages import BatchMessage

COLUMN = 1024
SETTINGS = (
    "size",
    "messages",
    "threads",
    "batch",
    "pool",
    "index",
    "warm",
    "sync",
    "reserve",
    "built",
    "column",
)


def put_range(store: MessageStore, shape: Shape, first: int, count: int, step: int) -> None:
    """Puts every `step`-th message from `first` on, `count` of them."""
    put, queues, bodies, born = store.put, shape.queues, shape.bodies, time.time_ns
    slots = len(queues)
    for i in range(first, first + count * step, step):
        topic, queue_id = queues[i % slots]
        put(
            topic,
            queue_id,
            bodies[i & 1023],
            f"KEYS\x01k{i}\x02TAGS\x01Tag{i & 7}\x02".encode(),
            0,
            0,
            born() // 1_000_000,
        )


def put_batches(store: MessageStore, shape: Shape, first: int, count: int, batch: int) -> float:
    """Puts batches as a client delivers them, encoded; returns the seconds inside put_batch."""
    inside = 0.0
    for i in range(first, first + count, batch):
        topic, queue_id = shape.queues[i // batch % len(shape.queues)]
        messages = [
            BatchMessage(shape.bodies[j & 1023], f"KEYS\x01k{j}\x02TAGS\x01Tag{j & 7}\x02".encode())
            for j in range(i, i + batch)
        ]
        started = time.perf_counter()
        store.put_batch(topic, queue_id, messages)
        inside += time.perf_counter() - started
    return inside


def columns_of(shape: Shape, first: int, count: int, column: int) -> Iterator[MessageColumns]:
    """Yields messages in columns."""
    return (shape.columns(i, min(column, first + count - i)) for i in range(first, first + count, column))


def put_columns(store: MessageStore, messages: Iterable[MessageColumns]) -> float:
    """Puts columns; returns the seconds inside put_many."""
    inside = 0.0
    for columns in messages:
        started = time.perf_counter()
        store.put_many(columns)
        inside += time.perf_counter() - started
    return inside


def produce(
    store: MessageStore, shape: Shape, first: int, count: int, threads: int, batch: str, column: int
) -> float | None:
    """Puts messages by one way or another; returns the seconds that count if they are not the wall's."""
    if batch == "many":
        return put_columns(store, columns_of(shape, first, count, column))
    if batch != "1":
        return put_batches(store, shape, first, count, int(batch))
    if threads == 1:
        put_range(store, shape, first, count, 1)
        return None
    workers = [
        threading.Thread(target=put_range, args=(store, shape, first + t, count // threads, threads))
        for t in range(threads)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return None


def main(directory: Path, given: dict[str, str]) -> None:
    """Warms up, measures, checks the counts, prints one line."""
    size, count, threads = (
        int(given.get("size", "1024")),
        int(given.get("messages", "500000")),
        int(given.get("threads", "1")),
    )
    batch, pool, index = given.get("batch", "1"), int(given.get("pool", "0")), given.get("index", "true") == "true"
    count -= count % (COLUMN * threads)
    column = int(given.get("column", "4096"))
    shape = Shape(size)
    with open_store(directory, StoreOptions(pool_buffers=pool, index=index, **options_from(given))) as store:
        warm, deadline = 0, time.monotonic() + float(given.get("warm", "2.0"))
        while time.monotonic() < deadline:
            produce(store, shape, warm, 16 * COLUMN, 1, batch, column)
            warm += 16 * COLUMN
        shape.wait_for(store, warm)
        built = (
            list(columns_of(shape, warm, count, column)) if batch == "many" and given.get("built") == "before" else None
        )
        start, cpu = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        inside = put_columns(store, built) if built else produce(store, shape, warm, count, threads, batch, column)
        stored = time.perf_counter() - start
        shape.wait_for(store, warm + count)
        dispatched = time.perf_counter() - start
        used = resource.getrusage(resource.RUSAGE_SELF)
        fail_unless(shape.units(store) == warm + count, f"{shape.units(store)} units")
    print(
        json.dumps(
            {
                "job": "append",
                "version": "mqtool",
                "messages": count,
                "size": size,
                "threads": threads,
                "batch": batch,
                "pool": pool,
                "index": index,
                "column": column,
                "native": native.in_use(),
                "built_before": built is not None,
                "seconds": round(inside or stored, 4),
                "rate": round(count / (inside or stored)),
                "dispatched_rate": round(count / dispatched),
                "mb_s": round(count * (size + 121) / 1e6 / (inside or stored), 1),
                "cpu_s": round(used.ru_utime + used.ru_stime - cpu.ru_utime - cpu.ru_stime, 2),
                "load": round(os.getloadavg()[0], 1),
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main(*arguments(__doc__, SETTINGS))
