"""What `mqtool report` prints about the page that it writes."""

from mqtool.cli.schema import TABLE, Column, OutputSchema


def _count(name: str, doc: str) -> Column:
    return Column(name, "int64", doc, show=TABLE)


REPORT = OutputSchema(
    "report",
    1,
    "the page that was written",
    (
        Column("store", "string", "as given", show=TABLE),
        Column("report", "string", "the page, as given", show=TABLE),
        _count("size", "of the page in bytes"),
        Column("status", "string", "clean, dirty, corrupt or unknown, as for verify", show=TABLE),
        _count("errors", "findings of this severity"),
        _count("warnings", "findings of this severity"),
        _count("notes", "findings of this severity"),
        _count("lost_messages", "in all"),
        _count("lost_bytes", "in all"),
    ),
    single=True,
)
