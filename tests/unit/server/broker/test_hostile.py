"""A broker under frames with every kind of mistake: each is refused in its words or ends its connection, others are served.

`benchmarks/serve_hostile.py` does the same a hundred times as long, with thousands of idle connections.
"""

import logging

import pytest

from mqtool.server.testing import MqServer
from tests.support.hostile import FIELDS, Attack, handled, idle, never_reads, witness
from tests.support.remoting import Client

FRAMES = 1500


@pytest.fixture
def served(caplog):
    caplog.set_level(logging.ERROR)
    with MqServer() as server:
        yield server
        assert [one.getMessage() for one in caplog.records if one.getMessage().startswith("handler failed")] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_frames_are_answered_or_end_their_connection_and_others_are_served(served, seed):
    attack = Attack(served.broker_address, seed)
    with Client(served.broker_address) as client:
        for number in range(FRAMES // 100):
            attack.run(100)
            witness(client, number)
    assert sum(attack.outcomes.values()) == FRAMES
    assert attack.outcomes["answered"] > FRAMES // 10
    assert {0, 1, 3} <= set(attack.codes)


def test_idle_connections_and_one_that_never_reads_keep_nobody_from_being_served(served):
    with idle(served.broker_address, 300), Client(served.broker_address) as client:
        for _ in range(8):
            client.put("Large", b"l" * 200_000)
        connection = never_reads(served.broker_address, "Large", 2_000)
        for number in range(20):
            witness(client, number)
        assert client.call(30, topic="Witness", queueId=0).fields["offset"] == "20"
        connection.close()


def test_every_request_without_fields_is_answered(served):
    codes = handled(served.broker_address)
    with Client(served.broker_address) as client:
        for code in codes:
            for fields in ({}, dict.fromkeys(FIELDS, "")):
                client.send(code, **fields)
                assert client.call(28).code == 0, code
    assert len(codes) > 60
