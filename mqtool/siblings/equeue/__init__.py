"""EQueue's chunk store: read, verify, explain, rebuild, salvage, write. Docs page: docs/formats/equeue.md.

This file has its tables: what `dump` prints and `export` writes. Start with `store`, which reads messages and queues
from the files in `listing`; `start` models a start of the broker, `kind` is the common interface for kinds of stores.
"""

from mqtool.siblings import Column, Table

MESSAGES = Table(
    "equeue-message",
    "a message of an EQueue store",
    (
        Column("position", "int64", "global position of its frame"),
        Column("chunk_number", "int32", "the chunk that holds it", 1),
        Column("length", "int32", "bytes of the record"),
        Column("topic", "string", "topic"),
        Column("queue_id", "int32", "queue of the topic"),
        Column("queue_offset", "int64", "ordinal in the queue"),
        Column("tag", "string", "tag, empty for none"),
        Column("code", "int32", "the application's number for the type of message", 1),
        Column("message_id", "string", "hexadecimal: broker and position", 1),
        Column("producer_address", "string", "empty if unknown", 1),
        Column("log_position", "int64", "position that the record itself states", 2),
        Column("created_time", "time", "the producer's local time, as if it were UTC, ms since epoch", 1),
        Column("stored_time", "time", "the broker's local time, as if it were UTC, ms since epoch"),
        Column("created_ticks", "int64", "the producer's local time, ticks of 100 ns since 0001-01-01", 2),
        Column("stored_ticks", "int64", "the broker's local time, ticks of 100 ns since 0001-01-01", 2),
        Column("body_size", "int32", "bytes of the body"),
        Column("body", "bytes", "the body", 2),
    ),
    (
        ("offset", "position"),
        ("topic", "topic"),
        ("queue", "queue_id"),
        ("tag", "tag"),
        ("unique_key", "message_id"),
        ("time", "stored_time"),
        ("grep", "body"),
    ),
)

ENTRIES = Table(
    "equeue-entry",
    "an entry of a queue",
    (
        Column("topic", "string", "topic"),
        Column("queue_id", "int32", "queue of the topic"),
        Column("queue_offset", "int64", "ordinal in the queue"),
        Column("message_position", "int64", "global position of the message's frame"),
        Column("tag_code", "int32", "hash of the message's tag"),
    ),
    (("offset", "queue_offset"), ("topic", "topic"), ("queue", "queue_id")),
)

CHUNKS = Table(
    "equeue-chunk",
    "a chunk file",
    (
        Column("file", "string", "path below the root"),
        Column("chunk_number", "int32", "by its header"),
        Column("capacity", "int32", "data bytes that it can hold"),
        Column("completed", "boolean", "its footer agrees with the file's length"),
        Column("data_size", "int64", "data bytes in use; for an incomplete chunk, up to its last nonzero byte"),
        Column("start", "int64", "global position of its first data byte"),
        Column("size", "int64", "bytes of the file", 1),
    ),
)

TABLES = (MESSAGES, ENTRIES, CHUNKS)
