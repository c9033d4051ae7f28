"""Fills docs/performance.md from a run: `python benchmarks/page.py [--messages N] [--log MiB]`.

Runs `read.py`, `check.py`, `engine_append.py` and `engine_read.py` on synthetic stores in a temporary directory, and writes
their rates with machine, date, load and versions between the markers of the page.
"""

import argparse
import datetime as dt
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "performance.md"
LIBRARIES = ("numpy", "pyarrow", "orjson")


def machine() -> Iterator[str]:
    """Yields the rows that describe where and when."""
    info = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.*)$", info.read_text("utf-8"), re.MULTILINE) if info.exists() else []
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    sys.path.insert(0, str(ROOT))
    from mqtool import __version__

    versions = [f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES if importlib.util.find_spec(name)]
    yield f"| Date | {dt.datetime.now(dt.UTC):%Y-%m-%d} |"
    yield f"| Machine | {names[0] if names else platform.machine()}, {os.cpu_count()} cores, {memory} GiB of memory |"
    yield f"| System | {platform.system()} {platform.release()} |"
    yield f"| Versions | mqtool {__version__}, Python {platform.python_version()}, {', '.join(versions)} |"
    yield f"| Load before the run | {os.getloadavg()[0]:.1f} |"


def run(script: str, *arguments: str) -> list[dict[str, Any]]:
    """Runs a benchmark; returns the lines that it prints."""
    command = [sys.executable, str(ROOT / "benchmarks" / script), *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"{script} failed:\n{result.stderr}")
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def text(messages: int, log: int) -> str:
    """Returns the generated part of the page."""
    lines = ["", "| | |", "|---|---|", *machine(), ""]
    with tempfile.TemporaryDirectory(prefix="mqtool-bench-") as scratch:
        reading = run("read.py", "--sizes", "1024", "--log", str(log), "--rounds", "1")
        checking = run("check.py", "--sizes", "1024", "--log", str(log), "--rounds", "1")
        appends = [
            run("engine_append.py", f"{scratch}/{batch}", "size=1024", f"messages={messages}", f"batch={batch}")[0]
            for batch in ("1", "32", "many")
        ]
        gets = run("engine_read.py", f"{scratch}/read", f"messages={messages}")
    lines += [
        f"### Reading a log of {log} MiB, one process",
        "",
        "| Job | Messages/s | Speed relative to a pass of zlib.crc32 |",
    ]
    lines += [
        "|---|---:|---:|",
        *(f"| {row['job']} | {row['messages_s']:,} | {row['of_zlib_pass']} |" for row in reading),
        "",
    ]
    lines += [
        f"### Commands on a log of {log} MiB, start included",
        "",
        "| Command | Messages/s | CPU, s |",
        "|---|---:|---:|",
    ]
    lines += [f"| {row['job']} | {int(_rate(row)):,} | {row.get('cpu_s', '')} |" for row in checking if _rate(row)]
    lines += ["", f"### Engine, {messages:,} messages of 1 KiB", ""]
    lines += ["| Job | Messages/s | CPU, µs a message |", "|---|---:|---:|"]
    lines += [
        f"| append, batch {row['batch']} | {row['rate']:,} | {row['cpu_s'] * 1e6 / row['messages']:.1f} |"
        for row in appends
    ]
    lines += [f"| {row['job']} | {row['rate']:,} | {row['cpu_us']} |" for row in gets if "rate" in row]
    return "\n".join([*lines, "", ""])


def replace(name: str, generated: str) -> None:
    """Writes a generated part of the page.

    Args:
        name: which one, as in its marker.
        generated: its lines.
    """
    marked = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- /generated -->)", re.DOTALL)
    PAGE.write_text(marked.sub(lambda match: match[1] + generated + match[2], PAGE.read_text("utf-8")), "utf-8")


def _rate(row: dict[str, Any]) -> float:
    return float(row.get("messages_s") or row.get("rate") or 0)


def main() -> None:
    """Runs the benchmarks and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=200_000, help="messages of the engine's benchmarks")
    parser.add_argument("--log", type=int, default=256, metavar="MiB", help="size of the logs to read")
    options = parser.parse_args()
    replace("run", text(options.messages, options.log))


if __name__ == "__main__":
    main()
