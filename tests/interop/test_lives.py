"""Some 200 scripted lives that a real broker and real clients give to messages now, against what `histories_of` finds.

The same is asked of the recorded stores `fixtures/lives-*` in tests/golden/test_story.py.
"""

import subprocess
import time

import pytest

import mqtool
from tests.support.lives import KEYS, PROGRAMS, histories_by_key, judge
from tests.support.stores import read_lines

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.night]

OPEN_SECONDS = 25
"""In which a broker gives the last transactions up: three rounds of checks."""


@pytest.mark.parametrize("version", PROGRAMS)
def test_the_steps_of_200_lives_are_found_and_none_is_invented(version, rocketmq, tmp_path):
    real, home = rocketmq(version), tmp_path / "clients"
    home.mkdir()
    broker = real.start_broker(tmp_path / "broker", **KEYS[version])
    command = real._java(PROGRAMS[version], broker.name_server, broker.address, home=home)
    seen = tmp_path / "lives.jsonl"
    with seen.open("wb") as output:
        subprocess.run(command, stdout=output, check=True, timeout=300)
    time.sleep(OPEN_SECONDS)
    broker.stop()
    with mqtool.open(broker.store) as store:
        lives, events = histories_by_key(store, read_lines(seen))
    assert len(lives) >= 200
    steps, missing, invented = judge(lives, events)
    print(f"{version}: {len(lives)} lives, {steps} steps, missing {missing}, invented {invented}")
    assert len(missing) <= steps / 100
    assert invented == []
