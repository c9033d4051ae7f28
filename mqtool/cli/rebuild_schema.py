"""What `mqtool rebuild` prints: what was made, from what, and what is not as it was."""

from mqtool.cli.damaged_ranges import DAMAGED_RANGES
from mqtool.cli.schema import DATA, TABLE, WIDE, Column, OutputSchema


def _count(name: str, doc: str, *, show: str = TABLE) -> Column:
    return Column(name, "int64", doc, show=show)


NOTES = Column(
    "notes",
    "array",
    "units whose place was unusual",
    show=TABLE,
    fields=(
        Column("kind", "string", "hole, restarted, misnumbered, foreign or shifted: see docs/rebuild.md", show=TABLE),
        Column("topic", "string", "topic", show=TABLE),
        Column("queue_id", "integer", "queue", show=TABLE),
        _count("first", "queue offset"),
        _count("last", "queue offset, inclusive"),
        _count("physical_offset", "of the record at which it was seen"),
    ),
)

REBUILD = OutputSchema(
    "rebuild",
    1,
    "what a rebuild made",
    (
        Column("what", "string", "consumequeue, index, metadata, timer or all", show=TABLE),
        Column("store", "string", "root of the store", show=TABLE),
        Column("out", "string", "directory with the result", show=TABLE),
        Column("complete", "boolean", "every record was there and has its place", show=TABLE),
        _count("records", "read from the log"),
        _count("next_offset", "physical offset up to which the log was read"),
        _count("queues", "written"),
        _count("units", "given to queues"),
        _count("keys", "put into the index"),
        _count("damaged_bytes", "of the log without a record"),
        _count("damage_count", "damaged ranges; at most 10,000 are listed", show=WIDE),
        _count("notes_count", "notes; at most 10,000 are listed", show=WIDE),
        Column("seconds", "number", "how long it took", show=TABLE),
        Column("records_per_second", "number", "records divided by seconds", show=TABLE),
        Column("index_files", "array", "names, oldest first", show=DATA),
        Column(
            "settings",
            "array",
            "sizes and rules, and where each is known from",
            show=WIDE,
            fields=(
                Column("name", "string", "setting", show=TABLE),
                Column("value", "string", "value", show=TABLE),
                Column("evidence", "string", "known from", show=TABLE),
            ),
        ),
        DAMAGED_RANGES,
        NOTES,
        Column(
            "oddities",
            "array",
            "records that no broker could dispatch as they are",
            show=TABLE,
            fields=(
                _count("physical_offset", "of the record"),
                Column("detail", "string", "what is odd", show=TABLE),
            ),
        ),
        Column(
            "unwritable",
            "array",
            "queues whose topic cannot be the name of a directory",
            show=TABLE,
            fields=(
                Column("topic", "string", "topic", show=TABLE),
                Column("queue_id", "integer", "queue", show=TABLE),
            ),
        ),
        Column("files", "array", "configuration files written, below `out`", show=DATA),
        Column(
            "guesses",
            "array",
            "entries of configuration files that no file told",
            show=TABLE,
            fields=(
                Column("file", "string", "in which it stands", show=TABLE),
                Column("item", "string", "topic, group, queue or level", show=TABLE),
                Column("value", "string", "what was written", show=TABLE),
                Column("reason", "string", "why that", show=TABLE),
            ),
        ),
        Column("unconfigured_topics", "array", "topics with records but without a configuration", show=TABLE),
        Column("problems", "array", "configuration that could not be followed, in words", show=TABLE),
    ),
    single=True,
)
