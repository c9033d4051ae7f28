"""Registers the broker and its topics with name servers.

It does so every 30 seconds, and shortly after a topic has changed. A name server in the same process is called
directly; others are sent REGISTER_BROKER. Source: BrokerOuterAPI.registerBrokerAll, BrokerController.registerBrokerAll
(5.5.0).
"""

import asyncio
import logging
from collections.abc import Callable

from msgspec.structs import replace

from mqtool.errors import MqtoolError
from mqtool.protocol import registration_body
from mqtool.protocol.codes import RequestCode, ResponseCode
from mqtool.protocol.command import Command
from mqtool.protocol.registration_body import RegisterBody
from mqtool.server.broker.broker import Broker
from mqtool.server.net.client import Connection

_LOG = logging.getLogger(__name__)

PERIOD_S = 30.0
_TIMEOUT_S = 3.0


class Registration:
    """Keeps the registration of a broker with its name servers up to date."""

    def __init__(
        self,
        broker: Broker,
        register_locally: Callable[[], None] | None,
        name_servers: list[str],
        ha_address: str = "",
        sign: Callable[[Command], Command] | None = None,
    ) -> None:
        """Creates the service; sends nothing yet.

        Args:
            broker: the broker to register.
            register_locally: registers it with the name server in this process; None if there is none.
            name_servers: "host:port" of other name servers.
            ha_address: "host:port" for slaves; "" without replication.
            sign: signs requests to other name servers; None sends them unsigned.
        """
        self._broker = broker
        self._register_locally = register_locally
        self._name_servers = name_servers
        self._ha_address = ha_address
        self._sign = sign
        self._open: dict[str, Connection] = {}
        self._due = asyncio.Event()
        self._round_ended = asyncio.Condition()
        self._begun = self._ended = 0
        self._awaited = 1
        broker.on_topics_changed, broker.wait_registered = self.trigger, self.wait_done

    def trigger(self) -> None:
        """Registers with the name server in this process at once, and triggers a registration with the others."""
        if self._register_locally is not None:
            self._register_locally()
        self._awaited = self._begun + 1
        self._due.set()

    async def wait_done(self) -> None:
        """Waits until all name servers have answered or timed out in a round that began after the last change."""
        awaited = self._awaited
        if self._name_servers:
            async with self._round_ended:
                await self._round_ended.wait_for(lambda: self._ended >= awaited)

    async def run(self) -> None:
        """Registers repeatedly until the broker stops."""
        while True:
            self._due.clear()
            self._begun += 1
            if self._register_locally is not None:
                self._register_locally()
            for address in self._name_servers:
                await self._register(address)
            async with self._round_ended:
                self._ended = self._begun
                self._round_ended.notify_all()
            try:
                await asyncio.wait_for(self._due.wait(), PERIOD_S)
            except TimeoutError:
                continue

    async def _register(self, address: str) -> None:
        try:
            data = registration_body.build(registration_of(self._broker))
            answer = await self._call(address, RequestCode.REGISTER_BROKER, data)
        except (MqtoolError, OSError, TimeoutError) as error:
            _LOG.warning("not registered name_server=%s error=%s", address, error)
            self._forget(address)
            return
        if answer.code != ResponseCode.SUCCESS:
            _LOG.warning("not registered name_server=%s remark=%s", address, answer.remark)

    async def close(self) -> None:
        """Unregisters from the other name servers."""
        for address in self._name_servers:
            try:
                await self._call(address, RequestCode.UNREGISTER_BROKER, b"")
            except (MqtoolError, OSError, TimeoutError) as error:
                _LOG.warning("not unregistered name_server=%s error=%s", address, error)
            self._forget(address)

    def _forget(self, address: str) -> None:
        connection = self._open.pop(address, None)
        if connection is not None:
            connection.close()

    async def _call(self, address: str, code: int, data: bytes) -> Command:
        connection = self._open.get(address)
        if connection is None or connection.peer.closed:
            connection = self._open[address] = await Connection.open(address)
        settings = self._broker.settings
        fields = {
            "brokerName": settings.text("brokerName"),
            "brokerAddr": self._broker.address,
            "clusterName": settings.text("brokerClusterName"),
            "haServerAddr": self._ha_address,
            "brokerId": settings.text("brokerId"),
            "compressed": "false",
            "enableActingMaster": "false",
            "bodyCrc32": str(registration_body.body_crc(data)),
        }
        command = Command(code, fields=fields, body=data)
        return await connection.call(self._sign(command) if self._sign else command, timeout=_TIMEOUT_S)


def registration_of(broker: Broker) -> RegisterBody:
    """Returns the body of a registration. Each topic's permissions are limited to those of the broker."""
    limit = broker.permission_limit
    topics = {name: replace(config, perm=config.perm & limit) for name, config in broker.topics.table.items()}
    return RegisterBody(topics, broker.topics.data_version)
