"""Handles queries of messages by key and by physical offset. Source: QueryMessageProcessor (5.5.0)."""

from collections.abc import Mapping

from mqtool.errors import FormatError
from mqtool.formats import properties
from mqtool.protocol.codes import RequestCode, ResponseCode
from mqtool.protocol.command import Command
from mqtool.server.broker.answers import RefusalError, flag, number, ok, text
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.parsed_record import parsed_record
from mqtool.server.net.peer import Handler, Peer

_DEFAULT_MAX = 32
_TAG = "T"


class QueryProcessor:
    """Handles QUERY_MESSAGE and VIEW_MESSAGE_BY_ID."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Mapping[int, Handler]:
        """Returns the handler of each request code."""
        return {
            RequestCode.QUERY_MESSAGE: self.query,
            RequestCode.VIEW_MESSAGE_BY_ID: self.view,
        }

    def query(self, command: Command, _peer: Peer) -> Command:
        """Returns the messages that have a key.

        The IndexFile contains only the hash of a key. The real broker returns every message with that hash, and its
        clients discard those with another key. Here they are omitted, for clients that do not check.
        """
        limit = _DEFAULT_MAX if flag(command, "_UNIQUE_KEY_QUERY") else number(command, "maxNum")
        topic, key, is_tag = text(command, "topic"), text(command, "key"), command.fields.get("indexType") == _TAG
        begin, end = number(command, "beginTimestamp"), number(command, "endTimestamp")
        result = self._broker.messages.query_message(topic, key, limit, begin, end, tag=is_tag)
        records = [record for record in result.records if _has_key(record, topic, key, is_tag=is_tag)]
        fields = {
            "indexLastUpdateTimestamp": str(result.index_last_update_timestamp),
            "indexLastUpdatePhyoffset": str(result.index_last_update_physical_offset),
        }
        if not records:
            remark = "can not find message, maybe time range not correct"
            return command.reply(ResponseCode.QUERY_NOT_FOUND, remark, fields)
        return ok(command, fields, b"".join(records))

    def view(self, command: Command, _peer: Peer) -> Command:
        """Returns the message at a physical offset."""
        offset = number(command, "offset")
        data = self._broker.messages.message_at(offset)
        if data is None:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return ok(command, data=bytes(data))


def _has_key(record: "memoryview | bytes", topic: str, key: str, *, is_tag: bool) -> bool:
    """Whether a record really has the topic and the key (or tag), not just the same hash."""
    try:
        message = parsed_record(record)
    except FormatError:
        return False
    values = message.properties
    if message.topic != topic:
        return False
    if is_tag:
        return values.get(properties.TAGS) == key
    return key == message.unique_key or key in values.get(properties.KEYS, "").split(properties.KEY_SEPARATOR)
