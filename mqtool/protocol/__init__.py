"""The remoting protocol of RocketMQ without sockets: bytes ↔ commands.

`Framer` cuts a stream into `Command`s and `encode` writes them; both headers, JSON and ROCKETMQ, are spoken. No clock,
no file, no connection is known here; `mqtool.server` has those. Docs page: docs/protocol.md.
"""

from mqtool.protocol.codes import RequestCode, ResponseCode
from mqtool.protocol.command import Command, Serialization
from mqtool.protocol.frames import Framer, encode

__all__ = ["Command", "Framer", "RequestCode", "ResponseCode", "Serialization", "encode"]
