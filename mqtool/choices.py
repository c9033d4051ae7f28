"""Enumerations that are shared by the library and the command line.

They are declared here so that the command line can use them without loading the modules that implement them.
"""

import enum


class FileKind(enum.StrEnum):
    """Kinds of files that can be read one by one."""

    COMMIT_LOG = "commit-log"
    CONSUME_QUEUE = "consume-queue"
    CONSUME_QUEUE_EXT = "consume-queue-ext"
    BATCH_CONSUME_QUEUE = "batch-consume-queue"
    INDEX_FILE = "index-file"
    INDEX_HEADER = "index-header"
    CHECKPOINT = "checkpoint"
    TIMER_WHEEL = "timer-wheel"
    TIMER_LOG = "timer-log"
    TIMER_CHECKPOINT = "timer-checkpoint"
    CONFIG = "config"
    EPOCH_FILE = "epoch-file"
    DLEDGER_ENTRY = "dledger-entry"
    DLEDGER_INDEX = "dledger-index"
    MARKER = "marker"


class SearchMethod(enum.StrEnum):
    """Search strategy."""

    AUTO = "auto"
    INDEX = "index"
    SCAN = "scan"


class Trust(enum.StrEnum):
    """What a query may take as true without proof, in order to read or check less."""

    QUEUES = "queues"
    """ConsumeQueues name every record of their topic."""
    INDEX = "index"
    """Index files name every record with a key, from their first entry to their last."""
    CLOCK = "clock"
    """Store times never go backwards."""
    BODIES = "bodies"
    """Bodies that the query does not need are not damaged: their CRCs are not checked."""


class TlsMode(enum.Enum):
    """RocketMQ's `tls.server.mode`."""

    DISABLED = "disabled"
    """A TLS connection is closed."""
    PERMISSIVE = "permissive"
    """Both kinds are served."""
    ENFORCING = "enforcing"
    """A plain connection is closed."""


class Compat(enum.StrEnum):
    """Release whose on-disk format to write."""

    V4_9 = "4.9"
    V5_3 = "5.3"
    V5_4 = "5.4"
    V5_5 = "5.5"
    V5_5_1 = "5.5.1"


class RecoveryMode(enum.StrEnum):
    """What to do with bytes that recovery cuts off or deletes when a store is opened."""

    COMPATIBLE = "compatible"
    """Cut and delete them, as the broker does. Records of a store that this engine wrote are quarantined even so."""
    CAREFUL = "careful"
    """Quarantine all of them first, and list the complete messages among them in a form that `append` reads."""


class TableFormat(enum.StrEnum):
    """Table format of the messages directory, besides Parquet files."""

    DELTA = "delta"
    """A Delta table in `messages/`."""
    ICEBERG = "iceberg"
    """The table rocketmq.messages of the catalogue `mqtool` in pyiceberg's configuration, or in `iceberg.db`."""
