"""The timer's files of a store, read: slots of the wheel, units of the log, and the checkpoint."""

from pathlib import Path

import numpy as np

from mqtool.errors import StoreError
from mqtool.formats import file_names, timer
from mqtool.store.files import ReadFile, read_file


def read_wheel(root: Path) -> np.ndarray:
    """Returns the slots of a store's timer wheel, of `timer.SLOT.dtype`; fewer if the file is too short.

    Raises:
        StoreError: the file does not exist or cannot be read.
    """
    with ReadFile(root / file_names.TIMER_WHEEL) as file:
        return timer.SLOT.rows(file.read(0, file.size))


def read_log_file(path: Path) -> bytes:
    """Returns a file of the timer log up to the end of its data; only zeros follow.

    Raises:
        StoreError: the file cannot be read.
    """
    with ReadFile(path) as file:
        return file.read(0, min(file.data_end(), file.size))


def checkpoint_path(root: Path) -> Path:
    """Returns where a store has the timer checkpoint."""
    return root / file_names.CONFIG / file_names.TIMER_CHECKPOINT


def read_checkpoint(root: Path) -> timer.TimerCheckpoint:
    """Returns the timer checkpoint of a store; zeros if it has none.

    Raises:
        StoreError: the file cannot be read.
    """
    path = checkpoint_path(root)
    return timer.parse_checkpoint(read_file(path)) if path.is_file() else timer.TimerCheckpoint()


def saved_checkpoint(root: Path) -> timer.TimerCheckpoint:
    """Returns the timer checkpoint of a store; zeros if it cannot be read, as in the broker."""
    try:
        return read_checkpoint(root)
    except StoreError:
        return timer.TimerCheckpoint()
