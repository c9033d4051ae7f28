"""A broker in this process for the tests of a module, and connections to it."""

import json
import time
from collections.abc import Callable, Iterator

import pytest

from mqtool.server.testing import MqServer
from tests.support.remoting import Client


@pytest.fixture(scope="module")
def server() -> Iterator[MqServer]:
    with MqServer(transactionCheckInterval="100", transactionTimeOut="50", flushConsumerOffsetInterval="50") as found:
        yield found


@pytest.fixture
def connect(server: MqServer) -> Iterator[Callable[..., Client]]:
    """Opens connections that are closed in the end."""
    opened: list[Client] = []

    def make(version: int = 513) -> Client:
        opened.append(Client(server.broker_address, version))
        return opened[-1]

    yield make
    for client in opened:
        client.close()


@pytest.fixture
def client(connect: Callable[..., Client]) -> Client:
    return connect()


@pytest.fixture
def topic(request: pytest.FixtureRequest, client: Client) -> str:
    """A topic of four queues, named after the test."""
    name = request.node.name.replace("[", "-").replace("]", "").replace(" ", "-")[-100:]
    made = client.create_topic(name, 4)
    assert made.code == 0, made.remark
    return name


def assigned(client: Client, topic: str, group: str, who: str, **changes: object) -> list[tuple[str, int]] | None:
    """How a client gets messages and from which queues, by QUERY_ASSIGNMENT; None if the answer has no list."""
    body = {
        "topic": topic,
        "consumerGroup": group,
        "clientId": who,
        "strategyName": "AVG",
        "messageModel": "CLUSTERING",
    } | changes
    found = client.call(400, json.dumps(body).encode()).json.get("messageQueueAssignments")
    return None if found is None else [(one["mode"], one["messageQueue"]["queueId"]) for one in found]


def until(found: Callable[[], object]) -> None:
    """Waits for what the server does by itself."""
    deadline = time.monotonic() + 30
    while not found():
        assert time.monotonic() < deadline, "did not come about"
        time.sleep(0.01)
