"""Rebuilds in place what is derived from the log: queues, index, configuration, checkpoint and timer.

Decides which rebuilt files replace existing ones, and restores deleted topics.
"""

import glob
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from mqtool.errors import LayoutError, StoreError, UnsupportedFormatError, UsageError
from mqtool.formats import checkpoint as checkpoint_format
from mqtool.formats import config_files, file_names
from mqtool.formats.config_json import json_style
from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT, PRE_BLANK_SIZE_FIELD
from mqtool.formats.timer import DEFAULT_LOG_FILE_SIZE
from mqtool.jobs.atomic import write_new
from mqtool.rebuild.job import rebuild, rebuild_index_file
from mqtool.rebuild.metadata import ComposedFiles, LogSurvey, compose, is_in_log, survey_log
from mqtool.rebuild.parts import RebuildScope
from mqtool.rebuild.settings import DEFAULT, RebuildSettings, settings_of
from mqtool.rebuild.sink import Result
from mqtool.rebuild.timer import TimerResult
from mqtool.rebuild.timer import rebuild_timer as rebuild_timer_files
from mqtool.repair.changes import RebuildIndex, RebuildMetadata, RebuildQueues, RebuildTimer, Undelete
from mqtool.repair.files import sha256_of
from mqtool.repair.staged_files import StagedFiles, check_configuration, check_queues
from mqtool.store.config.rocksdb import has_data
from mqtool.store.files import list_directory, list_mapped_files, read_file
from mqtool.store.layout import queue_directories
from mqtool.store.log.selection import Globs
from mqtool.store.queues.filter_bit_maps import bit_maps_of
from mqtool.store.store import Store
from mqtool.store.waiting.timer import known_log_file_size

_KINDS = (file_names.CONSUME_QUEUE, file_names.CONSUME_QUEUE_EXT, file_names.BATCH_CONSUME_QUEUE)
_TOPICS = f"{file_names.CONFIG}/{file_names.TOPICS}"
_LISTED = 20
"""Of each kind of note."""


def rebuild_queues(store: Store, change: RebuildQueues, out: Path, staged: StagedFiles) -> None:
    """Rebuilds queues, and removes files of theirs that the log does not account for."""
    check_queues(store)
    for size in (store.layout.consume_queue_size, store.layout.batch_consume_queue_size):
        if size is not None and not size.is_certain:
            raise LayoutError(size.doubt, store.path)
    settings = settings_of(store)
    bit_maps = bit_maps_of(store) if settings.has_extension else None
    scope = RebuildScope(index=False, topics=change.topics, queue_id=change.queue_id)
    result = rebuild(store, out, settings, scope, bit_maps=bit_maps)
    _add_notes(result, staged)
    if (out / file_names.CONSUME_QUEUE).is_dir():
        _note_assumed_size(settings, staged)
    if bit_maps is not None:
        staged.notes.extend(bit_maps.problems)
    rebuilt, removed = set(staged.put_tree(out)), len(staged.removed)
    queues = store.disk_queues() if not result.damage else []
    foreign = {queue.path for queue in queues if is_in_log(store.commit_log, queue)}
    chosen = Globs(change.topics)
    for kind in _KINDS:
        for topic, queue_id, directory in queue_directories(store.path / kind):
            if chosen.matches(topic) and change.queue_id in (None, queue_id):
                _replace_queue(store, kind, directory, out, staged, is_foreign=directory in foreign)
    if not rebuilt and len(staged.removed) == removed:
        raise UsageError(f"{store.path}: the CommitLog contains no message of the requested queues")
    staged.read_log(store)
    staged.read_settings(store)


def _note_assumed_size(settings: RebuildSettings, staged: StagedFiles) -> None:
    if settings.evidence["consume_queue_size"] == DEFAULT:
        staged.notes.append(
            f"queue files of {settings.consume_queue_size} bytes, the broker's default, because no file or "
            "configuration states another size; a broker with another mappedFileSizeConsumeQueue refuses to start on "
            "them: give its broker.conf with --config"
        )


def _replace_queue(
    store: Store, kind: str, directory: Path, out: Path, staged: StagedFiles, *, is_foreign: bool
) -> None:
    """Decides which files of one existing queue are replaced, kept or removed."""
    inner = directory.relative_to(store.path)
    files = list_mapped_files(out / inner).files
    if not files and is_foreign:
        for file in list_mapped_files(directory).files:
            staged.remove(file.path)
        staged.notes.append(
            f"{inner.as_posix()}: the log contains no message of this queue, and its units point to messages of "
            "others: its files are set aside"
        )
        return
    if not files:
        if kind != file_names.CONSUME_QUEUE_EXT:
            staged.notes.append(f"{inner.as_posix()}: the log contains no message of this queue; it is not changed")
        return
    first = files[0].base
    kept = {file.path.name for file in files}
    for file in list_mapped_files(directory).files:
        if file.base > first and file.path.name not in kept:
            staged.remove(file.path)
    old = directory / files[0].path.name
    if kind == file_names.CONSUME_QUEUE and old.is_file():
        _keep_expired(files[0].path, old, store.commit_log.min_offset)


def _keep_expired(rebuilt: Path, old: Path, log_begins: int) -> None:
    """Copies the units of expired messages into a rebuilt queue, which has blank units there.

    The broker keeps these units too: it deletes files of a queue, not single units.
    """
    dtype = CONSUME_QUEUE_UNIT.dtype
    size = rebuilt.stat().st_size
    if size != old.stat().st_size or size % dtype.itemsize:
        return
    made_bytes, old_bytes = rebuilt.read_bytes(), old.read_bytes()
    new, before = np.frombuffer(made_bytes, dtype), np.frombuffer(old_bytes, dtype)
    blank = (new["physical_offset"] == 0) & (new["size"] == PRE_BLANK_SIZE_FIELD)
    count = len(new) if blank.all() else int(np.argmin(blank))
    old_units = before[:count]
    expired = (
        (old_units["size"] > 0) & (old_units["physical_offset"] >= 0) & (old_units["physical_offset"] < log_begins)
    )
    if count and expired.all():
        with rebuilt.open("r+b") as file:
            file.write(old_units.tobytes())


def _add_notes(result: Result, staged: StagedFiles) -> None:
    staged.complete &= result.is_complete
    for damage in result.damage.items[:_LISTED]:
        staged.notes.append(
            f"damage: {damage.kind} at physical offset {damage.start}, {damage.end - damage.start} bytes; what they "
            "held is not in the result"
        )
    for name, note in result.notes.items[:_LISTED]:
        staged.notes.append(f"{name.topic}/{name.queue_id}: {note.kind.value} at queue offset {note.first}")
    for oddity in result.oddities.items[:_LISTED]:
        staged.notes.append(f"physical offset {oddity.physical_offset}: {oddity.detail}")
    for queue in result.unwritable.items[:_LISTED]:
        staged.notes.append(f"{queue.topic[:80]!r}/{queue.queue_id}: this topic cannot be the name of a directory")
    for what, count in (("damaged ranges", result.damage.count), ("notes", result.notes.count)):
        if count > _LISTED:
            staged.notes.append(f"{count - _LISTED} more {what}")


def rebuild_index(store: Store, change: RebuildIndex, out: Path, staged: StagedFiles) -> None:
    """Rebuilds all index files, or one."""
    settings = settings_of(store)
    if change.file is not None:
        _add_notes(rebuild_index_file(store, out, settings, change.file), staged)
        staged.put_tree(out)
        previous = [file.path for file in store.disk_index_files() if file.path.name < change.file]
        if previous:
            staged.reads[staged.name(max(previous))] = True
    else:
        _add_notes(rebuild(store, out, settings, RebuildScope(queues=False)), staged)
        replace_index(
            store, sorted((out / file_names.INDEX).iterdir()) if (out / file_names.INDEX).is_dir() else [], staged
        )
    if not store.clean_stop:
        staged.notes.append(
            "there is an abort file: the broker's next start deletes index files that end after the "
            "checkpoint's index time, and indexes again only what it scans"
        )
    staged.read_log(store)
    staged.read_settings(store)


def replace_index(store: Store, rebuilt: list[Path], staged: StagedFiles) -> None:
    """Names new index files like the ones that they replace, so that only different files change."""
    directory = store.path / file_names.INDEX
    old = [directory / e.name for e in list_directory(directory) if file_names.is_index_file_name(e.name)]
    for path in old:
        staged.name(path)  # refuses links before any of them is read
    sizes = {path.stat().st_size for path in rebuilt} & {path.stat().st_size for path in old if path.is_file()}

    def total(path: Path) -> str | None:
        return sha256_of(path) if path.stat().st_size in sizes else None  # one of another size is another file

    names = _names(
        [path.name for path in rebuilt], [total(path) for path in rebuilt], {file.name: total(file) for file in old}
    )
    for name, path in zip(names, rebuilt, strict=True):
        staged.put(f"{file_names.INDEX}/{name}", path)
    for path in old:
        if path.name not in names:
            staged.remove(path)


def _names(rebuilt: list[str], sums: Sequence[str | None], old: dict[str, str | None]) -> list[str]:
    """Returns a name for each new file, so that as few files as possible change.

    It is the name of the old file with the same bytes, or of the old one in the same place between such files. A sum
    is None if the bytes are not known; such a file equals no other.
    """
    names: list[str | None] = [None] * len(rebuilt)
    by_sum = {total: name for name, total in sorted(old.items(), reverse=True) if total is not None}
    for number, total in enumerate(sums):
        name = None if total is None else by_sum.get(total)
        if name is not None and all(known is None or known < name for known in names[:number]):
            names[number] = name
    left = sorted(set(old) - set(names))
    number = 0
    while number < len(names):
        end = next((n for n in range(number, len(names)) if names[n] is not None), len(names))
        low, high = names[number - 1] if number else "", names[end] if end < len(names) else "~"
        assert low is not None
        assert high is not None
        free = [name for name in left if low < name < high]
        if len(free) == end - number:
            names[number:end] = free
        number = end + 1
    chosen: list[str] = []
    for name, own in zip(names, rebuilt, strict=True):
        best = name or own
        if chosen and best <= chosen[-1]:
            best = f"{int(chosen[-1]) + 1:0{file_names.INDEX_NAME_DIGITS}d}"
        chosen.append(best)
    return chosen


def rebuild_metadata(store: Store, change: RebuildMetadata, out: Path, staged: StagedFiles) -> None:
    """Completes the configuration from the log. A valid checkpoint is kept unless the change names it."""
    check_configuration(store)
    survey, composed = _composed(store, staged)
    unknown = set(change.files) - set(composed.files)
    if unknown:
        raise UsageError(f"expected some of {', '.join(sorted(composed.files))}, found {min(unknown)!r}")
    for name, data in sorted(composed.files.items()):
        if change.files and name not in change.files:
            continue
        if name == file_names.CHECKPOINT and not change.files and _is_plausible(store, survey):
            continue
        write_new(out / name, data)
        staged.put(name, out / name)
        _note_guesses(composed, name.rpartition("/")[2], staged)
    staged.read_log(store)
    staged.read_settings(store)


def _composed(store: Store, staged: StagedFiles) -> tuple[LogSurvey, ComposedFiles]:
    survey = survey_log(store, settings_of(store).rules)
    if survey.damage:
        staged.complete = False
        staged.notes.append(
            f"{survey.damage.count} damaged range(s) of the log: topics and queues known only from there are missing"
        )
    return survey, compose(store, survey)


def _note_guesses(
    composed: ComposedFiles, file: str, staged: StagedFiles, items: Collection[str] | None = None
) -> None:
    staged.notes.extend(
        f"{guess.file}: {guess.item}: {guess.value} ({guess.reason})"
        for guess in composed.guesses
        if guess.file == file and (items is None or guess.item in items)
    )


def _is_plausible(store: Store, survey: LogSurvey) -> bool:
    """Whether a broker may have left this checkpoint with this log."""
    known, path = store.checkpoint, store.path / file_names.CHECKPOINT
    if known is None or not path.is_file() or path.stat().st_size != checkpoint_format.FILE_SIZE:
        return False
    times = [getattr(known, name) for name in checkpoint_format.TIMES]
    offsets = (known.confirm_physical_offset, known.logics_physical_offset)
    end = store.commit_log.max_offset
    return (
        all(0 <= time <= survey.last_time for time in times)
        and all(0 <= offset <= end for offset in offsets)
        and times[0] > 0
    )


def undelete(store: Store, change: Undelete, out: Path, staged: StagedFiles) -> None:
    """Restores configuration and queues of topics, at the queue offsets that their records state."""
    check_configuration(store)
    survey, composed = _composed(store, staged)
    in_log = {name.topic for name in survey.queues}
    for topic in change.topics:
        if topic not in in_log:
            raise UsageError(f"{topic!r}: the CommitLog holds no message of this topic")
    parsed = config_files.parse_topics(composed.files[_TOPICS])
    known = store.metadata.topics
    table = {name: topic for name, topic in parsed.topic_config_table.items() if name in known or name in change.topics}
    for name in set(table) & set(known) - set(change.topics):
        table[name] = known[name]
    style = json_style(store.version.release)
    data = config_files.build_topics(replace(parsed, topic_config_table=table), style)
    if data != _bytes_of(store.path / _TOPICS):
        write_new(out / _TOPICS, data)
        staged.put(_TOPICS, out / _TOPICS)
    _note_guesses(composed, file_names.TOPICS, staged, change.topics)
    queues = out / "queues"
    rebuild_queues(store, RebuildQueues(tuple(glob.escape(topic) for topic in change.topics)), queues, staged)


def _bytes_of(path: Path) -> bytes | None:
    try:
        return read_file(path)
    except StoreError:
        return None


def rebuild_timer(store: Store, _change: RebuildTimer, out: Path, staged: StagedFiles) -> None:
    """Rebuilds the timer's files. Files of the old timer log and snapshots of the old wheel are removed.

    A broker with `timerWheelSnapshotFlush` loads the snapshot with the highest number and, without one, the plain
    wheel, which is the file that is built here (TimerWheel.getMaxSnapshotFlag, 5.5.0).
    """
    _require_wheel(store)
    result = rebuild_timer_files(store, out)
    directory = store.path / file_names.TIMER_LOG
    old = [file.path for file in list_mapped_files(directory).files]
    wheel = store.path / file_names.TIMER_WHEEL
    if not result.parked and not old and not wheel.exists():
        raise UsageError(f"{store.path}: the log contains no message of rmq_sys_wheel_timer, and there is no timer")
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
        f"timer: {result.parked} parked message(s), {result.units} unit(s), {result.waiting} waiting; read up to "
        f"{result.last_read_time_ms} ms ({result.read_time_from})"
    )
    notes = [summary]
    if result.missed:
        notes.append(f"timer: {result.missed} message(s) were due earlier but have no record: they are delivered now")
    if result.guessed:
        notes.append(
            f"timer: no record states when {result.guessed} unit(s) were written; assuming the times when their "
            "messages were stored"
        )
    notes += [
        f"damage: {damage.kind} at physical offset {damage.start}, "
        f"{damage.end - damage.start} bytes; messages parked there are left out"
        for damage in result.damage.items[:_LISTED]
    ]
    return notes + [f"timer: {words}" for words in result.problems.items[:_LISTED]]
