"""Commands killed between two system calls: a fork of this process runs the command and sends itself SIGKILL at a call.

Every call that changes what is on disk counts: files opened to be written, given a size, written, synced, linked, renamed
and removed, directories made and removed. The kill comes just before the call of a number. What is written through a
mapping is on disk without a call; it counts as part of the call before. Calls elsewhere than below a given directory do
not count: a preview in a temporary directory changes nothing that the next run finds.
"""

import io
import os
import pickle
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import mqtool
from mqtool.cli.app import run
from mqtool.records.damage import Damage

STEP = int(os.environ.get("MQTOOL_EVERY_KILL", "0"))
"""Kill at each call, at every so many, or (0) at some."""

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

    def __init__(self, below: Path, dies_at: int) -> None:
        self.calls = 0
        self._below = f"{os.path.realpath(below)}/"
        self._dies_at = dies_at

    def count(self, *places: Any) -> None:
        """Counts a call that names one of the places; a place is a path or a descriptor."""
        if not any(self._is_below(place) for place in places):
            return
        self.calls += 1
        if self.calls == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def _is_below(self, place: Any) -> bool:
        if isinstance(place, int):
            return str(Path(f"/proc/self/fd/{place}").readlink()).startswith(self._below)
        if not isinstance(place, str | bytes | os.PathLike):
            return False
        path = Path(os.fsdecode(place))
        return f"{path.parent.resolve()}/{path.name}".startswith(self._below)  # a link itself, not where it leads

    def watch(self) -> None:
        """Puts itself before every call; only a process that ends soon does that."""
        for name in CALLS:
            setattr(os, name, self._counted(getattr(os, name)))
        system_open, plain_open = os.open, io.open

        def opened(path: Any, flags: int, *more: Any, **named: Any) -> int:
            if flags & _WRITES:
                self.count(path, named.get("dir_fd"))
            return system_open(path, flags, *more, **named)

        def opened_plainly(file: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
            if set(mode) & set("wxa+"):
                self.count(file)
                found = plain_open(file, mode, *more, **named)
                self.count(file)  # created or emptied, and nothing written yet
                return found
            return plain_open(file, mode, *more, **named)

        os.open = opened
        io.open = opened_plainly  # what pathlib uses

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        paths = 2 if call.__name__ in {"rename", "replace", "link", "symlink"} else 1

        def counted(*arguments: Any, **named: Any) -> Any:
            self.count(*arguments[:paths], named.get("dir_fd"))
            return call(*arguments, **named)

        return counted


def run_in_fork(arguments: list[str], below: Path, dies_at: int = 0) -> tuple[int, int]:
    """Runs a command in a fork; returns its exit code, negative for a signal, and how many calls below a directory it made."""

    def count() -> tuple[int, int]:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
        sys.stdout, sys.stderr = io.open(1, "w", closefd=False), io.open(2, "w", closefd=False)  # noqa: SIM115, UP020
        counter = _Counter(below, dies_at)
        counter.watch()
        return run(arguments), counter.calls

    code, found = _forked(count)
    return found or (code, 0)


def asked_in_fork(question: Callable[[], Any]) -> Any:
    """Returns what a function returns in a fork: this process gets none of the threads that the function starts."""
    code, found = _forked(question)
    assert code == 0
    return found


def _forked(action: Callable[[], Any]) -> tuple[int, Any]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code, write = 99, os.write
        try:
            told = pickle.dumps(action())
            while told:
                told = told[write(writer, told) :]
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, pickle.loads(told) if code == 0 else None


def points(calls: int, wanted: int) -> list[int]:
    """Some calls to die at, from the first to the last."""
    return sorted({1 + number * (calls - 1) // (wanted - 1) for number in range(wanted)})


def contents(root: Path) -> dict[str, bytes | None]:
    """Bytes by name; a lock is nobody's content."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
        if path.name != "lock"
    }


def fill(words: Sequence[str], root: Path, out: Path) -> list[str]:
    """The words with the places of this run."""
    names = {"STORE": root, "ROWS": root.parent / "rows.jsonl", "BACKUP": root.parent / "backup", "OUT": out}
    filled = []
    for word in words:
        first, slash, rest = word.partition("/")
        filled.append(f"{names[first]}{slash}{rest}" if first in names else word)
    return filled


def fresh(pristine: Path, root: Path) -> None:
    """Makes a store as it was, in the same directory: a plan that was made for it is still its plan."""
    root.mkdir(exist_ok=True)
    for path in root.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(pristine, root, dirs_exist_ok=True)


def kills(words: Sequence[str], root: Path, out: Path, before: Callable[[], object]) -> Iterator[int]:
    """Yields each point at which a command was killed, on a store as `before` leaves it.

    All that the command changes lies where the store does.
    """
    before()
    calls = run_in_fork(fill(words, root, out), root.parent)[1]
    assert calls > 1
    killed = 0
    for point in range(1, calls + 1, STEP) if STEP else points(calls, 4):
        before()
        code, _ = run_in_fork(fill(words, root, out), root.parent, point)
        if code == -signal.SIGKILL:  # threads of a store make some calls more or fewer
            killed += 1
            yield point
    print(f"{words[0]}: {calls} calls, killed at {killed}")


def messages_of(root: Path) -> list[tuple[str, int, int, bytes]]:
    """Topic, queue, queue offset and body of each message, in the order of the log."""
    found = []
    with mqtool.open(root) as opened:
        for item in opened.messages():
            assert not isinstance(item, Damage)
            found.append((item.topic, item.queue_id, item.queue_offset, item.body))
    return found
