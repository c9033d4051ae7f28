"""The name server: its port, its routing tables, and the removal of expired brokers.

    name_server = NameServer("127.0.0.1", 9876)
    await name_server.start()
    name_server.register(Registration(…))    # a broker in this process; others send requests
    await name_server.stop()

Source: NamesrvController, BrokerHousekeepingService (5.5.0).
"""

import asyncio
import logging
import math
import ssl
import time
from collections.abc import Callable

from msgspec.structs import replace

from mqtool.choices import TlsMode
from mqtool.protocol.codes import RequestCode
from mqtool.protocol.command import Command
from mqtool.server.namesrv.requests import KeyValues, NameServerSettings, Requests
from mqtool.server.namesrv.routes import LiveBroker, Registered, Registration, Routes
from mqtool.server.net.client import Connection
from mqtool.server.net.listener import Listener
from mqtool.server.net.peer import Guard, Peer

log = logging.getLogger(__name__)


class NameServer:
    """A name server.

    Args:
        host: address to listen on.
        port: port to listen on; 0 selects a free one, see `port` after `start`.
        settings: properties that differ from RocketMQ's defaults.
        guard, tls, tls_mode: as for `Listener`.
        clock: monotonic clock in seconds.

    Attributes:
        routes: the routing tables.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        settings: dict[str, str] | None = None,
        guard: Guard | None = None,
        tls: "ssl.SSLContext | Callable[[], ssl.SSLContext] | None" = None,
        tls_mode: TlsMode = TlsMode.PERMISSIVE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.routes = Routes(clock)
        self._settings = NameServerSettings({"listenPort": str(port)} | (settings or {}))
        self.requests = Requests(self.routes, self._settings, KeyValues(), self._notify_lowest)
        self._listener = Listener(
            host,
            port,
            self.requests.handlers(),
            guard=guard,
            tls=tls,
            tls_mode=tls_mode,
            opened=lambda peer: peer.on_close(self._connection_closed),
        )
        self._scanner: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """The address it listens on, as "host:port"."""
        return self._listener.address

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._listener.port

    async def start(self) -> None:
        """Starts listening, and checking for expired brokers.

        Raises:
            UsageError: the address cannot be bound.
        """
        await self._listener.start()
        self._scan_later()

    async def stop(self) -> None:
        """Shuts down cleanly."""
        if self._scanner is not None:
            self._scanner.cancel()
        for task in self._tasks:
            task.cancel()
        await self._listener.stop()

    def register(self, registration: Registration) -> Registered | None:
        """Registers a broker in this process, which never expires; must be called again after its topics change."""
        delete_missing = self._settings.enabled("deleteTopicWithBrokerRegistration")
        return self.routes.register(replace(registration, lifetime=math.inf), delete_missing=delete_missing)

    def unregister(self, registration: Registration) -> None:
        """Removes a broker in this process."""
        if self.routes.unregister(
            registration.cluster, registration.broker_name, registration.broker_id, registration.address
        ):
            self._notify_lowest(registration.broker_name, registration.address)

    def forget_silent(self) -> None:
        """Removes brokers whose registration has expired (RouteInfoManager.scanNotActiveBroker)."""
        for live in self.routes.expired():
            log.warning("broker silent name=%s address=%s", live.registration.broker_name, live.registration.address)
            if isinstance(live.connection, Peer):
                live.connection.close()
            self._forget(live)

    def _scan_later(self) -> None:
        seconds = self._settings.seconds("scanNotActiveBrokerInterval")
        self._scanner = asyncio.get_running_loop().call_later(seconds, self._scan)

    def _scan(self) -> None:
        self.forget_silent()
        self._scan_later()

    def _connection_closed(self, peer: Peer) -> None:
        for live in self.routes.of_connection(peer):
            self._forget(live)

    def _forget(self, live: LiveBroker) -> None:
        self.unregister(live.registration)

    def _notify_lowest(self, broker_name: str, offline: str | None) -> None:
        """Notifies the brokers of a group about the lowest broker id in it, if that is enabled."""
        data = self.routes.brokers.get(broker_name)
        if data is None or not data.addresses or not self._settings.enabled("notifyMinBrokerIdChanged"):
            return
        lowest = min(data.addresses)
        live = self.routes.live.get((data.cluster, data.addresses[lowest]))
        fields = {"minBrokerId": str(lowest), "brokerName": broker_name, "minBrokerAddr": data.addresses[lowest]}
        if offline is not None:
            fields["offlineBrokerAddr"] = offline
        if live is not None:
            fields["haBrokerAddr"] = live.registration.ha_address
        notified = [address for id_, address in data.addresses.items() if id_ != lowest or offline is not None]
        for address in notified:
            task = asyncio.get_running_loop().create_task(_notify(address, fields))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _notify(address: str, fields: dict[str, str]) -> None:
    try:
        connection = await Connection.open(address)
    except ConnectionError as error:
        log.warning("lowest broker id not sent address=%s error=%s", address, error)
        return
    connection.send_oneway(Command(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, fields=dict(fields)))
    connection.close()
