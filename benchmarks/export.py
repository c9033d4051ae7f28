"""Exports against what the machine can do: `python benchmarks/export.py [--messages N] [--rounds N] [--large GiB]`.

Prints a JSON line for each measurement: job, messages/s, bytes of log/s, and the ratio to the limit of its round. The
limit is pyarrow writing the same columns, already in memory, as one file from one thread. Sides alternate within a
round, since absolute figures of a shared machine wander. `--large` measures memory on a log of that size instead.
Spark's figures leave out starting the session, which is printed by itself; its first job is left out too.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mqtool.export.plain import ExportRequest, export
from mqtool.export.plan import partitions, plan_store
from mqtool.export.read import read_partition
from mqtool.export.request import ReadRequest
from mqtool.export.rows import Rows
from mqtool.export.schema import messages_schema
from mqtool.export.sources import resolve
from mqtool.export.workers import LocalRunner
from mqtool.store import Message, open_store
from tests.support.big_store import write_big_store

MEMORY_PROBE = r"""
import json, re, resource, sys
from pathlib import Path
from mqtool.export.plain import ExportRequest, export
from mqtool.export.sources import resolve
from mqtool.export.workers import LocalRunner
store, target = sys.argv[1:]
export(ExportRequest(tuple(resolve([store])), target), LocalRunner(2))
own = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]  # ru_maxrss counts the parent's before exec
print(json.dumps([int(own), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=400_000, help="of about 1.2 KB each")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spark", action="store_true", help="measure Spark too (needs Java 17)")
    parser.add_argument("--large", type=int, metavar="GiB", help="measure memory on a log of that size")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mqtool-bench-") as directory:
        if options.large:
            memory(Path(directory), options.large)
        else:
            speed(Path(directory), options.messages, options.rounds, with_spark=options.spark)


def speed(directory: Path, messages: int, rounds: int, *, with_spark: bool) -> None:
    store = write_big_store(directory / "bench" / "store", messages)
    with open_store(store) as opened:
        log_bytes = opened.commit_log.max_offset
    table = in_memory(store)
    jobs: dict[str, Callable[[Path], Any]] = {
        "limit": lambda target: write_alone(table, target),
        "plain, 1 worker": lambda target: run_plain(store, target, 1),
        "plain, 2 workers": lambda target: run_plain(store, target, 2),
        "row by row": lambda target: row_by_row(store, target, messages // 20),
    }
    spark = OnSpark(store)
    if with_spark:
        jobs |= {name: job for name, (_, job) in spark.jobs.items()}
    found: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            target = directory / "out"
            times = 20 if name == "row by row" else 1
            if name in spark.jobs:
                spark.prepare(name)
            before = cpu_seconds()
            seconds = timed(lambda job=job, target=target: job(target)) * times
            used = (cpu_seconds() - before) * times
            shutil.rmtree(target)
            found[name].append(seconds)
            ratio = found["limit"][-1] / seconds
            report(name, messages, log_bytes, seconds, of_limit=round(ratio, 3), cpu_s=round(used, 2))
    for name, all_seconds in sorted(found.items()):
        ratios = [limit / seconds for limit, seconds in zip(found["limit"], all_seconds, strict=True)]
        report(f"median: {name}", messages, log_bytes, statistics.median(all_seconds),
               of_limit=round(statistics.median(ratios), 3))  # fmt: skip


def in_memory(store: Path) -> Any:
    """All columns of all messages, as the export would write them."""
    (source,) = resolve([str(store)])
    read = ReadRequest()
    with source.open() as opened:
        plan = plan_store(opened, source, read.selection)
    items = (item for partition in partitions([plan]) for item in read_partition(partition, read))
    return pa.Table.from_batches([item.batch for item in items if isinstance(item, Rows)])


def write_alone(table: Any, target: Path) -> None:
    target.mkdir()
    pq.write_table(table, target / "limit.parquet", compression="zstd")


def run_plain(store: Path, target: Path, workers: int) -> None:
    export(ExportRequest(tuple(resolve([str(store)])), str(target)), LocalRunner(workers))


def row_by_row(store: Path, target: Path, messages: int) -> None:
    """The obvious way: a message object and a dictionary for each record."""
    target.mkdir()
    schema = messages_schema()
    rows = []
    with open_store(store) as opened, pq.ParquetWriter(target / "rows.parquet", schema, compression="zstd") as writer:
        for item in opened.messages(limit=messages):
            assert isinstance(item, Message)
            row = {name: getattr(item, name) for name in schema.names if hasattr(item, name)}
            rows.append({**row, "properties": list(item.properties.items()), "record_class": "committed"})
            if len(rows) == 10_000:
                writer.write_table(pa.Table.from_pylist(rows, schema))
                rows = []
        writer.write_table(pa.Table.from_pylist(rows, schema))


class OnSpark:
    """Exports by executors, and the data source into Spark's own Parquet writer; one session at a time."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._master = ""
        self._session: Any = None
        self.jobs: dict[str, tuple[str, Callable[[Path], Any]]] = {
            "spark data source to parquet, local[2]": ("local[2]", self._data_source),
            "spark export, local[2]": ("local[2]", self._export),
            "spark export, local[1]": ("local[1]", self._export),
        }

    def prepare(self, name: str) -> None:
        """Starts the session of a job and warms it up, which is not measured with the job."""
        from mqtool.spark.session import build

        master, _ = self.jobs[name]
        if master == self._master:
            return
        if self._session is not None:
            self._session.stop()
        start = time.perf_counter()
        self._master, self._session = master, build(master, {"spark.driver.memory": "1g"})
        report(f"session {master}", 0, 0, time.perf_counter() - start)
        with tempfile.TemporaryDirectory() as warm:
            self._export(Path(warm) / "out")

    def _export(self, target: Path) -> None:
        from mqtool.spark.export import SparkRunner

        export(ExportRequest(tuple(resolve([str(self._store)])), str(target)), SparkRunner(self._session))

    def _data_source(self, target: Path) -> None:
        frame = self._session.read.format("rocketmq-store").load(str(self._store))
        frame.write.option("compression", "zstd").parquet(str(target))


def cpu_seconds() -> float:
    """Of this process and of its children that have ended: steadier than the wall where others work too."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def memory(directory: Path, gib: int) -> None:
    """Peak memory of the driver and of its largest worker, on a small log and on a large one."""
    small = write_big_store(directory / "small" / "store", 200_000)
    for name, store in (("small", small), ("large", multiplied(small, directory / "large" / "store", gib))):
        with open_store(store) as opened:
            log_bytes = opened.commit_log.max_offset
        start = time.perf_counter()
        command = [sys.executable, "-c", MEMORY_PROBE, str(store), str(directory / f"out-{name}")]
        home = str(Path(__file__).resolve().parents[1])
        ran = subprocess.run(command, cwd=home, capture_output=True, text=True, check=True)
        driver, worker = json.loads(ran.stdout)
        report(f"memory, {name} log", 0, log_bytes, time.perf_counter() - start,
               driver_mib=driver >> 10, worker_mib=worker >> 10)  # fmt: skip
        shutil.rmtree(directory / f"out-{name}")


def multiplied(store: Path, target: Path, gib: int) -> Path:
    """Writes a log of many segments like the first one of a store, offsets set right; without queues."""
    log = target / "commitlog"
    log.mkdir(parents=True)
    first = min((store / "commitlog").iterdir())
    data = np.fromfile(first, np.uint8)
    with open_store(store) as opened:
        frames = [f for f in opened.commit_log.frames(end=first.stat().st_size) if hasattr(f, "positions")]
        starts = np.concatenate([f.positions + f.base for f in frames])
        queue_offsets = np.concatenate([f.column("queue_offset") for f in frames])
    step = int(queue_offsets.max()) + 1
    for number in range(-(-(gib << 30) // len(data))):
        base = number * len(data)
        for at, values in ((20, queue_offsets + number * step), (28, starts + base)):
            data[starts[:, None] + at + np.arange(8)] = values.astype(">i8").view(np.uint8).reshape(-1, 8)
        data.tofile(log / f"{base:020}")
    return target


def report(job: str, messages: int, log_bytes: int, seconds: float, **extra: Any) -> None:
    line = {"job": job, "messages": messages, "bytes": log_bytes, "seconds": round(seconds, 3)}
    line |= {"rate": round(messages / seconds), "mb_s": round(log_bytes / seconds / 1e6, 1), **extra}
    line["load"] = round(os.getloadavg()[0], 1)
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
