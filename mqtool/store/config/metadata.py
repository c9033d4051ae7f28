"""The configuration files of a store: topics, groups, offsets.

If a file is damaged, its .bak is used, as in the broker (ConfigManager.load).
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.errors import StoreError
from mqtool.formats import config_files, file_names
from mqtool.formats.config_files import (
    DelayOffsets,
    GroupConfig,
    SubscriptionGroups,
    TopicConfig,
    Topics,
)
from mqtool.formats.config_json import JsonStyle
from mqtool.store.config import config_tables
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.config.config_tables import OffsetTables, load_offset_tables
from mqtool.store.files import list_directory
from mqtool.store.named_files import kind_of

T = TypeVar("T", Topics, SubscriptionGroups, DelayOffsets)


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

    def read(name: str, parse: Callable[[bytes], T], rows: str = "") -> T | None:
        of_file: list[str] = []
        of_database: list[str] = []
        table = config_tables.from_file(directory, name, parse, of_file)
        kept = None
        if rows and (table is None or config_tables.may_be_in_database(config)):
            kept = config_tables.from_database(directory, name, parse, of_database)
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
    elsewhere = config_tables.unread_database(directory, config)
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


def _with_newer(kept: T, file: T, member: str) -> T:
    """Returns a table of a database and that of its file, which a broker imports only if its counter is greater.

    Source: RocksDBTopicConfigManager.merge, RocksDBSubscriptionGroupManager.merge (5.5.0).
    """
    if config_tables.counter_of(file.data_version) <= config_tables.counter_of(kept.data_version):
        return kept
    return replace(file, **{member: {**getattr(kept, member), **getattr(file, member)}})
