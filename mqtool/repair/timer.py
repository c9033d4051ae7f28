"""Rebuilds the timer's files in place, wheel, log and checkpoint, from the timer messages of the log."""

from pathlib import Path

from mqtool.errors import UnsupportedFormatError, UsageError
from mqtool.formats import file_names
from mqtool.formats.timer import DEFAULT_LOG_FILE_SIZE
from mqtool.rebuild.timer import TimerResult
from mqtool.rebuild.timer import rebuild_timer as rebuild_into
from mqtool.repair.changes import RebuildTimer
from mqtool.repair.staged_files import StagedFiles
from mqtool.store.config.rocksdb import has_data
from mqtool.store.files import list_directory, list_mapped_files
from mqtool.store.store import Store
from mqtool.store.waiting.timer import known_log_file_size

_LISTED = 20
"""Of each kind of note."""


def rebuild_timer(store: Store, _change: RebuildTimer, out: Path, staged: StagedFiles) -> None:
    """Rebuilds the timer's files. Files of the old timer log and snapshots of the old wheel are removed.

    A broker with `timerWheelSnapshotFlush` loads the snapshot with the highest number and, without one, the plain
    wheel, which is the file that is built here (TimerWheel.getMaxSnapshotFlag, 5.5.0).

    Raises:
        UnsupportedFormatError: timer messages are kept in RocksDB, or may be.
        UsageError: the store never had a timer message, and has no timer.
    """
    _require_wheel(store)
    result = rebuild_into(store, out)
    directory = store.path / file_names.TIMER_LOG
    old = [file.path for file in list_mapped_files(directory).files]
    wheel = store.path / file_names.TIMER_WHEEL
    if not result.parked and not old and not wheel.exists():
        raise UsageError(f"{store.path}: the log holds no message of rmq_sys_wheel_timer, and there is no timer")
    rebuilt = set(staged.put_tree(out))
    snapshots = [store.path / entry.name for entry in list_directory(store.path) if _is_snapshot(entry.name)]
    for path in (*old, *snapshots):
        if path.relative_to(store.path).as_posix() not in rebuilt:
            staged.remove(path)
    if known_log_file_size(store.path, store.config) is None:
        staged.notes.append(
            f"timer: the size of timer log files is unknown; assuming {DEFAULT_LOG_FILE_SIZE} bytes; if the "
            "broker's mappedFileSizeTimerLog differs, add --config"
        )
    staged.complete &= not result.damage and not result.problems
    staged.notes += timer_notes(result)
    staged.read_log(store)
    staged.read_settings(store)


def _require_wheel(store: Store) -> None:
    """Raises UnsupportedFormatError if timer messages are, or may be, in RocksDB."""
    key, kept = "timerRocksDBEnable", store.path / file_names.ROCKSDB_STORE
    if store.config.flag(key):
        raise UnsupportedFormatError(f"{store.path}: timer in RocksDB; only timer wheel and timer log can be rebuilt")
    is_known = store.config.file is not None or key in store.config.values
    if not is_known and has_data(kept):
        raise UnsupportedFormatError(
            f"{kept}: has data, which may be timers; give the broker's configuration with --config. If it does not set "
            f"{key}, the timer wheel is rebuilt"
        )


def _is_snapshot(name: str) -> bool:
    head, _, number = name.partition(".")
    return head == file_names.TIMER_WHEEL and number.isdecimal()


def timer_notes(result: TimerResult) -> list[str]:
    """Returns what was rebuilt, what had to be assumed and what is missing, in sentences."""
    summary = (
        f"timer: {result.parked} parked message(s), {result.units} unit(s), {result.waiting} that wait; "
        f"read up to {result.last_read_time_ms} ms ({result.read_time_from})"
    )
    notes = [summary]
    if result.missed:
        notes.append(
            f"timer: {result.missed} message(s) were due before, but no record came of them: they are delivered now"
        )
    if result.guessed:
        notes.append(
            f"timer: no record states when {result.guessed} unit(s) were written; assuming the times when their "
            "messages were stored"
        )
    notes += [
        f"damage: {damage.kind} at physical offset {damage.start}, "
        f"{damage.end - damage.start} bytes; what was parked there is left out"
        for damage in result.damage.items[:_LISTED]
    ]
    return notes + [f"timer: {words}" for words in result.problems.items[:_LISTED]]
