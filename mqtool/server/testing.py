"""A broker for tests: in this process, on free ports, in a separate directory; and a pytest fixture for it.

    with MqServer() as server:
        server.create_topic("Orders")
        client = Producer(ClientConfiguration(server.endpoints, Credentials()), ("Orders",))  # gRPC
        producer.set_name_server(server.namesrv)  # remoting

Docs page: docs/serve.md.
"""

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from msgspec.structs import replace

from mqtool.engine.clock import SystemClock
from mqtool.errors import UsageError
from mqtool.server.broker.attributes import BIND_TOPIC, group_problem
from mqtool.server.broker.topics import default_group, typed_topic
from mqtool.server.clock import ServerClock
from mqtool.server.controls import Controls
from mqtool.server.net import loop_factory
from mqtool.server.scratch import new_directory
from mqtool.server.serve import ServeOptions, Server
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.config.broker_keys import unread_keys
from mqtool.store.files import copy_tree
from mqtool.store.log.message import Message

if TYPE_CHECKING:
    from mqtool.server.broker.broker import Broker

T = TypeVar("T")
P = ParamSpec("P")

_START_S = 60.0
_POLL_S = 0.02


def _controlled(function: Callable[Concatenate[Controls, P], T]) -> Callable[Concatenate["MqServer", P], T]:
    """Makes a function of `Controls` a method of `MqServer`."""

    @wraps(function)
    def call(server: "MqServer", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return server.call(lambda: function(server.controls, *args, **kwargs))

    return call


class MqServer:
    """A broker with a name server, in a thread of this process. A context manager.

    Attributes:
        clock: the broker's clock.
        namesrv: "host:port" for remoting clients.
        endpoints: "host:port" for gRPC clients, the official ones of 5.x.
        broker_address: "host:port" of the broker; the same port.
    """

    def __init__(self, store: Path | None = None, *, fast_sends: bool = True, **settings: str | int | bool) -> None:
        """Creates a server; `start` starts it. Without a root of the store, it is in a temporary directory.

        `fast_sends` is as in `ServeOptions`; `settings` are keys of a broker.conf, such as `fileReservedTime=24`.
        Raises UsageError for a key that no broker reads.
        """
        for unread in unread_keys(settings):
            raise UsageError(str(unread))
        self._given = None if store is None else Path(store)
        self._fast_sends = fast_sends
        given = {
            key: str(value).lower() if value is True or value is False else str(value)
            for key, value in settings.items()
        }
        self._settings: Mapping[str, str] = {"enablePropertyFilter": "true", "recallMessageEnable": "true", **given}
        self._ports = (0, 0)
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread | None = None
        self._directory: Path | None = None
        self._copies: list[Path] = []
        self._server: Server
        self._time = ServerClock()
        self.clock = Clock(self)
        self.namesrv = self.endpoints = self.broker_address = ""

    @property
    def store(self) -> Path:
        """Root of the store."""
        assert self._directory is not None
        return self._directory

    @property
    def broker(self) -> "Broker":
        """The broker; its methods must be called in the server's thread (`call`)."""
        return self._server.broker

    def start(self) -> None:
        """Starts the server; returns when clients are served, or raises the error of the start."""
        if self._thread is not None:
            raise UsageError("the server is started already")
        self._loop = loop_factory()()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mqtool-server", daemon=True)
        self._thread.start()
        self._directory = self._given or new_directory()
        try:
            self._open()
        except BaseException:
            self._end()
            raise

    def _open(self) -> None:
        config = BrokerConfig(self._settings, source="settings")
        options = ServeOptions(
            self.store,
            port=self._ports[0],
            name_server_port=self._ports[1],
            config=config,
            temporary=True,
            clock=self._time,
            fast_sends=self._fast_sends,
        )
        self._server = Server(options)
        self.run(self._server.start())
        self.namesrv, self.broker_address = self._server.addresses["namesrv"], self._server.addresses["broker"]
        self.endpoints = self.broker_address
        self._ports = tuple(int(address.rpartition(":")[2]) for address in (self.broker_address, self.namesrv))  # type: ignore[assignment]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the server's thread and returns its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_START_S)

    @property
    def controls(self) -> Controls:
        """What the test endpoints do; its functions must be called in the server's thread."""
        return self._server.controls

    def call(self, function: Callable[[], T]) -> T:
        """Calls a function in the server's thread and returns its result."""

        async def called() -> T:
            return function()

        return self.run(called())

    def create_topic(self, topic: str, message_type: str = "NORMAL", queues: int = 8) -> None:
        """Creates or changes a topic. gRPC clients find only topics that exist.

        It accepts one message type: NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY or LITE. Raises UsageError if the name
        is invalid, or there is no such type.
        """
        config = typed_topic(topic, message_type, queues)
        self.call(lambda: self.broker.topics.put(config))

    def create_group(self, group: str, *, fifo: bool = False, max_retries: int = 16, lite_topic: str = "") -> None:
        """Creates or changes a consumer group; a group that is not created here has the defaults.

        With `fifo` it consumes in order. A message becomes a dead letter after `max_retries` redeliveries. It consumes
        the lite topics of `lite_topic`, a topic of type LITE; this needs `enableLmq` and `enableMultiDispatch`. Raises
        UsageError for an invalid name or number.
        """
        if (problem := group_problem(group)) is not None:
            raise UsageError(f"group {group!r}: {problem}")
        if not 0 <= max_retries < 1 << 31 or max_retries % 1 != 0:
            raise UsageError(f"max_retries of group {group}: expected 0 to {(1 << 31) - 1}, found {max_retries}")
        attributes = {BIND_TOPIC: lite_topic} if lite_topic else {}
        config = replace(
            default_group(group), consume_message_orderly=bool(fifo), retry_max_times=max_retries, attributes=attributes
        )
        self.call(lambda: self.broker.groups.put(config))

    def reset(self) -> None:
        """Deletes topics, groups, messages and offsets, and sets the clock; clients stay connected."""
        self.run(self._server.reset())

    def messages(self, topic: str) -> list[Message]:
        """Returns the messages of a topic, in the order of the log; moves no offset."""
        return self.run(self.controls.messages(topic))

    def wait_for(self, topic: str, count: int = 1, timeout: float = 10.0) -> list[Message]:
        """Returns the messages of a topic as soon as there are `count`; raises TimeoutError after `timeout` seconds."""
        end = SystemClock.monotonic() + timeout
        while len(messages := self.messages(topic)) < count:
            if SystemClock.monotonic() >= end:
                raise TimeoutError(f"{topic}: expected {count} message(s) within {timeout:g} s, found {len(messages)}")
            time.sleep(_POLL_S)
        return messages

    offsets = _controlled(Controls.offsets)
    requests = _controlled(Controls.requests)
    fail = _controlled(Controls.fail)
    faults = _controlled(Controls.faults)
    clear_faults = _controlled(Controls.clear_faults)
    pause = _controlled(Controls.pause)
    resume = _controlled(Controls.resume)
    delay = _controlled(Controls.delay)
    drop_connections = _controlled(Controls.drop_connections)

    def snapshot(self) -> Path:
        """Copies the store, for `restore`; the copy is deleted when the server stops."""
        self._copies.append(copy := new_directory())
        self.run(self._server.reopen(lambda: copy_tree(self.store, copy)))
        return copy

    def restore(self, snapshot: Path) -> None:
        """Restores topics, groups, messages and offsets of a snapshot of this server; clients stay connected."""
        if snapshot not in self._copies or not snapshot.is_dir():
            raise UsageError(f"{snapshot}: expected a snapshot of this server since its start")

        def change() -> None:
            shutil.rmtree(self.store)
            copy_tree(snapshot, self.store)

        self.run(self._server.reopen(change))

    def restart(self) -> None:
        """Shuts down cleanly, then serves the same store at the same addresses again."""
        self.run(self._server.stop())
        self._open()

    def stop(self) -> None:
        """Shuts down cleanly; deletes the store if it was created here."""
        if self._thread is not None:
            try:
                self.run(self._server.stop(grace=1))
            finally:
                self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        assert self._thread is not None
        self._thread.join()
        self._thread = None
        self._loop.close()
        created = [self._directory] if self._given is None and self._directory is not None else []
        for directory in created + self._copies:
            shutil.rmtree(directory, ignore_errors=True)
        self._copies.clear()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


class Clock:
    """The clock of a test server. It is that of the machine until it is advanced; clients keep their own."""

    def __init__(self, server: MqServer) -> None:
        self._server = server

    def now(self) -> int:
        """Returns the time of the broker, in ms since epoch."""
        return self._server.call(self._server.controls.now)

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> int:
        """Advances the clock; returns the new time when what became due is done, as `Controls.advance` does."""
        move = self._server.controls.advance(days=days, hours=hours, minutes=minutes, seconds=seconds)
        return self._server.run(move)
