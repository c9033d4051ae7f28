"""What `mqtool salvage` prints: what is in the new store and what is lost."""

from mqtool.cli.schema import TABLE, WIDE, Column, OutputSchema


def _text(name: str, doc: str, *, show: str = TABLE, nullable: bool = False) -> Column:
    return Column(name, "string", doc, show=show, nullable=nullable)


def _count(name: str, doc: str, *, show: str = TABLE) -> Column:
    return Column(name, "int64", doc, show=show)


SALVAGE = OutputSchema(
    "salvage",
    1,
    "what a salvage came to",
    (
        _text("store", "root of the damaged store"),
        _text("target", "root of the new one"),
        Column("copies", "array", "further copies that were read", show=TABLE),
        Column("compact", "boolean", "records moved together", show=TABLE),
        Column("complete", "boolean", "nothing is known to be lost", show=TABLE),
        _count("records", "in the new store"),
        _count("bytes", "of these records"),
        Column("records_by_copy", "array", "how many are from each copy, `store` first", items="integer", show=TABLE),
        _count("lost_messages", "proved to have been there, and gone"),
        _count("lost_bytes", "of the old log that hold nothing provable"),
        _count("conflicts", "records that differ between copies where no checksum decides; the first's were taken"),
        Column(
            "unplaced",
            "array",
            "physical offsets of records that could be proved but not kept in place",
            items="integer",
            show=WIDE,
        ),
        _text("verify", "state that `mqtool verify` gives the new store"),
        _text("map_file", "old and new offsets of a compacted store", nullable=True),
        Column(
            "queues",
            "array",
            "what is there and what is lost",
            show=TABLE,
            fields=(
                _text("topic", "topic"),
                Column("queue_id", "integer", "queue", show=TABLE),
                _count("min_offset", "first queue offset"),
                _count("max_offset", "one past the last"),
                _count("salvaged", "messages in the new store"),
                _count("lost", "messages that are gone"),
                _text("lost_offsets", "their queue offsets"),
            ),
        ),
        Column(
            "holes",
            "array",
            "ranges of the old log without a provable record",
            show=TABLE,
            fields=(
                _count("start", "physical offset"),
                _count("end", "one past the last byte"),
                _text("filled", "filler: records no queue leads to; BLANK: the rest of the segment; empty: left out"),
            ),
        ),
        Column(
            "groups",
            "array",
            "what that means for consumer groups",
            show=TABLE,
            fields=(
                _text("group", "consumer group"),
                _text("topic", "topic"),
                Column("queue_id", "integer", "queue", show=TABLE),
                _count("consumer_offset", "next it will read"),
                _count("consumed", "lost messages that it had read"),
                _count("unread", "lost ones that it had not"),
            ),
        ),
        Column(
            "config",
            "array",
            "files of config/, and the checkpoint",
            show=WIDE,
            fields=(_text("file", "name"), _text("source", "copied, or made anew")),
        ),
        Column("index_files", "array", "names", show=WIDE),
        Column("notes", "array", "worth knowing", show=TABLE),
    ),
    single=True,
)
