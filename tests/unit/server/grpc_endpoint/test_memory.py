"""Clients that never read, and messages that never end, beside an honest client: memory stays bounded."""

import contextlib
from pathlib import Path

import pytest
from h2.exceptions import ProtocolError

from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.protocol.rocketmq_v2 import service as s
from tests.support.grpc_client import GrpcClient, code
from tests.support.remoting import Client
from tests.support.served import KEYS, Served
from tests.unit.server.grpc_endpoint.test_hostile import Raw, framed, settings_of


def resident_mb(pid):
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_stays_bounded_and_an_honest_client_is_served(tmp_path):
    served = Served(tmp_path / "store", tmp_path, {**KEYS, "mappedFileSizeCommitLog": 16 << 20})
    try:
        with Client(served.address) as remoting, GrpcClient(served.address) as client, contextlib.ExitStack() as stack:
            answer = remoting.create_topic("Calm")
            assert answer.code == 0, answer.remark
            for _ in range(6):
                assert code(client.send("Calm", bytes(1 << 20))) == "OK"
            before = resident_mb(served.process.pid)
            pull = s.PullMessageRequest(
                group=d.Resource(name="GDeaf"),
                message_queue=d.MessageQueue(topic=d.Resource(name="Calm")),
                batch_size=32,
            )
            for number in range(15):
                raw = stack.enter_context(Raw(served.address, window=0))
                raw.drain(True)
                if number % 3 == 0:  # answers that nobody reads
                    for _ in range(20):
                        raw.data(raw.begin("PullMessage"), framed(pull.SerializeToString()), end=True)
                elif number % 3 == 1:  # settings again and again
                    stream = raw.begin("Telemetry")
                    for _ in range(60):
                        if raw.h2.local_flow_control_window(stream) < 16_384:
                            raw.drain()
                        raw.data(stream, settings_of("Calm", 10_000))
                else:  # a long message that never ends
                    stream = raw.begin("SendMessage")
                    with contextlib.suppress(OSError, ProtocolError):
                        raw.data(stream, framed(b"", size=100 << 20))
                        for _ in range(400):
                            if raw.h2.local_flow_control_window(stream) < 16_384:
                                raw.drain()
                            raw.data(stream, bytes(16_000))
            for _ in range(20):
                assert code(client.send("Calm", b"honest")) == "OK"
            assert resident_mb(served.process.pid) - before < 400
    finally:
        served.stop()
