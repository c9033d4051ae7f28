"""Questions to a store: what they read and how long they take, as ratios.

    python benchmarks/ask.py --messages 100000 --rounds 5

A scan of three columns beside DuckDB on the exported Parquet of the same rows; bytes read to bytes needed, with and without
trust; tables of units and entries; memory of engines that stream; a look-up by unique key, `mqtool story` and
`mqtool find --key` in a log of 100 GiB, most of it sparse.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import duckdb
import pyarrow.compute as pc

from mqtool.duckdb import Session
from mqtool.export.plain import ExportRequest, export
from mqtool.export.sources import resolve
from mqtool.export.workers import LocalRunner
from mqtool.scan.messages import scan
from mqtool.store import open_store
from tests.support.big_store import add_empty_segments, write_big_store

SEGMENT = 1 << 26
THREE = "count(*), min(queue_offset), max(store_timestamp), min(topic)"
ALL = ("queues", "index", "clock")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000, help="of about 1.2 KB each")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mqtool-bench-") as directory:
        store = write_big_store(Path(directory) / "bench" / "store", options.messages, segment=SEGMENT, index=True)
        three_columns(store, Path(directory) / "lake", options.rounds)
        questions(store)
        tables(store)
        memory(store)
        add_empty_segments(store, 100)
        look_up(store, options.rounds)
        commands(store, options.rounds)


def tables(store: Path) -> None:
    with Session(store) as session:
        for table in ("queue_units", "index_entries"):
            begun = time.process_time()
            (found,) = [
                row for batch in session.ask(f"SELECT count(*) AS n FROM {table}")[1] for row in batch.to_pylist()
            ]
            print_row(f"rows of {table}", rows=found["n"], cpu_s=time.process_time() - begun)


STREAMS = {
    "scan": "from mqtool.scan.messages import scan; from mqtool.store import open_store\n"
    "with open_store(path) as store: print(sum(map(len, scan(store))))",
    "duckdb": "import mqtool.duckdb\n"
    "print(mqtool.duckdb.connect(path).sql('SELECT count(body), count(DISTINCT topic) FROM messages').fetchall()[0][0])",
    "polars": "import polars as pl; from mqtool.polars import scan_store\n"
    "print(scan_store(path).select(pl.col('body').bin.size().gt(0).sum()).collect(engine='streaming').item())",
    "arrow": "from mqtool.scan.dataset import dataset\nprint(sum(map(len, dataset(path).scanner().to_batches())))",
}
"""What reads all columns, bodies too, by each engine that streams."""


def memory(store: Path) -> None:
    size = sum(file.stat().st_blocks * 512 for file in (store / "commitlog").iterdir())
    for engine, code in STREAMS.items():
        said = "print(next(int(line.split()[1]) >> 10 for line in open('/proc/self/status') if 'VmHWM' in line))"
        command = [sys.executable, "-c", f"path = {str(store)!r}\n{code}\n{said}"]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        print_row(f"memory: {engine}", rows=int(out[-2]), log_mib=size >> 20, peak_mib=int(out[-1]))


def three_columns(store: Path, lake: Path, rounds: int) -> None:
    export(ExportRequest(tuple(resolve([str(store)])), str(lake)), LocalRunner(2))
    on_parquet = f"SELECT {THREE} FROM read_parquet('{lake}/messages/**/*.parquet')"
    times: dict[str, list[float]] = {"store": [], "parquet": []}
    for _ in range(rounds):
        begun = time.process_time()
        with Session(store) as session:
            answer = [batch.to_pylist() for batch in session.ask(f"SELECT {THREE} FROM messages")[1]]
        times["store"].append(time.process_time() - begun)
        begun = time.process_time()
        expected = duckdb.connect().sql(on_parquet).to_arrow_table().to_pylist()
        times["parquet"].append(time.process_time() - begun)
        assert answer[0] == expected
    store_s, parquet_s = (statistics.median(times[name]) for name in ("store", "parquet"))
    print_row("three columns", store_cpu_s=store_s, parquet_cpu_s=parquet_s, speed_of_parquet=parquet_s / store_s)


def questions(path: Path) -> None:
    with open_store(path) as store:
        some = [batch.slice(0, 1).to_pylist()[0] for batch in scan(store, limit=200_000)]
    one, late = some[len(some) // 2], some[3 * len(some) // 4]
    field = pc.field
    asked = {
        "a unique key": field("unique_key") == one["unique_key"],
        "a queue": (field("topic") == one["topic"]) & (field("queue_id") == one["queue_id"]),
        "200 offsets of a queue": (field("topic") == one["topic"])
        & (field("queue_id") == one["queue_id"])
        & (field("queue_offset") < 200),
        "a quarter of the time": (field("store_timestamp") >= one["store_timestamp"])
        & (field("store_timestamp") < late["store_timestamp"]),
        "a part of the log": (field("physical_offset") >= one["physical_offset"])
        & (field("physical_offset") < late["physical_offset"]),
        "everything": None,
    }
    for name, where in asked.items():
        for trust in ((), ALL):
            with open_store(path) as store:
                found = scan(store, ["queue_offset"], where, trust=trust)
                rows = sum(map(len, found))
                report = found.report
            ratio = report.bytes_read / max(1, report.bytes_needed)
            print_row(name, trust=bool(trust), path=report.path, rows=rows, read_of_needed=ratio)


def look_up(path: Path, rounds: int) -> None:
    with open_store(path) as store:
        keys = [batch["unique_key"][0].as_py() for batch in scan(store, ["unique_key"])][-rounds:]
    begun = time.perf_counter()
    with open_store(path) as store:
        _ = store.commit_log.max_offset, store.queues(), store.index_files()
        opened = time.perf_counter() - begun
        times = []
        for key in keys:
            begun = time.perf_counter()
            found = scan(store, ["queue_offset"], pc.field("unique_key") == key, trust=["index"])
            assert sum(map(len, found)) == 1
            times.append(time.perf_counter() - begun)
    print_row(
        "a key in 100 GiB", open_ms=opened * 1000, first_ms=times[0] * 1000, median_ms=statistics.median(times) * 1000
    )


def commands(path: Path, rounds: int) -> None:
    """Whole commands that find one message through the index, each in a process of its own."""
    with open_store(path) as store:
        message = store.message_at(store.commit_log.min_offset)
    for words in (["story", str(path), message.unique_key], ["find", str(path), "--key", message.keys[0]]):
        spent, waited = [], []
        for _ in range(rounds):
            before, begun = os.times(), time.perf_counter()
            subprocess.run([sys.executable, "-m", "mqtool", *words], check=True, stdout=subprocess.DEVNULL)
            waited.append(time.perf_counter() - begun)
            after = os.times()
            spent.append(after.children_user + after.children_system - before.children_user - before.children_system)
        print_row(f"{words[0]} in 100 GiB", cpu_s=statistics.median(spent), wall_s=statistics.median(waited))


def print_row(job: str, **figures: object) -> None:
    row = {name: round(value, 3) if isinstance(value, float) else value for name, value in figures.items()}
    print(json.dumps({"job": job, **row}), flush=True)


if __name__ == "__main__":
    main()
