"""What commands print about stores of other systems (`mqtool.siblings`) apart from their tables."""

from collections.abc import Mapping
from typing import Any

from mqtool.cli.schema import TABLE, Column, OutputSchema, listing

_FINDING = (
    Column("code", "string", "stable name of the invariant", show=TABLE),
    Column("severity", "string", "error, warning, or unknown where the check could not run", show=TABLE),
    Column("file", "string", "the file or directory", show=TABLE),
    Column("position", "int64", "in the file", show=TABLE, nullable=True),
    Column("evidence", "string", "expected and found", show=TABLE),
    Column("next_step", "string", "what to do"),
)

VERIFY_KIND = OutputSchema("verify.kind", "a broken invariant of a store of another kind", _FINDING, version=2)

_UNSERVED = (
    Column("topic", "string", "topic", show=TABLE),
    Column("queue_id", "integer", "queue of the topic", show=TABLE),
    Column("queue_offset", "int64", "of the entry", show=TABLE),
    Column(
        "message_position", "int64", "message that it points to; null if it cannot be read", show=TABLE, nullable=True
    ),
    Column("step", "string", "queue or message: where it fails", show=TABLE),
    Column("exception", "string", "error that the broker raises; null where it only finds nothing", nullable=True),
    Column("message", "string", "in words", show=TABLE),
    Column("is_unknown", "boolean", "the system cannot read the entry or the message"),
)

EXPLAIN_KIND = OutputSchema(
    "explain-start.kind",
    "what the system that owns a store of another kind would do to it on startup",
    (
        Column("kind", "string", "as in `mqtool help formats`", show=TABLE),
        Column("path", "string", "its root", TABLE, label="store"),
        Column(
            "verdict",
            "string",
            "in one sentence; begins with unknown: if a file that decides it is unreadable",
            TABLE,
            is_verdict=True,
        ),
        Column(
            "harmless",
            "boolean",
            "it is certain that it starts, no chunk is missing, and nothing is lost by the start",
        ),
        Column("starts", "boolean", "the system starts; null if that is unknown", show=TABLE, nullable=True),
        Column("clears_root", "boolean", "it deletes everything below the root", show=TABLE),
        Column("write_position", "int64", "where it continues to write", show=TABLE, nullable=True),
        Column("overwritten", "array", "positions of valid messages that it leaves behind", show=TABLE, items="int64"),
        listing("missing", "names of missing or wrongly numbered chunks: their messages are lost"),
        listing("unserved", "entries that point to no message, or to one of another place", *_UNSERVED),
        listing(
            "cut", "entries after an empty one, which ends the queue: their messages are not served", *_UNSERVED[:3]
        ),
        Column("silent", "array", "what it does silently", show=TABLE),
        Column("unknown", "array", "what cannot be read, so that its effect is unknown", show=TABLE),
    ),
    single=True,
)

KIND_INFO = OutputSchema(
    "info.kind",
    "what a store of another kind is",
    (
        Column("kind", "string", "as in `mqtool help formats`", show=TABLE),
        Column("path", "string", "its root", show=TABLE),
        Column("release", "string", "program that wrote it, as far as it can be detected", show=TABLE),
        listing(
            "layout",
            "sizes, bounds and parts",
            Column("name", "string", "of the value", show=TABLE),
            Column("value", "any", "number, text or object", show=TABLE, nullable=True),
        ),
        Column("oddities", "array", "files that do not belong there, and contradictions", show=TABLE),
        listing("findings", "with --deep: every broken invariant", *_FINDING, optional=True),
    ),
    single=True,
)


EXPORT_KIND = OutputSchema(
    "export.kind",
    "a table of a store of another kind, written as Parquet",
    (
        Column("table", "string", "as in `mqtool dump --table`", show=TABLE),
        Column("rows", "int64", "written", show=TABLE),
        Column("damage", "int64", "ranges without a valid record, which are not in the table", show=TABLE),
        Column("file", "string", "path", show=TABLE),
    ),
)

REBUILD_KIND = OutputSchema(
    "rebuild.kind",
    "a rebuilt queue of a store of another kind",
    (
        Column("queue", "string", "topic/queue id", show=TABLE),
        Column("entries", "int64", "that it has now", show=TABLE),
        Column("kept", "int64", "entries kept at their old place", show=TABLE),
        Column("placed", "int64", "entries taken from the messages", show=TABLE),
        Column("filled", "int64", "entries whose message is lost", show=TABLE),
    ),
)

SALVAGE_KIND = OutputSchema(
    "salvage.kind",
    "a file of a store of another kind, and the records left in it",
    (
        Column("file", "string", "its name", show=TABLE),
        Column("forwards", "int64", "records found from the beginning", show=TABLE),
        Column("backwards", "int64", "further records found from the end", show=TABLE),
        Column("between", "int64", "further records that state their own position", show=TABLE),
        Column("damaged_bytes", "int64", "bytes without a valid record", show=TABLE),
    ),
)


def layout_rows(layout: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the values of a layout as rows of name and value; members of objects and lists by path."""
    rows = []
    for name, value in layout.items():
        if isinstance(value, Mapping):
            rows += [{"name": f"{name}.{key}", "value": inner} for key, inner in value.items()]
        elif isinstance(value, list):
            rows += [{"name": f"{name}.{number}", "value": inner} for number, inner in enumerate(value)]
        else:
            rows.append({"name": name, "value": value})
    return rows
