"""Entries of single files as rows: the columns of `dump` for every kind but messages, and of `dump --hex`."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from mqtool.cli.schema import DATA, TABLE, Column, OutputSchema, row_of

if TYPE_CHECKING:
    from mqtool.store.entries import Annotated

_TOPIC = Column("topic", "string", "from the file's path; null if unknown", show=TABLE, nullable=True)

_QUEUE = Column("queue_id", "integer", "from the file's path; null if unknown", show=TABLE, nullable=True)

_FILE = Column("file", "string", "name of the file", show=TABLE)

FIELD = OutputSchema(
    "field",
    "a field of a record, unit, entry or header, with its bytes",
    (
        Column("record", "int64", "address of the record or unit: physical offset, or position", show=TABLE),
        Column("at", "int64", "address of the field", show=TABLE),
        Column("bytes", "string", "the bytes, hexadecimal", show=TABLE),
        Column("field", "string", "its name", show=TABLE),
        Column("value", "any", "number or text; null for other bytes", show=TABLE, nullable=True),
        Column("docs", "string", "what it means"),
    ),
)


def _int(name: str, doc: str, *, long: bool = True, time: bool = False, show: str = TABLE) -> Column:
    return Column(name, "int64" if long else "integer", doc, show=show, time=time)


SCHEMAS = {
    "consume-queue": OutputSchema(
        "consume-queue",
        "a unit of a ConsumeQueue",
        (
            _TOPIC,
            _QUEUE,
            _int("queue_offset", "ordinal in the queue"),
            _int("physical_offset", "where the record starts in the CommitLog"),
            _int("size", "bytes of the complete record", long=False),
            _int("tags_code", "Java hash of TAGS; deliver time in ms for SCHEDULE_TOPIC_XXXX; or an extension address"),
            Column("state", "string", "unit, pre-blank (filler before the first message) or empty", show=TABLE),
        ),
    ),
    "batch-consume-queue": OutputSchema(
        "batch-consume-queue",
        "a unit of a BatchConsumeQueue, or of a compacted queue",
        (
            _TOPIC,
            _QUEUE,
            _FILE,
            _int("position", "of the unit in its file", show="wide"),
            _int("physical_offset", "where the record starts in the CommitLog; -1 closes a compacted queue's file"),
            _int("size", "bytes of the complete record", long=False),
            _int("tags_code", "Java hash of the record's TAGS"),
            _int("store_timestamp", "ms since epoch, the record's", time=True),
            _int("base_queue_offset", "queue offset of the record's first message"),
            _int("batch_size", "messages in the record", long=False),
            _int("compacted_offset", "-1", long=False, show="wide"),
            _int("reserved", "0", long=False, show=DATA),
        ),
    ),
    "consume-queue-ext": OutputSchema(
        "consume-queue-ext",
        "a unit of a ConsumeQueue's extension",
        (
            _TOPIC,
            _QUEUE,
            _int("offset", "position in the extension, across its files"),
            _int("address", "value of the ConsumeQueue unit in place of its tags code"),
            _int("size", "bytes of the unit", long=False),
            _int("tags_code", "Java hash of TAGS"),
            _int("store_timestamp", "ms since epoch, the record's", time=True),
            _int("bit_map_size", "bytes of the bit map", long=False),
            Column("bit_map", "string", "Bloom filter, hexadecimal", show=TABLE),
        ),
    ),
    "index-file": OutputSchema(
        "index-file",
        "an entry of an index file",
        (
            _FILE,
            _int("number", "of the entry, from 1", long=False),
            _int("slot", "hash slot that its chain starts in", long=False),
            _int("key_hash", "hash of topic#key", long=False),
            _int("physical_offset", "where the record starts in the CommitLog"),
            _int("time_diff", "seconds since the header's begin", long=False),
            _int("previous", "next older entry of the slot, 0 for none", long=False),
            _int("store_time", "header's begin + time_diff, ms since epoch", time=True),
        ),
    ),
    "index-header": OutputSchema(
        "index-header",
        "the header of an index file",
        (
            _FILE,
            _int("begin_timestamp", "store time of the first entry's record, ms since epoch", time=True),
            _int("end_timestamp", "store time of the last entry's record, ms since epoch", time=True),
            _int("begin_physical_offset", "of the first entry's record"),
            _int("end_physical_offset", "of the last entry's record"),
            _int("hash_slot_count", "slots in use", long=False),
            _int("index_count", "number of the next entry", long=False, show="wide"),
            _int("entries", "that are there", long=False),
            Column("slots", "integer", "number of slots in the file; null if unknown", show=TABLE, nullable=True),
            Column("max_entries", "integer", "places for entries; null if unknown", show=TABLE, nullable=True),
        ),
    ),
    "checkpoint": OutputSchema(
        "checkpoint",
        "a store's checkpoint",
        (
            _int("physic_msg_timestamp", "store time up to which the CommitLog is flushed, ms since epoch", time=True),
            _int("logics_msg_timestamp", "store time up to which the queues are flushed, ms since epoch", time=True),
            _int("index_msg_timestamp", "end time of the last full index file, ms since epoch", time=True),
            _int("master_flushed_offset", "that the master had flushed; since 5.0"),
            _int("confirm_physical_offset", "confirmed physical offset; since 5.1.1"),
            _int("logics_physical_offset", "up to which the queues are flushed; since 5.5"),
            _int("min_timestamp", "where recovery after a crash starts, ms since epoch", time=True),
        ),
    ),
    "timer-wheel": OutputSchema(
        "timer-wheel",
        "a slot of the timer wheel that has been used",
        (
            _int("slot", "number of the slot", long=False),
            _int("time", "deliver time / precision", show="wide"),
            _int("first_position", "timer log position of the oldest unit, -1 for none"),
            _int("last_position", "timer log position of the newest unit, -1 for none"),
            _int("count", "units in the slot, without deleted ones", long=False),
            _int("magic", "normally 0", long=False, show="wide"),
            _int("deliver_time", "ms since epoch at the default precision of 1 s", time=True),
        ),
    ),
    "timer-log": OutputSchema(
        "timer-log",
        "a unit of the timer log",
        (
            _int("position", "position in the timer log, across its files"),
            _int("size", "52", long=False, show=DATA),
            _int("previous_position", "of the same slot's previous unit, -1 for none"),
            _int("magic", "bits: 1 default, 2 roll, 4 delete", long=False),
            _int("write_time", "ms since epoch, aligned to a slot", time=True, show="wide"),
            _int("delay", "deliver time - write time, ms", long=False),
            _int("physical_offset", "of the parked record"),
            _int("record_size", "bytes of the parked record", long=False),
            _int("topic_hash", "Java hash of the real topic, 0 for none", long=False),
            _int("reserved", "0", show=DATA),
            _int("deliver_time", "ms since epoch", time=True),
        ),
    ),
    "timer-checkpoint": OutputSchema(
        "timer-checkpoint",
        "how far the timer has got",
        (
            _int("last_read_time_ms", "slots before it are delivered, ms since epoch", time=True),
            _int("last_timer_log_flush_position", "position up to which the timer log is flushed"),
            _int("last_timer_queue_offset", "queue offset up to which messages are in the wheel"),
            _int("master_timer_queue_offset", "the same for the master"),
            _int("state_version", "data version: the controller's state machine"),
            _int("timestamp", "data version: ms since epoch", time=True),
            _int("counter", "data version: how often it changed"),
        ),
    ),
    "config": OutputSchema(
        "config",
        "a member of a configuration file",
        (
            _FILE,
            Column("table", "string", "outermost member: topicConfigTable, offsetTable, dataVersion, …", show=TABLE),
            Column("name", "string", "member of the table; empty if the table is a plain value", show=TABLE),
            Column("value", "any", "its value; keys are text", show=TABLE, nullable=True),
        ),
    ),
    "epoch-file": OutputSchema(
        "epoch-file",
        "an epoch of controller mode",
        (
            _int("epoch", "its number", long=False),
            _int("start_offset", "physical offset of its first record"),
            Column("end_offset", "int64", "where the next one starts; null for the last", show=TABLE, nullable=True),
        ),
    ),
    "dledger-entry": OutputSchema(
        "dledger-entry",
        "the header of an entry of a DLedger log",
        (
            _FILE,
            _int("index", "number of the entry"),
            _int("term", "term of the leader that wrote it"),
            _int("position", "where the entry starts in the log; its record is 48 bytes further on"),
            _int("size", "bytes of header and record", long=False),
            _int("body_length", "bytes of the record", long=False),
            _int("magic", "1", long=False, show=DATA),
            _int("channel", "0", long=False, show=DATA),
            _int("chain_crc", "0: is not computed", long=False, show=DATA),
            _int("body_crc", "0: is not computed", long=False, show=DATA),
        ),
    ),
    "dledger-index": OutputSchema(
        "dledger-index",
        "a unit of a DLedger log's index",
        (
            _FILE,
            _int("index", "number of the entry"),
            _int("term", "term of the entry"),
            _int("position", "where the entry starts in the log"),
            _int("size", "bytes of the entry", long=False),
            _int("magic", "1", long=False, show=DATA),
        ),
    ),
    "marker": OutputSchema(
        "marker",
        "a small text file: abort, lock, brokerIdentity",
        (_FILE, _int("size", "bytes"), Column("text", "string", "its text, at most 64 KiB", show=TABLE)),
    ),
}
"""Output by file kind."""


def field_rows(annotated: "Iterable[Annotated]") -> Iterator[dict[str, Any]]:
    """Yields a row per field."""
    for address, fields in annotated:
        for field in fields:
            value = _text(field.value) if isinstance(field.value, bytes) else field.value
            place = {"record": address, "at": address + field.offset, "bytes": field.data.hex()}
            yield row_of(FIELD.columns, field, field=field.name, value=value, **place)


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
