"""The fixture `mqtool_server` in a run of pytest with several workers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import json
import os
import time
from pathlib import Path

import pytest

from mqtool.server.testing import MqServer

HERE = Path(__file__).parent


@pytest.mark.parametrize("number", range(6))
def test_one(mqtool_server, number):
    assert isinstance(mqtool_server, MqServer)
    own = lambda: sorted(name for name in mqtool_server.broker.topics.table if name.startswith("Mine"))
    assert mqtool_server.call(own) == []  # nothing of the test before it, here or in another worker
    mqtool_server.create_topic(f"Mine{number}")
    seen = {"worker": os.environ["PYTEST_XDIST_WORKER"], "pid": os.getpid(), "store": str(mqtool_server.store)}
    seen |= {"addresses": [mqtool_server.endpoints, mqtool_server.namesrv]}
    (HERE / f"{number}.json").write_text(json.dumps(seen))
    for _ in range(300):  # until both workers have a server, so that they have it at the same time
        if len({json.loads(one.read_text())["worker"] for one in HERE.glob("*.json") if one.stat().st_size}) == 2:
            break
        time.sleep(0.1)
    assert mqtool_server.call(own) == [f"Mine{number}"]
"""


@pytest.mark.slow
def test_each_worker_has_a_server_of_its_own(tmp_path):
    pytest.importorskip("xdist")
    (tmp_path / "test_them.py").write_text(TESTS, "utf-8")
    words = ("-p", "no:cacheprovider", "-q", "-n", "2", "--dist", "load", "--rootdir", str(tmp_path))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *words, str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-2000:]
    seen = [json.loads(one.read_text("utf-8")) for one in tmp_path.glob("*.json")]
    assert len(seen) == 6
    by_worker = {one["worker"]: one for one in seen}
    assert sorted(by_worker) == ["gw0", "gw1"]
    first, second = by_worker.values()
    assert set(first["addresses"]).isdisjoint(second["addresses"])
    assert first["store"] != second["store"]
    assert all(one["addresses"] == by_worker[one["worker"]]["addresses"] for one in seen)
    assert not any(Path(one["store"]).exists() for one in seen)
