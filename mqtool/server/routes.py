"""The routing tables of a name server, and their JSON in RocketMQ's format. No sockets; the clock is passed in.

The tables have the registered brokers, and the queues of each topic on them. In JSON, maps whose keys are broker ids
are written with unquoted numbers as keys, which is not valid JSON, but what fastjson writes and reads. Routes are
standard JSON for clients of 4.9.4 and later, and for clients that ask for it. Source: RouteInfoManager (differences of
4.9.7 are noted), ClientRequestProcessor, ZoneRouteRPCHook (5.5.0).
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.formats.config_files import DataVersion
from mqtool.formats.topics import SYNC_MEMBER_PREFIX
from mqtool.protocol.registration_body import RegisterBody

log = logging.getLogger(__name__)

MASTER = 0
EXPIRY_SECONDS = 120.0
PERM_WRITE = 2
READ_WRITE = 6

T = TypeVar("T")

FIRST_WITH_JSON = 401
"""V4_9_4: clients from this version on get routes as standard JSON (ClientRequestProcessor)."""

UNIT = 1
UNIT_SUBSCRIBED = 2


class Registration(Struct, frozen=True):
    """The registration that a broker sends every 30 s."""

    cluster: str  # name of its cluster
    broker_name: str  # name of its broker group; a master and its slaves share it
    broker_id: int  # 0 for the master
    address: str  # "host:port" for clients
    ha_address: str = ""  # "host:port" for its slaves
    body: RegisterBody = field(default_factory=RegisterBody)  # its topics
    lifetime: float = EXPIRY_SECONDS  # seconds after which the registration expires unless it is renewed
    # whether a slave may act as master if the master is missing; None from releases before 5
    acting_master: bool | None = None
    zone: str | None = None  # its location, for clients that prefer nearby brokers


class BrokerData(Struct):
    """A broker group: the brokers with one name."""

    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)  # "host:port" by broker id
    acting_master: bool = False
    zone: str | None = None


class QueueData(Struct, frozen=True):
    """The queues of one topic on the brokers of one broker group."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


class LiveBroker(Struct):
    """A registered broker: time of its last message, and the connection over which it registered."""

    registration: Registration
    last_heard: float
    connection: object


class Registered(Struct, frozen=True):
    """The answer to a registration: for a slave, its master. `min_id_changed`: the group's lowest id has changed."""

    master_address: str | None = None
    ha_address: str | None = None
    min_id_changed: bool = False


class Routes:
    """The routing tables; the monotonic clock is in seconds.

    `brokers` has broker groups by name, `topics` queues by topic and broker name, `clusters` broker names by cluster,
    `live` registered brokers by (cluster, address), `mappings` queue mappings of static topics by topic and broker
    name, `filter_servers` their addresses by broker address.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.brokers: dict[str, BrokerData] = {}
        self.topics: dict[str, dict[str, QueueData]] = {}
        self.clusters: dict[str, dict[str, None]] = {}
        self.live: dict[tuple[str, str], LiveBroker] = {}
        self.mappings: dict[str, dict[str, object]] = {}
        self.filter_servers: dict[str, list[str]] = {}

    def register(
        self, registration: Registration, connection: object = None, *, delete_missing: bool = False
    ) -> Registered | None:
        """Registers a broker; returns None if it is refused, because an unknown broker may not register only one topic.

        If another address with a higher state version has the broker id, the broker is not added; this is not an error.
        `delete_missing` removes queues of topics that are not listed (deleteTopicWithBrokerRegistration).
        """
        self.clusters.setdefault(registration.cluster, {})[registration.broker_name] = None
        first = registration.broker_name not in self.brokers
        data = self.brokers.setdefault(
            registration.broker_name, BrokerData(registration.cluster, registration.broker_name)
        )
        data.acting_master, data.zone = bool(registration.acting_master), registration.zone
        lowest = min(data.addresses, default=0)
        data.addresses = {
            id_: address
            for id_, address in data.addresses.items()
            if address != registration.address or id_ == registration.broker_id
        }
        if self._outdated(registration, data.addresses.get(registration.broker_id)):
            self.live.pop((registration.cluster, registration.address), None)
            return Registered()
        if registration.broker_id not in data.addresses and len(registration.body.topics) == 1:
            log.warning(
                "registration refused broker=%s address=%s reason=a single topic",
                registration.broker_name,
                registration.address,
            )
            return None
        first = first or registration.broker_id not in data.addresses
        data.addresses[registration.broker_id] = registration.address
        self._take_topics(registration, data, first=first, delete_missing=delete_missing)
        key = (registration.cluster, registration.address)
        if key not in self.live:
            log.info(
                "broker registered name=%s id=%d address=%s",
                registration.broker_name,
                registration.broker_id,
                registration.address,
            )
        self.live[key] = LiveBroker(registration, self._clock(), connection)
        self.filter_servers.pop(registration.address, None)
        if registration.body.filter_servers:
            self.filter_servers[registration.address] = registration.body.filter_servers
        return self._answer(registration, data, registration.broker_id < lowest)

    def _outdated(self, registration: Registration, holder: str | None) -> bool:
        known = (
            self.live.get((registration.cluster, holder))
            if holder is not None and holder != registration.address
            else None
        )
        theirs = known.registration.body.data_version.state_version if known else None
        return (theirs or 0) > (registration.body.data_version.state_version or 0)

    def _take_topics(self, registration: Registration, data: BrokerData, *, first: bool, delete_missing: bool) -> None:
        prime_slave = (
            registration.acting_master is not None
            and registration.broker_id != MASTER
            and registration.broker_id == min(data.addresses)
        )
        if registration.broker_id != MASTER and not prime_slave:
            return
        if delete_missing and not registration.body.mappings:
            _remove(self.topics, registration.broker_name, self.topics.keys() - registration.body.topics.keys())
        changed = first or self.changed(registration.cluster, registration.address, registration.body.data_version)
        for topic, config in registration.body.topics.items():
            if changed or registration.broker_name not in self.topics.get(topic, {}):
                perm = config.perm & ~PERM_WRITE if prime_slave and data.acting_master else config.perm
                self.topics.setdefault(topic, {})[registration.broker_name] = QueueData(
                    registration.broker_name,
                    config.read_queue_nums,
                    config.write_queue_nums,
                    perm,
                    config.topic_sys_flag,
                )
        if changed:
            for topic, mapping in registration.body.mappings.items():
                self.mappings.setdefault(topic, {})[registration.broker_name] = mapping

    def _answer(self, registration: Registration, data: BrokerData, min_id_changed: bool) -> Registered:
        master = data.addresses.get(MASTER) if registration.broker_id != MASTER else None
        live = self.live.get((registration.cluster, master)) if master is not None else None
        if live is None:
            return Registered(min_id_changed=min_id_changed)
        return Registered(master, live.registration.ha_address, min_id_changed)

    def changed(self, cluster: str, address: str, version: DataVersion) -> bool:
        """Whether a broker's topics differ from those that it registered, by their data version."""
        known = self.version_of(cluster, address)
        return known is None or _numbers(known) != _numbers(version)

    def version_of(self, cluster: str, address: str) -> DataVersion | None:
        """Returns the data version of the topics that a broker registered; None if it is not registered."""
        live = self.live.get((cluster, address))
        return live.registration.body.data_version if live else None

    def renew(self, cluster: str, address: str) -> None:
        """Records that a broker is alive."""
        if live := self.live.get((cluster, address)):
            live.last_heard = self._clock()

    def unregister(self, cluster: str, broker_name: str, broker_id: int, address: str) -> bool:
        """Removes a broker; if it was the last of its broker group, also the queues there.

        Returns whether the lowest broker id of a group has changed in which a slave may act as master.
        """
        self.live.pop((cluster, address), None)
        self.filter_servers.pop(address, None)
        data = self.brokers.get(broker_name)
        if data is None:
            return False
        lowest = min(data.addresses, default=MASTER)
        for id_ in [id_ for id_, registered in data.addresses.items() if registered == address]:
            del data.addresses[id_]
            log.info("broker removed name=%s id=%d address=%s", broker_name, id_, address)
        if data.addresses:
            if data.acting_master and MASTER not in data.addresses:
                self._set_perm(broker_name, lambda perm: perm & ~PERM_WRITE)
            return data.acting_master and broker_id == lowest
        del self.brokers[broker_name]
        self._forget_names(cluster, broker_name)
        return False

    def _forget_names(self, cluster: str, broker_name: str) -> None:
        names = self.clusters.get(cluster, {})
        names.pop(broker_name, None)
        if not names:
            self.clusters.pop(cluster, None)
        _remove(self.topics, broker_name, list(self.topics))
        _remove(self.mappings, broker_name, list(self.mappings))

    def expired(self) -> list[LiveBroker]:
        """Returns the brokers whose registration has expired; `unregister` removes them."""
        now = self._clock()
        return [live for live in self.live.values() if live.last_heard + live.registration.lifetime < now]

    def wipe_write(self, broker_name: str) -> int:
        """Removes the write permission of all topics of a broker group; returns the number of topics."""
        return self._set_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write(self, broker_name: str) -> int:
        """Makes all topics of a broker group readable and writable; returns the number of topics."""
        return self._set_perm(broker_name, lambda _: READ_WRITE)

    def _set_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        count = 0
        for queues in self.topics.values():
            if (data := queues.get(broker_name)) is not None:
                queues[broker_name] = replace(data, perm=change(data.perm))
                count += 1
        return count

    def put_topic(self, topic: str, queues: list[QueueData]) -> None:
        """Adds or replaces the queues of a topic manually; changes nothing if one of the brokers is unknown."""
        if queues and all(data.broker_name in self.brokers for data in queues):
            table = self.topics.setdefault(topic, {})
            for data in queues:
                table[data.broker_name] = data

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Removes a topic, in one cluster or in all."""
        queues = self.topics.get(topic, {})
        for name in list(self.clusters.get(cluster, {}) if cluster is not None else queues):
            queues.pop(name, None)
        if not queues:
            self.topics.pop(topic, None)


def _remove(table: dict[str, dict[str, T]], broker_name: str, topics: Iterable[str]) -> None:
    """Removes what a table has for a broker group and some topics; also the topics for which nothing is left."""
    for topic in topics:
        if table[topic].pop(broker_name, None) is not None and not table[topic]:
            del table[topic]


def _numbers(version: DataVersion) -> tuple[int, int, int]:
    return version.counter, version.timestamp, version.state_version or 0


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

    With `acting_master`, the slave with the lowest id is shown as a missing master if the broker group allows it.
    `order` is the configuration of an ordered topic. With `zone`, only brokers of this zone are included, and broker
    groups for which no master is shown.
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
