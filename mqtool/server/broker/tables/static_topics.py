"""Static topics: their queue ids and queue offsets are logical, and mapped to queues of one or more brokers.

They are not mapped here, so requests that name such queues are refused. Source: TopicQueueMappingManager (5.5.0).
"""

import logging
from typing import Any

from mqtool.engine.config_files import ConfigFiles
from mqtool.errors import FormatError
from mqtool.formats import config_json, file_names
from mqtool.formats.beans import bean_of
from mqtool.formats.codec import Buffer
from mqtool.formats.config_files import DataVersion
from mqtool.protocol.codes import RequestCode, ResponseCode
from mqtool.protocol.command import Command
from mqtool.server.broker.answers import RefusalError

_LOG = logging.getLogger(__name__)

_TABLE, _VERSION = "topicQueueMappingInfoMap", "dataVersion"

_SENDS = {
    RequestCode.SEND_MESSAGE: "topic",
    RequestCode.SEND_MESSAGE_V2: "b",
    RequestCode.SEND_BATCH_MESSAGE: "b",
}
"""Header field with the topic, of requests whose queue id is always logical."""

_REFUSED = _SENDS | dict.fromkeys(
    (
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.DELETE_TOPIC_IN_BROKER,
    ),
    "topic",
)
"""Header field with the topic, of requests that need the mapping; one with `lo=false` names a physical queue."""


class StaticTopics:
    """The static topics of a broker.

    Attributes:
        mappings: by topic, the mapping as in topicQueueMapping.json.
        data_version: data version of the file.
    """

    def __init__(self, configs: ConfigFiles) -> None:
        """Loads topicQueueMapping.json.

        Raises:
            ConfigFileError: the file cannot be parsed.
        """
        nothing: tuple[dict[str, Any], DataVersion] = {}, DataVersion(0, 0, 0)
        self.mappings, self.data_version = configs.load(file_names.TOPIC_QUEUE_MAPPING, _parse) or nothing
        if self.mappings:
            _LOG.warning("requests for static topics are refused topics=%s", ",".join(sorted(self.mappings)))

    def check(self, command: Command) -> None:
        """Raises RefusalError if a request needs the mapping of a static topic."""
        field = _REFUSED.get(command.code)  # type: ignore[call-overload]  # a code of a client is any number
        if field is None or (topic := command.fields.get(field)) not in self.mappings:
            return
        if command.code in _SENDS or command.fields.get("lo", "").lower() != "false":
            remark = f"topic[{topic}] is a static topic, whose logical queues are not mapped; use a RocketMQ broker"
            raise RefusalError(ResponseCode.NOT_LEADER_FOR_QUEUE, remark)


def _parse(data: Buffer) -> tuple[dict[str, Any], DataVersion]:
    document = config_json.parse(data)
    table = document.get(_TABLE) or {}
    if not isinstance(table, dict):
        raise FormatError("expected a table of mappings by topic", layout="configuration", field=_TABLE)
    version = bean_of(DataVersion, document.get(_VERSION) or {}, _VERSION)
    return {str(topic): mapping for topic, mapping in table.items()}, version
