"""Mixed load on `mqtool serve` at half of the most that it takes: does memory stay flat, are answers quick, does anything fail?

    python benchmarks/serve_soak.py [--minutes 10] [--share 0.5] [--every 10] [--size 1024] [--set KEY=VALUE ...]

First the most is found: producers that send as fast as answers come, with consumers beside them. Then producers keep to
their share of it. The mix: single messages, batches, one-way sends, messages with a delay, long pulls of two groups on
every queue with commits of their offsets, heartbeats, queries by key, and what a monitor asks. A line every so many
seconds, one at the end; the exit code is 1 if anything failed, or a group has not got each message once and in order.
"""

import argparse
import asyncio
import itertools
import json
import os
import time
from collections import Counter
from typing import Any

from serve_client import (
    HEAD,
    HEARTBEAT,
    QUEUES,
    Numbers,
    Server,
    Template,
    Wire,
    batch_template,
    calls,
    connected,
    new_topic,
    pull_command,
    quantiles,
    send_template,
    serve,
    stored,
    usage,
)

from mqtool.protocol import Command, RequestCode
from mqtool.server.net import loop_factory

TOPIC, SLOW_TOPIC = "soak", "soak-later"
GROUPS = ("soak-a", "soak-b")
PRODUCERS, BATCH, WINDOW = 3, 32, 64
TICK_S = 0.01
KINDS = ("one",) * 14 + ("oneway",) * 4 + ("later",) + ("batch",)
"""Of twenty requests in turn."""


class Tally:
    """What happened since it was last shown, and in all."""

    def __init__(self) -> None:
        self.sent = self.consumed = 0
        self.latencies: list[float] = []
        self.errors: Counter[str] = Counter()


class Producer:
    """Sends the mix on a connection of its own, `rate` messages a second; None for as fast as answers come."""

    def __init__(self, number: int, tally: Tally, size: int) -> None:
        body = bytes(97 + place % 26 for place in range(size))
        later = send_template(SLOW_TOPIC, 0, body, more="DELAY\x011\x02")
        queue_id = number % QUEUES
        self._kinds = {
            "one": (send_template(TOPIC, queue_id, body), 1, True),
            "later": (later, 0, True),
            "oneway": (send_template(TOPIC, queue_id, body, oneway=True), 1, False),
            "batch": (batch_template(TOPIC, queue_id, body, BATCH), BATCH, True),
        }
        self._turn = itertools.cycle(KINDS)
        self._number, self._began, self._tally = Numbers(), {}, tally
        self._room = asyncio.Semaphore(WINDOW)

    async def run(self, address: str, rate: float | None, seconds: float) -> None:
        """Sends for so long, then waits for what is not answered yet."""
        wire = await connected(address, self._answered)
        began = time.perf_counter()
        sent = 0
        while (now := time.perf_counter() - began) < seconds:
            if rate is not None and sent >= rate * now:
                await asyncio.sleep(TICK_S)
                continue
            sent += await self._send(wire)
        for _ in range(WINDOW):
            await asyncio.wait_for(self._room.acquire(), 60)
        wire.close()

    async def _send(self, wire: Wire) -> int:
        template, count, is_answered = self._kinds[next(self._turn)]
        opaque = self._number()
        if is_answered:
            await self._room.acquire()
            self._began[opaque] = time.perf_counter()
        wire.write(template.frame(opaque))
        self._tally.sent += count
        return max(1, count)

    def _answered(self, opaque: int, header: dict[str, Any], _: memoryview) -> None:
        self._tally.latencies.append(time.perf_counter() - self._began.pop(opaque))
        self._room.release()
        if header["code"] != 0:
            self._tally.errors[f"send: {header['code']} {header.get('remark')}"] += 1


class Consumer:
    """One group's consumer of one queue: pulls, is held while there is nothing, commits with each pull."""

    def __init__(self, group: str, queue_id: int, tally: Tally) -> None:
        self.offset = 0
        self._group, self._queue_id, self._tally, self._number = group, queue_id, tally, Numbers()

    async def run(self, address: str) -> None:
        """Consumes until it is cancelled."""
        self._wire = await connected(address, self._answered)
        self._pull()
        error = await self._wire.lost
        self._tally.errors[f"connection lost: {error}"] += 1

    def _pull(self) -> None:
        command = pull_command(TOPIC, self._queue_id, self.offset, group=self._group, hold_ms=15_000)
        self._wire.write(Template(command).frame(self._number()))

    def _answered(self, _: int, header: dict[str, Any], body: memoryview) -> None:
        position = 0
        if header["code"] not in (0, 19, 20):
            self._tally.errors[f"pull: {header['code']} {header.get('remark')}"] += 1
        while position < len(body):
            total, _, _, _, _, queue_offset = HEAD.unpack_from(body, position)[:6]
            if queue_offset != self.offset:
                self._tally.errors[f"expected queue offset {self.offset}, found {queue_offset}"] += 1
            position, self.offset, self._tally.consumed = position + total, queue_offset + 1, self._tally.consumed + 1
        self._pull()


async def look_on(address: str, tally: Tally) -> None:
    """What clients and monitors ask beside: heartbeats, queries by key, statistics."""
    groups = [
        {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "unitMode": False,
            "subscriptionDataSet": [
                {
                    "topic": TOPIC,
                    "subString": "*",
                    "subVersion": 1,
                    "tagsSet": [],
                    "codeSet": [],
                    "expressionType": "TAG",
                }
            ],
        }
        for group in GROUPS
    ]
    heartbeat = json.dumps({"clientID": "soak", "producerDataSet": [], "consumerDataSet": groups}).encode()
    key = {"topic": TOPIC, "key": "k0", "maxNum": "4", "beginTimestamp": "0", "endTimestamp": str(2**63 - 1)}
    asked = [
        Command(HEARTBEAT, body=heartbeat),
        Command(RequestCode.QUERY_MESSAGE, fields=key),
        Command(RequestCode.GET_TOPIC_STATS_INFO, fields={"topic": TOPIC}),
        Command(RequestCode.GET_BROKER_RUNTIME_INFO),
        Command(RequestCode.GET_CONSUME_STATS, fields={"consumerGroup": GROUPS[0]}),
    ]
    async with calls(address) as connection:
        while True:
            for command in asked:
                answer = await connection.call(command, timeout=30)
                if answer.code not in (0, 22):  # no message with this key yet
                    tally.errors[f"request {command.code}: {answer.code} {answer.remark}"] += 1
            await asyncio.sleep(1)


async def produce(address: str, tally: Tally, size: int, rate: float | None, seconds: float) -> None:
    """Has all producers send for so long."""
    share = None if rate is None else rate / PRODUCERS
    await asyncio.gather(*(Producer(number, tally, size).run(address, share, seconds) for number in range(PRODUCERS)))


def line_of(server: Server, tally: Tally, seconds: float, since: tuple[int, int], **more: object) -> str:
    """A line of what happened in so many seconds; empties what is counted by line."""
    seen = usage(server.pid)
    found = {
        **more,
        "sent_rate": round((tally.sent - since[0]) / seconds),
        "consumed_rate": round((tally.consumed - since[1]) / seconds),
        **quantiles(tally.latencies),
        "rss_mb": seen.rss_mb,
        "anonymous_mb": seen.anonymous_mb,
        "cpu_s": seen.cpu_s,
        "errors": sum(tally.errors.values()),
        "load": round(os.getloadavg()[0], 1),
    }
    tally.latencies.clear()
    return json.dumps(found)


async def report(server: Server, tally: Tally, every: float, memory: list[float]) -> None:
    """Prints a line every so many seconds."""
    for number in itertools.count(1):
        since = tally.sent, tally.consumed
        await asyncio.sleep(every)
        print(line_of(server, tally, every, since, at_s=number * every), flush=True)
        memory.append(usage(server.pid).anonymous_mb or 0.0)


async def soak(server: Server, given: argparse.Namespace) -> int:
    """Runs it all; returns the exit code."""
    tally, memory = Tally(), []
    for topic in (TOPIC, SLOW_TOPIC):
        await new_topic(server.address, topic)
    consumers = [Consumer(group, queue_id, tally) for group in GROUPS for queue_id in range(QUEUES)]
    beside = [asyncio.ensure_future(one.run(server.address)) for one in consumers]
    beside.append(asyncio.ensure_future(look_on(server.address, tally)))
    began = time.perf_counter()
    await produce(server.address, tally, given.size, None, given.probe)
    most = tally.sent / (time.perf_counter() - began)
    print(line_of(server, tally, given.probe, (0, 0), most=round(most)), flush=True)
    beside.append(asyncio.ensure_future(report(server, tally, given.every, memory)))
    await produce(server.address, tally, given.size, most * given.share, given.minutes * 60)
    held = await stored(server.address, TOPIC)
    deadline = time.perf_counter() + 60
    while sum(one.offset for one in consumers) < held * len(GROUPS) and time.perf_counter() < deadline:
        await asyncio.sleep(0.1)
    for task in beside:
        if task.done() and not task.cancelled() and task.exception() is not None:
            tally.errors[repr(task.exception())] += 1
        task.cancel()
    got = {
        group: sum(one.offset for one in consumers[number * QUEUES : (number + 1) * QUEUES])
        for number, group in enumerate(GROUPS)
    }
    is_whole = held == tally.sent and all(count == held for count in got.values())
    print(
        json.dumps(
            {
                "sent": tally.sent,
                "stored": held,
                "consumed": got,
                "whole": is_whole,
                "errors": dict(tally.errors),
                "anonymous_mb": [min(memory, default=None), max(memory, default=None)],
            }
        ),
        flush=True,
    )
    return 0 if is_whole and not tally.errors else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--every", type=float, default=10.0)
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--probe", type=float, default=10.0, help="seconds in which the most is found")
    parser.add_argument("--set", action="append", default=[], help="a setting of the broker")
    arguments = parser.parse_args()
    with (
        serve(*(word for pair in arguments.set for word in ("--set", pair))) as started,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        raise SystemExit(runner.run(soak(started, arguments)))
