"""Questions to a store: what they read and how long they take, as ratios.

    python benchmarks/ask.py --messages 100000 --rounds 5

Questions about columns beside DuckDB on the exported Parquet of the same rows, with `--columns` only these; bytes read
to bytes needed, with and without trust; tables of units and entries; memory of engines that stream; a look-up by unique
key, `mqtool story` and `mqtool find --key` in a log of 100 GiB, most of it sparse.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import duckdb
import pyarrow.compute as pc

from mqtool.duckdb import Session
from mqtool.export.plain import LocalRunner, export
from mqtool.export.run import ExportRequest
from mqtool.export.sources import resolve
from mqtool.records.frames import body_crc
from mqtool.scan.messages import scan
from mqtool.store import open_store
from tests.support.big_store import add_empty_segments, write_big_store
from tests.support.questions import committed
from tests.support.questions import questions as twelve

SEGMENT = 1 << 28
PAGE = 4096
FEW = 100
COLUMNS = {
    "three columns": "SELECT count(*), min(queue_offset), max(store_timestamp), min(topic) FROM {}",
    "count": "SELECT count(*) FROM {}",
    "by topic": "SELECT topic, count(*), sum(store_size) FROM {} GROUP BY topic ORDER BY topic",
    "a range of times": "SELECT count(*), max(queue_offset) FROM {} WHERE store_timestamp"
    " BETWEEN '2026-09-21 14:15:00+00' AND '2026-09-21 14:16:00+00'",
    "by tag": "SELECT tags, count(*) FROM {} GROUP BY tags ORDER BY tags",
}
ALL = ("queues", "index", "clock")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000, help="of about 1.2 KB each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--columns", action="store_true", help="only the questions that are compared with Parquet")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mqtool-bench-") as directory:
        for size in (1024, 100):
            beside_parquet(Path(directory), 5 * options.messages, size, options.rounds)  # few would drown in the start
        if options.columns:
            return
        store = write_big_store(Path(directory) / "bench" / "store", options.messages, segment=SEGMENT, index=True)
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
    "datafusion": "from datafusion import SessionContext; from mqtool.scan.dataset import dataset\n"
    "context = SessionContext(); context.register_dataset('messages', dataset(path))\n"
    "print(context.sql('SELECT count(body) AS n, count(DISTINCT topic) FROM messages').to_pylist()[0]['n'])",
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


def beside_parquet(directory: Path, messages: int, size: int, rounds: int) -> None:
    """Questions that need no body, to a store and to its export, and what bounds them: loops that only read the log.

    Processor time for a message; the time of the same question about a few messages is taken off, as that of a start.
    """
    stores = [write_big_store(directory / f"{size}-{count}" / "store", count, size=size) for count in (FEW, messages)]
    lakes = [store.parent / "lake" for store in stores]
    for store, lake in zip(stores, lakes, strict=True):
        export(ExportRequest(tuple(resolve([str(store)])), str(lake)), LocalRunner(2))

    def by_duckdb(number: int, sql: str, trust: Sequence[str] = ()) -> list[object]:
        with Session(stores[number], trust=trust) as session:
            return [row for batch in session.ask(sql.format("messages"))[1] for row in batch.to_pylist()]

    def by_parquet(number: int, sql: str) -> list[object]:
        return duckdb.connect().sql(sql.format(f"'{lakes[number]}/messages/**/*.parquet'")).to_arrow_table().to_pylist()

    def by_scan(number: int) -> None:
        with open_store(stores[number]) as opened:
            for _ in scan(opened, ["queue_offset", "store_timestamp", "topic"]):
                pass

    def read(number: int, *, check: bool) -> None:
        buffer = memoryview(bytearray(1 << 20))
        for segment in sorted((stores[number] / "commitlog").iterdir()):
            with segment.open("rb", buffering=0) as file:
                for _ in range(segment.stat().st_blocks * 512 // len(buffer)):
                    file.readinto(buffer)
                    if check:
                        body_crc(buffer)

    bounds = {"scan_ns": by_scan, "read_ns": partial(read, check=False), "read_and_check_ns": partial(read, check=True)}
    figures = _spent(bounds, rounds, messages)
    print_row("three columns, without DuckDB", body_bytes=size, **figures)
    for name, sql in COLUMNS.items():
        assert by_duckdb(1, sql) == by_duckdb(1, sql, ["bodies"]) == by_parquet(1, sql)
        ways = {
            "store_ns": partial(by_duckdb, sql=sql),
            "trusting_bodies_ns": partial(by_duckdb, sql=sql, trust=["bodies"]),
            "parquet_ns": partial(by_parquet, sql=sql),
        }
        figures = _spent(ways, rounds, messages)
        times_parquet = {name: figures[f"{name}_ns"] / figures["parquet_ns"] for name in ("store", "trusting_bodies")}
        print_row(name, body_bytes=size, **figures, **{f"{key}_by_parquet": it for key, it in times_parquet.items()})


def _spent(ways: dict[str, Callable[[int], object]], rounds: int, messages: int) -> dict[str, float]:
    """Returns the least processor time of each way for a message, in ns."""
    spent = {name: [float("inf")] * 2 for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            for number in range(2):
                begun = time.process_time()
                way(number)
                spent[name][number] = min(spent[name][number], time.process_time() - begun)
    return {name: (many - few) / (messages - FEW) * 1e9 for name, (few, many) in spent.items()}


def questions(path: Path) -> None:
    """The twelve questions that the tests ask all engines; read and needed in pages, which is what a disk gives."""
    with open_store(path) as store:
        asked = twelve(committed(store))
    for one in asked:
        for trust in ((), ALL):
            with open_store(path) as store:
                found = scan(store, ["queue_offset"], one.where, trust=trust)
                rows = sum(map(len, found))
                report = found.report
            # besides the records: a page that they begin in, and one to see that the log ends where the index does
            needed = report.bytes_needed + (2 * PAGE if report.bytes_needed else 0)
            ratio = report.bytes_read / max(1, report.bytes_needed)
            print_row(
                one.name,
                trust=bool(trust),
                path=report.path,
                rows=rows,
                read_of_records=ratio,
                read_of_needed=report.bytes_read / max(1, needed),
            )


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
