"""verify and rebuild: `python benchmarks/check.py [STORE] [--sizes 1024,100] [--log MiB] [--rounds N] [--rival NAME=COMMAND …]`.

Prints a JSON line for each job: messages/s, CPU seconds, peak memory of the largest process, and the ratio to a pass of
`records.frames.body_crc` over the same log in the same round; medians of all rounds. Jobs are whole commands as a user types them,
so starting Python and the worker processes counts; as where mqtool is installed, its modules are compiled. For two
processes `times_one` is how many times as fast as one they are.

Without STORE, synthetic ones are made, in a few seconds for each GiB. A rival is a shell command that does the same to the same store, with `{store}` for
its path; its last line on stdout is JSON with `rate` in messages/s. It runs in every round, and the ratios to it are printed:

    --rival 'recover=rocketmq java 5.5.0 StoreBench.java recover {store}'
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mqtool.records.frames import body_crc
from mqtool.store import open_store
from tests.support.big_store import write_big_store

ROOT = Path(__file__).resolve().parents[1]
WINDOW = 8 << 20
COMPILED = str(Path(tempfile.gettempdir()) / "mqtool-bench-compiled")
LARGE = 4096

JOBS = {
    "verify, 1 process": "verify {store} --jobs 1 --format json --progress none",
    "verify, 2 processes": "verify {store} --jobs 2 --format json --progress none",
    "rebuild queues, 1 process": "rebuild consumequeue {store} --jobs 1 --output {out} --progress none",
    "rebuild queues, 2 processes": "rebuild consumequeue {store} --jobs 2 --output {out} --progress none",
    "rebuild index, 1 process": "rebuild index {store} --jobs 1 --output {out} --progress none",
    "rebuild index, 2 processes": "rebuild index {store} --jobs 2 --output {out} --progress none",
    "dump, 1 process": "dump {store} --jobs 1 --format jsonl --progress none",
    "dump, 2 processes": "dump {store} --jobs 2 --format jsonl --progress none",
}


def crc_pass(store: str) -> float:
    with open_store(store) as opened:
        log = opened.commit_log
        started = time.perf_counter()
        for segment in log.segments:
            for at in range(segment.base, min(segment.end, log.max_offset), WINDOW):
                body_crc(log.read(at, min(WINDOW, log.max_offset - at)))
        return time.perf_counter() - started


def run(arguments: str, store: str) -> dict[str, float]:
    """Runs one command of mqtool; returns its seconds, CPU seconds, peak memory and exit code: 1 if there are findings."""
    with tempfile.TemporaryDirectory(prefix="mqtool-bench-") as directory:
        words = [word.format(store=store, out=f"{directory}/out") for word in arguments.split()]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", "mqtool", *words],
            {"PYTHONPYCACHEPREFIX": COMPILED, **environment, "PYTHONPATH": str(ROOT)},
            file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
        )
        started = time.perf_counter()
        _, status, usage = os.wait4(pid, 0)
        seconds = time.perf_counter() - started
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, 1):
        raise SystemExit(f"mqtool {arguments} failed")
    cpu = usage.ru_utime + usage.ru_stime
    return {"seconds": seconds, "cpu_s": cpu, "peak_mib": usage.ru_maxrss / 1024, "exit": code}


def add_metadata(store: Path) -> None:
    """Adds checkpoint and configuration: without them `verify` would also try out the repairs that it advises."""
    made = store.with_name("metadata")
    command = [sys.executable, "-m", "mqtool", "rebuild", "metadata", str(store), "--output", str(made)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    shutil.copytree(made, store, dirs_exist_ok=True)


def rate_of(command: str, store: str) -> float:
    result = subprocess.run(command.format(store=store), shell=True, check=True, stdout=subprocess.PIPE, text=True)
    return float(json.loads(result.stdout.strip().splitlines()[-1])["rate"])


def measure(store: str, label: str, rounds: int, rivals: dict[str, str], wanted: str) -> None:
    with open_store(store) as opened:
        count = sum(batch.num_rows for batch in opened.batches(["queue_id"], check_crc=False))
    jobs = {name: arguments for name, arguments in JOBS.items() if wanted in name}
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in jobs}
    rates: dict[str, list[float]] = {name: [] for name in rivals}
    for number in range(rounds + 1):  # the first round warms up
        limit = crc_pass(store)
        for name, arguments in jobs.items():
            found = run(arguments, store) | {"crc": limit, "load": os.getloadavg()[0]}
            if number:
                seen[name].append(found)
        for name, command in rivals.items():
            rate = rate_of(command, store)
            if number:
                rates[name].append(rate)
    for name, rate in rates.items():
        print(json.dumps({"rival": name, "store": label, "messages_s": round(statistics.median(rate))}))
    for name, found in seen.items():
        middle = {key: statistics.median(one[key] for one in found) for key in found[0]}
        row = {
            "job": name,
            "store": label,
            "messages_s": round(count / middle["seconds"]),
            "seconds": round(middle["seconds"], 2),
            "cpu_s": round(middle["cpu_s"], 2),
            "peak_mib": round(middle["peak_mib"]),
            "of_crc_pass": round(statistics.median(one["crc"] / one["seconds"] for one in found), 3),
            "load": round(middle["load"], 1),
        }
        if "2 processes" in name:
            alone = seen[name.replace("2 processes", "1 process")]
            both = zip(alone, found, strict=True)
            row["times_one"] = round(statistics.median(one["seconds"] / two["seconds"] for one, two in both), 2)
        for rival, rate in rates.items():
            pairs = zip(found, rate, strict=True)
            row[f"to_{rival}"] = round(statistics.median(count / one["seconds"] / other for one, other in pairs), 2)
        print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", nargs="?", help="a store; else synthetic ones")
    parser.add_argument("--sizes", default="1024,100", help="bytes of a body, one synthetic store for each")
    parser.add_argument("--log", type=int, default=512, metavar="MiB", help="size of each synthetic log, about")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", metavar="WORD", help="jobs whose name has this word")
    parser.add_argument("--rival", action="append", default=[], metavar="NAME=COMMAND")
    options = parser.parse_args()
    rivals = dict(rival.split("=", 1) for rival in options.rival)
    if options.store:
        measure(options.store, Path(options.store).name, options.rounds, rivals, options.only)
        return
    for size in map(int, options.sizes.split(",")):
        directory = Path(tempfile.mkdtemp(prefix="mqtool-bench-"))
        try:
            count = max(10_000, (options.log << 20) // (size + 240))
            segment = 1 << 30 if options.log >= LARGE else 1 << 28
            store = write_big_store(directory / "store", count, size=size, segment=segment, index=True)
            add_metadata(store)
            measure(str(store), f"{size} B", options.rounds, rivals, options.only)
        finally:
            shutil.rmtree(directory)


if __name__ == "__main__":
    main()
