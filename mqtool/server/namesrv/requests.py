"""Handles the requests that a name server supports, including those that read and change its properties.

Source: DefaultRequestProcessor, ClientRequestProcessor, NamesrvConfig, NettyServerConfig and KVConfigManager (5.5.0);
tests compare the answers with the real one's.
"""

from collections.abc import Callable

import orjson

from mqtool.errors import FormatError, RemoteProtocolError
from mqtool.formats import java
from mqtool.formats.config_files import DataVersion
from mqtool.formats.config_json import bean_of, document_of
from mqtool.protocol import registration_body
from mqtool.protocol.codes import FAQ, RequestCode, ResponseCode
from mqtool.protocol.command import Command
from mqtool.protocol.registration_body import document_in
from mqtool.server.namesrv import bodies
from mqtool.server.namesrv.routes import EXPIRY_SECONDS, QueueData, Registration, Routes
from mqtool.server.net.peer import Handler, Peer

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

        Raises:
            FormatError: Java would refuse the file.
        """
        values = java.parse_properties(data)
        if LOCKED & values.keys():
            return False
        self._values.update({name: value for name, value in values.items() if name in self._values})
        return True

    def text(self) -> str:
        """Returns all properties, one per line, sorted by name."""
        return "".join(f"{name}={value}\n" for name, value in sorted(self._values.items()))


class KeyValues:
    """The key-value table: texts by namespace and key, in memory."""

    def __init__(self) -> None:
        self._table: dict[str, dict[str, str]] = {}

    def get(self, namespace: str, key: str) -> str | None:
        """Returns a value; None if it is not set."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Returns all values of a namespace; None if none was ever set."""
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Sets a value."""
        self._table.setdefault(namespace, {})[key] = value

    def delete(self, namespace: str, key: str) -> None:
        """Deletes a value, if it exists."""
        self._table.get(namespace, {}).pop(key, None)


class Requests:
    """The request handlers of a name server.

    Args:
        routes: the tables that they read and change.
        settings: properties.
        key_values: the key-value table.
        lowest_changed: called with (broker name, removed address or None) when the lowest broker id of a group has
            changed and its brokers are to be notified.
    """

    def __init__(
        self,
        routes: Routes,
        settings: NameServerSettings,
        key_values: KeyValues,
        lowest_changed: Callable[[str, str | None], None],
    ) -> None:
        self.routes, self.settings, self.key_values = routes, settings, key_values
        self._lowest_changed = lowest_changed

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
            command.version >= bodies.FIRST_WITH_JSON or java.parse_boolean(fields.get("acceptStandardJsonOnly"))
        )
        order = None
        if topic and self.settings.enabled("orderMessageEnable"):
            order = self.key_values.get(ORDER_TOPICS, topic)
        body = bodies.route(
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
        if crc and crc != registration_body.body_crc(command.body):
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
        orders = self.key_values.namespace(ORDER_TOPICS)
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
        """901: returns the members of a broker group.

        The real name server forgets to set the response code, which explains the remark.
        """
        return command.reply(
            ResponseCode.SUCCESS,
            "not set any response code",
            body=bodies.member_group(self.routes, command.fields.get("clusterName", ""), needed(command, "brokerName")),
        )

    def clusters(self, command: Command, _peer: Peer) -> Command:
        """106: returns all brokers and clusters."""
        return command.reply(ResponseCode.SUCCESS, body=bodies.cluster_info(self.routes))

    def topics(self, command: Command, _peer: Peer) -> Command:
        """206: returns all topics."""
        return self._list(command, self.routes.topics, "enableAllTopicList")

    def topics_of_cluster(self, command: Command, _peer: Peer) -> Command:
        """224: returns the topics of one cluster."""
        return self._list(command, bodies.topics_of_cluster(self.routes, needed(command, "cluster")))

    def unit_topics(self, command: Command, _peer: Peer) -> Command:
        """311, 312, 313: return topics by their unit flags, with which RocketMQ splits a service over sites."""
        masks = {
            RequestCode.GET_UNIT_TOPIC_LIST: (bodies.UNIT, 0),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: (bodies.UNIT_SUBSCRIBED, 0),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: (bodies.UNIT_SUBSCRIBED, bodies.UNIT),
        }
        return self._list(command, bodies.topics_with_flag(self.routes, *masks[RequestCode(command.code)]))

    def _list(
        self, command: Command, topics: "list[str] | dict[str, dict[str, QueueData]]", switch: str = "enableTopicList"
    ) -> Command:
        if not self.settings.enabled(switch):
            return command.reply(ResponseCode.SYSTEM_ERROR, "disable")
        return command.reply(ResponseCode.SUCCESS, body=bodies.topic_list(topics))

    def system_topics(self, command: Command, _peer: Peer) -> Command:
        """304: returns the topics named after clusters and brokers."""
        return command.reply(ResponseCode.SUCCESS, body=bodies.topic_list(*bodies.system_topics(self.routes)))

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
        self.key_values.put(fields["namespace"], fields["key"], fields.get("value", ""))
        return command.reply(ResponseCode.SUCCESS)

    def get_value(self, command: Command, _peer: Peer) -> Command:
        """101: returns a value of the key-value table."""
        namespace, key = needed(command, "namespace"), needed(command, "key")
        value = self.key_values.get(namespace, key)
        if value is None:
            return command.reply(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}")
        return command.reply(ResponseCode.SUCCESS, None, {"value": value})

    def delete_value(self, command: Command, _peer: Peer) -> Command:
        """102: deletes a value of the key-value table."""
        self.key_values.delete(needed(command, "namespace"), needed(command, "key"))
        return command.reply(ResponseCode.SUCCESS)

    def get_values(self, command: Command, _peer: Peer) -> Command:
        """219: returns all values of a namespace."""
        namespace = needed(command, "namespace")
        values = self.key_values.namespace(namespace)
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
    """Returns a header field of a request.

    Raises:
        RemoteProtocolError: the field is missing.
    """
    try:
        return command.fields[name]
    except KeyError:
        raise RemoteProtocolError(f"request {command.code}: the field {name} is missing") from None
