"""Puts that wait for the disk, for a fixed time; messages, latencies and JSON lines are StoreBench.java's.

    python benchmarks/engine_sync.py DIR [threads=1,64] [senders=threads|asyncio] [size=1024] [seconds=4] [rounds=1]

With `senders=asyncio` each of them is a task of one event loop that calls `put_async`.
Beside them in the same round, `fdatasync`: one record written behind the other and synced, with nothing else done.
"""

import asyncio
import json
import os
import resource
import threading
import time
from pathlib import Path

from engine_messages import Shape, arguments

from mqtool.engine import FlushMode, MessageStore, StoreOptions, open_store

SETTINGS = ("threads", "senders", "size", "seconds", "rounds")


def produce(store: MessageStore, shape: Shape, first: int, step: int, deadline: float, latencies: list[float]) -> None:
    """Puts every `step`-th message from `first` on until a moment; notes how long each took."""
    put, queues, bodies, clock, number = store.put, shape.queues, shape.bodies, time.perf_counter, first
    now = clock()
    while now < deadline:
        topic, queue_id = queues[number % len(queues)]
        result = put(
            topic, queue_id, bodies[number & 1023], f"KEYS\x01k{number}\x02TAGS\x01Tag{number & 7}\x02".encode()
        )
        if result.status.name != "PUT_OK":
            raise SystemExit(f"put: {result.status.name}")
        before, now = now, clock()
        latencies.append(now - before)
        number += step


async def produce_async(
    store: MessageStore, shape: Shape, first: int, step: int, deadline: float, latencies: list[float]
) -> None:
    """Does as `produce`, in a task."""
    put, queues, bodies, clock, number = store.put_async, shape.queues, shape.bodies, time.perf_counter, first
    now = clock()
    while now < deadline:
        topic, queue_id = queues[number % len(queues)]
        result = await put(
            topic, queue_id, bodies[number & 1023], f"KEYS\x01k{number}\x02TAGS\x01Tag{number & 7}\x02".encode()
        )
        if result.status.name != "PUT_OK":
            raise SystemExit(f"put: {result.status.name}")
        before, now = now, clock()
        latencies.append(now - before)
        number += step


def in_threads(store: MessageStore, shape: Shape, deadline: float, found: list[list[float]]) -> None:
    """Produces in so many threads."""
    workers = [
        threading.Thread(target=produce, args=(store, shape, n, len(found), deadline, track))
        for n, track in enumerate(found)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def in_tasks(store: MessageStore, shape: Shape, deadline: float, found: list[list[float]]) -> None:
    """Produces in so many tasks of one event loop."""

    async def run() -> None:
        await asyncio.gather(
            *(produce_async(store, shape, n, len(found), deadline, track) for n, track in enumerate(found))
        )

    asyncio.run(run())


def synced(directory: Path, size: int, threads: int, seconds: float, senders: str) -> dict[str, object]:
    """Returns the rate of puts that wait."""
    shape, found = Shape(size), [[] for _ in range(threads)]  # type: ignore[var-annotated]
    with open_store(directory, StoreOptions(flush_mode=FlushMode.SYNC_FLUSH)) as store:
        produce(store, shape, 0, 1, time.perf_counter() + 1, [])
        start, cpu = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        (in_tasks if senders == "asyncio" else in_threads)(store, shape, start + seconds, found)
        took, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    every = sorted(one for track in found for one in track)
    return {
        "job": "sync",
        "version": "mqtool",
        "messages": len(every),
        "size": size,
        "threads": threads,
        "senders": senders,
        "seconds": round(took, 4),
        "rate": round(len(every) / took),
        "p50_ms": round(every[len(every) // 2] * 1e3, 3),
        "p99_ms": round(every[len(every) * 99 // 100] * 1e3, 3),
        "cpu_s": round(used.ru_utime + used.ru_stime - cpu.ru_utime - cpu.ru_stime, 2),
    }


def limit(directory: Path, size: int, seconds: float) -> dict[str, object]:
    """Returns the rate of single records written and synced into a sparse file, as limits.py does."""
    path, record, done = directory / "limit", os.urandom(size), 0
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 1 << 30)
    start = time.perf_counter()
    while time.perf_counter() < start + seconds and (done + 1) * size < 1 << 30:
        os.pwrite(fd, record, done * size)
        os.fdatasync(fd)
        done += 1
    took = time.perf_counter() - start
    os.close(fd)
    path.unlink()
    return {
        "job": "fdatasync",
        "version": "limit",
        "messages": done,
        "size": size,
        "seconds": round(took, 4),
        "rate": round(done / took),
    }


def main(directory: Path, given: dict[str, str]) -> None:
    """Runs the rounds, prints a line for each measurement."""
    size, seconds = int(given.get("size", "1024")), float(given.get("seconds", "4"))
    directory.mkdir(parents=True, exist_ok=True)
    for turn in range(int(given.get("rounds", "1"))):
        measured = [limit(directory, size, min(seconds, 2.0))]
        measured += [
            synced(directory / f"store-{turn}-{threads}", size, threads, seconds, given.get("senders", "threads"))
            for threads in map(int, given.get("threads", "1,64").split(","))
        ]
        for one in measured:
            print(json.dumps(one | {"load": round(os.getloadavg()[0], 1)}), flush=True)


if __name__ == "__main__":
    main(*arguments(__doc__, SETTINGS))
