"""The name server: its port, the requests that it supports, its properties, and the removal of expired brokers.

    name_server = NameServer("127.0.0.1", 9876)
    await name_server.start()
    name_server.register(Registration(…))    # a broker in this process; others send requests
    await name_server.stop()

The topic routes are in `mqtool.server.routes`. Docs page: docs/protocol.md. Source: DefaultRequestProcessor,
ClientRequestProcessor, NamesrvConfig, NettyServerConfig, KVConfigManager, NamesrvController, BrokerHousekeepingService
(5.5.0); tests compare the answers with the real one's.
"""

import asyncio
import logging
import math
import ssl
from collections.abc import Callable

import orjson
from msgspec.structs import replace

from mqtool.choices import TlsMode
from mqtool.engine.clock import SystemClock
from mqtool.errors import FormatError, RemoteProtocolError
from mqtool.formats import java
from mqtool.formats.codec import crc32
from mqtool.formats.config_files import DataVersion
from mqtool.formats.config_json import bean_of, document_of
from mqtool.protocol import registration_body
from mqtool.protocol.command import FAQ, VERSION, Command, RequestCode, ResponseCode
from mqtool.protocol.registration_body import document_in
from mqtool.server.net.connections import Connection, Listener
from mqtool.server.net.peer import Guard, Handler, Peer
from mqtool.server.routes import (
    EXPIRY_SECONDS,
    FIRST_WITH_JSON,
    UNIT,
    UNIT_SUBSCRIBED,
    QueueData,
    Registered,
    Registration,
    Routes,
    cluster_info,
    member_group,
    route,
    system_topics,
    topic_list,
    topics_of_cluster,
    topics_with_flag,
)

log = logging.getLogger(__name__)

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"

LOCKED = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})
"""Properties that no request may change (NamesrvConfig.configBlackList and additions of DefaultRequestProcessor)."""

DEFAULTS = {
    "deleteTopicWithBrokerRegistration": "false",
    "enableAllTopicList": "true",
    "enableTopicList": "true",
    "listenPort": "9876",
    "notifyMinBrokerIdChanged": "false",
    "orderMessageEnable": "false",
    "returnOrderTopicConfigToBroker": "true",
    "scanNotActiveBrokerInterval": "10000",
    "serverChannelMaxIdleTimeSeconds": "120",
    "supportActingMaster": "false",
}
"""Default values of the supported properties; the scan interval is that of 4.9 (5.5.0: 5000)."""


class NameServerSettings:
    """The properties. As in RocketMQ, unknown names are accepted without effect."""

    def __init__(self, values: dict[str, str] | None = None) -> None:
        self._values = DEFAULTS | (values or {})

    def enabled(self, name: str) -> bool:
        """Returns a Boolean property."""
        return self._values[name].strip().lower() == "true"

    def seconds(self, name: str) -> float:
        """Returns a property in ms, converted to seconds; the default if its value is invalid."""
        value = self._values[name].strip()
        return int(value if value.isascii() and value.isdigit() and int(value) else DEFAULTS[name]) / 1000

    def update(self, data: bytes) -> bool:
        """Changes properties as in a properties file; returns False, without any change, if one of them is locked.

        Raises FormatError if Java would refuse the file.
        """
        values = java.parse_properties(data)
        if LOCKED & values.keys():
            return False
        self._values.update({name: value for name, value in values.items() if name in self._values})
        return True

    def text(self) -> str:
        """Returns all properties, one per line, sorted by name."""
        return "".join(f"{name}={value}\n" for name, value in sorted(self._values.items()))


class Requests:
    """The request handlers of a name server.

    `lowest_changed` is called with (broker name, removed address or None) when the lowest broker id of a group has
    changed and its brokers are to be notified.
    """

    def __init__(
        self, routes: Routes, settings: NameServerSettings, lowest_changed: Callable[[str, str | None], None]
    ) -> None:
        self.routes, self.settings, self._lowest_changed = routes, settings, lowest_changed
        self._values: dict[str, dict[str, str]] = {}  # the key-value table: by namespace and key, in memory

    def handlers(self) -> dict[int, Handler]:
        """Returns the handler of each request code."""
        code = RequestCode
        return {
            code.PUT_KV_CONFIG: self.put_value,
            code.GET_KV_CONFIG: self.get_value,
            code.DELETE_KV_CONFIG: self.delete_value,
            code.GET_KVLIST_BY_NAMESPACE: self.get_values,
            code.REGISTER_BROKER: self.register,
            code.UNREGISTER_BROKER: self.unregister,
            code.BROKER_HEARTBEAT: self.heartbeat,
            code.QUERY_DATA_VERSION: self.data_version,
            code.GET_BROKER_MEMBER_GROUP: self.members,
            code.GET_BROKER_CLUSTER_INFO: self.clusters,
            code.GET_ROUTEINFO_BY_TOPIC: self.route,
            code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.topics,
            code.GET_TOPICS_BY_CLUSTER: self.topics_of_cluster,
            code.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.system_topics,
            code.GET_UNIT_TOPIC_LIST: self.unit_topics,
            code.GET_HAS_UNIT_SUB_TOPIC_LIST: self.unit_topics,
            code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.unit_topics,
            code.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            code.REGISTER_TOPIC_IN_NAMESRV: self.put_topic,
            code.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write,
            code.ADD_WRITE_PERM_OF_BROKER: self.add_write,
            code.UPDATE_NAMESRV_CONFIG: self.update_settings,
            code.GET_NAMESRV_CONFIG: self.show_settings,
        }

    def route(self, command: Command, _peer: Peer) -> Command:
        """105 GET_ROUTEINFO_BY_TOPIC: returns the brokers and queues of a topic."""
        fields = command.fields
        topic = fields.get("topic")
        zoned = java.parse_boolean(fields.get("__ZONE_MODE")) and fields.get("__ZONE_NAME")
        standard = not zoned and (
            command.version >= FIRST_WITH_JSON or java.parse_boolean(fields.get("acceptStandardJsonOnly"))
        )
        order = None
        if topic and self.settings.enabled("orderMessageEnable"):
            order = self._value(ORDER_TOPICS, topic)
        body = route(
            self.routes,
            topic or "",
            standard=standard,
            order=order,
            zone=zoned or None,
            acting_master=self.settings.enabled("supportActingMaster"),
        )
        if body is None:
            remark = f"No topic route info in name server for the topic: {'null' if topic is None else topic}{FAQ}"
            return command.reply(ResponseCode.TOPIC_NOT_EXIST, remark)
        return command.reply(ResponseCode.SUCCESS, body=body)

    def register(self, command: Command, peer: Peer) -> Command:
        """103: registers a broker and its topics."""
        fields = command.fields
        crc = java.parse_long(fields.get("bodyCrc32") or "0")
        if crc and crc != crc32(command.body):  # UtilAll.crc32
            return command.reply(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        body = registration_body.parse(
            command.body, compressed=java.parse_boolean(fields.get("compressed")), version=command.version
        )
        acting, lifetime = fields.get("enableActingMaster"), fields.get("heartbeatTimeoutMillis")
        registration = Registration(
            needed(command, "clusterName"),
            needed(command, "brokerName"),
            java.parse_long(needed(command, "brokerId")),
            needed(command, "brokerAddr"),
            fields.get("haServerAddr") or "",
            body,
            java.parse_long(lifetime) / 1000 if lifetime else EXPIRY_SECONDS,
            None if acting is None else java.parse_boolean(acting),
            fields.get("__ZONE_NAME"),
        )
        delete_missing = self.settings.enabled("deleteTopicWithBrokerRegistration")
        answer = self.routes.register(registration, peer, delete_missing=delete_missing)
        if answer is None:
            return command.reply(ResponseCode.SYSTEM_ERROR, "register broker failed")
        if answer.min_id_changed:
            self._lowest_changed(registration.broker_name, None)
        named = {"haServerAddr": answer.ha_address, "masterAddr": answer.master_address}
        orders = self._values.get(ORDER_TOPICS)
        shown = orders is not None and self.settings.enabled("returnOrderTopicConfigToBroker")
        return command.reply(
            ResponseCode.SUCCESS,
            None,
            {name: value for name, value in named.items() if value},
            orjson.dumps({"table": orders}) if shown else b"",
        )

    def unregister(self, command: Command, _peer: Peer) -> Command:
        """104: unregisters a broker."""
        fields = command.fields
        address = fields.get("brokerAddr", "")
        broker_name = fields.get("brokerName", "")
        broker_id = java.parse_long(fields.get("brokerId", "0"))
        if self.routes.unregister(fields.get("clusterName", ""), broker_name, broker_id, address):
            self._lowest_changed(broker_name, address)
        return command.reply(ResponseCode.SUCCESS)

    def heartbeat(self, command: Command, _peer: Peer) -> Command:
        """904: handles a broker's heartbeat, which does not contain its topics."""
        self.routes.renew(needed(command, "clusterName"), needed(command, "brokerAddr"))
        return command.reply(ResponseCode.SUCCESS)

    def data_version(self, command: Command, _peer: Peer) -> Command:
        """322: tells a broker whether its topics differ from those that it registered."""
        cluster, address = needed(command, "clusterName"), needed(command, "brokerAddr")
        try:
            version = bean_of(DataVersion, document_in(command.body), "dataVersion")
        except FormatError as error:
            raise RemoteProtocolError(str(error)) from error
        changed = self.routes.changed(cluster, address, version)
        if not changed:
            self.routes.renew(cluster, address)
        known = self.routes.version_of(cluster, address)
        return command.reply(
            ResponseCode.SUCCESS,
            None,
            {"changed": str(changed).lower()},
            b"" if known is None else orjson.dumps(document_of(known)),
        )

    def members(self, command: Command, _peer: Peer) -> Command:
        """901: returns the members of a broker group. The real name server sets no response code; hence the remark."""
        body = member_group(self.routes, command.fields.get("clusterName", ""), needed(command, "brokerName"))
        return command.reply(ResponseCode.SUCCESS, "not set any response code", body=body)

    def clusters(self, command: Command, _peer: Peer) -> Command:
        """106: returns all brokers and clusters."""
        return command.reply(ResponseCode.SUCCESS, body=cluster_info(self.routes))

    def topics(self, command: Command, _peer: Peer) -> Command:
        """206: returns all topics."""
        return self._list(command, self.routes.topics, "enableAllTopicList")

    def topics_of_cluster(self, command: Command, _peer: Peer) -> Command:
        """224: returns the topics of one cluster."""
        return self._list(command, topics_of_cluster(self.routes, needed(command, "cluster")))

    def unit_topics(self, command: Command, _peer: Peer) -> Command:
        """311, 312, 313: return topics by their unit flags, with which RocketMQ splits a service over sites."""
        masks = {
            RequestCode.GET_UNIT_TOPIC_LIST: (UNIT, 0),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: (UNIT_SUBSCRIBED, 0),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: (UNIT_SUBSCRIBED, UNIT),
        }
        return self._list(command, topics_with_flag(self.routes, *masks[RequestCode(command.code)]))

    def _list(
        self, command: Command, topics: "list[str] | dict[str, dict[str, QueueData]]", switch: str = "enableTopicList"
    ) -> Command:
        if not self.settings.enabled(switch):
            return command.reply(ResponseCode.SYSTEM_ERROR, "disable")
        return command.reply(ResponseCode.SUCCESS, body=topic_list(topics))

    def system_topics(self, command: Command, _peer: Peer) -> Command:
        """304: returns the topics named after clusters and brokers."""
        return command.reply(ResponseCode.SUCCESS, body=topic_list(*system_topics(self.routes)))

    def delete_topic(self, command: Command, _peer: Peer) -> Command:
        """216: deletes a topic from the routes."""
        self.routes.delete_topic(needed(command, "topic"), command.fields.get("clusterName") or None)
        return command.reply(ResponseCode.SUCCESS)

    def put_topic(self, command: Command, _peer: Peer) -> Command:
        """217: adds a topic to the routes manually."""
        rows = document_in(command.body).get("queueDatas") or [] if len(command.body) else []
        try:
            queues = [
                QueueData(
                    str(row["brokerName"]),
                    java.json_int(row["readQueueNums"]),
                    java.json_int(row["writeQueueNums"]),
                    java.json_int(row["perm"]),
                    java.json_int(row.get("topicSysFlag", 0)),
                )
                for row in rows
            ]
        except (KeyError, TypeError, AttributeError, FormatError) as error:
            raise RemoteProtocolError(f"queueDatas: {error!r}") from error
        self.routes.put_topic(needed(command, "topic"), queues)
        return command.reply(ResponseCode.SUCCESS)

    def wipe_write(self, command: Command, _peer: Peer) -> Command:
        """205: removes the write permission of a broker's topics."""
        count = self.routes.wipe_write(needed(command, "brokerName"))
        return command.reply(ResponseCode.SUCCESS, None, {"wipeTopicCount": str(count)})

    def add_write(self, command: Command, _peer: Peer) -> Command:
        """327: restores the write permission of a broker's topics."""
        count = self.routes.add_write(needed(command, "brokerName"))
        return command.reply(ResponseCode.SUCCESS, None, {"addTopicCount": str(count)})

    def put_value(self, command: Command, _peer: Peer) -> Command:
        """100: sets a value of the key-value table."""
        fields = command.fields
        if fields.get("namespace") is None or fields.get("key") is None:
            return command.reply(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        self._values.setdefault(fields["namespace"], {})[fields["key"]] = fields.get("value", "")
        return command.reply(ResponseCode.SUCCESS)

    def _value(self, namespace: str, key: str) -> str | None:
        return self._values.get(namespace, {}).get(key)

    def get_value(self, command: Command, _peer: Peer) -> Command:
        """101: returns a value of the key-value table."""
        namespace, key = needed(command, "namespace"), needed(command, "key")
        value = self._value(namespace, key)
        if value is None:
            return command.reply(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}")
        return command.reply(ResponseCode.SUCCESS, None, {"value": value})

    def delete_value(self, command: Command, _peer: Peer) -> Command:
        """102: deletes a value of the key-value table."""
        self._values.get(needed(command, "namespace"), {}).pop(needed(command, "key"), None)
        return command.reply(ResponseCode.SUCCESS)

    def get_values(self, command: Command, _peer: Peer) -> Command:
        """219: returns all values of a namespace."""
        namespace = needed(command, "namespace")
        values = self._values.get(namespace)
        if values is None:
            return command.reply(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return command.reply(ResponseCode.SUCCESS, body=orjson.dumps({"table": values}))

    def update_settings(self, command: Command, _peer: Peer) -> Command:
        """318: changes properties."""
        try:
            changed = self.settings.update(bytes(command.body))
        except FormatError:
            return command.reply(ResponseCode.SYSTEM_ERROR, "string2Properties error")
        if changed:
            return command.reply(ResponseCode.SUCCESS)
        return command.reply(ResponseCode.NO_PERMISSION, "Can not update config in black list.")

    def show_settings(self, command: Command, _peer: Peer) -> Command:
        """319: returns all properties."""
        return command.reply(ResponseCode.SUCCESS, body=self.settings.text().encode())


def needed(command: Command, name: str) -> str:
    """Returns a header field of a request; raises RemoteProtocolError if it is missing."""
    try:
        return command.fields[name]
    except KeyError:
        raise RemoteProtocolError(f"request {command.code}: field {name} is missing") from None


class NameServer:
    """A name server; port 0 selects a free one. `settings` are properties that differ from RocketMQ's defaults."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        settings: dict[str, str] | None = None,
        guard: Guard | None = None,
        tls: "ssl.SSLContext | Callable[[], ssl.SSLContext] | None" = None,
        tls_mode: TlsMode = TlsMode.PERMISSIVE,
        clock: Callable[[], float] = SystemClock.monotonic,
        version: int = VERSION,
    ) -> None:
        self.routes = Routes(clock)
        self._settings = NameServerSettings({"listenPort": str(port)} | (settings or {}))
        requests = Requests(self.routes, self._settings, self._notify_lowest)
        self._listener = Listener(
            host,
            port,
            requests.handlers(),
            guard=guard,
            tls=tls,
            tls_mode=tls_mode,
            opened=lambda peer: peer.on_close(self._connection_closed),
            version=version,
        )
        self._version = version
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
        """Starts listening, and checking for expired brokers; raises UsageError if the address cannot be bound."""
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
            log.warning(
                "broker sends no heartbeats name=%s address=%s",
                live.registration.broker_name,
                live.registration.address,
            )
            if isinstance(live.connection, Peer):
                live.connection.close()
            self.unregister(live.registration)

    def _scan_later(self) -> None:
        seconds = self._settings.seconds("scanNotActiveBrokerInterval")
        self._scanner = asyncio.get_running_loop().call_later(seconds, self._scan)

    def _scan(self) -> None:
        self.forget_silent()
        self._scan_later()

    def _connection_closed(self, peer: Peer) -> None:
        for live in [live for live in self.routes.live.values() if live.connection is peer]:
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
        for address in [address for id_, address in data.addresses.items() if id_ != lowest or offline is not None]:
            command = Command(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, fields=dict(fields), version=self._version)
            task = asyncio.get_running_loop().create_task(_notify(address, command))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _notify(address: str, command: Command) -> None:
    try:
        connection = await Connection.open(address)
    except ConnectionError as error:
        log.warning("lowest broker id not sent address=%s error=%s", address, error)
        return
    connection.send_oneway(command)
    connection.close()
