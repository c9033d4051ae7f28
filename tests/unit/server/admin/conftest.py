"""Brokers with their admin port, as `mqtool serve` starts them, and requests to it."""

import asyncio
import http.client
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mqtool.server.net import loop_factory
from mqtool.server.serve import ServeOptions, Server
from tests.support.remoting import Client


class Got(NamedTuple):
    """A reply: its status, headers and text."""

    status: int
    headers: dict[str, str]
    text: str


class Running:
    """A server in a thread of its own."""

    def __init__(self, options: ServeOptions) -> None:
        self.loop = loop_factory()()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.server = Server(options)
        self.run(self.server.start())
        self.admin = self.server.addresses["admin"]

    def run(self, work: Any) -> Any:
        """Does something in the server's thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def get(self, target: str, method: str = "GET", host: str | None = None, port: int = 0) -> Got:
        """Asks the admin port."""
        connection = http.client.HTTPConnection(f"127.0.0.1:{port}" if port else self.admin, timeout=60)
        try:
            connection.putrequest(method, target, skip_host=True)
            connection.putheader("Host", host or self.admin)
            connection.endheaders()
            reply = connection.getresponse()
            headers = {name.lower(): value for name, value in reply.getheaders()}
            return Got(reply.status, headers, reply.read().decode())
        finally:
            connection.close()

    def connect(self) -> Client:
        """A client of the broker."""
        return Client(self.server.addresses["broker"])

    def stop(self) -> None:
        """Ends it in order."""
        self.run(self.server.stop(grace=1))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Running]]:
    """Starts servers that are stopped in the end."""
    running: list[Running] = []

    def start(store: Path | None = None, **options: Any) -> Running:
        root = store or tmp_path_factory.mktemp("served") / "store"
        running.append(Running(ServeOptions(root, admin_port=0, **options)))
        return running[-1]

    yield start
    for one in running:
        one.stop()


@pytest.fixture(scope="module")
def site(serve: Callable[..., Running]) -> Running:
    """A broker with nothing of its own."""
    return serve()


@pytest.fixture(scope="module")
def client(site: Running) -> Iterator[Client]:
    with site.connect() as found:
        yield found
