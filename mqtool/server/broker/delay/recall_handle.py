"""Recall handles, with which a timer message can be cancelled before its delivery.

Source: RecallMessageHandle (5.5.0).
"""

import base64
import binascii
from typing import NamedTuple

from mqtool.errors import FormatError
from mqtool.formats import java
from mqtool.protocol.codes import ResponseCode
from mqtool.server.broker.answers import RefusalError

_VERSION = "v1"


class RecallHandle(NamedTuple):
    """Identifies a timer message to recall."""

    topic: str
    broker_name: str
    time_ms: int
    message_id: str

    @property
    def text(self) -> str:
        """The handle in the form that producers receive."""
        raw = f"{_VERSION} {self.topic} {self.broker_name} {self.time_ms} {self.message_id}"
        return base64.urlsafe_b64encode(java.encode_utf8(raw)).decode()


def parse_handle(handle: str) -> RecallHandle:
    """Parses a handle; raises RefusalError if it is invalid."""
    try:
        version, topic, broker_name, at, message_id = base64.urlsafe_b64decode(handle).decode("utf-8").split(" ")
        if version == _VERSION:
            return RecallHandle(topic, broker_name, java.parse_long(at), message_id)
    except (ValueError, FormatError, binascii.Error):
        pass
    raise RefusalError(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")
