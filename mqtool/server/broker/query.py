"""Query: messages by key and by physical offset. Source: QueryMessageProcessor (5.5.0)."""

from typing import TYPE_CHECKING

from mqtool.protocol.codes import ResponseCode
from mqtool.protocol.command import Command
from mqtool.server.broker.answers import RefusalError, flag, number, ok, text
from mqtool.server.peer import Peer

if TYPE_CHECKING:
    from mqtool.server.broker.broker import Broker

_DEFAULT_MAX = 32
_TAG = "T"


class QueryProcessor:
    """QUERY_MESSAGE and VIEW_MESSAGE_BY_ID."""

    def __init__(self, broker: "Broker") -> None:
        """Takes the broker whose store it uses."""
        self._broker = broker

    def query(self, command: Command, peer: Peer) -> Command:  # noqa: ARG002 - every handler has both
        """Returns messages whose keys have the hash of the one that is asked for; clients compare the keys."""
        most = _DEFAULT_MAX if flag(command, "_UNIQUE_KEY_QUERY") else number(command, "maxNum")
        found = self._broker.messages.query_message(
            text(command, "topic"),
            text(command, "key"),
            most,
            number(command, "beginTimestamp"),
            number(command, "endTimestamp"),
            tag=command.fields.get("indexType") == _TAG,
        )
        fields = {
            "indexLastUpdateTimestamp": str(found.index_last_update_timestamp),
            "indexLastUpdatePhyoffset": str(found.index_last_update_physical_offset),
        }
        if not found.records:
            remark = "can not find message, maybe time range not correct"
            return command.reply(ResponseCode.QUERY_NOT_FOUND, remark, fields)
        return ok(command, fields, b"".join(found.records))

    def view(self, command: Command, peer: Peer) -> Command:  # noqa: ARG002
        """Returns the message at a physical offset."""
        offset = number(command, "offset")
        data = self._broker.messages.message_at(offset)
        if data is None:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return ok(command, data=bytes(data))
