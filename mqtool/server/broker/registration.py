"""Registration: the broker tells name servers that it is there, and what topics it has.

Every 30 seconds, and soon after a topic changed. Name servers of the same process are told by a call, others by
REGISTER_BROKER. Source: BrokerOuterAPI.registerBrokerAll, BrokerController.registerBrokerAll (5.5.0).
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from mqtool.errors import MqtoolError
from mqtool.formats.config_files import PERM_INHERIT
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
    """Keeps name servers up to date."""

    def __init__(self, broker: Broker, near: Callable[[], None] | None, far: list[str], ha_address: str = "") -> None:
        """Takes who is to know.

        Args:
            broker: it.
            near: registers it with the name server of this process, None if there is none.
            far: "host:port" of other name servers.
            ha_address: "host:port" for slaves, "" if there is none.
        """
        self._broker = broker
        self._near = near
        self._far = far
        self._ha_address = ha_address
        self._open: dict[str, Connection] = {}
        self._due = asyncio.Event()
        self._told = asyncio.Event()
        broker.on_topics_changed, broker.until_known = self.soon, self.done

    def soon(self) -> None:
        """Registers: near at once, far in a moment."""
        if self._near is not None:
            self._near()
        self._told.clear()
        self._due.set()

    async def done(self) -> None:
        """Returns when all name servers know what there is, or did not answer in time."""
        if self._far:
            await self._told.wait()

    async def run(self) -> None:
        """Registers for as long as the broker runs."""
        while True:
            self._due.clear()
            if self._near is not None:
                self._near()
            for address in self._far:
                await self._register(address)
            self._told.set()
            try:
                await asyncio.wait_for(self._due.wait(), PERIOD_S)
            except TimeoutError:
                continue

    async def _register(self, address: str) -> None:
        try:
            data = registration_body.build(registered(self._broker))
            answer = await self._call(address, RequestCode.REGISTER_BROKER, data)
        except (MqtoolError, OSError, TimeoutError) as error:
            _LOG.warning("not registered name_server=%s error=%s", address, error)
            self._forget(address)
            return
        if answer.code != ResponseCode.SUCCESS:
            _LOG.warning("not registered name_server=%s remark=%s", address, answer.remark)

    async def close(self) -> None:
        """Takes leave of the other name servers."""
        for address in self._far:
            try:
                await self._call(address, RequestCode.UNREGISTER_BROKER, b"")
            except (MqtoolError, OSError, TimeoutError) as error:
                _LOG.warning("no leave taken name_server=%s error=%s", address, error)
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
        return await connection.call(Command(code, fields=fields, body=data), timeout=_TIMEOUT_S)


def registered(broker: Broker) -> RegisterBody:
    """Returns what a broker says of itself; what it does not allow, no topic does."""
    limit = broker.settings.number("brokerPermission") | PERM_INHERIT
    topics = {name: replace(config, perm=config.perm & limit) for name, config in broker.topics.table.items()}
    return RegisterBody(topics, broker.topics.data_version)
