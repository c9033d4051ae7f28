"""The tables in config/ that a broker loads before its store, and whether it can.

A missing or empty table counts as empty. One that cannot be parsed is replaced by its .bak; if that cannot be parsed
either, the broker ends. Source: ConfigManager.load, loadBak, BrokerController.initialize (4.9.7);
BrokerController.initializeMetadata (5.5.0).
"""

from collections.abc import Mapping
from pathlib import Path

from mqtool.errors import FormatError
from mqtool.formats import config_files, file_names
from mqtool.formats.config_files import TopicConfig
from mqtool.formats.release import Release
from mqtool.recovery import table_shapes, table_text
from mqtool.recovery.action_log import Action, ActionLog, load_fails
from mqtool.recovery.settings import RecoverySettings
from mqtool.store.files import read_file

_TABLES_4 = (
    file_names.TOPICS,
    file_names.CONSUMER_OFFSETS,
    file_names.SUBSCRIPTION_GROUPS,
    file_names.CONSUMER_FILTERS,
)
_TABLES_5 = (
    file_names.TOPICS,
    file_names.TOPIC_QUEUE_MAPPING,
    file_names.CONSUMER_OFFSETS,
    file_names.SUBSCRIPTION_GROUPS,
    file_names.CONSUMER_FILTERS,
    file_names.CONSUMER_ORDER_INFO,
)


def load_tables(settings: RecoverySettings, actions: ActionLog) -> Mapping[str, TopicConfig]:
    """Loads the tables in the broker's order.

    Returns:
        Topics by name; none if they cannot be read.

    Raises:
        StartFailed: a table and its backup cannot be parsed.
    """
    table = b""
    for name in _TABLES_5 if settings.release >= (5, 5) else _TABLES_4:
        chosen = _with_lmq(name, settings)
        data = load_table(settings, actions, chosen)
        if data is None:
            _note_overwritten(settings, actions)
            raise load_fails(f"load {last_tried_file(_path(settings, chosen), release=settings.release)} Failed")
        if name == file_names.TOPICS:
            table = data
    return _topics(table)


def load_table(settings: RecoverySettings, actions: ActionLog, name: str) -> bytes | None:
    """Returns what a table is loaded from, its file or its backup; b"" for an empty table; None if neither parses."""
    path = _path(settings, name)
    data = _content(path)
    if data and _is_taken(settings, actions, name, data):
        return data
    backup = _content(path.with_name(path.name + file_names.BACKUP_SUFFIX))
    if path.is_file():
        instead = "its .bak" if backup else "an empty table"
        actions.log_accepted(f"config/{name} is empty or cannot be read: {instead} is taken (ConfigManager.load)")
    elif not backup and name in (file_names.TOPICS, file_names.CONSUMER_OFFSETS):
        actions.log_accepted(f"config/{name} is missing: an empty table is taken (ConfigManager.load)")
    if backup is None or not backup:
        return b""
    return backup if _is_taken(settings, actions, name, backup) else None


def last_tried_file(path: Path, *, release: Release) -> Path:
    """Returns the file that the broker names when a table and its backup cannot be parsed."""
    return path.with_name(path.name + file_names.BACKUP_SUFFIX) if release >= (5, 5) else path


def _with_lmq(name: str, settings: RecoverySettings) -> str:
    return file_names.LMQ_CONSUMER_OFFSETS if settings.lmq and name == file_names.CONSUMER_OFFSETS else name


def _path(settings: RecoverySettings, name: str) -> Path:
    return settings.root / file_names.CONFIG / name


def _content(path: Path) -> bytes | None:
    return read_file(path) if path.is_file() else None


def _is_taken(settings: RecoverySettings, actions: ActionLog, name: str, data: bytes) -> bool:
    """Whether the release's parser accepts a table: its text, and the values in it."""
    try:
        document = table_text.read_table(data, release=settings.release)
    except (ValueError, RecursionError):
        if not table_text.is_cut(data):
            actions.log_undecided(f"whether the broker's parser takes config/{name}, which is not JSON: taken as no")
        return False
    return table_shapes.fits(name, document, release=settings.release)


def _note_overwritten(settings: RecoverySettings, actions: ActionLog) -> None:
    tables = [_with_lmq(file_names.CONSUMER_OFFSETS, settings)]
    if settings.release >= (5, 5):
        tables += [file_names.TOPICS, file_names.SUBSCRIPTION_GROUPS]
    for name in tables:
        actions.do(Action.WRITE, _path(settings, name))
    actions.log_reason(
        "a broker that cannot load its tables writes them as they are on its way out: "
        f"{', '.join(tables)}: overwritten with empty or default tables (BrokerController.shutdown)"
    )


def _topics(data: bytes) -> Mapping[str, TopicConfig]:
    try:
        return config_files.parse_topics(data).topic_config_table if data else {}
    except FormatError:
        return {}
