"""Official gRPC clients at `mqtool serve`, unmodified: each feature of the table in docs/serve.md, and credentials."""

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqtool
from mqtool.protocol import Command
from mqtool.server.net.connections import Connection
from mqtool.server.testing import MqServer
from tests.support.auth import ADMIN, KEYS, create_user, entry, put_acl, signed
from tests.support.clients import GRPC_CLIENTS
from tests.support.grpc_features import CELLS, IN_ORDER, LITE_GROUP, TOPICS, check_seen
from tests.support.rocketmq import Unavailable

pytestmark = pytest.mark.interop

NIGHT = {name: [] if name == "Python" else [pytest.mark.night] for name in GRPC_CLIENTS}
USER, PASSWORD = "client", "clientPass"
Seen = dict[str, dict[str, Any]]


def use(name: str, server: MqServer, home: Path, *words: str) -> Seen:
    """Returns what a client saw, by feature. Words: user, password, features."""
    try:
        command = GRPC_CLIENTS[name]()
    except Unavailable as reason:
        if os.environ.get("MQTOOL_REQUIRE_INTEROP"):
            raise
        pytest.skip(str(reason))
    ran = subprocess.run(
        [*command, server.endpoints, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env=os.environ | {"HOME": str(home), "JAVA_TOOL_OPTIONS": f"-Duser.home={home}"},  # clients log into it
    )
    assert ran.returncode == 0, ran.stderr[-3000:] + ran.stdout[-1000:]
    lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"')]
    return {one["feature"]: one for one in lines}


def prepare(server: MqServer) -> None:
    """Creates the topics and groups of the programs."""
    for topic, (kind, queues) in TOPICS.items():
        server.create_topic(topic, kind, queues=queues)
    server.create_group(IN_ORDER, fifo=True)
    server.create_group(LITE_GROUP, lite_topic="Lite")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Seen]:
    """`seen(client)`: it used all its features, once for all tests of a worker."""
    found: dict[str, Seen] = {}

    def by(name: str) -> Seen:
        if name not in found:
            keys = {"transactionTimeOut": "2000", "transactionCheckInterval": "1000"}
            with MqServer(**keys, enableLmq="true", enableMultiDispatch="true") as server:
                prepare(server)
                features = [one for one in CELLS[name] if one != "credentials"]
                found[name] = use(name, server, tmp_path_factory.mktemp("home"), "-", "-", *features)
        return found[name]

    return by


@pytest.mark.parametrize(
    ("client", "feature"),
    [
        pytest.param(client, feature, marks=[pytest.mark.xdist_group(client), *NIGHT[client]])
        for client, features in CELLS.items()
        for feature in features
        if feature != "credentials"
    ],
)
def test_a_client_uses_a_feature(client, feature, seen):
    one = seen(client)[feature]
    assert "error" not in one, one["error"]
    check_seen(feature, one["seen"])


@pytest.mark.parametrize("client", [pytest.param(name, marks=NIGHT[name]) for name in GRPC_CLIENTS])
def test_a_client_signs_its_calls_and_is_refused_with_another_password(client, tmp_path):
    pytest.importorskip("rocksdict")
    with MqServer(**KEYS) as server:
        prepare(server)
        topics = [entry(f"Topic:{one}", ["Pub", "Sub"]) for one in ("Normal", "Fifo")]
        groups = [entry(f"Group:G{one}", ["Sub"]) for one in ("Normal", "Fifo")]
        create = signed(create_user(USER, {"password": PASSWORD}), ADMIN)
        asyncio.run(send(server.broker_address, create, signed(put_acl(f"User:{USER}", *topics, *groups), ADMIN)))
        for feature, one in use(client, server, tmp_path, USER, PASSWORD, "normal", "fifo").items():
            assert "error" not in one, one["error"]
            check_seen(feature, one["seen"])
        for words in ((USER, "wrong", "normal"), ("nobody", PASSWORD, "normal"), (USER, PASSWORD, "push")):
            refused = use(client, server, tmp_path, *words)
            assert ["error" in one for one in refused.values()] == [True], (words, refused)
        assert messages(server) == {"Normal": 10, "Fifo": 10}


async def send(address: str, *commands: Command) -> None:
    """Sends requests that must succeed."""
    connection = await Connection.open(address)
    for command in commands:
        assert (await connection.call(command, 20)).code == 0
    connection.close()


def messages(server: MqServer) -> dict[str, int]:
    """Number of messages by topic of the programs, without empty ones."""
    with mqtool.open(server.store) as store:
        counts = {topic: sum(1 for _ in store.messages(topics=[topic])) for topic in TOPICS}
    return {topic: count for topic, count in counts.items() if count}


@pytest.mark.parametrize("client", [pytest.param(name, marks=NIGHT[name]) for name in ("Java", "Node.js", "Go")])
def test_a_client_repeats_sends_that_a_test_lets_fail(client, tmp_path):
    with MqServer() as server:
        prepare(server)
        server.fail(send=2, topic="Normal")
        one = use(client, server, tmp_path, "-", "-", "normal")["normal"]
        assert "error" not in one, one["error"]
        check_seen("normal", one["seen"])
        assert server.call(server.controls.faults) == []
        assert messages(server) == {"Normal": 10}
