"""Tables of configuration as a broker reads them on startup: a JSON file, its `.bak`, or a RocksDB.

Positions of consumer groups have several places, of which a broker reads one: `lmqConsumerOffset.json` with
`enableLmq`, the RocksDB `config/consumerOffsets` with `storeType=defaultRocksDB`, otherwise `consumerOffset.json`. A
broker with RocksDB imports a `consumerOffset.json` with a newer data version. Source: ConfigManager.load,
BrokerController, LmqConsumerOffsetManager, RocksDBConfigManager, RocksDBConsumerOffsetManager.merge (4.9.7, 5.5.0).
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from mqtool.errors import FormatError, StoreError, UnavailableError, UnsupportedFormatError
from mqtool.formats import config_files, file_names
from mqtool.formats.config_files import ConsumerOffsets, DataVersion
from mqtool.store.config import rocksdb
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.files import read_file, recording_unlisted

T = TypeVar("T")
Parse = Callable[[bytes], T]

SINGLE_DATABASE = "metadata"
"""Directory below config/ of the RocksDB that may keep all tables."""

OFFSET_DATABASE = "consumerOffsets"
"""Directory of the RocksDB below config/."""

OFFSET_FILES = (file_names.CONSUMER_OFFSETS, file_names.LMQ_CONSUMER_OFFSETS)
"""Names of the files with positions, below config/."""


def may_be_in_database(config: BrokerConfig) -> bool:
    """Whether a broker reads databases of configuration if there are any: it is configured, or nothing is."""
    kind = config.text("storeType")
    return kind == "defaultRocksDB" or (kind is None and config.file is None)


def unread_database(directory: Path, config: BrokerConfig) -> str:
    """Returns why topics, groups and positions are unknown if a broker keeps them in one RocksDB; "" if not.

    Source: RocksDBTopicConfigManager.rocksdbConfigFilePath, ConfigStorage (5.5.0).

    Args:
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
    """Raises UnsupportedFormatError if topics, groups and positions are in a database that is not read."""
    problem = unread_database(directory, config)
    if problem:
        raise UnsupportedFormatError(f"{directory.parent}: {problem}; {advice}")


def counter_of(version: DataVersion | None) -> int:
    """Returns the number of changes to a table; 0 if it does not state it."""
    return version.counter if version else 0


def from_file(directory: Path, name: str, parse: Parse[T], problems: list[str]) -> tuple[Path, T] | None:
    """Returns path and content of the file, or of its `.bak` if the file is missing or unreadable.

    Args:
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


class OffsetTable(Struct, frozen=True):
    """One place with positions."""

    name: str  # of the file or database that a broker would use, below the root
    path: Path  # what was read: the file, its `.bak`, or the directory of the database
    offsets: ConsumerOffsets  # its content

    @property
    def file_name(self) -> str:
        """Last part of the name."""
        return self.name.rpartition("/")[2]

    @property
    def is_database(self) -> bool:
        """Whether it is a RocksDB."""
        return self.file_name == OFFSET_DATABASE

    @property
    def counter(self) -> int:
        """Number of changes to the table; 0 if it does not state it."""
        return counter_of(self.offsets.data_version)


class OffsetTables(Struct, frozen=True):
    """All places with positions in a store."""

    tables: tuple[OffsetTable, ...] = ()  # those that can be read
    read: OffsetTable | None = None  # the one that a broker reads; None if it has none
    # File, relative to the root, to write new positions to so that the next start of a broker uses them. A broker with
    # RocksDB imports a consumerOffset.json with a newer data version.
    written: str = f"{file_names.CONFIG}/{file_names.CONSUMER_OFFSETS}"
    evidence: str = ""  # why the broker reads that place, in words; empty if there is no other
    problems: tuple[str, ...] = ()  # files that cannot be read, in words
    unread: str = ""  # why the positions that a broker reads are unknown; "" if they are known, or if there are none

    @property
    def offsets(self) -> ConsumerOffsets | None:
        """Content of the place that a broker reads; None if it has none."""
        return None if self.read is None else self.read.offsets


def load_offset_tables(directory: Path, config: BrokerConfig) -> OffsetTables:
    """Returns all places with positions below a store's config/; `Metadata.offset_tables` has them."""
    tables: list[OffsetTable] = []
    unread: dict[str, str] = {}
    problems: list[str] = []
    for place in (*OFFSET_FILES, OFFSET_DATABASE):
        of_place: list[str] = []
        table = _table(directory, place, of_place)
        if table is not None:
            tables.append(table)
        elif of_place:
            unread[place] = of_place[0]
        problems += of_place
    by_name = {table.file_name: table for table in tables}
    name = offset_file(directory, config)
    read, evidence = _choose(config, name, by_name)
    reason = unread_database(directory, config)
    if reason:
        read, evidence = None, ""
        problems.append(reason)
    elif may_be_in_database(config):
        reason = "" if OFFSET_DATABASE in by_name else unread.get(OFFSET_DATABASE, unread.get(name, ""))
    else:
        reason = unread.get(name, "")
    written = file_names.CONSUMER_OFFSETS if read is not None and read.is_database else name
    return OffsetTables(tuple(tables), read, f"{file_names.CONFIG}/{written}", evidence, tuple(problems), reason)


def offset_file(directory: Path, config: BrokerConfig) -> str:
    """Returns the name of the file with positions that a broker without RocksDB reads and writes.

    If `enableLmq` is not configured, it is the file that is not empty; if both are not, consumerOffset.json.
    """
    with_lmq = config.flag("enableLmq")
    if with_lmq is None:
        with_lmq = [_has_content(directory, name) for name in OFFSET_FILES] == [False, True]
    return file_names.LMQ_CONSUMER_OFFSETS if with_lmq else file_names.CONSUMER_OFFSETS


def _has_content(directory: Path, name: str) -> bool:
    """Whether a file or its backup exists and is not empty."""
    try:
        return any(
            path.exists() and path.stat().st_size
            for path in (directory / name, directory / (name + file_names.BACKUP_SUFFIX))
        )
    except OSError:  # the directory may not be searched
        return False


def _table(directory: Path, name: str, problems: list[str]) -> OffsetTable | None:
    """Returns one place; None if it is missing or cannot be read."""
    parse = config_files.parse_consumer_offsets
    shown = f"{file_names.CONFIG}/{name}"
    if name == OFFSET_DATABASE:
        parsed = from_database(directory, file_names.CONSUMER_OFFSETS, parse, problems)
        return None if parsed is None else OffsetTable(shown, directory / OFFSET_DATABASE, parsed)
    table = from_file(directory, name, parse, problems)
    return None if table is None else OffsetTable(shown, *table)


def _choose(config: BrokerConfig, name: str, tables: dict[str, OffsetTable]) -> tuple[OffsetTable | None, str]:
    """Returns the table that a broker reads, and why; `name` is the file that it reads without RocksDB."""
    plain, lmq = tables.get(file_names.CONSUMER_OFFSETS), tables.get(file_names.LMQ_CONSUMER_OFFSETS)
    database = tables.get(OFFSET_DATABASE)
    with_lmq = config.flag("enableLmq")
    if database is not None and may_be_in_database(config):
        if plain is not None and plain.counter > database.counter:
            return plain, f"a broker with RocksDB takes {plain.name} over: its data version is newer"
        return database, f"a broker with storeType=defaultRocksDB reads {database.name}"
    if with_lmq is not None:
        words = f"with enableLmq={str(with_lmq).lower()} a broker reads {file_names.CONFIG}/{name}"
        return tables.get(name), words
    if plain is not None and lmq is not None:
        return plain, f"{plain.name} and {lmq.name} are both there; a broker with enableLmq=true reads the second"
    return tables.get(name), ""
