"""Reading against what the machine can do: `python benchmarks/read.py [--sizes 1024,100] [--log MiB] [--rounds N]`.

Prints a JSON line for each job: messages/s, bytes of log/s, and the ratio to a pass of zlib.crc32 over the same files in
the same round; medians of all rounds. The store is synthetic: 16 queues, five properties a message. Jobs build on one
another: frame scan finds records by size alone, frames proves them (own offset, sums of lengths), checked takes each body's
CRC, columns and lines start from checked. Everything runs in one thread.

`--memory GiB` prints instead the peak memory of each way to read a log of that size, and `--sparse GiB` how long
`describe`, which `mqtool info` prints, takes on a sparse store of that size.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mqtool.formats import index_file
from mqtool.formats.commit_log import build_blank
from mqtool.records.frame_scan import scan_frames
from mqtool.records.frames import Frames, body_crc
from mqtool.store import Store, open_store
from mqtool.store.describe import describe
from mqtool.store.log.json_rows import json_lines
from tests.support.big_store import write_big_store
from tests.support.builder import encode

FEW = ("physical_offset", "topic", "queue_id", "queue_offset", "store_timestamp")
SOME = (*FEW, "tags", "keys", "unique_key", "body")
WINDOW = 8 << 20

WAYS: dict[str, Callable[[Store], object]] = {
    "batches": lambda store: [None for batch in store.batches()],
    "json lines": lambda store: [None for item in frames_of(store) if json_lines(item)],
    "messages": lambda store: [None for message in store.messages()],
    "describe": describe,
}


def frames_of(store: Store, *, check_crc: bool = True):
    return (item for item in store.commit_log.walk(crc=check_crc) if isinstance(item, Frames))


def windows(store: Store):
    log = store.commit_log
    for segment in log.segments:
        for at in range(segment.base, min(segment.end, log.max_offset), WINDOW):
            yield log.read(at, min(WINDOW, log.max_offset - at))


def scan_all(store: Store) -> None:
    for data in windows(store):
        start = data.find(b"\xda\xa3\x20\xa7") - 4
        scan_frames(memoryview(data), max(0, start))


def jobs(store: Store) -> dict[str, Callable[[], object]]:
    return {
        "read only": lambda: [None for _ in windows(store)],
        "zlib.crc32 of whole files": lambda: [zlib.crc32(data) for data in windows(store)],
        "crc32 of whole files": lambda: [body_crc(data) for data in windows(store)],
        "frame scan": lambda: scan_all(store),
        "frames": lambda: [None for _ in frames_of(store, check_crc=False)],
        "checked frames": lambda: [None for _ in frames_of(store)],
        f"{len(FEW)} columns": lambda: [None for _ in store.batches(FEW)],
        f"{len(SOME)} columns": lambda: [None for _ in store.batches(SOME)],
        "all columns": lambda: [None for _ in store.batches()],
        "all columns, unchecked": lambda: [None for _ in store.batches(check_crc=False)],
        "json lines": lambda: [json_lines(item) for item in frames_of(store)],
        "json lines without bodies": lambda: [json_lines(item, "none") for item in frames_of(store)],
    }


def measure(directory: Path, size: int, log_bytes: int, rounds: int) -> None:
    count = max(10_000, log_bytes // (size + 240))
    with open_store(write_big_store(directory / str(size), count, size=size)) as store:
        end = store.commit_log.max_offset
        seconds: dict[str, list[float]] = {}
        ratios: dict[str, list[float]] = {}
        for _ in range(rounds + 1):
            for name, job in jobs(store).items():
                start = time.perf_counter()
                job()
                seconds.setdefault(name, []).append(time.perf_counter() - start)
        for name, taken in seconds.items():
            pairs = zip(taken[1:], seconds["zlib.crc32 of whole files"][1:], strict=True)  # the first round warms up
            ratios[name] = [limit / one for one, limit in pairs]
            best = statistics.median(taken[1:])
            print(
                json.dumps(
                    {
                        "job": name,
                        "body": size,
                        "messages_s": round(count / best),
                        "bytes_s": round(end / best),
                        "of_zlib_pass": round(statistics.median(ratios[name]), 2),
                    }
                ),
                flush=True,
            )


def memory(directory: Path, gib: int) -> None:
    root = write_big_store(directory / "large", (gib << 30) // 1250, segment=1 << 30)
    for way in WAYS:
        command = [sys.executable, __file__, "--read", str(root), "--way", way]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="", flush=True)


def read(root: str, way: str) -> None:
    start = time.perf_counter()
    with open_store(root) as store:
        WAYS[way](store)
        taken = time.perf_counter() - start
        peak = int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024
        print(
            json.dumps(
                {
                    "job": way,
                    "log_bytes": store.commit_log.max_offset,
                    "seconds": round(taken, 2),
                    "peak_mib": round(peak),
                }
            )
        )


def sparse(directory: Path, gib: int) -> None:
    root = directory / "sparse"
    log = root / "commitlog"
    log.mkdir(parents=True)
    for number in range(gib):
        base = number << 30
        data = encode(base, b"body")
        data += build_blank((1 << 30) - len(data)) if number < gib - 1 else b""
        hollow(log / f"{base:020}", 1 << 30, data)
    for queue in range(100):
        path = root / "consumequeue" / f"topic{queue // 4}" / str(queue % 4)
        path.mkdir(parents=True)
        for start in range(0, 60_000_000, 6_000_000):
            hollow(path / f"{start:020}", 6_000_000, b"")
    (root / "index").mkdir()
    for number in range(20):
        size = index_file.file_size(index_file.DEFAULT_SLOTS, index_file.DEFAULT_ENTRIES)
        hollow(root / "index" / f"{20_240_101_000_000_000 + number}", size, b"")
    print(
        subprocess.run(
            [sys.executable, __file__, "--read", str(root), "--way", "describe"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout,
        end="",
    )


def hollow(path: Path, size: int, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.truncate(size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1024,100", help="bytes of a body, one store for each")
    parser.add_argument("--log", type=int, default=256, metavar="MiB", help="size of each log, about")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", type=int, metavar="GiB", help="measure memory on a log of that size")
    parser.add_argument("--sparse", type=int, metavar="GiB", help="describe a sparse store of that size")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    parser.add_argument("--way", choices=sorted(WAYS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read(options.read, options.way)
        return
    with tempfile.TemporaryDirectory(prefix="mqtool-bench-") as directory:
        if options.memory:
            memory(Path(directory), options.memory)
        elif options.sparse:
            sparse(Path(directory), options.sparse)
        else:
            for size in options.sizes.split(","):
                measure(Path(directory), int(size), options.log << 20, options.rounds)


if __name__ == "__main__":
    main()
