"""The configuration of a store as a broker reads it on startup: topics, groups, positions, each from its place.

A table is in a JSON file, its `.bak` if the file is damaged, or in a RocksDB. Positions of consumer groups have several
places, of which a broker reads one: `lmqConsumerOffset.json` with `enableLmq`, the RocksDB `config/consumerOffsets`
with `storeType=defaultRocksDB`, otherwise `consumerOffset.json`. A broker with RocksDB imports a `consumerOffset.json`
with a newer data version. Source: ConfigManager.load, BrokerController, LmqConsumerOffsetManager,
RocksDBConfigManager, RocksDBConsumerOffsetManager.merge (4.9.7, 5.5.0).
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.errors import FormatError, StoreError, UnavailableError, UnsupportedFormatError
from mqtool.formats import config_files, file_names
from mqtool.formats.config_files import (
    ConsumerOffsets,
    DataVersion,
    DelayOffsets,
    GroupConfig,
    SubscriptionGroups,
    TopicConfig,
    Topics,
)
from mqtool.formats.config_json import JsonStyle
from mqtool.store.config import rocksdb
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.files import list_directory, read_file, recording_unlisted
from mqtool.store.paths import kind_of

T = TypeVar("T")
Parse = Callable[[bytes], T]

SINGLE_DATABASE = "metadata"
"""Directory below config/ of the RocksDB that may keep all tables."""

OFFSET_DATABASE = "consumerOffsets"
"""Directory of the RocksDB below config/."""

OFFSET_FILES = (file_names.CONSUMER_OFFSETS, file_names.LMQ_CONSUMER_OFFSETS)
"""Names of the files with positions, below config/."""

Table = TypeVar("Table", Topics, SubscriptionGroups, DelayOffsets)


def may_be_in_database(config: BrokerConfig) -> bool:
    """Whether a broker reads databases of configuration if there are any: it is configured, or nothing is."""
    kind = config.text("storeType")
    return kind == "defaultRocksDB" or (kind is None and config.file is None)


def unread_database(directory: Path, config: BrokerConfig) -> str:
    """Returns why topics, groups and positions are unknown if a broker keeps them in one RocksDB; "" if not.

    Without a configuration, a database that is there counts. Source: RocksDBTopicConfigManager.rocksdbConfigFilePath,
    ConfigStorage (5.5.0).
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
    """Returns path and content of the file, or of its `.bak` if it is missing or unreadable; adds to `problems`."""
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
            return plain, f"a broker with RocksDB imports {plain.name}: its data version is newer"
        return database, f"a broker with storeType=defaultRocksDB reads {database.name}"
    if with_lmq is not None:
        words = f"with enableLmq={str(with_lmq).lower()} a broker reads {file_names.CONFIG}/{name}"
        return tables.get(name), words
    if plain is not None and lmq is not None:
        return plain, f"{plain.name} and {lmq.name} both exist; a broker with enableLmq=true reads the second"
    return tables.get(name), ""


class Metadata(Struct, frozen=True):
    """Content of the configuration files."""

    topics: dict[str, TopicConfig] = field(default_factory=dict)  # by name
    groups: dict[str, GroupConfig] = field(default_factory=dict)  # subscription groups by name
    # Group to topic to queue id to next queue offset, from the place that a broker reads.
    consumer_offsets: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)
    delay_offsets: dict[int, int] = field(default_factory=dict)  # delay level to next queue offset
    topics_file: Topics | None = None  # and groups_file, delay_file: the parsed files, None if missing
    groups_file: SubscriptionGroups | None = None
    offset_tables: OffsetTables = field(default_factory=OffsetTables)  # all places with positions of groups
    delay_file: DelayOffsets | None = None
    problems: tuple[str, ...] = ()  # files that could not be read, in words
    sources: dict[str, Path] = field(default_factory=dict)  # name of each file to the path that was read for it
    # Name of each of TOPICS, SUBSCRIPTION_GROUPS and DELAY_OFFSETS whose content is unknown, and why; for positions of
    # groups see `OffsetTables.unread`.
    unread: dict[str, str] = field(default_factory=dict)
    # Names of those files whose content, in whole or in part, is from the RocksDB that a broker keeps instead of the
    # file.
    databases: frozenset[str] = frozenset()

    def files_of_databases(self) -> Iterator[tuple[str, bytes]]:
        """Yields the tables that a broker reads from a RocksDB, by name of the file that others keep instead."""
        if self.topics_file is not None and file_names.TOPICS in self.databases:
            yield file_names.TOPICS, config_files.build_topics(self.topics_file, JsonStyle.PRETTY_2)
        if self.groups_file is not None and file_names.SUBSCRIPTION_GROUPS in self.databases:
            yield file_names.SUBSCRIPTION_GROUPS, config_files.build_groups(self.groups_file, JsonStyle.PRETTY_2)
        if self.offset_tables.offsets is not None and file_names.CONSUMER_OFFSETS in self.databases:
            offsets = config_files.build_consumer_offsets(self.offset_tables.offsets, JsonStyle.PRETTY_2)
            yield file_names.CONSUMER_OFFSETS, offsets


def load(directory: Path, config: BrokerConfig) -> Metadata:
    """Reads a store's config/ directory. Does not fail; see `problems`."""
    problems: list[str] = []
    sources: dict[str, Path] = {}
    unread: dict[str, str] = {}
    databases: set[str] = set()
    reason = _unlisted(directory)
    if reason:
        unread = dict.fromkeys((file_names.TOPICS, file_names.SUBSCRIPTION_GROUPS, file_names.DELAY_OFFSETS), reason)
        return Metadata(
            offset_tables=OffsetTables(unread=reason, problems=(reason,)), problems=(reason,), unread=unread
        )

    def read(name: str, parse: Callable[[bytes], Table], rows: str = "") -> Table | None:
        of_file: list[str] = []
        of_database: list[str] = []
        table = from_file(directory, name, parse, of_file)
        kept = None
        if rows and (table is None or may_be_in_database(config)):
            kept = from_database(directory, name, parse, of_database)
        problems.extend((*of_file, *of_database))
        if of_database or (table is None and kept is None and of_file):
            unread[name] = (*of_database, *of_file)[0]
        if kept is not None:
            databases.add(name)
        if table is None:
            return kept
        sources[name] = table[0]
        return table[1] if kept is None else _with_newer(kept, table[1], rows)

    topics = read(file_names.TOPICS, config_files.parse_topics, "topic_config_table")
    groups = read(file_names.SUBSCRIPTION_GROUPS, config_files.parse_groups, "subscription_group_table")
    elsewhere = unread_database(directory, config)
    if elsewhere:
        unread |= dict.fromkeys((file_names.TOPICS, file_names.SUBSCRIPTION_GROUPS), elsewhere)
    positions = load_offset_tables(directory, config)
    sources |= {table.file_name: table.path for table in positions.tables if not table.is_database}
    problems += positions.problems
    if positions.read is not None and positions.read.is_database:
        databases.add(file_names.CONSUMER_OFFSETS)
    delay = read(file_names.DELAY_OFFSETS, config_files.parse_delay_offsets)
    return Metadata(
        topics=dict(topics.topic_config_table) if topics else {},
        groups=dict(groups.subscription_group_table) if groups else {},
        consumer_offsets=positions.read.offsets.by_group() if positions.read else {},
        delay_offsets=dict(delay.offset_table) if delay else {},
        topics_file=topics,
        groups_file=groups,
        offset_tables=positions,
        delay_file=delay,
        problems=tuple(problems),
        sources=sources,
        unread=unread,
        databases=frozenset(databases),
    )


def _unlisted(directory: Path) -> str:
    """Returns why a directory cannot be listed; "" if it can, or if it is missing."""
    try:
        list_directory(directory)
    except StoreError as error:
        return str(error)
    if directory.exists() and not directory.is_dir():
        return f"{directory}: expected a directory, found a {kind_of(directory.stat().st_mode)}"
    return ""


def _with_newer(kept: Table, file: Table, member: str) -> Table:
    """Returns a table of a database and that of its file, which a broker imports only if its counter is greater.

    Source: RocksDBTopicConfigManager.merge, RocksDBSubscriptionGroupManager.merge (5.5.0).
    """
    if counter_of(file.data_version) <= counter_of(kept.data_version):
        return kept
    return replace(file, **{member: {**getattr(kept, member), **getattr(file, member)}})
