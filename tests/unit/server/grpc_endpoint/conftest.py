"""A broker in this process for the tests of a module, and gRPC clients of it."""

from collections.abc import Callable, Iterator

import pytest

from mqtool.server.testing import MqServer
from tests.support.grpc_client import GrpcClient


@pytest.fixture(scope="module")
def server() -> Iterator[MqServer]:
    with MqServer(transactionCheckInterval="100", transactionTimeOut="50") as found:
        yield found


@pytest.fixture
def connect(server: MqServer) -> Iterator[Callable[[], GrpcClient]]:
    opened: list[GrpcClient] = []

    def make() -> GrpcClient:
        opened.append(GrpcClient(server.endpoints))
        return opened[-1]

    yield make
    for client in opened:
        client.close()


@pytest.fixture
def client(connect: Callable[[], GrpcClient]) -> GrpcClient:
    return connect()


@pytest.fixture
def topic(request: pytest.FixtureRequest, server: MqServer) -> str:
    """A topic of two queues, named after the test."""
    name = "".join(one if one.isalnum() else "-" for one in request.node.name)[-100:]
    server.create_topic(name, queues=2)
    return name
