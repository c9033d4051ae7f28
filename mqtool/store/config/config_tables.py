"""Tables of configuration as a broker reads them on startup: a JSON file, its `.bak`, or a RocksDB.

Source: ConfigManager.load, RocksDBConfigManager (4.9.7, 5.5.0).
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mqtool.errors import FormatError, StoreError, UnavailableError, UnsupportedFormatError
from mqtool.formats import file_names
from mqtool.formats.config_files import DataVersion
from mqtool.store.config import rocksdb
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.files import read_file, recording_unlisted

T = TypeVar("T")
Parse = Callable[[bytes], T]


def may_be_in_database(config: BrokerConfig) -> bool:
    """Whether a broker reads databases of configuration if there are any: it is configured, or nothing is."""
    kind = config.text("storeType")
    return kind == "defaultRocksDB" or (kind is None and config.file is None)


SINGLE_DATABASE = "metadata"
"""Directory below config/ of the RocksDB that may keep all tables."""


def unread_database(directory: Path, config: BrokerConfig) -> str:
    """Returns why topics, groups and positions are unknown if a broker keeps them in one RocksDB; "" if not.

    Source: RocksDBTopicConfigManager.rocksdbConfigFilePath, ConfigStorage (5.5.0).

    Args:
        directory: the store's config/.
        config: of the broker; without one, a database that is there counts.
    """
    chosen = config.flag("useSingleRocksDBForAllConfigs") or config.text("configManagerVersion") == "v2"
    if config.file is not None and not chosen:
        return ""
    place = directory / SINGLE_DATABASE
    try:
        with recording_unlisted(None):
            if not rocksdb.is_database(place):
                return ""
    except StoreError as error:
        return str(error)
    return (
        f"{file_names.CONFIG}/{SINGLE_DATABASE}: topics, groups and positions are in one RocksDB "
        "(useSingleRocksDBForAllConfigs or configManagerVersion=v2), which is not read"
    )


def require_readable(directory: Path, config: BrokerConfig, advice: str) -> None:
    """Raises UnsupportedFormatError if topics, groups and positions are in a database that is not read.

    Args:
        directory, config: as for `unread_database`.
        advice: what to do instead, in words.
    """
    problem = unread_database(directory, config)
    if problem:
        raise UnsupportedFormatError(f"{directory.parent}: {problem}; {advice}")


def counter_of(version: DataVersion | None) -> int:
    """Returns the number of changes to a table; 0 if it does not state it."""
    return version.counter if version else 0


def from_file(directory: Path, name: str, parse: Parse[T], problems: list[str]) -> tuple[Path, T] | None:
    """Returns path and content of the file, or of its `.bak` if the file is missing or unreadable.

    Args:
        directory: the store's config/.
        name: of the file.
        parse: parses its bytes.
        problems: takes what cannot be read, in words.
    """
    for path in (directory / name, directory / (name + file_names.BACKUP_SUFFIX)):
        try:
            if path.exists():
                return path, parse(read_file(path))
        except (FormatError, StoreError, OSError) as error:  # OSError: the directory may not be searched
            problems.append(f"{path.name}: {error}")
    return None


def from_database(directory: Path, name: str, parse: Parse[T], problems: list[str]) -> T | None:
    """Returns the content of the RocksDB that a broker keeps instead of a file; arguments as in `from_file`."""
    try:
        with recording_unlisted(None):
            kept = rocksdb.table(directory, name)
        return None if kept is None else parse(kept)
    except (FormatError, StoreError, UnavailableError, OSError) as error:
        problems.append(f"{name}: {error}")
    return None
