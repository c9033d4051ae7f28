"""What `mqtool verify` prints."""

from mqtool.cli.schema import TABLE, Column, OutputSchema


def _text(name: str, doc: str, *, nullable: bool = False, show: str = TABLE) -> Column:
    return Column(name, "string", doc, show=show, nullable=nullable)


def _count(name: str, doc: str, *, nullable: bool = False, show: str = TABLE) -> Column:
    return Column(name, "int64", doc, show=show, nullable=nullable)


FINDING_COLUMNS = (
    _text("code", "stable, see `mqtool checks`"),
    _text("severity", "error, warning or note"),
    _text("file", "path below the store; as it is if it lies elsewhere"),
    _count("position", "byte in that file", nullable=True),
    _count("physical_offset", "byte address in the CommitLog", nullable=True),
    _text("topic", "whose messages", nullable=True),
    Column("queue_id", "integer", "whose messages", show=TABLE, nullable=True),
    _count("lost_bytes", "bytes of the CommitLog that hold no valid record"),
    _count("lost_messages", "messages proved to be gone"),
    _text("evidence", "expected and found"),
    _text("next_step", "the command to type"),
    _text("runbooks", "runbooks about it, the one to take first; empty if there is none"),
)

_CHECK_COLUMNS = (
    _text("check", "what was looked at"),
    _text("state", "clean, dirty (warnings only), corrupt, or unknown (could not be looked at)"),
    _count("findings", "how many"),
    _text("detail", "how much was looked at, or why it could not be"),
)

_RANGE_COLUMNS = (
    _count("start", "physical offset of the first byte"),
    _count("end", "physical offset after the last byte"),
    _text("kind", "as `damage` of dump: bad-crc, zeros, missing, …; cut-off: behind the end of the log"),
    _text("file", "of the first byte; empty where there is none"),
    _count("position", "of the first byte in that file"),
    _count("messages", "proved to have been there"),
)

_QUEUE_COLUMNS = (
    _text("topic", "name"),
    Column("queue_id", "integer", "of the topic", show=TABLE),
    Column("offsets", "array", "first and last queue offset of each run, both included", items="any", show=TABLE),
    _count("messages", "how many"),
    _text("proof", "units: the queue points at them; offsets: what is left skips their queue offsets"),
)

_GROUP_COLUMNS = (
    _text("group", "consumer group"),
    _text("topic", "name"),
    Column("queue_id", "integer", "of the topic", show=TABLE),
    _count("consumer_offset", "next queue offset that it will read"),
    _count("consumed", "lost messages that it had consumed"),
    _count("unread", "lost messages that it will never see"),
)

_START_COLUMNS = (
    _text("headline", "in one sentence"),
    _text("release", "whose start: 4.9 or 5.5"),
    _text("release_evidence", "why this release: given, or what it was detected or assumed from"),
    _text("verdict", "as of explain-start, or why it is unknown"),
    _count("lost_messages", "that consumers would not get; null if unknown, or if it does not start", nullable=True),
    Column(
        "do_not_start",
        "boolean",
        "the start fails, or loses more than is lost already; null if unknown",
        show=TABLE,
        nullable=True,
    ),
)

_VERDICT_COLUMNS = (
    _text("store", "as given"),
    _text("status", "clean, dirty (warnings only), corrupt, or unknown (nothing found, but not all could be checked)"),
    Column("complete", "boolean", "false if it was stopped early; --state resumes", show=TABLE),
    Column("live", "boolean", "a broker held the lock: only what is certain is reported", show=TABLE),
    _count("errors", "findings of this severity"),
    _count("warnings", "findings of this severity"),
    _count("notes", "findings of this severity"),
    _count("lost_bytes", "in all"),
    _count("lost_messages", "in all"),
    Column(
        "next_start",
        "object",
        "what the next start of a broker does; null if the check was stopped early, or for a store in object storage",
        show=TABLE,
        nullable=True,
        fields=_START_COLUMNS,
    ),
    _count("records", "sound ones that were read"),
    _count("log_bytes", "bytes of the CommitLog that were read"),
    _count("units", "of all queues"),
    _count("entries", "of all index files"),
    Column("seconds", "number", "by the clock", show=TABLE),
)


def _list(name: str, doc: str, fields: tuple[Column, ...]) -> Column:
    return Column(name, "array", doc, show=TABLE, fields=fields)


VERIFY = OutputSchema(
    "verify",
    1,
    "the whole answer",
    (
        *_VERDICT_COLUMNS,
        _list("checks", "how each check ended", _CHECK_COLUMNS),
        _list("findings", "what is broken, in a stable order", FINDING_COLUMNS),
        _list("lost_ranges", "bytes of the CommitLog without a valid record", _RANGE_COLUMNS),
        _list("lost_messages_of_queues", "messages that are gone, by queue", _QUEUE_COLUMNS),
        _list("lost_messages_of_groups", "what that means for consumer groups", _GROUP_COLUMNS),
        Column("next_steps", "array", "commands to type, the best first", show=TABLE),
    ),
    single=True,
)


def _line(name: str, doc: str, fields: tuple[Column, ...]) -> OutputSchema:
    return OutputSchema(f"verify.{name}", 1, doc, (Column(name, "object", doc, fields=fields),))


FINDING = _line("finding", "one finding", FINDING_COLUMNS)
CHECK = _line("check", "how one check ended", _CHECK_COLUMNS)
LOST_RANGE = _line("lost_range", "a range without a valid record", _RANGE_COLUMNS)
LOST_MESSAGES = _line("lost_messages", "lost messages of a queue", _QUEUE_COLUMNS)
GROUP_LOSS = _line("group_loss", "what a loss means for a group", _GROUP_COLUMNS)
VERDICT = _line("verdict", "the last line", _VERDICT_COLUMNS)
LINES = (FINDING, CHECK, LOST_RANGE, LOST_MESSAGES, GROUP_LOSS, VERDICT)
"""Kinds of lines of `--format jsonl`."""

FINDING_ROWS = OutputSchema("verify.findings", 1, "a finding", FINDING_COLUMNS)
"""Rows of `--format csv`."""
