"""Every command on stores of every kind, harmed at random: it ends in order, at once, and writes nowhere else.

`python -m tests.fuzz.test_command_fuzz 100000` makes that many runs of commands, prints each kind of failure once with
what reproduces it, and a summary. `python -m tests.fuzz.test_command_fuzz 100000 SEED` begins at another seed.
"""

import contextlib
import importlib.util
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mqtool.cli.app import run
from mqtool.cli.exits import ExitCode
from tests.fuzz import mutations
from tests.support.engine_faults import fast_directory, remove
from tests.support.stores import fixture

Tree = dict[str, bytes | None]
"""Bytes by path below the root; None for a directory without files."""

NAMES = [
    "txbits-4.9.7",
    "metadata-4.9.7",
    "metadata-5.5.0",
    "damage/bases/4.9.7-crash",
    "damage/bases/5.5.0-clean",
    "bcq-5.5.0",
    "hosts-5.5.0",
    "cqext-5.5.0",
    "timer-5.5.0",
    "compaction-5.5.0",
    "dledger-5.5.0",
    "rollover-5.5.0",
    "equeue-small",
    "tfchunk/plain",
    "tieredstore-5.5.0",
]
if importlib.util.find_spec("rocksdict") is not None:
    NAMES.append("rocksdb-cq-5.5.0")

ROWS = '{"topic": "Fuzz", "queue_id": 0, "body": "text", "keys": ["k0"], "delay_level": 3}\n'
SECONDS = 30
"""A command that takes more processor time hangs, and so does one that takes ten times as long by the clock."""
MORE_MEMORY = 1 << 20
"""KiB that all runs together may take."""

READ: tuple[tuple[str, ...], ...] = (
    ("info", "STORE"),
    ("dump", "STORE", "--format", "jsonl"),
    ("dump", "STORE/FILE"),
    ("get", "STORE", "0", "Orders/0@0"),
    ("find", "STORE", "--key", "k0"),
    ("find", "STORE", "--time", "2020-01-01T00:00:00Z..2040-01-01T00:00:00Z", "--limit", "3"),
    ("verify", "STORE"),
    ("verify", "STORE", "--format", "json"),
    ("report", "STORE", "-o", "OUT/report.html"),
    ("explain-start", "STORE", "--release", "4.9"),
    ("explain-start", "STORE", "--release", "5.5"),
    ("pending", "STORE", "--list"),
    ("offsets", "STORE"),
    ("plan", "offsets", "STORE", "--group", "*", "--to", "earliest", "--list", "-o", "OUT/offsets.json"),
    ("story", "STORE", "k0", "-o", "OUT/story.html"),
    ("diff", "STORE", "STORE"),
    ("clean", "STORE", "--dry-run"),
    ("plan", "recover", "STORE", "-o", "OUT/recover.json"),
    ("plan", "recover", "STORE", "--mode", "compatible", "-o", "OUT/compatible.json"),
    ("append", "STORE", "--from", "ROWS", "--dry-run"),
    ("rebuild", "all", "STORE", "--output", "OUT/rebuilt"),
    ("rebuild", "timer", "STORE", "--output", "OUT/timer"),
    ("plan", "rebuild", "all", "STORE", "-o", "OUT/plan.json"),
    ("plan", "truncate", "STORE", "-o", "OUT/truncate.json"),
    ("plan", "repair", "STORE", "--findings", "FINDINGS", "-o", "OUT/findings-plan.json"),
    ("salvage", "STORE", "-o", "OUT/salvaged"),
    ("salvage", "STORE", "-o", "OUT/compacted", "--compact", "--map", "OUT/map"),
    ("backup", "STORE", "-o", "OUT/backup"),
    ("restore", "OUT/backup", "-o", "OUT/restored"),
    ("restore", "STORE", "-o", "OUT/restored-store"),
    ("runbook", "run", "RB-03", "STORE"),
    ("convert", "dledger", "STORE", "-o", "OUT/plain"),
    ("convert", "rocksdb-queues", "STORE", "-o", "OUT/files"),
    ("replay", "STORE", "--into", "OUT/replayed"),
    ("export", "STORE", "--output", "OUT/lake"),
)
"""They only read the store."""
WRITE: tuple[tuple[str, ...], ...] = (
    ("apply", "OUT/recover.json", "--yes"),
    ("apply", "OUT/compatible.json", "--yes"),
    ("append", "STORE", "--from", "ROWS"),
    ("apply", "OUT/plan.json", "--yes"),
    ("undo", "STORE", "--yes"),
    ("discard-undo", "STORE", "--yes"),
    ("clean", "STORE", "--yes", "--allow-unread"),
)


@dataclass
class Tally:
    """What a fuzz came to.

    Attributes:
        runs: commands that were run.
        codes: how they ended.
        failures: what reproduces it, by kind of failure.
        slowest: seconds, and which run that was.
    """

    runs: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    slowest: tuple[float, str] = (0.0, "")


class _TooLongError(BaseException):
    """A command did not end in time."""


def tree_of(name: str) -> Tree:
    """The files of a store, without those above 1 MiB."""
    root = fixture(name) / "store"
    paths = sorted(path for path in root.rglob("*") if path.suffix != ".zst")
    return {
        path.relative_to(root).as_posix(): path.read_bytes() if path.is_file() else None
        for path in paths
        if path.is_dir() or path.stat().st_size <= 1 << 20
    }


def lay(tree: Tree, root: Path) -> None:
    """Write a tree."""
    root.mkdir()
    for name, data in tree.items():
        path = root / name
        if data is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def harm(root: Path, source: random.Random) -> str:
    """Change one to three files; return in words what was done."""
    said = []
    for _ in range(source.choice((1, 1, 1, 2, 3))):
        files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
        if not files:
            break
        path = source.choice(files)
        kind = source.choice(_HARMS)
        said.append(f"{kind.__name__} {path.relative_to(root)}")
        kind(source, path)
    return ", ".join(said)


def content(source: random.Random, path: Path) -> None:
    """Other bytes."""
    data = path.read_bytes()
    path.write_bytes(source.choice(mutations.KINDS)(source, data) if data else source.randbytes(9))


def emptied(_: random.Random, path: Path) -> None:
    """No byte is left."""
    path.write_bytes(b"")


def cut(source: random.Random, path: Path) -> None:
    """Shorter."""
    os.truncate(path, source.randrange(path.stat().st_size + 1))


def grown(source: random.Random, path: Path) -> None:
    """Longer by some bytes, or twice as long."""
    data = path.read_bytes()
    path.write_bytes(data + source.choice((bytes(7), data, source.randbytes(20))))


def doubled(source: random.Random, path: Path) -> None:
    """The same bytes under another name, too."""
    _other(source, path).write_bytes(path.read_bytes())


def renamed(source: random.Random, path: Path) -> None:
    """Another name."""
    path.rename(_other(source, path))


def deleted(_: random.Random, path: Path) -> None:
    """Not there."""
    path.unlink()


def swapped(source: random.Random, path: Path) -> None:
    """The bytes of a file of another kind."""
    others = sorted(other for other in path.parent.parent.rglob("*") if other.is_file() and not other.is_symlink())
    path.write_bytes(source.choice(others or [path]).read_bytes())


def special(source: random.Random, path: Path) -> None:
    """A directory, a FIFO, or a link in its place."""
    path.unlink()
    source.choice(
        (
            path.mkdir,
            lambda: os.mkfifo(path),
            lambda: path.symlink_to(path),
            lambda: path.symlink_to("/dev/zero"),
            lambda: path.symlink_to("absent"),
        )
    )()


def hostile_mark(source: random.Random, path: Path) -> None:
    """A FIFO, a directory or bytes under a name that has a meaning."""
    root = next((parent for parent in path.parents if parent.name == "store"), path.parent)
    named = root / source.choice(("abort", "lock", "checkpoint", "commitlog", "consumequeue", "index", ".mqtool"))
    if named.exists():
        return
    source.choice((lambda: os.mkfifo(named), named.mkdir, lambda: named.write_bytes(source.randbytes(5))))()


def bad_topic(source: random.Random, path: Path) -> None:
    """A name of the store that leads elsewhere, wherever it stands in the file."""
    data = path.read_bytes()
    names = [name.encode() for name in re.findall(r"[A-Za-z_]{5,40}", data[:20000].decode("latin-1"))]
    if names:
        name = source.choice(names)
        bad = source.choice((b"../../../evil", b"/tmp/evil", b"..", b"\0\0\0\0", b"\xff\xfe", b"a/b/c"))
        path.write_bytes(data.replace(name, bad[: len(name)].ljust(len(name), b"/")))


def _other(source: random.Random, path: Path) -> Path:
    size = path.stat().st_size
    base = int(path.name) if path.name.isascii() and path.name.isdigit() else 0
    names = (f"{(base + size) % (1 << 63):020d}", f"{base + 1:020d}", "0" * 20, "9" * 20, f"{path.name}.bak", "-1", "x")
    target = path.with_name(source.choice(names))
    return path if target.is_dir() else target


_HARMS: tuple[Callable[[random.Random, Path], None], ...] = (
    content,
    content,
    content,
    emptied,
    emptied,
    cut,
    grown,
    doubled,
    renamed,
    deleted,
    swapped,
    special,
    hostile_mark,
    bad_topic,
)


def contents(root: Path) -> dict[str, tuple[int, int]]:
    """What a command that only reads must leave as it is."""
    found = {}
    for path in root.rglob("*"):
        status = path.lstat()
        found[path.relative_to(root).as_posix()] = (status.st_mode, status.st_mtime_ns if _is_file(status) else 0)
    return found


def _is_file(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode)


def call(arguments: list[str]) -> tuple[int, bytes, str]:
    """Runs a command in this process; returns exit code, stdout and stderr."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="surrogateescape"), io.StringIO()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(10 * SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(["--debug", *arguments])
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
    out.flush()
    return code, out.buffer.getvalue(), err.getvalue()  # type: ignore[attr-defined]


@contextlib.contextmanager
def alarms() -> Iterator[None]:
    """Ends a command that takes too long."""

    def ring(*_: object) -> None:
        raise _TooLongError

    signals = (signal.SIGALRM, signal.SIGPROF)
    before = [signal.signal(number, ring) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def kind_of(stderr: str) -> str:
    """The last place of ours in a traceback, and the error: what tells one failure from another."""
    places = re.findall(r'File "[^"]*(mqtool/[^"]+)", line (\d+), in (\w+)', stderr)
    errors = [line for line in stderr.splitlines() if re.match(r"\w[\w.]*(Error|Exception|Overflow)\b", line)]
    return f"{':'.join(places[-1]) if places else '?'} {errors[-1][:160] if errors else stderr[-160:]}"


def fuzz_store(name: str, seed: int, base: Path, tally: Tally, commands: int | None = None) -> None:
    """Harms a store once and runs commands on it: all, or so many of them by the seed."""
    source = random.Random(seed)
    root, out = base / "given" / "store", base / "out"
    for path in (root.parent, out):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
    lay(tree_of(name), root)
    if source.random() < 0.3:
        (root / "abort").touch()
    harms = harm(root, source)
    files = sorted(path for path in root.rglob("*") if not path.is_dir())
    (out / "rows.jsonl").write_text(ROWS)
    before = contents(base / "given")
    read = READ if commands is None else source.sample(READ, commands)
    write = source.sample(WRITE, 3 if commands is None else 1)
    for words in (*read, *write):
        places = {
            "STORE": str(root),
            "STORE/FILE": str(source.choice(files or [root])),
            "ROWS": str(out / "rows.jsonl"),
            "FINDINGS": str(out / "findings.json"),
        }
        arguments = [places.get(word, word.replace("OUT", str(out))) for word in words]
        label = f"{' '.join(words)}: {name}, seed {seed}: {harms}"
        begin = time.monotonic()
        try:
            code, stdout, stderr = call(arguments)
        except _TooLongError:
            tally.failures.setdefault(f"hangs: {words[0]}", label)
            continue
        finally:
            tally.runs += 1
        tally.slowest = max(tally.slowest, (time.monotonic() - begin, label))
        tally.codes[code] += 1
        if code not in {ExitCode.OK, ExitCode.NO, ExitCode.USAGE, ExitCode.REFUSED, ExitCode.IO_ERROR}:
            tally.failures.setdefault(kind_of(stderr), label)
        if words[0] == "verify" and "json" in words:
            (out / "findings.json").write_bytes(stdout)
            json.loads(stdout)
        if words in READ and contents(base / "given") != before:
            tally.failures.setdefault(f"writes: {words[0]}", label)
            before = contents(base / "given")
        strange = {path.name for path in base.iterdir()} - {"given", "out"}
        strange |= {path.name for path in (base / "given").iterdir()} - {"store"}
        if strange:
            tally.failures.setdefault(f"writes outside: {words[0]} {min(strange)}", label)


def fuzz(runs: int, seed: int, on_store: Callable[[Tally], None], commands: int | None = None) -> Tally:
    """Harms stores until so many commands were run."""
    tally, base = Tally(), fast_directory()
    try:
        with alarms():
            while tally.runs < runs:
                fuzz_store(NAMES[seed % len(NAMES)], seed, base, tally, commands)
                on_store(tally)
                seed += 1
    finally:
        remove(base)
    return tally


@pytest.mark.parametrize("seed", range(len(NAMES)), ids=NAMES)
def test_commands_on_a_harmed_store_end_in_order(seed, in_memory):
    tally = Tally()
    with alarms():
        fuzz_store(NAMES[seed], seed, in_memory, tally, commands=3)
    assert tally.failures == {}
    assert tally.runs == 4


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    seen: set[str] = set()

    def tell(tally: Tally) -> None:
        for kind in set(tally.failures) - seen:
            print(f"{kind}\n    {tally.failures[kind]}", flush=True)
        seen.update(tally.failures)
        print(f"{tally.runs} of {wanted}", end="\r", file=sys.stderr, flush=True)

    result = fuzz(wanted, first, tell)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"{result.runs} runs, {len(result.failures)} kinds of failure, slowest {result.slowest[0]:.1f} s "
        f"({result.slowest[1]}), {memory} MiB, exit codes {dict(sorted(result.codes.items()))}"
    )
    sys.exit(bool(result.failures))
