"""Names of directories and files in a store, and the two kinds of file names that contain a number.

Sources: StorePathConfigHelper, BrokerPathConfigHelper, UtilAll.offset2FileName, UtilAll.timeMillisToHumanString
(4.9.7, 5.5.0).
"""

from datetime import datetime, tzinfo

from mqtool.errors import FormatError

COMMIT_LOG = "commitlog"
CONSUME_QUEUE = "consumequeue"
CONSUME_QUEUE_ROCKSDB = "consumequeue_rocksdb"
CONSUME_QUEUE_EXT = "consumequeue_ext"
BATCH_CONSUME_QUEUE = "batchconsumequeue"
INDEX = "index"
CONFIG = "config"
COMPACTION = "compaction"
COMPACTION_LOG = "compaction/compactionLog"
COMPACTION_CONSUME_QUEUE = "compaction/compactionCq"
COMPACTING = "compacting"
COMPACTION_POSITIONS = "compaction/position-checkpoint"
TIMER_LOG = "timerlog"
TIMER_WHEEL = "timerwheel"
ROCKSDB_STORE = "rocksdbstore"
DLEDGER_PREFIX = "dledger-"
ASIDE = ".mqtool"
"""Ours: journal, quarantine and what is built aside while a store is being changed. No broker looks at it."""
KNOWN_LOSSES = "mqtool-known-losses.json"
"""Ours, in the root: messages that a repair could not save. No broker looks at it."""
UNFINISHED = "mqtool-change-unfinished"
"""Ours: keeps brokers from starting while files of a store change places."""

CHECKPOINT = "checkpoint"
ABORT = "abort"
ABORT_BACKUP = "abort.bak"
ABORT_NEW = "abort.new"
"""Ours: what becomes `abort` by a rename; a kill may leave it."""
LOCK = "lock"
EPOCH_FILE = "epochFileCheckpoint"
BROKER_IDENTITY = "brokerIdentity"
BROKER_IDENTITY_TEMP = "brokerIdentity-temp"
BACKUP_SUFFIX = ".bak"
DELETE_SUFFIX = ".delete"

TOPICS = "topics.json"
CONSUMER_OFFSETS = "consumerOffset.json"
LMQ_CONSUMER_OFFSETS = "lmqConsumerOffset.json"
SUBSCRIPTION_GROUPS = "subscriptionGroup.json"
DELAY_OFFSETS = "delayOffset.json"
CONSUMER_FILTERS = "consumerFilter.json"
CONSUMER_ORDER_INFO = "consumerOrderInfo.json"
TOPIC_QUEUE_MAPPING = "topicQueueMapping.json"
MESSAGE_REQUEST_MODE = "messageRequestMode.json"
USERS = "users"
ACLS = "acls"
"""RocksDBs below config/, of users and their permissions."""
TIMER_CHECKPOINT = "timercheck"
TIMER_METRICS = "timermetrics"
TRANSACTION_METRICS = "transactionMetrics"

MAPPED_FILE_NAME_DIGITS = 20
INDEX_NAME_DIGITS = 17


def mapped_file_name(file_from_offset: int) -> str:
    """Returns the 20-digit name of the mapped file that starts at an offset; FormatError if none can start there."""
    if not 0 <= file_from_offset < 1 << 63:
        raise FormatError(f"no file starts at offset {file_from_offset}", layout="file name")
    return f"{file_from_offset:020d}"


def parse_mapped_file_name(name: str) -> int | None:
    """Returns the offset of a mapped file's first byte, or None if the name is not of 20 digits in range."""
    if len(name) != MAPPED_FILE_NAME_DIGITS or not (name.isascii() and name.isdigit()):
        return None
    value = int(name)
    return value if value < 1 << 63 else None


def index_file_name(moment: datetime) -> str:
    """Returns the name of an index file created at a time, yyyyMMddHHmmssSSS in the zone of `moment`."""
    return f"{moment.year:04d}{moment:%m%d%H%M%S}{moment.microsecond // 1000:03d}"


def parse_index_file_name(name: str, zone: tzinfo) -> datetime | None:
    """Returns the time in an index file's name, in the broker's time zone; None if it is not an index file name."""
    if not is_index_file_name(name):
        return None
    try:
        return datetime.strptime(name[:14], "%Y%m%d%H%M%S").replace(microsecond=int(name[14:]) * 1000, tzinfo=zone)
    except ValueError:
        return None


def is_directory_name(name: str) -> bool:
    """Whether a topic is usable as a directory name: it stays inside its parent and the operating system accepts it."""
    encoded = name.encode("utf-8", "replace")
    return encoded not in (b"", b".", b"..") and not set(encoded) & set(b"/\0") and len(encoded) < 256


def is_index_file_name(name: str) -> bool:
    """Whether a name has the 17 digits of an index file; the broker itself accepts any Java long."""
    return len(name) == INDEX_NAME_DIGITS and name.isascii() and name.isdigit()
