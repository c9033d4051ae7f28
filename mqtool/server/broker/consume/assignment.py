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


class Assignments:
    """Handles QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE and GET_ALL_MESSAGE_REQUEST_MODE."""

    def __init__(self, broker: Broker) -> None:
        """Loads messageRequestMode.json.

        Raises:
            ConfigFileError: the file cannot be parsed.
        """
        self._broker = broker
        found = broker.persister.configs.load(file_names.MESSAGE_REQUEST_MODE, config_json.parse) or {}
        self._document: dict[Any, Any] = found
        self._modes: dict[str, dict[str, dict[str, Any]]] = found.setdefault("messageRequestModeMap", {})
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

    async def set_mode(self, command: Command, peer: Peer) -> Command:  # noqa: ARG002 - every handler has both
        """Sets whether a consumer group pulls or pops a topic."""
        found = body_of(command)
        topic, group = str(found.get("topic", "")), str(found.get("consumerGroup", ""))
        if topic.startswith(RETRY_PREFIX):
            raise RefusalError(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        mode = str(found.get("mode", _PULL))
        if mode not in (_PULL, _POP):
            raise RefusalError(ResponseCode.INVALID_PARAMETER, f"mode: expected PULL or POP, found {mode}")
        self._modes.setdefault(topic, {})[group] = {
            "consumerGroup": group,
            "mode": mode,
            "popShareQueueNum": java.json_int(found.get("popShareQueueNum") or 0),
            "topic": topic,
        }
        self._broker.persister.mark(file_names.MESSAGE_REQUEST_MODE)
        await self._broker.persister.saved()
        return ok(command)

    def modes(self, command: Command, peer: Peer) -> Command:  # noqa: ARG002
        """Returns the modes that were set, by topic and consumer group."""
        return ok(command, data=body(self._document))

    def query(self, command: Command, peer: Peer) -> Command:  # noqa: ARG002
        """Returns the queues assigned to a client, and whether it pulls or pops them."""
        found = body_of(command)
        topic, group = str(found.get("topic", "")), str(found.get("consumerGroup", ""))
        client, strategy = str(found.get("clientId", "")), str(found.get("strategyName") or _AVERAGE)
        config = self._broker.topics.get(topic)
        queues = [
            QueueName(self._broker.settings.text("brokerName"), one, topic)
            for one in range(config.read_queue_nums if config is not None else 0)
        ]
        mode = _PULL
        if not topic.startswith(RETRY_PREFIX):
            mode = str(self._modes.get(topic, {}).get(group, {}).get("mode", _PULL))
        if found.get("messageModel") != "BROADCASTING":
            members = self._broker.clients.consumer_group(group)
            ids = sorted(set(members.client_ids())) if members is not None else []
            if client not in ids:
                queues = []
            elif mode == _POP:  # every member may pop from any queue
                queues = [QueueName(self._broker.settings.text("brokerName"), -1, topic)] if queues else []
            else:
                queues = share(queues, ids, client, strategy)
        shown = [{"attachments": {}, "messageQueue": queue, "mode": mode} for queue in queues]
        return ok(command, data=body({"messageQueueAssignments": shown}))


def share(queues: list[QueueName], ids: list[str], client: str, strategy: str) -> list[QueueName]:
    """Returns a client's share of the queues, by the same algorithm as clients use.

    Args:
        queues: all queues, in order.
        ids: client ids of all members, in order.
        client: client id of one member.
        strategy: "AVG" or "AVG_BY_CIRCLE".
    """
    place = ids.index(client)
    if strategy == _CIRCLE:
        return queues[place :: len(ids)]
    least, more = divmod(len(queues), len(ids))
    start = place * least + min(place, more)
    return queues[start : start + least + (place < more)]
