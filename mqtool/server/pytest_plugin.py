"""pytest plugin that provides the fixtures `mqtool_server` and `mqtool_new_server`, from `mqtool.server.testing`.

Nothing else is imported before a test uses the fixture. Docs page: docs/serve.md.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mqtool.server.testing import MqServer


@pytest.fixture(scope="session")
def mqtool_server_of_session() -> "Iterator[MqServer]":
    """One server shared by all tests of a run."""
    from mqtool.server.testing import MqServer  # noqa: PLC0415 - imported only if used

    with MqServer() as server:
        yield server


@pytest.fixture
def mqtool_server(mqtool_server_of_session: "MqServer") -> "Iterator[MqServer]":
    """An empty RocketMQ broker: `endpoints` is the address for gRPC clients, `namesrv` that for remoting clients."""
    yield mqtool_server_of_session
    mqtool_server_of_session.reset()


@pytest.fixture
def mqtool_new_server() -> "Iterator[MqServer]":
    """Such a broker for one test alone, at addresses of its own."""
    from mqtool.server.testing import MqServer  # noqa: PLC0415 - imported only if used

    with MqServer() as server:
        yield server
