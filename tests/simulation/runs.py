"""The kinds of runs, by name; each run has a process and a directory of its own."""

import gc
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.simulation.broker import BrokerRun
from tests.simulation.engine import EngineRun
from tests.support.engine_faults import fast_directory, remove


def _engine(root: Path, seed: int) -> int:
    run = EngineRun(root, seed)
    run.run()
    return run.faults


def _broker(root: Path, seed: int) -> int:
    run = BrokerRun(root, seed)
    run.run()
    return run.faults


KINDS: dict[str, Callable[[Path, int], int]] = {"engine": _engine, "broker": _broker}


def simulate(kind: str, seed: int) -> int:
    """Does one run; returns how many faults there were.

    A child process does it, since a killed process leaves tasks behind that must never run on, not even to be
    cleaned up.

    Raises:
        AssertionError: an invariant does not hold; the text is the child's traceback.
    """
    made = fast_directory()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _report(kind, seed, made / "store", writer)
    os.close(writer)
    try:
        with os.fdopen(reader) as pipe:
            said = pipe.read()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, f"--kind {kind} --seed {seed}\n{said}"
        return int(said)
    finally:
        remove(made)


def _report(kind: str, seed: int, root: Path, writer: int) -> None:
    """Does one run in the child, writes its outcome, and ends the process."""
    code = 1
    gc.disable()  # what a killed process left must not be finished by the collector
    try:
        said, code = str(KINDS[kind](root, seed)), 0
    except BaseException:  # noqa: BLE001 - the parent reports it
        said = traceback.format_exc()
    sys.stderr.flush()
    os.write(writer, said.encode()[-60_000:])
    os._exit(code)
