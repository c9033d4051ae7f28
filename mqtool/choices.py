"""Values that a caller of the library and a user of the command line choose from by name.

Declared where the command line gets them without loading what acts on them.
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


class Way(enum.StrEnum):
    """How to look."""

    AUTO = "auto"
    INDEX = "index"
    SCAN = "scan"


class TlsMode(enum.Enum):
    """RocketMQ's `tls.server.mode`."""

    DISABLED = "disabled"
    """A TLS connection is closed."""
    PERMISSIVE = "permissive"
    """Both kinds are served."""
    ENFORCING = "enforcing"
    """A plain connection is closed."""
