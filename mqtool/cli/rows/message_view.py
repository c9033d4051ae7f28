"""The options of `dump`, `get` and `find` that control how messages are printed."""

from msgspec import Struct

from mqtool.cli import ranges
from mqtool.cli.invocation import JSON_FORMATS, TABLE_FORMATS, Format
from mqtool.cli.options import Body, DamageMode, ProgressMode
from mqtool.cli.rows.bodies import BodyView, Redaction
from mqtool.cli.rows.message_rows import MessageRows
from mqtool.errors import UsageError


class MessageView(Struct, frozen=True, kw_only=True):
    """Values of the options; see `options`."""

    format: Format
    body: Body | None = None
    max_body: str | None = None
    raw: bool = False
    redact: bool = False
    explode: bool = False
    hex: bool = False
    follow: bool = False
    damage: DamageMode = DamageMode.STDERR
    progress: ProgressMode = ProgressMode.NONE
    jobs: int = 1

    def check(self) -> None:
        """Raises UsageError where options exclude each other."""
        if self.damage is DamageMode.ROWS and self.format not in JSON_FORMATS:
            raise UsageError("--damage rows needs --format json or jsonl")
        if self.hex and (self.follow or self.explode or self.redact):
            raise UsageError("--hex cannot be combined with --follow, --explode and --redact; leave out either")

    def rows(self, *, default: Body | None = None) -> MessageRows:
        """Returns the builder of message rows.

        Args:
            default: of `--body`; None means no body in tables and text elsewhere.
        """
        in_table = self.format in TABLE_FORMATS
        by_format = Body.NONE if in_table else Body.TEXT
        max_body = ranges.parse_size(self.max_body) if self.max_body else None
        bodies = BodyView(self.body or default or by_format, self.raw, max_body)
        return MessageRows(bodies, Redaction() if self.redact else None, in_table)

    def ready_lines(self) -> str | None:
        """Returns the body mode if the library can build the lines of JSON, otherwise None."""
        slow = self.redact or self.explode or self.hex or self.follow or self.max_body is not None
        mode = self.body or Body.TEXT
        return None if slow or mode is Body.JSON or self.format not in JSON_FORMATS else str(mode)
