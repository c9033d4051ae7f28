"""Builds the JSON bodies of the name server's answers in RocketMQ's format.

Maps whose keys are broker ids are written with unquoted numbers as keys, which is not valid JSON, but what fastjson
writes and reads. Routes are standard JSON for clients of 4.9.4 and later, and for clients that ask for it. Source:
ClientRequestProcessor, ZoneRouteRPCHook, RouteInfoManager (5.5.0).
"""

from collections.abc import Iterable
from typing import Any

import orjson

from mqtool.formats.topics import SYNC_MEMBER_PREFIX
from mqtool.server.namesrv.routes import MASTER, PERM_WRITE, BrokerData, QueueData, Routes

FIRST_WITH_JSON = 401
"""V4_9_4: clients from this version on get routes as standard JSON (ClientRequestProcessor)."""

UNIT = 1
UNIT_SUBSCRIBED = 2


def route(
    routes: Routes,
    topic: str,
    *,
    standard: bool,
    acting_master: bool,
    order: str | None = None,
    zone: str | None = None,
) -> bytes | None:
    """Returns the route of a topic; None if no broker has the topic.

    Args:
        routes: the tables.
        topic: name of the topic.
        standard: write standard JSON.
        acting_master: if the master is missing and the broker group allows it, show the slave with the lowest id as
            master.
        order: configuration of an ordered topic.
        zone: include only brokers of this zone, and broker groups for which no master is shown.
    """
    queues = list(routes.topics.get(topic, {}).values())
    brokers = [routes.brokers[data.broker_name] for data in queues if data.broker_name in routes.brokers]
    if not queues or not brokers:
        return None
    stand_in = acting_master and not topic.startswith(SYNC_MEMBER_PREFIX)
    shown = {data.name: _addresses(data, queues) if stand_in else data.addresses for data in brokers}
    if zone is not None:
        near = [data for data in brokers if MASTER not in shown[data.name] or (data.zone or "").lower() == zone.lower()]
        far = {data.name for data in brokers} - {data.name for data in near}
        brokers, queues = near, [data for data in queues if data.broker_name not in far]
    answer: dict[str, Any] = {
        "brokerDatas": [_broker(data, shown[data.name], standard=standard) for data in brokers],
        "filterServerTable": {
            address: routes.filter_servers[address]
            for data in brokers
            for address in data.addresses.values()
            if address in routes.filter_servers
        },
    }
    if order is not None:
        answer["orderTopicConf"] = order
    answer["queueDatas"] = [_queue(data) for data in queues]
    if mappings := routes.mappings.get(topic):
        answer["topicQueueMappingByBroker"] = mappings
    return orjson.dumps(answer, option=orjson.OPT_NON_STR_KEYS)


def _queue(data: QueueData) -> dict[str, Any]:
    return {
        "brokerName": data.broker_name,
        "perm": data.perm,
        "readQueueNums": data.read_queue_nums,
        "topicSysFlag": data.topic_sys_flag,
        "writeQueueNums": data.write_queue_nums,
    }


def cluster_info(routes: Routes) -> bytes:
    """Returns all brokers and clusters."""
    table = {name: _broker(data, data.addresses, standard=False) for name, data in routes.brokers.items()}
    return orjson.dumps(
        {
            "brokerAddrTable": table,
            "clusterAddrTable": {cluster: list(names) for cluster, names in routes.clusters.items()},
        }
    )


def member_group(routes: Routes, cluster: str, broker_name: str) -> bytes:
    """Returns the members of a broker group, which share a broker name."""
    data = routes.brokers.get(broker_name) or BrokerData(cluster, broker_name)
    return orjson.dumps(
        {"brokerMemberGroup": {"brokerAddrs": _bare(data.addresses), "brokerName": broker_name, "cluster": cluster}}
    )


def topic_list(topics: Iterable[str], broker_address: str | None = None) -> bytes:
    """Returns a list of topic names as a body."""
    head = {} if broker_address is None else {"brokerAddr": broker_address}
    return orjson.dumps({**head, "topicList": list(topics)})


def topics_of_cluster(routes: Routes, cluster: str) -> list[str]:
    """Returns the topics that brokers of a cluster have."""
    names = routes.clusters.get(cluster, {})
    return [topic for topic, queues in routes.topics.items() if any(name in queues for name in names)]


def system_topics(routes: Routes) -> tuple[list[str], str | None]:
    """Returns the topics named after clusters and brokers, which each broker creates, and the address of any broker."""
    names = [name for cluster, brokers in routes.clusters.items() for name in (cluster, *brokers)]
    address = next((item for data in routes.brokers.values() for item in data.addresses.values()), None)
    return list(dict.fromkeys(names)), address


def topics_with_flag(routes: Routes, required: int, excluded: int = 0) -> list[str]:
    """Returns topics by the topicSysFlag of their queues on the first broker."""
    flags = {topic: next(iter(queues.values())).topic_sys_flag for topic, queues in routes.topics.items() if queues}
    return [topic for topic, flag in flags.items() if flag & required and not flag & excluded]


def _broker(data: BrokerData, addresses: dict[int, str], *, standard: bool) -> dict[str, Any]:
    broker: dict[str, Any] = {
        "brokerAddrs": {str(id_): address for id_, address in sorted(addresses.items())}
        if standard
        else _bare(addresses),
        "brokerName": data.name,
        "cluster": data.cluster,
        "enableActingMaster": data.acting_master,
    }
    if data.zone is not None:
        broker["zoneName"] = data.zone
    return broker


def _addresses(data: BrokerData, queues: list[QueueData]) -> dict[int, str]:
    """Returns broker addresses by id; shows the slave with the lowest id as master if no queue is writable."""
    perm = next((queue.perm for queue in queues if queue.broker_name == data.name), PERM_WRITE)
    if not data.acting_master or not data.addresses or MASTER in data.addresses or perm & PERM_WRITE:
        return data.addresses
    lowest = min(data.addresses)
    others = {id_: address for id_, address in data.addresses.items() if id_ != lowest}
    return {MASTER: data.addresses[lowest], **others}


def _bare(addresses: dict[int, str]) -> orjson.Fragment:
    members = (b"%d:%s" % (id_, orjson.dumps(address)) for id_, address in sorted(addresses.items()))
    return orjson.Fragment(b"{" + b",".join(members) + b"}")
