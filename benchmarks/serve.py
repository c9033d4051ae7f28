"""Messages a second through `mqtool serve`, and what each costs it.

    python benchmarks/serve.py [--seconds 5] [--rounds 1] [--size 1024] [--jobs send-1,send-8,…] [--rival HOST:PORT [--rival-pid N]]

The load comes from this process, the server runs in another. `cpu_us` is the processor time of the server, all its
threads, for one message: on a busy machine steadier than the rate. A rival is any other broker that runs already; it
takes turns with `serve` in each round, on a connection of the same kind. Its process id gives its processor time too.
"""

import argparse
import asyncio
import contextlib
import json
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

from serve_client import (
    HEAD,
    QUEUES,
    Numbers,
    Server,
    Template,
    Wire,
    batch_template,
    connected,
    new_topic,
    pull_command,
    quantiles,
    send_template,
    serve,
    stored,
    usage,
)

from mqtool.server.net import loop_factory

BATCH = 32
SYNC_EVERY = 256
"""Every so many one-way sends one is answered, so that the client does not run away from the server."""


class Run:
    """One job under way: counts, and the times that answers took."""

    def __init__(self, seconds: float) -> None:
        self.deadline = time.perf_counter() + seconds
        self.messages = 0
        self.latencies: list[float] = []

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be asked."""
        return time.perf_counter() >= self.deadline


async def keep_asking(address: str, templates: list[Template], width: int, count: int, seconds: float) -> Run:
    """Keeps so many requests unanswered, each the next as soon as one is answered."""
    run, number, began = Run(seconds), Numbers(), {}
    done = asyncio.get_running_loop().create_future()

    def ask() -> None:
        opaque = number()
        began[opaque] = time.perf_counter()
        wire.write(templates[opaque % len(templates)].frame(opaque))

    def answered(opaque: int, header: dict[str, Any], _: memoryview) -> None:
        assert header["code"] == 0, header
        run.latencies.append(time.perf_counter() - began.pop(opaque))
        run.messages += count
        if not run.is_over:
            ask()
        elif not began:
            done.set_result(None)

    wire = await connected(address, answered)
    for _ in range(width):
        ask()
    await _either(done, wire)
    return run


async def send_oneway(address: str, quiet: list[Template], loud: list[Template], seconds: float) -> Run:
    """Sends without an answer, but for every 256th."""
    run, number = Run(seconds), Numbers()
    heard = asyncio.Event()
    wire = await connected(address, lambda *_: heard.set())
    while not run.is_over:
        heard.clear()
        began = time.perf_counter()
        wire.write(
            b"".join(quiet[one % QUEUES].frame(number()) for one in range(SYNC_EVERY - 1)) + loud[0].frame(number())
        )
        waiting = asyncio.ensure_future(heard.wait())
        await _either(waiting, wire)
        run.latencies.append(time.perf_counter() - began)
        run.messages += SYNC_EVERY
    return run


async def pull_all(address: str, topic: str, seconds: float) -> Run:
    """Pulls 32 at a time, queue after queue, one request at a time, over and over."""
    run, number = Run(seconds), Numbers()
    found: list[tuple[dict[str, Any], bytes]] = []
    heard = asyncio.Event()

    def answered(_: int, header: dict[str, Any], body: memoryview) -> None:
        found.append((header, bytes(body)))
        heard.set()

    wire = await connected(address, answered)
    queue_id = offset = 0
    while not run.is_over:
        heard.clear()
        began = time.perf_counter()
        wire.write(Template(pull_command(topic, queue_id, offset)).frame(number()))
        await _either(asyncio.ensure_future(heard.wait()), wire)
        header, body = found.pop()
        if header["code"] != 0:
            queue_id, offset = (queue_id + 1) % QUEUES, 0
            continue
        run.latencies.append(time.perf_counter() - began)
        position = 0
        while position < len(body):
            total, _, _, _, _, queue_offset = HEAD.unpack_from(body, position)[:6]
            assert queue_offset == offset, f"expected offset {offset}, found {queue_offset}"
            position, offset, run.messages = position + total, offset + 1, run.messages + 1
    return run


async def _either(done: "asyncio.Future[Any]", wire: Wire) -> None:
    await asyncio.wait([done, wire.lost], return_when=asyncio.FIRST_COMPLETED)
    assert not wire.lost.done(), f"connection lost: {wire.lost.result()}"
    done.result()


def job_of(name: str, server: Server, topic: str, size: int) -> Callable[[float], Awaitable[Run]]:
    """Returns what runs a job for some seconds."""
    kind, _, width = name.partition("-")
    body = bytes(97 + place % 26 for place in range(size))
    sends = [send_template(topic, queue_id, body) for queue_id in range(QUEUES)]
    if kind == "send":
        return lambda seconds: keep_asking(server.address, sends, int(width), 1, seconds)
    if kind == "batch":
        batches = [batch_template(topic, queue_id, body, BATCH) for queue_id in range(QUEUES)]
        return lambda seconds: keep_asking(server.address, batches, int(width), BATCH, seconds)
    if kind == "oneway":
        quiet = [send_template(topic, queue_id, body, oneway=True) for queue_id in range(QUEUES)]
        return lambda seconds: send_oneway(server.address, quiet, sends, seconds)
    if kind == "pull":
        return lambda seconds: pull_all(server.address, topic, seconds)
    raise SystemExit(f"unknown job {name}: expected send-WIDTH, batch-WIDTH, oneway or pull")


async def measure(name: str, server: Server, topic: str, size: int, seconds: float) -> None:
    """Runs a job, warm, and prints its line."""
    job = job_of(name, server, topic, size)
    await job(seconds / 4)
    held, before, began = await stored(server.address, topic), usage(server.pid), time.perf_counter()
    run = await job(seconds)
    took = time.perf_counter() - began
    if name != "pull":
        kept = await stored(server.address, topic) - held
        assert kept == run.messages, f"{run.messages} sent, {kept} stored"
    after = usage(server.pid)
    cpu_us = (
        None
        if after.cpu_s is None or before.cpu_s is None
        else round((after.cpu_s - before.cpu_s) / run.messages * 1e6, 1)
    )
    print(
        json.dumps(
            {
                "job": name,
                "server": server.name,
                "messages": run.messages,
                "rate": round(run.messages / took),
                **quantiles(run.latencies),
                "cpu_us": cpu_us,
                "rss_mb": after.rss_mb,
                "anonymous_mb": after.anonymous_mb,
                "size": size,
                "load": round(os.getloadavg()[0], 1),
            }
        ),
        flush=True,
    )


async def main(given: argparse.Namespace, servers: list[Server]) -> None:
    """Takes turns between the servers."""
    for server in servers:
        if server.ready_s is not None:
            seen = usage(server.pid)
            print(
                json.dumps(
                    {
                        "job": "ready",
                        "server": server.name,
                        "seconds": server.ready_s,
                        "rss_mb": seen.rss_mb,
                        "anonymous_mb": seen.anonymous_mb,
                    }
                ),
                flush=True,
            )
    for number in range(given.rounds):
        for name in given.jobs.split(","):
            for server in servers:
                topic = f"bench-{number}" if name == "pull" else f"bench-{number}-{name}"
                await new_topic(server.address, topic)
                if name == "pull":
                    await job_of("batch-1", server, topic, given.size)(1)
                    await stored(server.address, topic)
                await measure(name, server, topic, given.size, given.seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--jobs", default="send-1,send-8,send-32,send-512,oneway,batch-1,pull")
    parser.add_argument("--rival", help="HOST:PORT of another broker that runs")
    parser.add_argument("--rival-pid", type=int, help="its process id")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        competing = [stack.enter_context(serve())]
        if arguments.rival:
            competing.append(Server("rival", arguments.rival, arguments.rival_pid))
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(main(arguments, competing))
