"""Fresh stores of real brokers, damaged and repaired by the printed advice and by `salvage`: the real store serves what is intact."""

import time

import pytest

from tests.support.repair_trials import STOPS, VERSIONS, judge, kinds_of, prepare

pytestmark = [pytest.mark.interop, pytest.mark.slow]

IN_EVERY_RUN = ("bits", "missing-light-queues", "topic-renamed")
"""None of them takes anything from another store."""


def problems_of(rocketmq, place, seed, stop, kinds):
    trial = prepare(rocketmq, place, seed, stop, with_other=kinds != IN_EVERY_RUN)
    rows = {kind: judge(trial, kind, place / kind) for kind in kinds}
    return {kind: row for kind, row in rows.items() if row.problems}


@pytest.mark.timeout(900)
def test_repairs_of_every_run_serve_every_intact_message(rocketmq, in_memory):
    assert problems_of(rocketmq("5.5.0"), in_memory, 1, "killed", IN_EVERY_RUN) == {}


@pytest.mark.night
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("version", VERSIONS)
def test_all_intact_messages_are_served_after_the_advice_and_after_salvage(version, stop, rocketmq, in_memory):
    seed = int(time.time()) // 86_400
    problems = problems_of(rocketmq(version), in_memory, seed, stop, kinds_of(version))
    assert problems == {}, f"seed {seed}"
