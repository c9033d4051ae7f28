"""Processes that are killed while they write: nothing acknowledged under SYNC_FLUSH is lost, and the store is clean.

`benchmarks/engine_kills.py` does the same a thousand times.
"""

import random

import pytest

from tests.support.engine_faults import fast_directory, remove
from tests.support.engine_kills import Victim

KILLS = 6


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_what_was_acknowledged_before_a_kill_is_there_after_it(seed):
    directory = fast_directory()
    try:
        victim = Victim(directory / "store", random.Random(seed))
        for _ in range(KILLS):
            victim.run()
        assert victim.killed == KILLS
        assert victim.acknowledged
    finally:
        remove(directory)
