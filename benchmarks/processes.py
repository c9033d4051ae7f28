"""Processor time and memory of a process and of all that it has started, from /proc."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def descendants(process: int) -> Iterator[int]:
    """Yields a process and all below it that are alive."""
    yield process
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found = children.read_text().split()
        except OSError:
            continue
        for child in found:
            yield from descendants(int(child))


def cpu_seconds() -> float:
    """Of this process and all below it, the ended ones that were waited for included."""
    return sum(_ticks(process) for process in descendants(os.getpid())) / _TICK


def _ticks(process: int) -> int:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(int(field) for field in fields[11:15])  # utime, stime, and those of children that were waited for


def peaks(command: list[str], home: str) -> list[tuple[str, int]]:
    """Runs a command; returns the peak memory in bytes of each process below it, with the name of its program.

    Raises:
        CalledProcessError: it failed.
    """
    found: dict[int, tuple[str, int]] = {}
    with subprocess.Popen(command, cwd=home, stdout=subprocess.DEVNULL) as running:
        while running.poll() is None:
            for process in descendants(running.pid):
                seen = _peak(process)
                if seen is not None:
                    found[process] = seen
            time.sleep(0.1)
    if running.returncode:
        raise subprocess.CalledProcessError(running.returncode, command)
    return list(found.values())


def _peak(process: int) -> tuple[str, int] | None:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return None
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    program = "python" if status["Name"].startswith(Path(sys.executable).name[:6]) else status["Name"]
    return (program, int(status["VmHWM"].split()[0]) << 10) if "VmHWM" in status else None
