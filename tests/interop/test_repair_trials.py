"""Fresh stores of real brokers, damaged and repaired by the printed advice and by `salvage`: the real store serves what is intact."""

import time

import pytest

from tests.support.repair_trials import STOPS, VERSIONS, judge, kinds_of, write_store

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.night]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("version", VERSIONS)
def test_all_intact_messages_are_served_after_the_advice_and_after_salvage(version, stop, rocketmq, in_memory):
    real, seed = rocketmq(version), int(time.time()) // 86_400
    written = write_store(real, in_memory / "one", seed, stop)
    other = write_store(real, in_memory / "other", seed + 1, stop)
    problems = {}
    for kind in kinds_of(version):
        place = in_memory / kind
        place.mkdir()
        row = judge(real, written, other, kind, seed, place)
        if row.problems:
            problems[kind] = row
    assert problems == {}, f"seed {seed}"
