"""Requests and answers of the remoting protocol as values.

Docs page: docs/protocol.md. Source: RemotingCommand, SerializeType and LanguageCode (4.9.7, 5.5.0).
"""

from enum import IntEnum

from msgspec import Struct, field

from mqtool.protocol.codes import ResponseCode

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2

VERSION = 513
"""Version that 5.5.0 sends: the ordinal of V5_5_0 in MQVersion. Clients decide by it which features they use."""

LANGUAGES = (
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
)
"""The names of LanguageCode; the index of a name is its number in the ROCKETMQ header."""


class Serialization(IntEnum):
    """Encoding of a header, as the frame's prefix states it."""

    JSON = 0
    ROCKETMQ = 1


class Command(Struct):
    """A request or its answer; an answer has the `opaque` of its request."""

    code: int  # request code (`RequestCode`) or response code (`ResponseCode`)
    flag: int = 0  # bits: 1 for an answer, 2 for a one-way request
    # 32-bit id of the request, chosen by the requester. Each end of a connection numbers its own requests.
    opaque: int = 0
    remark: str | None = None  # text for people, mostly about an error
    # the header's extFields; every value is text, including numbers and booleans
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes | memoryview = b""  # bytes after the header; an empty body and no body are the same on the wire
    language: str = "JAVA"  # one of `LANGUAGES`
    version: int = VERSION  # release of the sender, an ordinal of MQVersion
    serialization: Serialization = Serialization.JSON  # encoding of the header, as received or as to be sent

    @property
    def is_response(self) -> bool:
        """Whether the command is an answer."""
        return self.flag & FLAG_RESPONSE != 0

    @property
    def outcome(self) -> str:
        """Code and remark of an answer, in words."""
        try:
            name = ResponseCode(self.code).name
        except ValueError:
            name = f"code {self.code}"
        words = " ".join((self.remark or "").split())
        return f"{name}: {words}" if words else name

    def reply(
        self, code: int, remark: str | None = None, fields: dict[str, str] | None = None, body: bytes | memoryview = b""
    ) -> "Command":
        """Returns an answer to this request, with its opaque and serialization.

        A ROCKETMQ header has 16 bits for the code, which is enough for all response codes.
        """
        return Command(
            code,
            FLAG_RESPONSE,
            self.opaque,
            remark,
            {} if fields is None else fields,
            body,
            "JAVA",
            VERSION,
            self.serialization,
        )
