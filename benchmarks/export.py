"""Exports against what the machine can do: `python benchmarks/export.py [--messages N] [--rounds N] [--large GiB]`.

Prints a JSON line for each measurement: job, messages/s, bytes of log/s, and the ratio to the limit of its round. The
limit is pyarrow writing the same columns, already in memory, as one file from one thread. Sides alternate within a
round, since absolute figures of a shared machine wander. `cpu_s` are processor seconds of all processes of a job, which
wander less; `limits_of_cpu` is how many times the limit's they are. `--large` measures memory on a log of that size
instead. Spark's figures leave out starting the session, which is printed by itself; its first jobs are left out too.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import processes
from benchmarks.bodies import vary_bodies
from benchmarks.page_cache import warm
from mqtool.export.plain import LocalRunner, export
from mqtool.export.plan import partitions, plan_store
from mqtool.export.rows import Rows, compact
from mqtool.export.run import ExportRequest
from mqtool.export.schema import ReadRequest, messages_schema
from mqtool.export.sources import resolve
from mqtool.export.task import read_partition
from mqtool.store import Message, open_store
from tests.support.big_store import write_big_store

PLAIN = """
import sys
from mqtool.export.plain import export
from mqtool.export.run import ExportRequest
from mqtool.export.sources import resolve
from mqtool.export.plain import LocalRunner
export(ExportRequest(tuple(resolve([sys.argv[1]])), sys.argv[2]), LocalRunner(2))
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
            memory(Path(directory), options.large, with_spark=options.spark)
        else:
            speed(Path(directory), options.messages, options.rounds, with_spark=options.spark)


def speed(directory: Path, messages: int, rounds: int, *, with_spark: bool) -> None:
    store = vary_bodies(write_big_store(directory / "bench" / "store", messages))
    log_bytes = log_size(store)
    table = in_memory(store)
    jobs: dict[str, Callable[[Path], Any]] = {
        "limit": lambda target: write_alone(table, target),
        "plain, 1 worker": lambda target: run_plain(store, target, 1),
        "plain, 2 workers": lambda target: run_plain(store, target, 2),
        "row by row": lambda target: row_by_row(store, target, messages // 20),
    }
    spark = on_spark(store) if with_spark else None
    if spark is not None:
        jobs |= {name: job for name, (_, job) in spark.jobs.items()}
    found: dict[str, list[float]] = {name: [] for name in jobs}
    cpu: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            target = directory / "out"
            scale = 20 if name == "row by row" else 1
            if spark is not None and name in spark.jobs:
                spark.prepare(name)
            warm(store)
            before = processes.cpu_seconds()
            seconds = timed(lambda job=job, target=target: job(target)) * scale
            used = (processes.cpu_seconds() - before) * scale
            shutil.rmtree(target)
            found[name].append(seconds)
            cpu[name].append(used)
            ratio = found["limit"][-1] / seconds
            report(name, messages, log_bytes, seconds, of_limit=round(ratio, 3), cpu_s=round(used, 2))
    for name, times in sorted(found.items()):
        ratio = statistics.median(limit / seconds for limit, seconds in zip(found["limit"], times, strict=True))
        used = statistics.median(cpu[name])
        report(
            f"median: {name}",
            messages,
            log_bytes,
            statistics.median(times),
            of_limit=round(ratio, 3),
            cpu_s=round(used, 2),
            limits_of_cpu=round(used / statistics.median(cpu["limit"]), 2),
        )


def in_memory(store: Path) -> Any:
    """All columns of all messages, as the export would write them."""
    (source,) = resolve([str(store)])
    read = ReadRequest()
    with source.open() as opened:
        plan = plan_store(opened, source, read.selection)
    items = (item for partition in partitions([plan]) for item in read_partition(partition, read))
    return pa.Table.from_batches([compact(item.batch) for item in items if isinstance(item, Rows)])


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


def on_spark(store: Path) -> Any:
    from benchmarks.export_spark import OnSpark  # needs pyspark

    return OnSpark(store, lambda name, seconds: report(name, 0, 0, seconds))


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def memory(directory: Path, gib: int, *, with_spark: bool) -> None:
    """Peak memory of the largest Python process, on a small log and on a large one."""
    home = str(Path(__file__).resolve().parents[1])
    jobs = {"plain, 2 workers": [sys.executable, "-c", PLAIN]}
    if with_spark:
        jobs["spark export, local[2]"] = [sys.executable, "-m", "benchmarks.export_spark"]
    for size, messages in (("small", 200_000), ("large", gib * 900_000)):
        store = vary_bodies(write_big_store(directory / size / "store", messages, segment=1 << 30))
        for name, command in jobs.items():
            start = time.perf_counter()
            found = processes.peaks([*command, str(store), str(directory / "out")], home)
            pythons = sorted((peak >> 20 for program, peak in found if program == "python"), reverse=True)
            java = max((peak >> 20 for program, peak in found if program == "java"), default=0)
            report(
                f"memory, {size} log, {name}",
                messages,
                log_size(store),
                time.perf_counter() - start,
                python_mib=pythons,
                java_mib=java,
            )
            shutil.rmtree(directory / "out")
        shutil.rmtree(store)


def log_size(store: Path) -> int:
    with open_store(store) as opened:
        return opened.commit_log.max_offset


def report(job: str, messages: int, log_bytes: int, seconds: float, **extra: Any) -> None:
    line = {"job": job, "messages": messages, "bytes": log_bytes, "seconds": round(seconds, 3)}
    line |= {"rate": round(messages / seconds), "mb_s": round(log_bytes / seconds / 1e6, 1), **extra}
    line["load"] = round(os.getloadavg()[0], 1)
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
