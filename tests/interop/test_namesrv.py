"""The real name server, brokers and tools, with ours on the other side."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.name_server import converse
from tests.support.rocketmq import Broker, free_ports

pytestmark = pytest.mark.interop

RECORDED = Path(__file__).parents[1] / "unit" / "server" / "answers" / "name-server-5.5.0.jsonl"


def real_name_server(rocketmq, version: str, directory: Path) -> str:
    """Starts only a name server of a release and returns its address."""
    release = rocketmq(version)
    broker = Broker(release, directory)
    release.brokers.append(broker)
    port = free_ports(1)[0]
    directory.mkdir(parents=True)
    broker._launch("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", {"listenPort": port})
    return f"127.0.0.1:{port}"


def test_the_recorded_answers_are_those_of_the_real_name_server(rocketmq, tmp_path):
    real = asyncio.run(converse(real_name_server(rocketmq, "5.5.0", tmp_path / "real")))
    recorded = [json.loads(line) for line in RECORDED.read_text("utf-8").splitlines()]
    assert json.loads(json.dumps(real)) == recorded
