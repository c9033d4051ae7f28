"""DLedger logs, EQueue, EventStore, compacted topics, timers and queues in RocksDB, harmed at random: values or one clear error, no write.

`python -m tests.fuzz.test_sibling_fuzz 100000` goes on for as long as one likes; each failure prints its seed.
"""

import contextlib
import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

import mqtool
from mqtool.convert import dledger, queues
from mqtool.errors import MqtoolError
from mqtool.rebuild.timer import rebuild_timer
from mqtool.records.damage import Damage
from mqtool.recovery import predict
from mqtool.siblings.registry import Kind, recognise
from mqtool.store.target import open_target
from mqtool.verify.store import verify
from tests.fuzz.mutations import Mutator, fresh_copy
from tests.fuzz.test_read_fuzz import digest
from tests.support.stores import fixture, unpack

ROUNDS = 10
NAMES = ["dledger-5.5.0", "dledger-mixed-4.9.7", "compaction-5.5.0", "timer-5.5.0", "equeue-small", "tfchunk/plain"]
if importlib.util.find_spec("rocksdict") is not None:
    NAMES.append("rocksdb-cq-5.5.0")


def small_copy(name: str, target: Path) -> Path:
    """A copy whose DLedger index is cut to its used part: the rest is 160 MB of zeros."""
    root = fresh_copy(fixture(name) / "store", target)
    for packed in root.glob("dledger-*/index/*.zst"):
        unpack(packed, packed.with_suffix(""))
        with packed.with_suffix("").open("r+b") as file:
            file.truncate(32 * 400)
        packed.unlink()
    for packed in root.rglob("*.zst"):
        packed.unlink()
    return root


def ask(root: Path, out: Path) -> None:
    """Everything that this part can do with a store; our own errors are answers."""
    with contextlib.suppress(MqtoolError), mqtool.open(root) as store:
        assert sum(1 for _ in store.messages()) >= 0
        for work in (
            verify,
            lambda one: dledger.convert(one, out / "plain"),
            lambda one: rebuild_timer(one, out / "timer"),
            lambda one: queues.into_files(one, out / "files"),
            lambda one: queues.into_rocksdb(one, out / "rocks"),
        ):
            with contextlib.suppress(MqtoolError):
                work(store)
    with contextlib.suppress(MqtoolError):
        predict(root, "5.5")
    kind = recognise(root)
    if kind is not None:
        ask_kind(kind, root, out)
    for part in ("compaction/compactionLog/Compact/0", "dledger-n0"):
        if (root / part).is_dir():
            with contextlib.suppress(MqtoolError):
                for found in open_target(root / part).stores:
                    with found:
                        assert sum(1 for _ in found.messages()) >= 0


def ask_kind(kind: Kind, root: Path, out: Path) -> None:
    """Everything that can be done with a store of another system; batches hold what rows hold."""
    with contextlib.suppress(MqtoolError), kind.open(root) as opened:
        for table in opened.tables:
            rows = sum(not isinstance(row, Damage) for row in opened.rows(table.name))
            found = opened.batches(table.name)
            assert found is None or sum(0 if isinstance(one, Damage) else one.num_rows for one in found) == rows
        for work in (
            lambda: list(opened.verify()),
            opened.layout,
            opened.explain,
            lambda: opened.salvage(None),
            lambda: opened.rebuild(out / "queues", lambda _: None),
        ):
            with contextlib.suppress(MqtoolError):
                work()


def harmed(name: str, seed: int, rounds: int) -> int:
    """Harm a store so many times, and ask it everything each time; how often it answered and stayed as it was."""
    unharmed = 0
    with tempfile.TemporaryDirectory() as directory:
        root, out = small_copy(name, Path(directory) / "store"), Path(directory) / "out"
        mutator = Mutator(root, seed)
        for number in range(rounds):
            label = f"store {name}, seed {seed}, round {number}: {mutator.harm()}"
            before = digest(root)
            out.mkdir()
            try:
                ask(root, out)
            except Exception as error:
                raise AssertionError(label) from error
            assert digest(root) == before, label
            unharmed += 1
            shutil.rmtree(out)
            mutator.heal()
    return unharmed


@pytest.mark.parametrize("name", NAMES)
def test_a_sibling_harmed_at_random_is_read_or_refused(name):
    assert harmed(name, seed=1, rounds=ROUNDS) == ROUNDS


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for turn in range(-(-wanted // ROUNDS)):
        harmed(NAMES[turn % len(NAMES)], seed=turn, rounds=ROUNDS)
        print(f"{(turn + 1) * ROUNDS} of {wanted}", end="\r", flush=True)
