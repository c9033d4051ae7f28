"""Seconds that a suite of tests takes, each of which creates a topic, sends three messages and pulls them.

    python benchmarks/suite.py [--tests 50] [--rounds 3]

With one broker of mqtool that is reset after each test, with a new one for each test, and with one RocketMQ 5.5.0 for
all tests, which is never empty: hence a topic for each. A suite is a run of pytest; its time includes every start.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

FIXTURES = {
    "mqtool, reset after each test": "mqtool_server",
    "mqtool, a new one for each test": "mqtool_new_server",
    "RocketMQ 5.5.0, one for all tests": "real",
}

CONFTEST = """
import types

import pytest
from tests.support.rocketmq import release


@pytest.fixture(scope="session")
def real(tmp_path_factory):
    rocketmq = release("5.5.0")
    yield types.SimpleNamespace(broker_address=rocketmq.start_broker(tmp_path_factory.mktemp("broker")).address)
    rocketmq.close()
"""

TESTS = """
import pytest
from tests.support.remoting import Client, bodies


@pytest.mark.parametrize("number", range({tests}))
def test_orders(number, {fixture}):
    with Client({fixture}.broker_address) as client:
        topic = f"Orders{{number}}"
        client.create_topic(topic)
        for body in (b"1", b"2", b"3"):
            assert client.put(topic, body).code == 0
        found = []
        while len(found) < 3:
            found += bodies(client.pull(topic, offset=len(found)))
        assert found == [b"1", b"2", b"3"]
"""


def seconds_of(fixture: str, tests: int) -> float:
    """Runs the suite in a directory of its own."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "conftest.py").write_text(CONFTEST)
        (directory / "test_suite.py").write_text(TESTS.format(fixture=fixture, tests=tests))
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", name, name]
        begin = time.perf_counter()
        subprocess.run(words, check=True, stdout=sys.stderr, env=os.environ | {"PYTHONPATH": str(ROOT)}, cwd=name)
        return time.perf_counter() - begin


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for _ in range(options.rounds):
        for suite, fixture in FIXTURES.items():
            seconds = round(seconds_of(fixture, options.tests), 2)
            print(json.dumps({"suite": suite, "tests": options.tests, "seconds": seconds}), flush=True)
