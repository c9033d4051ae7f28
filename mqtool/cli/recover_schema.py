"""What `mqtool recover` prints."""

from mqtool.cli.schema import TABLE, Column, OutputSchema


def _texts(name: str, doc: str) -> Column:
    return Column(name, "array", doc, show=TABLE)


RECOVER = OutputSchema(
    "recover",
    1,
    "what a recovery did",
    (
        Column("path", "string", "the store's root directory", show=TABLE),
        Column("release", "string", "whose rules were followed: 4.9 or 5.5", show=TABLE),
        Column("mode", "string", "compatible or careful", show=TABLE),
        Column("clean_stop", "boolean", "the store had been shut down cleanly", show=TABLE),
        Column("scan_from", "int64", "physical offset from which records were checked", show=TABLE, nullable=True),
        Column("end", "int64", "physical offset at which the log goes on", show=TABLE),
        Column("records", "int64", "how many were checked", show=TABLE),
        Column("dispatched", "int64", "how many were given to queues and index", show=TABLE),
        Column(
            "lost",
            "array",
            "messages that consumers could get before, and no longer",
            show=TABLE,
            fields=(
                Column("queue", "string", "topic/queue", show=TABLE),
                Column("first", "int64", "queue offset", show=TABLE),
                Column("last", "int64", "queue offset, inclusive", show=TABLE),
            ),
        ),
        _texts("deleted", "files that were deleted"),
        _texts("quarantined", "what was moved aside, below the store's root"),
        Column("cut_messages", "int64", "whole messages in what was cut, listed in messages.jsonl there", show=TABLE),
        _texts("why", "the rules that were applied"),
        _texts("accepted", "what is wrong and was accepted"),
        Column("kept", "string", "directory with the old files, for undo; null: none", show=TABLE, nullable=True),
        Column("undo", "string", "the command that restores the store; null: none", show=TABLE, nullable=True),
        Column("next_step", "string", "the command to run next", show=TABLE),
    ),
    single=True,
)
