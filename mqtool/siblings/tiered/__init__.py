"""RocketMQ's tiered storage (POSIX provider): segment files with messages and units of each queue, and index files.

This file has its tables: what `dump` prints and `export` writes. Start with `store`, which reads queues, segments and
units; `kind` is the common interface for kinds of stores. Docs page: docs/formats/tiered.md.
"""

from mqtool.siblings import Column, Table

_PLACE = (
    Column("broker", "string", "name of the broker", 1),
    Column("topic", "string", "topic"),
    Column("queue_id", "int32", "queue of the topic"),
)

MESSAGES = Table(
    "tiered-message",
    "a message in tiered storage",
    (
        *_PLACE,
        Column("queue_offset", "int64", "in the queue"),
        Column("position", "int64", "address in the queue's own tiered log"),
        Column("size", "int32", "bytes of the record", 1),
        Column("store_timestamp", "time", "broker's clock, ms since epoch"),
        Column("born_timestamp", "time", "producer's clock, ms since epoch", 1),
        Column("tags", "string", "TAGS"),
        Column("keys", "string", "KEYS"),
        Column("unique_key", "string", "UNIQ_KEY", 1),
        Column("body_size", "int32", "bytes of the decompressed body"),
        Column("body", "bytes", "decompressed", 2),
    ),
    (
        ("topic", "topic"),
        ("queue", "queue_id"),
        ("offset", "queue_offset"),
        ("time", "store_timestamp"),
        ("tag", "tags"),
        ("unique_key", "unique_key"),
        ("grep", "body"),
    ),
)

UNITS = Table(
    "tiered-unit",
    "a unit of a queue in tiered storage",
    (
        *_PLACE,
        Column("queue_offset", "int64", "in the queue"),
        Column("position", "int64", "where the record starts in the queue's own tiered log"),
        Column("size", "int32", "bytes of the record"),
        Column("tags_code", "int64", "Java hash of TAGS"),
    ),
    (("topic", "topic"), ("queue", "queue_id"), ("offset", "queue_offset")),
)

SEGMENTS = Table(
    "tiered-segment",
    "a segment file of tiered storage",
    (
        *_PLACE,
        Column("type", "string", "COMMIT_LOG, CONSUME_QUEUE or INDEX"),
        Column("base", "int64", "address of its first byte"),
        Column("size", "int64", "bytes"),
        Column("file", "string", "path", 1),
    ),
    (("topic", "topic"), ("queue", "queue_id")),
)

TABLES = (MESSAGES, UNITS, SEGMENTS)
