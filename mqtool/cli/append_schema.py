"""What `mqtool append` prints: an answer for each row of the input."""

from mqtool.cli.schema import TABLE, Column, OutputSchema

ACK = OutputSchema(
    "append.ack",
    1,
    "what became of a row",
    (
        Column("row", "int64", "line of the text, or row of the table, from 1 on", show=TABLE),
        Column(
            "status",
            "string",
            "the store's answer, as RocketMQ names it; null for a row that is no message",
            show=TABLE,
            nullable=True,
        ),
        Column("stored", "boolean", "the message is in the log", show=TABLE),
        Column("topic", "string", "where it lies: of a delayed message the schedule topic", show=TABLE, nullable=True),
        Column("queue_id", "integer", "queue of the topic", show=TABLE, nullable=True),
        Column("queue_offset", "int64", "ordinal in the queue; null if it was not stored", show=TABLE, nullable=True),
        Column(
            "physical_offset",
            "int64",
            "byte address of its record in the CommitLog; null if it was not stored",
            show=TABLE,
            nullable=True,
        ),
        Column(
            "offset_message_id", "string", "store host and physical offset; null if it was not stored", nullable=True
        ),
        Column("reason", "string", "why it was not stored; null if it was", show=TABLE, nullable=True),
    ),
)
