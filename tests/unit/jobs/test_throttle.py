"""A rate that is kept, on a clock of the test's own."""

import pytest

from mqtool.jobs.progress import Throttle


class Clock:
    """Passes while somebody sleeps or works."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        assert seconds > 0
        self.now += seconds


def run(clock, throttle, work_seconds):
    """Seconds that it takes to get 10 units through for each piece of work."""
    begun = clock.now
    for seconds in work_seconds:
        clock.now += seconds
        throttle.spend(10)
    return clock.now - begun


@pytest.mark.parametrize(
    ("makes_up", "expected"),
    [
        (False, 0 + 1 + 5 + 1 + 1),  # the five seconds of the second piece are lost
        (True, 5 + 1),  # 1 s is paid when the second piece begins; after its 5 s the third one's second is paid too
    ],
)
def test_lost_time_is_made_up_for_only_where_that_is_asked_for(makes_up, expected):
    clock = Clock()
    throttle = Throttle(10, makes_up=makes_up, clock=clock, sleep=clock.sleep)
    assert run(clock, throttle, [0, 5, 0]) == pytest.approx(expected)


def test_without_a_rate_nothing_waits_and_all_is_reported():
    clock, counts = Clock(), []
    throttle = Throttle(None, counts.append, clock=clock, sleep=clock.sleep)
    assert run(clock, throttle, [0, 0]) == 0
    assert counts == [10, 10]
