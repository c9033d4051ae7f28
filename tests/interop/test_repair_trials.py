"""Fresh stores of real brokers, damaged and repaired by the printed advice and by `salvage`: the real store serves what is intact."""

import time

import pytest

from tests.support.repair_trials import STOPS, VERSIONS, judge, kinds_of, write_store
from tests.support.tiers import NIGHT

pytestmark = [pytest.mark.interop, pytest.mark.slow]

IN_EVERY_RUN = {
    "4.9.7-killed": ("bits", "foreign-segment", "missing-light-queues", "grown-segment", "swapped-blocks", "truncated-segment"),
    "5.5.0-clean": ("none", "zero-page", "missing-batch-records", "foreign-topics", "queues-exchanged", "renamed-segments"),
}  # fmt: skip
CASES = [
    pytest.param(
        version,
        stop,
        kinds if NIGHT else IN_EVERY_RUN[f"{version}-{stop}"],
        marks=pytest.mark.xdist_group(f"trials-{version}-{stop}"),
    )
    for version in VERSIONS
    for stop in STOPS
    for kinds in [kinds_of(version)]
    if NIGHT or f"{version}-{stop}" in IN_EVERY_RUN
]


@pytest.mark.timeout(3600 if NIGHT else 600)
@pytest.mark.parametrize(("version", "stop", "kinds"), CASES)
def test_all_intact_messages_are_served_after_the_advice_and_after_salvage(version, stop, kinds, rocketmq, in_memory):
    real, seed = rocketmq(version), int(time.time()) // 86_400 if NIGHT else 1
    written = write_store(real, in_memory / "one", seed, stop)
    other = write_store(real, in_memory / "other", seed + 1, stop)
    problems = {}
    for kind in kinds:
        place = in_memory / kind
        place.mkdir()
        row = judge(real, written, other, kind, seed, place)
        if row.problems:
            problems[kind] = row
    assert problems == {}, f"seed {seed}"
