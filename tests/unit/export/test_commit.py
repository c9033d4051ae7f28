"""Whatever step an export dies at, running it again gives every message exactly once."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.killed import KINDS
from tests.support.stores import copy_store
from tests.support.tiers import night

SHARED_MEMORY = Path("/dev/shm")
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A directory where fsync costs nothing, if the system has one."""
    if not os.access(SHARED_MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as directory:
        yield Path(directory)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("kind", [night(kind) if kind in {"first", "second"} else kind for kind in KINDS])
def test_an_export_killed_at_any_step_and_run_again_loses_and_repeats_nothing(kind: str, memory: Path) -> None:
    store = copy_store("rollover-5.5.0", memory)
    (memory / "tries").mkdir()
    command = [sys.executable, "-m", "tests.support.killed", str(store), str(memory / "tries"), kind]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    steps = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [step for step in steps if not (step["seen_ok"] and step["final_ok"] and step["again"] == 0)] == []
    assert [step["leftovers"] for step in steps if step["leftovers"]] == []
    assert len(steps) > 20
    assert [step["killed"] for step in steps] == [True] * (len(steps) - 1) + [False]
