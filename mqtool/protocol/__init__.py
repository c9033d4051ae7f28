"""The remoting protocol of RocketMQ without sockets: bytes ↔ commands.

`Framer` splits a byte stream into `Command`s, and `encode` writes them. Headers may be in JSON or ROCKETMQ
serialization. This package uses no clock, files or connections; `mqtool.server` has those. Docs page:
docs/protocol.md.
"""

from mqtool.protocol.command import Command, RequestCode, ResponseCode, Serialization
from mqtool.protocol.frames import Framer, encode

__all__ = ["Command", "Framer", "RequestCode", "ResponseCode", "Serialization", "encode"]
