"""Every job of the store beside RocketMQ's own, in turns: `python benchmarks/beside_java.py [--log MiB] [--large MiB] [--rounds N] [--spark] [--write]`.

Both sides read the same store, written by the engine; jobs that append write stores of their own. What mqtool does to
files are whole commands as a user types them, start included; the Java store is timed by its own clock, without the
start of the JVM (java/RealStore.java). In each round a job of one side follows the same job of the other; medians and
the ratio of each round count. `--write` puts the table into benchmarks/RESULTS.md. `Limit` is the ratio of what the machine does
at most to the Java store, measured in the same round: threads that only read the log and compute CRCs (verify), or one that
fills a new file (puts).

`verify` reads a log of `--large` and `rebuild` one of 8 GiB, so that their start weighs little; the table of starts has what
it weighs on a small store. Exports are compared with pyarrow writing the same columns from memory (export.py), and the memory of commands on
that log with their memory on one of a twentieth of its size. On two idle cores a round takes about eight minutes.

Needs Java 17 and Maven, which fetches RocketMQ once.
"""

import argparse
import datetime as dt
import importlib.metadata
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from check import run as run_command
from page_cache import warm

from mqtool import __version__
from mqtool.records.frames import body_crc
from mqtool.records.segment_bytes import page_aligned
from mqtool.store import open_store
from tests.support.rocketmq import JAVA, release

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "benchmarks" / "RESULTS.md"
LIBRARIES = ("numpy", "pyarrow", "orjson")
COLUMN = 4096
QUIET = "--progress none"
OVERHEAD = 121
"""Bytes of a record besides its body, about."""
REBUILT = 8192
"""MiB of the log that is rebuilt, half for bodies of 100 bytes; RocketMQ's reput begins ten files of 1 GiB back."""
EXPORTED = 1_000_000
"""Messages that are exported."""


@dataclass
class Measured:
    """Rates of one job, a pair for each round; the size of a body in bytes; memory of the command in MiB.

    `limit` returns a rate that this machine does not exceed, of which `limits` has one for each round.
    """

    job: str
    size: int
    goal: float
    limit: Callable[[], float] | None = None
    pairs: list[tuple[float, float]] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)
    peak: float = 0.0

    def row(self) -> str:
        """Returns the row of the table."""
        ours, theirs = (statistics.median(side) for side in zip(*self.pairs, strict=True))
        ratio = statistics.median(one / other for one, other in self.pairs)
        peak = f"{self.peak:.0f}" if self.peak else ""
        bounds = [limit / other for limit, (_, other) in zip(self.limits, self.pairs, strict=False)]
        bound = f"{statistics.median(bounds):.2f}" if bounds else ""
        cells = (self.job, self.size, f"{ours:,.0f}", f"{theirs:,.0f}", f"{ratio:.2f}", f"{self.goal:g}", bound, peak)
        return f"| {' | '.join(map(str, cells))} |"


class Sides:
    """Runs jobs of either side on stores below one directory."""

    def __init__(self, scratch: Path, size: int, log: int, name: str = "") -> None:
        self.scratch, self.size = scratch, size
        self.messages = max(COLUMN, (log << 20) // (size + OVERHEAD)) // COLUMN * COLUMN
        self.store = scratch / f"{size}{name}" / "store"
        self.rocketmq = release("5.5.0")
        self._warm: set[str] = set()
        self.made = False

    def make(self) -> None:
        """Writes the store of both sides, once, and waits until it is on the disk: that would disturb what is measured."""
        if self.made:
            return
        self.made = True
        size = self.size
        self.script("engine_read.py", f"size={size}", f"messages={self.messages}", "jobs=", "text=yes", wanted="")
        os.sync()

    def warmly(self, job: Callable[[], float]) -> float:
        """Runs a job while all files of the store are in the page cache."""
        warm(self.store)
        return job()

    def java(self, job: str, *extra: int) -> float:
        """Returns the rate of a job of the Java store."""
        fresh = self.scratch / "java"
        checkpoint, index, kept = (self.store / name for name in ("checkpoint", "index", "../index"))
        before = checkpoint.read_bytes() if job == "recover" else b""
        if before:  # the job starts after a crash with a checkpoint of zeros, and such a start deletes the index
            index.rename(kept)
        place = self.store if job in ("recover", "reput", "decode", "pull", "query") else fresh
        classes = f"{self.rocketmq.cache}/lib/*"
        words = [
            str(ROOT / "benchmarks" / "java" / "RealStore.java"),
            job,
            str(place),
            str(self.count(job)),
            str(self.size),
        ]
        options = [word for word in JAVA if "Tiered" not in word and "SerialGC" not in word]
        result = subprocess.run(
            [*options, "-XX:MaxDirectMemorySize=4g", "-cp", classes, *words, *map(str, extra)],
            capture_output=True,
            text=True,
            check=False,
        )
        shutil.rmtree(fresh, ignore_errors=True)
        if before:
            checkpoint.write_bytes(before)
            shutil.rmtree(index, ignore_errors=True)
            kept.rename(index)
        lines = [line for line in result.stdout.splitlines() if line.startswith('{"messages"')]
        if result.returncode or not lines:
            raise SystemExit(f"RealStore {job} failed:\n{result.stderr[-2000:]}")
        return float(json.loads(lines[-1])["rate"])

    def count(self, job: str) -> int:
        """Returns how many messages a job appends or reads."""
        return 20_000 if job == "sync" else self.messages

    def command(self, measured: Measured, command: str) -> float:
        """Returns the rate of a command of mqtool; notes its memory. Before the first time its modules are compiled."""
        if command not in self._warm:
            run_command(command, str(self.store))
            self._warm.add(command)
        result = run_command(command, str(self.store))
        if result["exit"]:  # the other side has changed the store, and this one did other work
            raise SystemExit(f"mqtool {command} of {self.store} ended with {result['exit']:.0f}")
        measured.peak = max(measured.peak, result["peak_mib"])
        return self.messages / result["seconds"]

    def read_limit(self, threads: int) -> Callable[[], float]:
        """Returns what measures how many records of the log threads only copy from the page cache and compute CRCs of."""
        record = self.size + OVERHEAD
        return lambda: read_rate(self.store, threads, self.messages * record) * (1 << 30) / record

    def write_limit(self) -> float:
        """Returns how many records would fill a new file as fast as one thread does."""
        self.scratch.mkdir(exist_ok=True)
        return write_rate(self.scratch, 1) * (1 << 30) / (self.size + OVERHEAD)

    def script(self, name: str, *words: str, wanted: str = "rate", job: str = "") -> float:
        """Returns a figure of another benchmark, on a new store or, where it only reads, on the one of both sides."""
        place = self.store.parent if name == "engine_read.py" else self.scratch / "own"
        command = [sys.executable, str(ROOT / "benchmarks" / name), str(place), *words]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        shutil.rmtree(self.scratch / "own", ignore_errors=True)
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        return float(next((row for row in rows if job in ("", row["job"])), {"": 0})[wanted])


Job = tuple[Measured, Callable[[Measured], float], Callable[[], float]]


def checks(sides: Sides, log: str = "") -> list[Job]:
    """Returns the jobs that check a log, which `log` describes: goal, mqtool's side, Java's side."""
    size, large = sides.size, sides.size >= 1024

    def verify(jobs: int) -> Callable[[Measured], float]:
        return lambda row: sides.command(row, f"verify {{store}} --jobs {jobs} --format json {QUIET}")

    return [
        (
            Measured(f"verify, 1 process{log} (Java: recovery)", size, 2 if large else 1, sides.read_limit(1)),
            verify(1),
            lambda: sides.java("recover"),
        ),
        (
            Measured(f"verify, 2 processes{log}", size, 3 if large else 1.5, sides.read_limit(2)),
            verify(2),
            lambda: sides.java("recover"),
        ),
    ]


def rebuilds(sides: Sides) -> list[Job]:
    """Returns the job that reads a log and writes all other files."""
    return [
        (
            Measured("rebuild all", sides.size, 4),
            lambda row: sides.command(row, f"rebuild all {{store}} --jobs 2 --output {{out}} {QUIET}"),
            lambda: sides.java("reput"),
        )
    ]


def jobs_of(sides: Sides) -> list[Job]:
    """Returns all other jobs for one size of bodies."""
    size, large = sides.size, sides.size >= 1024
    words = (f"size={size}", f"messages={sides.messages}")

    def append(batch: str) -> Callable[[Measured], float]:
        return lambda _: sides.script("engine_append.py", *words, f"batch={batch}", wanted="dispatched_rate")

    def read(job: str) -> Callable[[Measured], float]:
        return lambda _: sides.script("engine_read.py", *words, f"jobs={job}", job=job)

    return [
        (
            Measured("dump as JSON Lines", size, 3 if large else 2),
            lambda row: sides.command(row, f"dump {{store}} --jobs 2 --format jsonl {QUIET}"),
            lambda: sides.java("decode"),
        ),
        (
            Measured("put until dispatched", size, 1.3 if large else 1.2, sides.write_limit),
            append("1"),
            lambda: sides.java("put"),
        ),
        (
            Measured("put_batch of 32 until dispatched", size, 1.3, sides.write_limit),
            append("32"),
            lambda: sides.java("batch", 32),
        ),
        (
            Measured("put_many until dispatched (Java: batches of 32)", size, 4, sides.write_limit),
            append("many"),
            lambda: sides.java("batch", 32),
        ),
        (
            Measured("SYNC_FLUSH, 64 threads", size, 1),
            lambda _: sides.script("engine_sync.py", f"size={size}", "threads=64", job="sync"),
            lambda: sides.java("sync", 64),
        ),
        (
            Measured("SYNC_FLUSH, 64 asyncio senders (Java: threads)", size, 1),
            lambda _: sides.script("engine_sync.py", f"size={size}", "threads=64", "senders=asyncio", job="sync"),
            lambda: sides.java("sync", 64),
        ),
        (Measured("get 32 by 32", size, 1), read("pull"), lambda: sides.java("pull")),
        (Measured("query by key", size, 1), read("query"), lambda: sides.java("query")),
    ]


def exports(messages: int, rounds: int, *, spark: bool) -> list[str]:
    """Returns rows: exports of messages with bodies of about 1 KiB, and pyarrow writing their columns from memory."""
    words = ["--messages", str(messages), "--rounds", str(rounds), *(["--spark"] if spark else [])]
    command = [sys.executable, str(ROOT / "benchmarks" / "export.py"), *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found = {row["job"]: row for row in map(json.loads, result.stdout.splitlines())}
    limit = found["median: limit"]["rate"]
    rows = []
    for job, row in found.items():
        name = job.removeprefix("median: ")
        if name == job or name in ("limit", "row by row"):
            continue
        goal = {"plain, 2 workers": "0.95", "spark export, local[2]": "0.85"}.get(name, "")
        rows.append(f"| export, {name} | {row['rate']:,.0f} | {limit:,.0f} | {row['of_limit']:.2f} | {goal} |")
    return rows


MEMORY = (
    "verify {store} --jobs 2 --format json",
    "rebuild all {store} --jobs 2 --output {out}",
    "dump {store} --jobs 2",
)


def memory(large: Sides) -> list[str]:
    """Returns rows: peak memory of commands in MiB, on a log of a twentieth of the size and on the large one."""
    bytes_of = large.messages * (large.size + OVERHEAD)
    small = Sides(large.scratch, large.size, max(16, (bytes_of >> 20) // 20), "-small")
    small.make()
    rows = []
    for command in MEMORY:
        peaks = [run_command(f"{command} {QUIET}", str(sides.store))["peak_mib"] for sides in (small, large)]
        rows.append(f"| {command.split()[0]} | {peaks[0]:.0f} | {peaks[1]:.0f} | 400 |")
    return rows


def limits(store: Path) -> list[str]:
    """Returns rows: what the machine does with the same bytes."""
    files = sorted((store / "commitlog").iterdir())
    data = b"".join(path.read_bytes()[: 1 << 28] for path in files[:1])
    source = np.frombuffer(data, np.uint8)
    target = source.copy()  # its pages are there before the clock starts
    rows = []
    for name, step in (("copy in memory", lambda _: np.copyto(target, source)), ("CRC-32", body_crc)):
        seconds = timed(lambda step=step: step(data))
        rows.append(f"| {name} | {len(data) / seconds / 1e9:.1f} GB/s |")
    rows.append(
        f"| pyarrow writes all columns, in memory, as Parquet (zstd 1) | {parquet_rate(store):,.0f} messages/s |"
    )
    ways = (("read in pieces of 1 MiB, and CRC-32", read_rate), ("write a new file", write_rate))
    for name, rate_of in ways:
        for threads in (1, 2):
            rate = rate_of(store, threads)
            records = rate * (1 << 30) / (1024 + OVERHEAD)
            rows.append(f"| {name}, {threads} thread(s) | {rate:.2f} GiB/s: {records:,.0f} records of 1 KiB/s |")
    with tempfile.NamedTemporaryFile(dir=store) as file:
        count = 200

        def sync() -> None:
            for _ in range(count):
                file.write(bytes(1024))
                file.flush()
                os.fdatasync(file.fileno())

        rows.append(f"| `fdatasync` after 1 KiB | {count / timed(sync):,.0f}/s |")
    return rows


def read_rate(store: Path, threads: int, size: int = 1 << 30, piece: int = 1 << 20) -> float:
    """Returns GiB/s of reads of a log from the page cache, with the CRC of what was read: the least that a check costs."""
    files = [(path, path.stat().st_size) for path in sorted((store / "commitlog").iterdir())]
    places = [(path, at) for path, end in files for at in range(0, end, piece)][: size // piece]

    def read(thread: int) -> None:
        buffer = page_aligned(piece).data
        for path, parts in groupby(places[thread * len(places) // threads :][: len(places) // threads], itemgetter(0)):
            with path.open("rb", buffering=0) as file:
                for _, at in parts:
                    body_crc(buffer[: os.preadv(file.fileno(), [buffer], at)])

    with ThreadPoolExecutor(threads) as pool:
        seconds = timed(lambda: list(pool.map(read, range(threads))))
    return len(places) // threads * threads * piece / (1 << 30) / seconds


def write_rate(store: Path, threads: int, size: int = 1 << 30, piece: int = 2 << 20) -> float:
    """Returns GiB/s of writes into the page cache at places of a new file that have blocks but no pages yet.

    It waits first: a virtual machine tells its host of pages that are free for some seconds, and they cost more afterwards.
    A job that appends finds such pages, since it starts seconds after the files of the one before were deleted.
    """
    data = os.urandom(piece)
    time.sleep(6)
    with tempfile.NamedTemporaryFile(dir=store) as file, ThreadPoolExecutor(threads) as pool:
        os.posix_fallocate(file.fileno(), 0, size)
        seconds = timed(lambda: list(pool.map(lambda at: os.pwrite(file.fileno(), data, at), range(0, size, piece))))
    return size / (1 << 30) / seconds


def parquet_rate(store: Path, messages: int = 100_000) -> float:
    """Returns how many messages a second pyarrow writes from one thread whose columns are there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    batches, count = [], 0
    with open_store(store) as opened:
        for batch in opened.batches():
            batches.append(batch)
            count += batch.num_rows
            if count >= messages:
                break
    table = pa.Table.from_batches(batches)
    with tempfile.NamedTemporaryFile(dir=store) as file:
        seconds = timed(lambda: pq.write_table(table, file.name, compression="zstd", compression_level=1))
    return table.num_rows / seconds


def timed(work: Callable[[], object]) -> float:
    """Returns the seconds that a call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


STARTS = (
    ("--help", "--help", 60),
    ("info of a small store", f"info {{store}} --format json {QUIET}", 150),
    ("verify of a small store", f"verify {{store}} --jobs 1 --format json {QUIET}", 200),
)
"""What a start costs: words of a row, command, goal in milliseconds."""


def starts(rounds: int) -> list[str]:
    """Returns rows: milliseconds of commands that have next to nothing to do, medians."""
    small = str(ROOT / "fixtures" / "ha-5.5.0" / "store-master")
    rows = []
    for name, command, goal in STARTS:
        run_command(command, small)  # compiles the modules
        found = statistics.median(run_command(command, small)["seconds"] for _ in range(max(3, rounds)))
        rows.append(f"| {name} | {1000 * found:,.0f} | {goal} |")
    return rows


def main() -> None:
    """Measures, prints the table, writes it if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=int, default=1024, metavar="MiB", help="size of each log, about")
    parser.add_argument(
        "--large",
        type=int,
        default=16384,
        metavar="MiB",
        help="size of the log that verify reads, half for bodies of 100 bytes; it has to fit into memory",
    )
    parser.add_argument("--spark", action="store_true", help="measure exports by Spark too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", default="1024,100", help="bytes of a body")
    parser.add_argument("--only", default="", metavar="WORD", help="jobs whose name has this word")
    parser.add_argument("--write", action="store_true", help="write the table into benchmarks/RESULTS.md")
    options = parser.parse_args()
    found: list[Measured] = []
    peaks: list[str] = []
    about = list(machine())
    with tempfile.TemporaryDirectory(prefix="mqtool-bench-") as directory:
        sizes = list(map(int, options.sizes.split(",")))
        for size in sizes:
            share = 1 if size >= 1024 else 2  # of small bodies there are many records in a log
            large = Sides(Path(directory), size, options.large // share, "-large")
            rebuilt = Sides(Path(directory), size, min(options.large, REBUILT) // share, "-rebuilt")
            sides = Sides(Path(directory), size, options.log)
            others = [*checks(sides, f", log of {options.log} MiB"), *jobs_of(sides)]
            for source, jobs in ((large, checks(large)), (rebuilt, rebuilds(rebuilt)), (sides, others)):
                jobs = [job for job in jobs if options.only in job[0].job]  # noqa: PLW2901 - those that are wanted
                for _ in range(options.rounds if jobs else 0):
                    source.make()
                    for row, ours, theirs in jobs:
                        row.pairs.append((source.warmly(partial(ours, row)), source.warmly(theirs)))
                        if row.limit is not None:
                            row.limits.append(source.warmly(row.limit))
                        print(row.job, size, *(round(rate) for rate in row.pairs[-1]), file=sys.stderr, flush=True)
                found += [row for row, _, _ in jobs]
                if source is rebuilt and source.made and size == sizes[0]:
                    peaks = memory(rebuilt)
                if source is not sides:
                    shutil.rmtree(source.store.parent, ignore_errors=True)  # pages for what follows
        written = [] if options.only else exports(EXPORTED, options.rounds, spark=options.spark)
        begun = starts(options.rounds)
        sides.make()
        bounds = limits(sides.store)  # last: a command's peak would not be less than this process's memory
    print(table := text(found, about, bounds, (begun, peaks, written), options))
    if options.write:
        marked = re.compile(r"(<!-- generated: beside Java -->\n).*?(<!-- /generated -->)", re.DOTALL)
        PAGE.write_text(marked.sub(lambda match: match[1] + table + match[2], PAGE.read_text("utf-8")), "utf-8")


def machine() -> Iterator[str]:
    """Yields the rows that describe where and when."""
    info = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.*)$", info.read_text("utf-8"), re.MULTILINE) if info.exists() else []
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES)
    yield f"| Date | {dt.datetime.now(dt.UTC):%Y-%m-%d} |"
    yield f"| Machine | {names[0] if names else platform.machine()}, {os.cpu_count()} cores, {memory} GiB of memory |"
    yield f"| System | {platform.system()} {platform.release()} |"
    yield f"| Versions | mqtool {__version__}, Python {platform.python_version()}, {versions} |"
    yield f"| Load before the run | {os.getloadavg()[0]:.1f} |"


def text(
    found: list[Measured],
    about: list[str],
    bounds: list[str],
    others: tuple[list[str], list[str], list[str]],
    options: Any,
) -> str:
    """Returns the tables in Markdown; the others are rows of starts, of memory, and of exports."""
    begun, peaks, written = others
    lines = [
        "",
        "| | |",
        "|---|---|",
        *about,
        f"| Logs; rounds | {options.log} MiB; verify: {options.large} MiB (bodies of 100: half); {options.rounds} |",
    ]
    lines += [*bounds, ""]
    lines += ["| Job | Body, bytes | mqtool, messages/s | RocketMQ 5.5.0 | Ratio | Goal | Limit | Memory, MiB |"]
    lines += ["|---|---:|---:|---:|---:|---:|---:|---:|", *(row.row() for row in found), ""]
    if written:
        lines += ["| Export, bodies of 1 KiB | mqtool, messages/s | pyarrow from memory | Ratio | Goal |"]
        lines += ["|---|---:|---:|---:|---:|", *written, ""]
    if peaks:
        lines += ["| Peak memory, 2 jobs | MiB, a twentieth of the log | MiB, the large log | Limit |"]
        lines += ["|---|---:|---:|---:|", *peaks, ""]
    lines += ["| Start | ms | Goal |", "|---|---:|---:|", *begun, "", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
