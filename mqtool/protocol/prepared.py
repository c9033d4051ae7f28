"""Prepared answers: the header is encoded once, and a few values are filled in for each request.

Docs page: docs/protocol.md.
"""

from collections.abc import Mapping

from mqtool.protocol.command import FLAG_RESPONSE, Command
from mqtool.protocol.frames import HEADER_WORD_SIZE, pack_prefix
from mqtool.protocol.json_header import write_json

_OPAQUE = 0x7FFF_FFFE
"""Placeholder for the request's opaque."""


class PreparedAnswer:
    """A JSON answer without body and remark, whose header is encoded once.

    Args:
        code: response code.
        fields: text by name. A value that changes is a placeholder of `bytes.__mod__` (`%d`, `%b`); a percent sign is
            `%%`.
    """

    __slots__ = ("_template",)

    def __init__(self, code: int, fields: Mapping[str, str]) -> None:
        header = write_json(Command(code, FLAG_RESPONSE, _OPAQUE, None, dict(fields)))
        before, opaque, after = header.rpartition(b"%d" % _OPAQUE)
        self._template = before + b"%d" + after if opaque else header

    def frame(self, *values: "int | bytes") -> bytes:
        """Returns the frame in one buffer; it equals `encode` of the same command.

        Args:
            values: values of the placeholders in the order of the fields, then the request's opaque. Texts must not
                need JSON escapes: digits and letters only.
        """
        header = self._template % values
        size = len(header)
        return pack_prefix(HEADER_WORD_SIZE + size, size) + header
