"""The columns of `mqtool info`."""

from mqtool.cli.message_rows import DAMAGE
from mqtool.cli.schema import TABLE, Column, OutputSchema


def _text(name: str, doc: str, *, nullable: bool = False, show: str = TABLE) -> Column:
    return Column(name, "string", doc, show=show, nullable=nullable)


def _count(name: str, doc: str, *, nullable: bool = False, show: str = TABLE) -> Column:
    return Column(name, "int64", doc, show=show, nullable=nullable)


def _time(name: str, doc: str, *, show: str = TABLE) -> Column:
    return Column(name, "int64", f"{doc}, ms since epoch", show=show, time=True, nullable=True)


def _list(name: str, doc: str, *fields: Column, show: str = TABLE, optional: bool = False) -> Column:
    return Column(name, "array", doc, show=show, fields=fields, optional=optional)


_COMMIT_LOG = (
    _count("min_offset", "physical offset of the first byte"),
    _count("max_offset", "physical offset after the last record"),
    _count("files", "segments"),
    Column("directories", "array", "where they are", show=TABLE),
    _time("first_timestamp", "store time of the first record"),
    _time("last_timestamp", "store time of the newest record that a queue names"),
    Column(
        "tail",
        "object",
        "what follows the last record",
        show=TABLE,
        fields=(
            _text(
                "kind", "clean, torn (an unfinished record), stale (records of an earlier life), garbage or unreadable"
            ),
            _count("length", "bytes up to the last that is not zero"),
            _text("detail", "in words"),
        ),
    ),
)

_TOPIC_SCAN = (
    _text("topic", "name"),
    _count("messages", "records read"),
    _count("size", "their bytes"),
    _time("first_timestamp", "oldest store time"),
    _time("last_timestamp", "newest store time"),
)

_DEEP = (
    _count("messages", "sound records in the log"),
    _count("size", "their bytes"),
    _count("damaged_ranges", "ranges without a valid record"),
    _count("damaged_bytes", "bytes in them"),
    _list("topics", "by topic, as the records say", *_TOPIC_SCAN),
    _list("damage", "the first 1000 ranges", *DAMAGE.columns[0].fields),
)

INFO = OutputSchema(
    "info",
    1,
    "what a store is",
    (
        _text("path", "the store's root directory"),
        _text("version", "release line that wrote it: 4.9, 5, 5.1, 5.5; null if nothing tells", nullable=True),
        _text("version_evidence", "why"),
        Column("clean_stop", "boolean", "there is no abort file", show=TABLE),
        Column("oddities", "array", "what to know first, in words", show=TABLE),
        Column("commit_log", "object", "the CommitLog", show=TABLE, fields=_COMMIT_LOG),
        _list(
            "layout",
            "sizes",
            _text("name", "of what"),
            _count("value", "bytes of a file, or a number", nullable=True),
            _text("evidence", "where it is known from"),
        ),
        _list(
            "topics",
            "topics with queues or configuration",
            _text("topic", "name"),
            _count("messages", "that its queues hold and the log still has"),
            _count("queues", "on disk"),
            _count("size", "bytes of their records as the queues say; null in very large stores", nullable=True),
            _time("first_timestamp", "store time of its first message"),
            _time("last_timestamp", "store time of its last message"),
            Column("configured", "boolean", "it is in topics.json", show="wide"),
            _count("perm", "4 read, 2 write, 1 inherit", nullable=True, show="wide"),
            _count("read_queues", "readQueueNums", nullable=True, show="wide"),
            _count("write_queues", "writeQueueNums", nullable=True, show="wide"),
        ),
        _list(
            "queues",
            "queues on disk",
            _text("topic", "name"),
            _count("queue_id", "of the topic"),
            _text("kind", "SimpleCQ or BatchCQ", show="wide"),
            _count("min_offset", "queue offset of the first message that the log still has"),
            _count("max_offset", "queue offset after the last message"),
            _count("max_physical_offset", "after the newest record that it names (BatchCQ: its start)", show="wide"),
            _count("files", "on disk", show="wide"),
            show="wide",
        ),
        _list(
            "groups",
            "consumer groups with configuration or offsets",
            _text("group", "name"),
            Column("configured", "boolean", "it is in subscriptionGroup.json", show="wide"),
            _count("topics", "that it has offsets for"),
            _count("queues", "that it has offsets for"),
            _count("lag", "messages not yet read"),
        ),
        _list(
            "lags",
            "consumer offsets",
            _text("group", "name"),
            _text("topic", "name"),
            _count("queue_id", "of the topic"),
            _count("consumer_offset", "next queue offset it will read"),
            _count("min_offset", "of the queue; null if it is not there", nullable=True, show="wide"),
            _count("max_offset", "of the queue; null if it is not there", nullable=True),
            _count("lag", "messages not yet read; null if the queue is not there", nullable=True),
            show="wide",
        ),
        _list(
            "index_files",
            "index files, oldest first",
            _text("file", "name"),
            _count("entries", "that are there"),
            _count("max_entries", "places, place 0 unused; null if nothing tells", nullable=True, show="wide"),
            _count("slots", "hash slots; null if nothing tells", nullable=True, show="wide"),
            _time("begin_timestamp", "store time of the first entry's record"),
            _time("end_timestamp", "store time of the last entry's record"),
            _count("begin_physical_offset", "of the first entry's record", show="wide"),
            _count("end_physical_offset", "of the last entry's record", show="wide"),
        ),
        Column(
            "checkpoint",
            "object",
            "null if there is none that can be read",
            show=TABLE,
            nullable=True,
            fields=(
                _time("physic_msg_timestamp", "store time up to which the CommitLog is flushed"),
                _time("logics_msg_timestamp", "store time up to which the queues are flushed"),
                _time("index_msg_timestamp", "end time of the last full index file"),
                _count("master_flushed_offset", "that the master had flushed; since 5.0"),
                _count("confirm_physical_offset", "since 5.1.1"),
                _count("logics_physical_offset", "up to which the queues are flushed; since 5.5"),
            ),
        ),
        Column(
            "timer",
            "object",
            "timer messages of 5.x; null if there are none",
            show=TABLE,
            nullable=True,
            fields=(
                _count("log_files", "files of the timer log"),
                _count("waiting", "messages in slots that are not due; null without a wheel", nullable=True),
                _time("last_read_time", "slots before it are delivered"),
                _count("last_queue_offset", "of rmq_sys_wheel_timer, up to which messages are in the wheel"),
            ),
        ),
        _list(
            "delay_offsets",
            "how far each delay level is delivered",
            _count("level", "queue id + 1"),
            _count("offset", "next queue offset"),
            show="wide",
        ),
        Column("deep", "object", "what reading every record tells: --deep", show=TABLE, optional=True, fields=_DEEP),
    ),
    single=True,
)
