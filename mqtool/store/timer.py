"""The timer's files of a store, read: slots of the wheel, units of the log, and the checkpoint."""

from pathlib import Path

import numpy as np

from mqtool.errors import StoreError
from mqtool.formats import file_names, timer
from mqtool.store.broker_config import BrokerConfig
from mqtool.store.file_sizes import TIMER_LOG, KnownSize
from mqtool.store.files import ReadFile, is_file, list_mapped_files, read_file

_BLANK_SLOTS = 60
"""Slots of the wheel that a roll window leaves free (TimerMessageStore.TIMER_BLANK_SLOTS)."""


def read_wheel(root: Path) -> np.ndarray:
    """Returns the slots of a store's timer wheel, of `timer.SLOT.dtype`; fewer if the file is too short.

    Raises:
        StoreError: the file does not exist or cannot be read.
    """
    with ReadFile(root / file_names.TIMER_WHEEL) as file:
        return timer.SLOT.rows(file.read(0, file.size))


def read_log_file(path: Path) -> bytes:
    """Returns a file of the timer log with all its units; only zeros follow.

    Raises:
        StoreError: the file cannot be read.
    """
    with ReadFile(path) as file:
        end = file.data_end() + timer.LOG_UNIT_SIZE  # the last unit ends with zeros, which may be a hole
        return file.read(0, min(end, file.size))


def known_log_file_size(root: Path, config: BrokerConfig) -> KnownSize | None:
    """Returns the size of the timer log's files; None if neither files nor configuration show it.

    Args:
        root: of the store.
        config: of the broker.

    Raises:
        UsageError: the configured size is impossible.
    """
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
    largest = timer.WHEEL_SLOTS - _BLANK_SLOTS
    return window if 2 <= window <= largest else largest


def checkpoint_path(root: Path) -> Path:
    """Returns where a store has the timer checkpoint."""
    return root / file_names.CONFIG / file_names.TIMER_CHECKPOINT


def read_checkpoint(root: Path) -> timer.TimerCheckpoint:
    """Returns the timer checkpoint of a store; zeros if it has none.

    Raises:
        StoreError: the file cannot be read.
    """
    path = checkpoint_path(root)
    return timer.parse_checkpoint(read_file(path)) if is_file(path) else timer.TimerCheckpoint()


def saved_checkpoint(root: Path) -> timer.TimerCheckpoint:
    """Returns the timer checkpoint of a store; zeros if it cannot be read, as in the broker."""
    try:
        return read_checkpoint(root)
    except StoreError:
        return timer.TimerCheckpoint()
