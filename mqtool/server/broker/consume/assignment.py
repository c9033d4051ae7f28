"""Queue assignment: which queues a client consumes if the broker decides, and whether it pulls or pops.

Source: QueryAssignmentProcessor, MessageRequestModeManager, AllocateMessageQueueAveragely (5.5.0).
"""

from collections.abc import Mapping
from typing import Any

from mqtool.formats import config_json, file_names, java
from mqtool.formats.topics import RETRY_PREFIX
from mqtool.protocol.codes import RequestCode, ResponseCode
from mqtool.protocol.command import Command
from mqtool.server.broker.answers import RefusalError, body, body_of, ok
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.tables.queue_locks import QueueName
from mqtool.server.net.peer import Handler, Peer

_AVERAGE, _CIRCLE = "AVG", "AVG_BY_CIRCLE"
_PULL, _POP = "PULL", "POP"
_BROADCASTING, _CLUSTERING = "BROADCASTING", "CLUSTERING"


class Assignments:
    """Handles QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE and GET_ALL_MESSAGE_REQUEST_MODE."""

    def __init__(self, broker: Broker) -> None:
        """Loads messageRequestMode.json.

        Raises:
            ConfigFileError: the file cannot be parsed.
        """
        self._broker = broker
        document = broker.persister.configs.load(file_names.MESSAGE_REQUEST_MODE, config_json.parse) or {}
        self._document: dict[Any, Any] = document
        self._modes: dict[str, dict[str, dict[str, Any]]] = document.setdefault("messageRequestModeMap", {})
        broker.persister.register(file_names.MESSAGE_REQUEST_MODE, self._build)

    def handlers(self) -> Mapping[int, Handler]:
        """Returns the handler of each request code."""
        return {
            RequestCode.QUERY_ASSIGNMENT: self.query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.modes,
        }

    def _build(self) -> bytes:
        return config_json.build(self._document, self._broker.persister.configs.style)

    async def set_mode(self, command: Command, _peer: Peer) -> Command:
        """Sets whether a consumer group pulls or pops a topic."""
        self._broker.check_open()
        request = body_of(command)
        topic, group = str(request.get("topic", "")), str(request.get("consumerGroup", ""))
        mode = str(request.get("mode", _PULL))
        if mode not in (_PULL, _POP):
            raise RefusalError(ResponseCode.INVALID_PARAMETER, f"mode: expected PULL or POP, found {mode}")
        number = java.json_int(request.get("popShareQueueNum") or 0)
        if topic.startswith(RETRY_PREFIX):
            raise RefusalError(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._broker.topics.get(topic) is None:
            raise RefusalError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        if self._broker.groups.find(group) is None:
            raise RefusalError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        self._modes.setdefault(topic, {})[group] = {
            "consumerGroup": group,
            "mode": mode,
            "popShareQueueNum": number,
            "topic": topic,
        }
        self._broker.persister.mark(file_names.MESSAGE_REQUEST_MODE)
        await self._broker.persister.saved()
        return ok(command)

    def modes(self, command: Command, _peer: Peer) -> Command:
        """Returns the modes that were set, by topic and consumer group."""
        return ok(command, data=body(self._document))

    def query(self, command: Command, _peer: Peer) -> Command:
        """Returns the queues assigned to a client, and whether it pulls or pops them.

        Without an answer for the client, for instance because its group has no members yet, the list is missing, so
        that the client keeps its queues.
        """
        request = body_of(command)
        mode, shared = self._mode(str(request.get("topic", "")), str(request.get("consumerGroup", "")))
        queues = self._assigned(request, shared if mode == _POP else None)
        if queues is None:
            return ok(command, data=body({}))
        shown = [{"attachments": {}, "messageQueue": queue, "mode": mode} for queue in queues]
        return ok(command, data=body({"messageQueueAssignments": shown}))

    def _mode(self, topic: str, group: str) -> tuple[str, int]:
        """Returns whether a group pulls or pops a topic, and popShareQueueNum."""
        stored, settings = self._modes.get(topic, {}).get(group), self._broker.settings
        if stored is not None:
            return str(stored.get("mode", _PULL)), java.json_int(stored.get("popShareQueueNum") or 0)
        mode = _PULL if topic.startswith(RETRY_PREFIX) else settings.text("defaultMessageRequestMode")
        return mode, settings.number("defaultPopShareQueueNum")

    def _assigned(self, request: dict[str, Any], shared: int | None) -> list[QueueName] | None:
        """Returns the queues of a client; None if they cannot be determined (doLoadBalance).

        Args:
            request: body of the request.
            shared: popShareQueueNum; None if the group pulls.
        """
        topic, client = str(request.get("topic", "")), str(request.get("clientId", ""))
        model, config = request.get("messageModel"), self._broker.topics.get(topic)
        if config is None or model not in (_BROADCASTING, _CLUSTERING):
            return None
        name = self._broker.settings.text("brokerName")
        queues = [QueueName(name, queue_id, topic) for queue_id in range(config.read_queue_nums)]
        if model == _BROADCASTING or not self._broker.settings.flag("serverLoadBalancerEnable"):
            return queues
        members = self._broker.clients.consumer_group(str(request.get("consumerGroup", "")))
        ids = sorted(set(members.client_ids())) if members is not None else []
        strategy = request.get("strategyName")
        if not ids or not client or not queues or strategy not in (_AVERAGE, _CIRCLE):
            return None
        if shared is None:
            return share(queues, ids, client, strategy)
        return share_popped(queues, ids, client, strategy, shared)


def share(queues: list[QueueName], ids: list[str], client: str, strategy: str) -> list[QueueName]:
    """Returns a client's share of the queues, by the same algorithm as clients use; none for a client without member.

    Args:
        queues: all queues, in order.
        ids: client ids of all members, in order.
        client: client id of one member.
        strategy: "AVG" or "AVG_BY_CIRCLE".
    """
    if client not in ids:
        return []
    place = ids.index(client)
    if strategy == _CIRCLE:
        return queues[place :: len(ids)]
    quotient, more = divmod(len(queues), len(ids))
    start = place * quotient + min(place, more)
    return queues[start : start + quotient + (place < more)]


def share_popped(queues: list[QueueName], ids: list[str], client: str, strategy: str, shared: int) -> list[QueueName]:
    """Returns the queues that a client pops (allocate4Pop); queue -1 stands for all of them.

    Args:
        queues, ids, client, strategy: as for `share`.
        shared: number of further members whose share the client pops too; all if it is not positive.
    """
    if shared <= 0 or shared >= len(ids) - 1:
        return [queues[0]._replace(queue_id=-1)]
    if client not in ids:
        return []
    place = ids.index(client)
    if len(ids) > len(queues):
        return [queues[place % len(queues)]]
    owners = [ids[(place + further) % len(ids)] for further in range(shared + 1)]
    return [queue for owner in owners for queue in share(queues, ids, owner, strategy)]
