"""Messages a second with the official Java client for gRPC, at `mqtool serve` and at any other server, in turns.

    python benchmarks/grpc_java.py [--rounds 2] [--seconds 5] [--messages 5000] [--jobs send-1,send-8,…] [--limit]
        [--rival HOST:PORT --rival-broker HOST:PORT [--rival-pids N,N,N]]

A rival is any server that runs already, such as rocketmq-proxy in front of a broker: `--rival` is where gRPC clients
connect, `--rival-broker` the broker's port for remoting, which creates the topics. Each job is a JVM of its own; in each
round a job at one server follows the same job at the other. With `--limit` each job runs at a third server too, which
stores nothing and answers at once (java/GrpcLimit.java): no server makes the client faster on this machine. A line of JSON per measurement, and in the end one per job
with the median ratio of the rounds. `cpu_us` is the processor time of all processes of a server for one message, without
filling and warming up, `client_us` that of the client; `load` is what the machine did in the minute before.

Jobs: `send-N` synchronous sends of N threads, `async` with 256 unanswered, `receive-N` N threads that receive 32 at a time
and acknowledge one by one, `push` a push consumer over stored messages, `latency` one message at a time to a push
consumer that waits. Needs Java 17 and Maven, which fetches the client once.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from typing import Any

from serve_client import MAKE_TOPIC, Server, calls, serve, usage

from mqtool.protocol import Command
from tests.support.clients import grpc_java

LOAD = Path(__file__).resolve().parent / "java" / "GrpcLoad.java"
LIMIT = LOAD.with_name("GrpcLimit.java")
UNLIMITED = ("latency",)
"""Jobs that need a server which stores what is sent."""
JOBS = "send-1,send-8,send-32,async,receive-1,receive-8,push,latency"
QUEUES = 8
JOB_SECONDS = 300


class Side:
    """A server: where gRPC clients connect, its broker if it has one, and its processes."""

    def __init__(self, name: str, endpoints: str, broker: str | None, pids: list[int]) -> None:
        self.name, self.endpoints, self.broker, self.pids = name, endpoints, broker, pids

    def cpu_s(self) -> float:
        """Returns the processor time that its processes have taken."""
        return sum(usage(pid).cpu_s or 0 for pid in self.pids)

    async def create_topic(self, name: str) -> None:
        """Creates a topic for messages of type NORMAL; one without a broker has every topic."""
        if self.broker is None:
            return
        fields = {
            "topic": name,
            "defaultTopic": "TBW102",
            "readQueueNums": str(QUEUES),
            "writeQueueNums": str(QUEUES),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
            "attributes": "+message.type=NORMAL",
        }
        async with calls(self.broker) as connection:
            answer = await connection.call(Command(MAKE_TOPIC, fields=fields), timeout=30)
        assert answer.code == 0, answer.remark


def compiled(directory: Path) -> list[str]:
    """Returns the command that runs the load, without its arguments."""
    libraries = grpc_java()[-2].split(":")[1]
    sources = (str(LOAD), str(LIMIT))
    subprocess.run(["javac", "-nowarn", "-proc:none", "-cp", libraries, "-d", str(directory), *sources], check=True)
    return ["java", "-Xmx1g", f"-Duser.home={directory}", "-cp", f"{directory}:{libraries}", "GrpcLoad"]


@contextlib.contextmanager
def limit(command: list[str]) -> Iterator[Side]:
    """Runs the server that does nothing."""
    words = [*command[:-1], "GrpcLimit"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Side("limit", f"127.0.0.1:{int(process.stdout.readline())}", None, [process.pid])
        process.stdin.close()


def measure(command: list[str], side: Side, job: str, options: Any) -> dict[str, Any]:
    """Runs a job at a server; returns its figures."""
    topic = f"Bench{time.time_ns() // 1000:x}"
    asyncio.run(side.create_topic(topic))
    load, cpu_s = round(os.getloadavg()[0], 1), 0.0
    words = (side.endpoints, topic, job, str(options.seconds), str(options.messages))
    with tempfile.TemporaryFile("w+") as errors:
        running = subprocess.Popen(
            [*command, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        kill = Timer(JOB_SECONDS, running.kill)
        kill.start()
        found = {}
        for text in running.stdout or ():
            if text == "begun\n":
                cpu_s = side.cpu_s()
            elif text.startswith("{"):
                cpu_s, found = side.cpu_s() - cpu_s, json.loads(text)
        kill.cancel()
        if running.wait() or not found:
            errors.seek(0)
            sys.exit(f"{job} at {side.name}: {errors.read().strip()[-1500:]}")
    figures = {"rate": round(found["messages"] / found["seconds"])}
    figures |= {name: found[name] for name in ("p50_ms", "p99_ms") if name in found}
    if side.pids:
        figures["cpu_us"] = round(cpu_s / found["messages"] * 1e6, 1)
    figures["client_us"] = round(found["cpu_s"] / found["messages"] * 1e6, 1)
    line = {"job": job, "server": side.name, **figures, "load": load}
    print(json.dumps(line), flush=True)
    return line


def summary(job: str, rounds: list[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, Any]:
    """Returns the median ratio of the rounds: of rates, or of latencies, more than 1 where `serve` is better."""
    what = "p99_ms" if job == "latency" else "rate"
    pairs = [(ours[what], theirs[what]) for ours, theirs in rounds]
    ratios = [theirs / ours if what == "p99_ms" else ours / theirs for ours, theirs in pairs]
    return {"job": job, "of": what, "ratio": round(statistics.median(ratios), 2), "rounds": len(rounds)}


def main() -> None:
    """Runs the jobs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--jobs", default=JOBS)
    parser.add_argument("--rival", help="HOST:PORT where gRPC clients connect to another server that runs")
    parser.add_argument("--rival-broker", help="HOST:PORT of its broker")
    parser.add_argument("--rival-pids", default="", help="its process ids, separated by commas")
    parser.add_argument("--limit", action="store_true", help="also at a server that does nothing")
    options = parser.parse_args()
    if bool(options.rival) != bool(options.rival_broker):
        parser.error("--rival and --rival-broker belong together")
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="mqtool-bench-"))
        server = stack.enter_context(serve())
        command, sides = compiled(Path(directory)), [_side(server)]
        if options.rival:
            pids = [int(one) for one in options.rival_pids.split(",") if one]
            sides.append(Side("rival", options.rival, options.rival_broker, pids))
        nothing = stack.enter_context(limit(command)) if options.limit else None
        print(json.dumps({"job": "rest", "server": "serve", "ready_s": server.ready_s, "rss_mb": usage(server.pid)[1]}))
        found: dict[str, list[Any]] = {}
        for _ in range(options.rounds):
            for job in options.jobs.split(","):
                found.setdefault(job, []).append(tuple(measure(command, side, job, options) for side in sides))
                if nothing and job not in UNLIMITED:
                    measure(command, nothing, job, options)
        if options.rival:
            for job, rounds in found.items():
                print(json.dumps(summary(job, rounds)))


def _side(server: Server) -> Side:
    return Side(server.name, server.address, server.address, [server.pid] if server.pid else [])


if __name__ == "__main__":
    main()
