"""The load of the benchmarks of `mqtool serve`: requests as a Java client writes them, many of them on one connection.

Frames are made once and only numbered for each request, so that the client costs less than what it measures.
"""

import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mqtool.formats import codec, commit_log, message_batch
from mqtool.protocol import Command, encode
from mqtool.protocol.frames import PREFIX
from mqtool.server.net.connections import Connection, parse_address

ROOT = Path(__file__).resolve().parents[1]
QUEUES = 4
SEND, PULL, SEND_BATCH, HEARTBEAT, MAKE_TOPIC, GET_MAX_OFFSET = 310, 11, 320, 34, 17, 30
ONEWAY = 2
HEAD = codec.struct_of(commit_log.HEADS[0])
"""total size, magic code, CRC, queue id, flag, queue offset, …"""

_PLACE, _FIRST = b"NUMBERHERE", 1_000_000_000
Answered = Callable[[int, dict[str, Any], memoryview], None]


class Template:
    """A request whose opaque, and a number in its unique key, differ; both have ten digits."""

    def __init__(self, command: Command) -> None:
        command.opaque = _FIRST
        frame = b"".join(encode(command)).replace(b"%", b"%%")
        before, _, after = frame.partition(b'"opaque":%d' % _FIRST)
        self._text = before.replace(_PLACE, b"%010d") + b'"opaque":%010d' + after
        self._places = before.count(_PLACE)

    def frame(self, opaque: int) -> bytes:
        """Returns the request with a number of `_FIRST` or more."""
        return self._text % ((opaque,) * (self._places + 1))


def send_template(topic: str, queue_id: int, body: bytes, *, oneway: bool = False, more: str = "") -> Template:
    """A message with keys, tags, unique key and more properties."""
    text = f"KEYS\x01k{queue_id}\x02UNIQ_KEY\x01FD0000000000000000000000{_PLACE.decode()}\x02WAIT\x01true\x02TAGS\x01TagA\x02{more}"
    return Template(Command(SEND, ONEWAY if oneway else 0, 0, None, _send_fields(topic, queue_id, text, "false"), body))


def batch_template(topic: str, queue_id: int, body: bytes, count: int) -> Template:
    """A batch of messages with keys and tags."""
    pieces = [
        message_batch.build(
            message_batch.make(
                body,
                f"KEYS\x01k{number}\x02UNIQ_KEY\x01FD0000000000000000000000{number:010d}\x02WAIT\x01true\x02TAGS\x01TagA\x02".encode(),
            )
        )
        for number in range(count)
    ]
    fields = _send_fields(
        topic, queue_id, f"UNIQ_KEY\x01FD0000000000000000000000{_PLACE.decode()}\x02WAIT\x01true\x02", "true"
    )
    return Template(Command(SEND_BATCH, 0, 0, None, fields, b"".join(pieces)))


def _send_fields(topic: str, queue_id: int, text: str, batch: str) -> dict[str, str]:
    values = (
        "bench-producer",
        topic,
        "TBW102",
        str(QUEUES),
        str(queue_id),
        "0",
        str(time.time_ns() // 1_000_000),
        "0",
        text,
        "0",
        "false",
        "",
        batch,
    )
    return {name: value for name, value in zip("abcdefghijklm", values, strict=True) if value}


def pull_command(topic: str, queue_id: int, offset: int, *, group: str = "bench-puller", hold_ms: int = 0) -> Command:
    """A pull of 32, as a consumer sends it."""
    return Command(
        PULL,
        fields={
            "consumerGroup": group,
            "topic": topic,
            "queueId": str(queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": "32",
            "sysFlag": str(7 if hold_ms else 4),
            "commitOffset": str(offset),
            "suspendTimeoutMillis": str(hold_ms),
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        },
    )


class Wire(asyncio.Protocol):
    """A connection that hands out answers as they are: opaque, header, body."""

    def __init__(self, answered: Answered) -> None:
        self.answered = answered
        self.lost = asyncio.get_running_loop().create_future()
        self._kept = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = transport  # type: ignore[assignment]
        self.write = self._transport.write

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        if not self.lost.done():
            self.lost.set_result(exc)

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        data = self._kept + data if self._kept else data
        view, position, end = memoryview(data), 0, len(data)
        while end - position >= PREFIX.size:
            length, word = PREFIX.struct.unpack_from(data, position)
            following = position + 4 + length
            if following > end:
                break
            body = position + PREFIX.size + word
            header = orjson.loads(view[position + PREFIX.size : body])
            self.answered(header["opaque"], header, view[body:following])
            position = following
        self._kept = data[position:]

    def close(self) -> None:
        """Ends the connection."""
        self._transport.close()


async def connected(address: str, answered: Answered) -> Wire:
    """Returns an open connection."""
    host, port = parse_address(address)
    _, wire = await asyncio.get_running_loop().create_connection(lambda: Wire(answered), host, port)
    return wire


class Numbers:
    """Opaques of one process, each once."""

    def __init__(self) -> None:
        self._last = _FIRST

    def __call__(self) -> int:
        """Returns the next one."""
        self._last += 1
        return self._last


@contextlib.asynccontextmanager
async def calls(address: str) -> AsyncIterator[Connection]:
    """A connection for single requests."""
    connection = await Connection.open(address)
    try:
        yield connection
    finally:
        connection.close()


async def new_topic(address: str, name: str, queues: int = QUEUES) -> str:
    """Makes a topic, and returns its name."""
    async with calls(address) as connection:
        made = await connection.call(
            Command(
                MAKE_TOPIC,
                fields={
                    "topic": name,
                    "defaultTopic": "TBW102",
                    "readQueueNums": str(queues),
                    "writeQueueNums": str(queues),
                    "perm": "6",
                    "topicFilterType": "SINGLE_TAG",
                    "topicSysFlag": "0",
                    "order": "false",
                },
            ),
            timeout=30,
        )
        assert made.code == 0, made.remark
    return name


async def stored(address: str, topic: str, queues: int = QUEUES) -> int:
    """Returns how many messages the queues of a topic hold, once that stands still."""
    async with calls(address) as connection:
        last, same = -1, 0
        while same < 5:
            answers = [
                await connection.call(
                    Command(GET_MAX_OFFSET, fields={"topic": topic, "queueId": str(queue_id)}), timeout=30
                )
                for queue_id in range(queues)
            ]
            now = sum(int(one.fields["offset"]) for one in answers)
            same, last = (same + 1 if now == last else 0), now
            await asyncio.sleep(0.05)
    return last


class Usage(NamedTuple):
    """What a process has taken: processor seconds, and megabytes of memory; None where the system does not say."""

    cpu_s: float | None
    rss_mb: float | None
    anonymous_mb: float | None


def usage(pid: int | None) -> Usage:
    """Returns what a process has taken so far."""
    process = Path(f"/proc/{pid}")
    if pid is None or not process.is_dir():
        return Usage(None, None, None)
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    lines = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line)
    rss, anonymous = (int(lines[name].split()[0]) / 1000 for name in ("VmRSS", "RssAnon"))
    return Usage((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), round(rss, 1), round(anonymous, 1))


class Server(NamedTuple):
    """A broker to measure."""

    name: str
    address: str
    pid: int | None
    ready_s: float | None = None


@contextlib.contextmanager
def serve(*options: str) -> Iterator[Server]:
    """Starts `mqtool serve` on a store of its own; what it says beside its line is dropped."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the server and its store go with us
    with tempfile.TemporaryDirectory(prefix="mqtool-bench-") as directory:
        started = time.monotonic()
        command = [
            sys.executable,
            "-m",
            "mqtool",
            "serve",
            "--store",
            str(Path(directory) / "store"),
            "--namesrv-port",
            "0",
            "--port",
            "0",
            *options,
        ]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": str(ROOT)}
        )
        try:
            assert process.stdout is not None
            line = json.loads(process.stdout.readline())
            yield Server("serve", line["broker"], process.pid, round(time.monotonic() - started, 3))
        finally:
            process.terminate()
            process.wait(60)


def quantiles(seconds: list[float]) -> dict[str, float | None]:
    """Returns p50 and p99 in ms."""
    if len(seconds) < 2:
        return {"p50_ms": None, "p99_ms": None}
    cuts = statistics.quantiles(seconds, n=100)
    return {"p50_ms": round(cuts[49] * 1e3, 3), "p99_ms": round(cuts[98] * 1e3, 3)}
