"""What `mqtool export` prints: a report of one run."""

from mqtool.cli.schema import TABLE, WIDE, Column, OutputSchema


def _count(name: str, doc: str, *, show: str = TABLE) -> Column:
    return Column(name, "int64", doc, show=show)


EXPORT = OutputSchema(
    "export",
    1,
    "what an export wrote",
    (
        Column("target", "string", "directory or URL", show=TABLE),
        Column("outcome", "string", "exported, nothing-new, or completed (an interrupted run)", show=TABLE),
        _count("sequence", "number of the commit in the directory"),
        _count("messages", "rows of the messages table"),
        _count("files", "of all tables"),
        _count("size", "bytes of them"),
        _count("log_bytes", "bytes of CommitLog that were read"),
        _count("damage", "rows of the damage table"),
        _count("damaged_bytes", "bytes of CommitLog in it"),
        _count("dead_letters", "rows of the dead-letter table"),
        Column(
            "stores",
            "array",
            "what was read",
            show=TABLE,
            fields=(
                Column("broker", "string", "value of the column broker", show=TABLE),
                _count("start", "physical offset of the first byte"),
                _count("end", "physical offset after the last; fixed before reading began"),
                Column("path", "string", "root", show=TABLE),
            ),
        ),
        Column(
            "topics",
            "array",
            "messages by topic",
            show=TABLE,
            fields=(Column("topic", "string", "name", show=TABLE), _count("messages", "rows")),
        ),
        Column(
            "classes",
            "array",
            "messages by class of record",
            show=WIDE,
            fields=(
                Column("record_class", "string", "committed, half, rolled-back or system", show=TABLE),
                _count("messages", "rows"),
            ),
        ),
    ),
    single=True,
)
