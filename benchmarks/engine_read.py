"""Reads of the engine on a store of its own making; jobs and messages are StoreBench.java's.

    python benchmarks/engine_read.py DIR [size=1024] [messages=300000] [jobs=pull,query,open] [passes=3] [sparse=100] [text=]

DIR is new, or has the store of an earlier run with the same messages. `pull` gets each queue 32 by 32 and copies every record
into one buffer, as StoreBench and a broker that answers with a copy do; `query` asks for random keys that exist; `open`
opens a store whose log has `sparse` GiB of holes, after a clean stop. The best pass counts. With `text` bodies are text.
"""

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

from engine_messages import Shape, arguments, fail_unless

from mqtool.engine import GetStatus, MessageStore, StoreOptions, open_store

Job = Callable[[MessageStore, Shape, int], int]

COLUMN = 1024
SETTINGS = ("size", "messages", "jobs", "passes", "sparse", "text")


def fill(store: MessageStore, shape: Shape, count: int) -> None:
    """Puts `count` messages and dispatches them."""
    for first in range(0, count, COLUMN):
        store.put_many(shape.columns(first, COLUMN))
    shape.wait_for(store, count)


def pull(store: MessageStore, shape: Shape, count: int) -> int:
    """Gets every message, 32 at a time, and copies it; returns how many."""
    found, sink, get = 0, bytearray(1 << 20), store.get_message
    for topic, queue_id in shape.queues:
        offset = 0
        while True:
            result = get(topic, queue_id, offset, 32)
            if result.status is not GetStatus.FOUND:
                break
            offset = result.next_begin_offset
            found += len(result.records)
            result.copy_to(sink)
    fail_unless(found == count, f"{found} messages, expected {count}")
    return found


def query(store: MessageStore, shape: Shape, count: int) -> int:
    """Asks for 10,000 keys that exist; returns how many."""
    numbers, ask = random.Random(7).choices(range(count), k=10_000), store.query_message
    for number in numbers:
        result = ask(shape.queues[number % len(shape.queues)][0], f"k{number}", 32)
        fail_unless(bool(result.records), f"no message with key k{number}")
    return 10_000


JOBS: dict[str, Job] = {"pull": pull, "query": query}


def best(job: Job, store: MessageStore, shape: Shape, count: int, passes: int) -> dict[str, float]:
    """Returns the best of some passes."""
    found = []
    for _ in range(passes):
        start, cpu = time.perf_counter(), time.thread_time()
        done = job(store, shape, count)
        found.append((time.perf_counter() - start, (time.thread_time() - cpu) / done * 1e6, done))
    seconds, _, done = min(found)
    cpu_us = min(used for _, used, _ in found)
    return {"messages": done, "seconds": round(seconds, 4), "rate": round(done / seconds), "cpu_us": round(cpu_us, 3)}


def opening(directory: Path, gib: int, passes: int) -> dict[str, float]:
    """Makes a log of so many files of 1 GiB, one record in each and a hole behind it; returns how long opening takes."""
    with open_store(directory, background=False) as store:
        log = store._components.log
        for _ in range(gib):
            fail_unless(store.put("bench-0", 0, b"one in a file", b"KEYS\x01k\x02").ok, "put")
            with log.lock:
                log._blank(log.file)
        store.dispatch()
    seconds = []
    for _ in range(passes):
        start = time.perf_counter()
        with open_store(directory) as store:
            seconds.append(time.perf_counter() - start)
            fail_unless(store.queue_bounds("bench-0", 0) == (0, gib), f"{store.queue_bounds('bench-0', 0)}")
    return {"messages": gib, "gib": gib, "seconds": round(min(seconds), 4)}


def main(directory: Path, given: dict[str, str]) -> None:
    """Makes the store, runs the jobs, prints a line for each."""
    size, count = int(given.get("size", "1024")), int(given.get("messages", "300000")) // COLUMN * COLUMN
    jobs, passes = given.get("jobs", "pull,query,open").split(","), int(given.get("passes", "3"))
    shape = Shape(size, text="text" in given)
    measured: list[dict[str, object]] = []
    is_new = not (directory / "store").exists()
    with open_store(directory / "store", StoreOptions()) as store:
        if is_new:
            fill(store, shape, count)
        measured += [
            {"job": name, "size": size, **best(JOBS[name], store, shape, count, passes)}
            for name in jobs
            if name in JOBS
        ]
    if "open" in jobs:
        measured.append({"job": "open", **opening(directory / "sparse", int(given.get("sparse", "100")), passes)})
    for one in measured:
        print(json.dumps({"version": "mqtool", **one, "load": round(os.getloadavg()[0], 1)}), flush=True)


if __name__ == "__main__":
    main(*arguments(__doc__, SETTINGS))
