"""Real stores harmed at random are read without a crash, and sound records around the harm are found.

`python -m tests.fuzz.test_read_fuzz 100000` goes on for as long as one likes; each failure prints its seed.
"""

import gc
import hashlib
import resource
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest

import mqtool
from mqtool.records.damage import Damage
from tests.fuzz.mutations import Mutator, fresh_copy
from tests.support.both_ways import open_and_verify_both_ways
from tests.support.exercise import ask_everything
from tests.support.stores import STORES, fixture
from tests.support.tiers import night

ROUNDS = 60
STORES_HERE = [
    "damage/bases/4.9.7-crash",
    "damage/bases/5.5.0-clean",
    "bcq-5.5.0",
    "hosts-5.5.0",
    "rollover-5.5.0",
    "propcrc-5.5.0",
]
SLOWEST = ("damage/bases/4.9.7-crash", "rollover-5.5.0")
MORE_MEMORY = 200 << 10
"""KiB that a whole run may take beyond what the first reading took."""


def digest(root: Path) -> str:
    """Names and bytes of everything."""
    found = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        found.update(str(path).encode() + (path.read_bytes() if path.is_file() else b""))
    return found.hexdigest()


def records_of(root: Path) -> dict[int, bytes]:
    """Every record's bytes by its physical offset."""
    with mqtool.open(root) as store:
        return {
            item.physical_offset: store.commit_log.read(item.physical_offset, item.store_size)
            for item in store.messages()
            if not isinstance(item, Damage)
        }


def check(root: Path, whole: dict[int, bytes], label: str) -> None:
    """Ask a harmed store everything; nothing raises, nothing is written, no record is made up."""
    before = digest(root)
    answers = ask_everything(root)
    assert digest(root) == before, label
    messages = answers.get("messages")
    if not isinstance(messages, tuple):
        return
    found, damage = messages
    assert found == sorted(found), label
    assert all(start.end <= after.start for start, after in pairwise(damage)), label
    inside = [at for at in found for item in damage if item.start < at < item.end]
    assert inside == [], label
    with mqtool.open(root) as store:
        made_up = [at for at in found if at not in whole and store.commit_log.read(at, 4) != b""]
    assert len(made_up) <= 2, label  # a moved part may be a record that is right where it is now


def harmed(name: str, seed: int, rounds: int) -> int:
    """Harm a store so many times, and check it each time; how much more memory that took."""
    with tempfile.TemporaryDirectory() as directory:
        root = fresh_copy(fixture(name) / "store", Path(directory) / "store")
        whole = records_of(root)
        mutator = Mutator(root, seed)
        check(root, whole, "nothing")
        gc.collect()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(rounds):
            said = mutator.harm()
            check(root, whole, f"store {name}, seed {seed}, round {number}: {said}")
            if number % 3 == 0:
                open_and_verify_both_ways(root)
            mutator.heal()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory


@pytest.mark.long
@pytest.mark.parametrize("name", [night(name) if name in SLOWEST else name for name in STORES_HERE])
def test_a_store_harmed_at_random_is_read_to_the_end(name):
    assert harmed(name, seed=1, rounds=ROUNDS) < MORE_MEMORY


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    names = [store.name for store in STORES if store.directory is not None and "/" not in store.name]
    every = [*(name for name in names if not name.startswith(("timer", "orders"))), *STORES_HERE]
    for turn in range(-(-wanted // ROUNDS)):
        assert harmed(every[turn % len(every)], seed=turn, rounds=ROUNDS) < MORE_MEMORY
        print(f"{(turn + 1) * ROUNDS} of {wanted}", end="\r", flush=True)
