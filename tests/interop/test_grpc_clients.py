"""Official gRPC clients at `mqtool serve`, unmodified: what they sent is what they receive, in its order."""

import json
import os
import subprocess
from collections import defaultdict

import pytest

from mqtool.server.testing import MqServer
from tests.support.clients import GRPC_CLIENTS
from tests.support.rocketmq import Unavailable

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("name", GRPC_CLIENTS)
def test_an_official_client_receives_what_it_sent(name, tmp_path):
    try:
        command = GRPC_CLIENTS[name]()
    except Unavailable as reason:
        if os.environ.get("MQTOOL_REQUIRE_INTEROP"):
            raise
        pytest.skip(str(reason))
    with MqServer() as server:
        for topic, kind in (("Normal", "NORMAL"), ("Fifo", "FIFO"), ("Delay", "DELAY")):
            server.create_topic(topic, kind, queues=2)
        server.create_group("Ordered", fifo=True)
        ran = subprocess.run(
            [*command, server.endpoints],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=os.environ | {"HOME": str(tmp_path)},  # the Python client logs into it
        )
    assert ran.returncode == 0, ran.stderr[-3000:] + ran.stdout[-1000:]
    events = defaultdict(list)
    for line in ran.stdout.splitlines():
        if line.startswith("{"):
            one = json.loads(line)
            events[one["what"], one["topic"]].append(one)
    for topic, count in (("Normal", 10), ("Fifo", 10), ("Delay", 1)):
        sent = [(one["body"], one["id"]) for one in events["sent", topic]]
        got = [(one["body"], one["id"]) for one in events["got", topic]]
        assert len(sent) == count
        assert got == sent if topic == "Fifo" else sorted(got) == sorted(sent)
        for one in events["got", topic]:
            assert (one["tag"], one["keys"], one["p"]) == ("t", ["k" + one["body"].split(" ")[1]], "ü")
