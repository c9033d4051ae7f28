"""Users and permissions over gRPC: every answer is the one that a real proxy 5.5.0 gave."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.protocol.rocketmq_v2 import service as s
from mqtool.server.net.connections import Connection
from mqtool.server.testing import MqServer
from tests.support.auth import KEYS
from tests.support.grpc_auth import CLOSED, CLOSED_GROUP, OPEN, OPEN_GROUP, READER, answers, users
from tests.support.grpc_client import GrpcClient, code, message_of

pytest.importorskip("rocksdict")

RECORDED = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "answers" / "auth-proxy-5.5.0.jsonl").read_text("utf-8").splitlines()
]


async def prepare(address: str) -> None:
    """Creates topics, users and permissions."""
    connection = await Connection.open(address)
    for command in users():
        answer = await connection.call(command, 20)
        assert answer.code == 0, answer.remark
    connection.close()


CHECKED = {key: value for key, value in KEYS.items() if "hitelist" not in key}


@pytest.fixture(scope="module")
def server() -> Iterator[MqServer]:
    with MqServer(**CHECKED) as server:
        asyncio.run(prepare(server.broker_address))
        yield server


@pytest.fixture(scope="module")
def found(server) -> dict[str, dict[str, str]]:
    return dict(answers(server.endpoints))


def test_all_calls_were_recorded(found):
    assert list(found) == [row["label"] for row in RECORDED]


@pytest.mark.parametrize("row", RECORDED, ids=[row["label"] for row in RECORDED])
def test_a_call_is_answered_as_by_a_real_proxy(found, row):
    assert {"label": row["label"], **found[row["label"]]} == row


@pytest.mark.parametrize("rpc", ["UpdateOffset", "GetOffset", "QueryOffset"])
def test_offsets_need_the_right_to_subscribe_to_group_and_topic(server, rpc):
    """The real proxy does not implement these; they need what a receive needs."""
    with GrpcClient(server.endpoints, headers=READER) as client:
        for group, topic in ((OPEN_GROUP, OPEN), (CLOSED_GROUP, OPEN), (OPEN_GROUP, CLOSED)):
            queue = d.MessageQueue(topic=d.Resource(name=topic), id=0)
            named = {} if rpc == "QueryOffset" else {"group": d.Resource(name=group)}
            is_refused = code(client.call(rpc, message_queue=queue, **named)) == "UNAUTHORIZED"
            assert is_refused == (topic == CLOSED or (group == CLOSED_GROUP and bool(named)))


def test_a_stream_may_send_what_needs_no_permission(server):
    with GrpcClient(server.endpoints, headers=READER) as client:
        assert client.produce(OPEN).status.code == d.OK
        client._commands.put(s.TelemetryCommand(thread_stack_trace=s.ThreadStackTrace(nonce="n")))
        client._commands.put(s.TelemetryCommand(settings=d.Settings(client_type=d.PRODUCER, publishing=closed())))
        assert client.arrived.get(timeout=30).status.code == d.UNAUTHORIZED


def closed() -> d.Publishing:
    return d.Publishing(topics=[d.Resource(name=CLOSED)])


@pytest.mark.slow
def test_without_authorization_a_known_user_may_do_everything_and_some_calls_need_no_signature():
    keys = {"authorizationEnabled": "false", "authenticationWhitelist": "apache.rocketmq.v2.QueryRouteRequest"}
    with MqServer(**CHECKED | keys) as server:
        asyncio.run(prepare(server.broker_address))
        for headers, expected in ((READER, "OK"), ([], "UNAUTHORIZED")):
            with GrpcClient(server.endpoints, headers=headers) as client:
                assert code(client.call("SendMessage", messages=[message_of(CLOSED, b"x")])) == expected
                assert code(client.call("QueryRoute", topic=d.Resource(name=OPEN), endpoints=client.endpoints)) == "OK"


def test_without_authentication_a_call_names_no_user_and_may_do_nothing():
    with MqServer(**CHECKED | {"authenticationEnabled": "false"}) as server, GrpcClient(server.endpoints) as client:
        answer = client.call("SendMessage", messages=[message_of(CLOSED, b"x")])
        assert (code(answer), answer.status.message.startswith("Authorization failed")) == ("UNAUTHORIZED", True)
