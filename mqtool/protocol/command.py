"""One request or answer, as values.

Docs page: docs/protocol.md. Source: RemotingCommand, SerializeType and LanguageCode (4.9.7, 5.5.0).
"""

from dataclasses import dataclass, field
from enum import IntEnum

from mqtool.protocol.codes import ResponseCode

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2

VERSION = 513
"""What 5.5.0 sends as its version: the ordinal of V5_5_0 in MQVersion. Clients choose by it what they ask for."""

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
"""The names of LanguageCode; a name's place is its number in the ROCKETMQ header."""


class Serialization(IntEnum):
    """Encoding of a header; the number is in the frame."""

    JSON = 0
    ROCKETMQ = 1


@dataclass(slots=True)
class Command:
    """A request or its answer; an answer has the `opaque` of its request.

    Attributes:
        code: what is asked for (`RequestCode`), or how it ended (`ResponseCode`).
        flag: bits: 1 for an answer, 2 for a one-way request.
        opaque: 32 bits chosen by who asks. Both sides of a connection count for themselves.
        remark: words for people, mostly about an error.
        fields: the header's extFields; every value is text, also numbers and booleans.
        body: bytes after the header; an empty body and no body are the same on the wire.
        language: one of `LANGUAGES`.
        version: release of the sender, an ordinal of MQVersion.
        serialization: how the header came or shall go.
    """

    code: int
    flag: int = 0
    opaque: int = 0
    remark: str | None = None
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes | memoryview = b""
    language: str = "JAVA"
    version: int = VERSION
    serialization: Serialization = Serialization.JSON

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """Whether it is a one-way request."""
        return self.flag & FLAG_ONEWAY != 0

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
        """Returns an answer to this request, with its opaque and in its serialization.

        A header of kind ROCKETMQ has 16 bits for the code, which every answer's code fits.
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
