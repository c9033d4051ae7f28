"""The timer's files of a store, read: slots of the wheel, units of the log, the checkpoint, and RocksDB's position."""

from pathlib import Path

import numpy as np
from msgspec import Struct

from mqtool.errors import StoreError
from mqtool.formats import file_names, timer
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.config.rocksdb import Database, is_database
from mqtool.store.file_sizes import TIMER_LOG, KnownSize
from mqtool.store.files import ReadFile, is_file, list_mapped_files, read_file

_FAMILY = "timer"
_POSITION, _DELIVERED_UNTIL = b"sys_topic_scan_offset_checkpoint", b"timeline_checkpoint"
_LONG_SIZE = 8


class RocksdbTimer(Struct, frozen=True):
    """What a broker with timerRocksDBEnable keeps of timer messages in RocksDB."""

    queue_offset: int = 0  # queue offset in the timer topic from which the broker continues; 0 without such a timer
    is_waiting: bool = False  # whether messages wait for their delivery time


def read_rocksdb_timer(root: Path) -> RocksdbTimer:
    """Returns the state of the timer in a store's RocksDB. Source: MessageRocksDBStorage, TimerRocksDBRecord (5.5.0).

    Raises UnavailableError if rocksdict is not installed, StoreError if the RocksDB cannot be read.
    """
    path = root / file_names.ROCKSDB_STORE
    if not path.is_dir() or not is_database(path):
        return RocksdbTimer()
    with Database(path) as database:
        points = {key: value for key, value in database.items(_FAMILY, _POSITION[:1]) if len(value) == _LONG_SIZE}
        position = int.from_bytes(points.get(_POSITION, b""), "big", signed=True)
        delivered = points.get(_DELIVERED_UNTIL, bytes(_LONG_SIZE))
        waiting = any(key not in (_POSITION, _DELIVERED_UNTIL) for key, _ in database.items(_FAMILY, delivered))
        return RocksdbTimer(max(0, position), waiting)


def read_wheel(root: Path) -> np.ndarray:
    """Returns the slots of the timer wheel as `timer.SLOT.dtype`, fewer if its file is short; raises StoreError."""
    with ReadFile(root / file_names.TIMER_WHEEL) as file:
        return timer.SLOT.rows(file.read(0, file.size))


def read_log_file(path: Path) -> bytes:
    """Returns a file of the timer log with all its units, only zeros follow; raises StoreError."""
    with ReadFile(path) as file:
        end = file.data_end() + timer.LOG_UNIT_SIZE  # the last unit ends with zeros, which may be a hole
        return file.read(0, min(end, file.size))


def known_log_file_size(root: Path, config: BrokerConfig) -> KnownSize | None:
    """Returns the size of the timer log's files, None if unknown; raises UsageError if it is configured wrongly."""
    return TIMER_LOG.decide(config, list_mapped_files(root / file_names.TIMER_LOG).files, [])


def log_file_size(root: Path, config: BrokerConfig) -> int:
    """Returns the size of the timer log's files in bytes, the broker's default if nothing shows it."""
    known = known_log_file_size(root, config)
    return timer.DEFAULT_LOG_FILE_SIZE if known is None else known.value


def roll_window(config: BrokerConfig) -> int:
    """Returns after how many slots a message is rolled; the largest window if the configured one is impossible.

    Source: the constructor of TimerMessageStore (5.5.0).
    """
    window = config.integer("timerRollWindowSlot")
    if window is None:
        return timer.DEFAULT_ROLL_WINDOW
    return window if 2 <= window <= timer.USED_SLOTS else timer.USED_SLOTS


def checkpoint_path(root: Path) -> Path:
    """Returns where a store has the timer checkpoint."""
    return root / file_names.CONFIG / file_names.TIMER_CHECKPOINT


def read_checkpoint(root: Path) -> timer.TimerCheckpoint:
    """Returns the timer checkpoint of a store; zeros if it has none; raises StoreError if the file cannot be read."""
    path = checkpoint_path(root)
    return timer.parse_checkpoint(read_file(path)) if is_file(path) else timer.TimerCheckpoint()


def saved_checkpoint(root: Path) -> timer.TimerCheckpoint:
    """Returns the timer checkpoint of a store; zeros if it cannot be read, as in the broker."""
    try:
        return read_checkpoint(root)
    except StoreError:
        return timer.TimerCheckpoint()
