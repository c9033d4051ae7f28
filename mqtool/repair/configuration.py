"""Rebuilds config/*.json and the checkpoint in place, and restores deleted topics."""

import glob
from pathlib import Path

from msgspec.structs import replace

from mqtool.errors import StoreError, UsageError
from mqtool.formats import checkpoint as checkpoint_format
from mqtool.formats import config_files, file_names
from mqtool.formats.config_json import json_style
from mqtool.jobs.atomic import write_new
from mqtool.rebuild.log_survey import LogSurvey, survey_log
from mqtool.rebuild.metadata import ComposedFiles, compose
from mqtool.rebuild.settings import settings_of
from mqtool.repair.changes import RebuildMetadata, RebuildQueues, Undelete
from mqtool.repair.derived import rebuild_queues
from mqtool.repair.staged_files import StagedFiles, check_configuration
from mqtool.store.files import read_file
from mqtool.store.store import Store

_TOPICS = f"{file_names.CONFIG}/{file_names.TOPICS}"


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
        file = name.rpartition("/")[2]
        staged.notes.extend(
            f"{guess.file}: {guess.item}: {guess.value} ({guess.reason})"
            for guess in composed.guesses
            if guess.file == file
        )
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


def _is_plausible(store: Store, survey: LogSurvey) -> bool:
    """Whether a broker may have left this checkpoint with this log."""
    known, path = store.checkpoint, store.path / file_names.CHECKPOINT
    if known is None or not path.is_file() or path.stat().st_size != checkpoint_format.FILE_SIZE:
        return False
    times = (known.physic_msg_timestamp, known.logics_msg_timestamp, known.index_msg_timestamp)
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
    staged.notes.extend(
        f"{guess.file}: {guess.item}: {guess.value} ({guess.reason})"
        for guess in composed.guesses
        if guess.file == file_names.TOPICS and guess.item in change.topics
    )
    queues = out / "queues"
    rebuild_queues(store, RebuildQueues(tuple(glob.escape(topic) for topic in change.topics)), queues, staged)


def _bytes_of(path: Path) -> bytes | None:
    try:
        return read_file(path)
    except StoreError:
        return None
