"""EventStore's log of TFChunk files: read, verify, salvage report. Docs page: docs/formats/tfchunk.md.

This file has its tables: what `dump` prints and `export` writes. Start with `store`, which reads the records of a
database from the files that `chunk` reads; `kind` is the common interface for kinds of stores.
"""

from mqtool.siblings import Column, Table

RECORDS = Table(
    "tfchunk-record",
    "a record of an EventStore database; fields that its type does not have are null",
    (
        Column("position", "int64", "log position"),
        Column("chunk", "string", "name of the file", 1),
        Column("length", "int32", "bytes of the record"),
        Column("type", "string", "prepare, commit or system"),
        Column("version", "int32", "of the record's layout", 1),
        Column("event_stream_id", "string", "prepare: the stream"),
        Column("event_type", "string", "prepare: the event's type"),
        Column("event_number", "int64", "prepare: expected version; commit: first event number"),
        Column("flags", "int32", "prepare: bits, see docs/formats/tfchunk.md", 1),
        Column("transaction_position", "int64", "prepare, commit: of the transaction's first record", 1),
        Column("transaction_offset", "int32", "prepare: ordinal in the transaction", 2),
        Column("event_id", "string", "prepare: GUID", 1),
        Column("correlation_id", "string", "prepare, commit: GUID", 2),
        Column("time", "time", "UTC, ms since epoch"),
        Column("ticks", "int64", "UTC, ticks of 100 ns since 0001-01-01", 2),
        Column("metadata", "bytes", "prepare: of the event", 2),
        Column("body_size", "int32", "prepare, system: bytes of the data"),
        Column("body", "bytes", "prepare, system: the data", 2),
    ),
    (
        ("offset", "position"),
        ("topic", "event_stream_id"),
        ("tag", "event_type"),
        ("unique_key", "event_id"),
        ("time", "time"),
        ("grep", "body"),
    ),
)

CHUNKS = Table(
    "tfchunk-chunk",
    "a chunk file",
    (
        Column("file", "string", "its name"),
        Column("version", "int32", "of the file's layout"),
        Column("start_number", "int32", "of its first chunk"),
        Column("end_number", "int32", "of its last chunk"),
        Column("chunk_id", "string", "GUID", 1),
        Column("scavenged", "boolean", "records may be missing"),
        Column("completed", "boolean", "according to its footer"),
        Column("physical_size", "int64", "bytes of records; of the active chunk up to writer.chk"),
        Column("map_entries", "int32", "of its position map"),
        Column("md5", "string", "that its footer states", 1),
        Column("size", "int64", "bytes of the file", 1),
    ),
)

TABLES = (RECORDS, CHUNKS)
