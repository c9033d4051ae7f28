"""What `mqtool replay` prints: a report of one run."""

from mqtool.cli.schema import TABLE, Column, OutputSchema


def _count(name: str, doc: str) -> Column:
    return Column(name, "int64", doc, show=TABLE)


REPLAY = OutputSchema(
    "replay",
    1,
    "what a replay stored",
    (
        Column("source", "string", "where the messages come from", show=TABLE),
        Column("target", "string", "the store that took them, or the name server", show=TABLE),
        Column("dry_run", "boolean", "nothing was written", show=TABLE),
        _count("replayed", "messages stored by this run"),
        _count("found_there", "messages that an earlier run had stored before it died"),
        _count("refused", "messages that the target does not take"),
        _count("not_selected", "messages that were looked at and not asked for"),
        _count("not_committed", "records that consumers could not see"),
        _count("damage", "damaged ranges of the source's log"),
        _count("damaged_bytes", "bytes in them"),
        Column(
            "topics",
            "array",
            "messages by topic",
            show=TABLE,
            fields=(Column("topic", "string", "name", show=TABLE), _count("messages", "stored, by this run or before")),
        ),
        Column(
            "reasons",
            "array",
            "of the first that were refused",
            show=TABLE,
            fields=(
                _count("position", "physical offset, or row"),
                Column("reason", "string", "why", show=TABLE),
            ),
        ),
    ),
    single=True,
)
