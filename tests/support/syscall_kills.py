"""Commands killed between two system calls: a fork of this process runs the command and sends itself SIGKILL at a call.

Every call that changes what is on disk counts: files opened to be written, given a size, written, synced, linked, renamed
and removed, directories made and removed. The kill comes just before the call of a number. What is written through a
mapping is on disk without a call; it counts as part of the call before.
"""

import io
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mqtool.cli.app import run

CALLS = (
    "ftruncate",
    "truncate",
    "pwrite",
    "write",
    "posix_fallocate",
    "rename",
    "replace",
    "unlink",
    "remove",
    "mkdir",
    "rmdir",
    "link",
    "symlink",
    "fsync",
    "fdatasync",
)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class _Counter:
    """Counts calls, and kills this process before the one of a number."""

    def __init__(self, dies_at: int) -> None:
        self.calls = 0
        self._dies_at = dies_at

    def count(self) -> None:
        self.calls += 1
        if self.calls == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self) -> None:
        """Puts itself before every call; only a process that ends soon does that."""
        for name in CALLS:
            setattr(os, name, self._counted(getattr(os, name)))
        system_open, plain_open = os.open, io.open

        def opened(path: Any, flags: int, *more: Any, **named: Any) -> int:
            if flags & _WRITES:
                self.count()
            return system_open(path, flags, *more, **named)

        def opened_plainly(file: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
            if set(mode) & set("wxa+"):
                self.count()
                found = plain_open(file, mode, *more, **named)
                self.count()  # created or emptied, and nothing written yet
                return found
            return plain_open(file, mode, *more, **named)

        os.open = opened
        io.open = opened_plainly  # what pathlib uses

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            self.count()
            return call(*arguments, **named)

        return counted


def run_in_fork(arguments: list[str], dies_at: int = 0) -> tuple[int, int]:
    """Runs a command in a fork; returns its exit code, negative for a signal, and how many calls it made."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _child(arguments, dies_at, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, int(told or b"0")


def _child(arguments: list[str], dies_at: int, writer: int) -> None:
    code = 99
    try:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
        sys.stdout, sys.stderr = io.open(1, "w", closefd=False), io.open(2, "w", closefd=False)  # noqa: SIM115, UP020
        write, counter = os.write, _Counter(dies_at)
        counter.watch()
        code = run(arguments)
        write(writer, str(counter.calls).encode())
    finally:
        os._exit(code)


def points(calls: int, wanted: int) -> list[int]:
    """Calls to die at: all of them if so many are wanted, else some from the first to the last."""
    if wanted >= calls:
        return list(range(1, calls + 1))
    return sorted({1 + number * (calls - 1) // (wanted - 1) for number in range(wanted)})


def contents(root: Path) -> dict[str, bytes | None]:
    """Bytes by name; a lock is nobody's content."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
        if path.name != "lock"
    }
