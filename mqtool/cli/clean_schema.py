"""What `mqtool clean` prints: the verdict on each file of the log, and what was removed."""

from mqtool.cli.schema import TABLE, Column, OutputSchema

_UNREAD = (
    Column("group", "string", "consumer group", show=TABLE),
    Column("topic", "string", "topic", show=TABLE),
    Column("queue_id", "integer", "queue of the topic", show=TABLE),
    Column("first", "int64", "queue offset", show=TABLE),
    Column("last", "int64", "queue offset, inclusive", show=TABLE),
)

CLEAN = OutputSchema(
    "clean",
    1,
    "what retention removes from a store",
    (
        Column("path", "string", "the store's root directory", show=TABLE),
        Column("dry_run", "boolean", "nothing was removed", show=TABLE),
        Column("at", "int64", "time of the judgement, ms since epoch", show=TABLE, time=True),
        Column("used", "number", "how full the fullest disk is, 0 to 1; -1 if that cannot be told", show=TABLE),
        Column("trigger", "string", "why files go, or that none does", show=TABLE),
        Column("going", "integer", "files of the log that go", show=TABLE),
        Column("unread_going", "int64", "messages in them that some group has not read, counted by group", show=TABLE),
        Column(
            "waiting_going",
            "int64",
            "messages in them that are not delivered yet: delays, timers, open transactions",
            show=TABLE,
        ),
        Column(
            "files",
            "array",
            "files of the log, oldest first",
            show=TABLE,
            fields=(
                Column("file", "string", "relative to the root", show=TABLE),
                Column("base", "int64", "physical offset of its first byte"),
                Column("size", "int64", "its bytes"),
                Column(
                    "modified", "int64", "last change; its age counts from it; ms since epoch", show=TABLE, time=True
                ),
                Column("goes", "boolean", "it goes in this turn", show=TABLE),
                Column(
                    "goes_at",
                    "int64",
                    "when it goes if disks stay as they are; null: never, it is the last",
                    show=TABLE,
                    time=True,
                    nullable=True,
                ),
                Column("unread", "int64", "messages in it that some group has not read, counted by group", show=TABLE),
                Column("waiting", "int64", "delays, timers and open transactions in it, not delivered yet", show=TABLE),
                Column("reason", "string", "why it goes or stays", show=TABLE),
            ),
        ),
        Column(
            "unread",
            "array",
            "messages in files that go, which groups have not read",
            show=TABLE,
            fields=(Column("file", "string", "relative to the root", show=TABLE), *_UNREAD),
        ),
        Column(
            "unread_staying",
            "array",
            "the same in files that stay",
            fields=(Column("file", "string", "relative to the root", show=TABLE), *_UNREAD),
        ),
        Column(
            "waiting",
            "array",
            "messages in files that go, which the broker has not delivered yet",
            show=TABLE,
            fields=(
                Column("file", "string", "relative to the root", show=TABLE),
                Column("kind", "string", "delay, timer or transaction", show=TABLE),
                Column("topic", "string", "the system topic that keeps them", show=TABLE),
                Column("queue_id", "integer", "its queue", show=TABLE),
                Column("messages", "int64", "how many", show=TABLE),
            ),
        ),
        Column("followers", "array", "files of queues and index that go with them", show=TABLE),
        Column("removed", "array", "files that were deleted", show=TABLE),
        Column("quarantine", "string", "directory that keeps the deleted files; null: none", show=TABLE, nullable=True),
        Column("undo", "string", "the command that restores the deleted files", show=TABLE, nullable=True),
        Column("next_step", "string", "the command to run next; null: none", show=TABLE, nullable=True),
    ),
    single=True,
)
