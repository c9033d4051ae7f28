"""Parses a topic route of a name server into the queues to which a producer may send.

Source: TopicRouteData, QueueData, MQClientInstance.topicRouteData2TopicPublishInfo (4.9.7, 5.5.0).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from mqtool.errors import FormatError, RemoteProtocolError
from mqtool.formats import java
from mqtool.protocol.registration_body import document_in
from mqtool.server.namesrv.routes import MASTER, PERM_WRITE

_MAX_QUEUES = 1 << 16


class Destination(NamedTuple):
    """A queue on a broker.

    Attributes:
        address: "host:port" of the master.
        queue_id: id of the queue.
    """

    address: str
    queue_id: int


class Route(Struct, frozen=True):
    """The brokers that accept messages of a topic.

    Attributes:
        queues: (address of a master, number of its queues), sorted by broker name.
        problem: why there are no queues; "" if there are some.
        known: whether the name server has the topic.
    """

    queues: tuple[tuple[str, int], ...]
    problem: str = ""
    known: bool = True

    @property
    def max_queues(self) -> int:
        """The largest number of queues on one broker."""
        return max((count for _, count in self.queues), default=0)

    def destination(self, queue_id: int) -> Destination | None:
        """Returns the queue for the messages of an original queue, always the same one; None if there are no queues.

        The queue id is kept if a broker has it. Other original queues are distributed over the existing ones.
        """
        having = [address for address, count in self.queues if 0 <= queue_id < count]
        if having:
            return Destination(having[queue_id % len(having)], queue_id)
        every = [Destination(address, number) for address, count in self.queues for number in range(count)]
        return every[queue_id % len(every)] if every else None


def route_in(body: bytes | memoryview) -> Route:
    """Parses the body of an answer to GET_ROUTEINFO_BY_TOPIC.

    Raises:
        RemoteProtocolError: the body is not a route.
    """
    document = document_in(body)
    try:
        masters = {str(item["brokerName"]): _master(item["brokerAddrs"]) for item in document.get("brokerDatas") or []}
        brokers: dict[str, tuple[str, int]] = {}
        seen = []
        for item in sorted(document.get("queueDatas") or [], key=lambda item: str(item["brokerName"])):
            name, perm, count = (
                str(item["brokerName"]),
                java.json_int(item["perm"]),
                java.json_int(item["writeQueueNums"]),
            )
            address = masters.get(name)
            seen.append(f"{name}: {'no master' if address is None else f'perm {perm}, {count} queues to write'}")
            if address is not None and perm & PERM_WRITE and 0 < count <= _MAX_QUEUES:
                brokers[name] = address, count
    except (KeyError, TypeError, AttributeError, FormatError) as error:
        raise RemoteProtocolError(f"route of a topic: {error!r}") from error
    return Route(tuple(brokers.values()), "" if brokers else f"no broker takes messages ({'; '.join(seen) or 'none'})")


def _master(addresses: Mapping[Any, Any]) -> str | None:
    """Returns the address of broker id 0; keys may be numbers or texts."""
    return next((str(address) for number, address in addresses.items() if java.json_long(number) == MASTER), None)
