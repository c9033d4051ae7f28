"""The configuration files of a store: topics, groups, offsets.

If a file is damaged, its .bak is used, as in the broker (ConfigManager.load).
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field

from mqtool.errors import StoreError
from mqtool.formats import config_files, file_names
from mqtool.formats.config_files import (
    DelayOffsets,
    GroupConfig,
    SubscriptionGroups,
    TopicConfig,
    Topics,
)
from mqtool.store import config_tables, offset_tables
from mqtool.store.broker_config import BrokerConfig
from mqtool.store.files import list_directory
from mqtool.store.offset_tables import OffsetTables

T = TypeVar("T")


class Metadata(Struct, frozen=True):
    """Content of the configuration files.

    Attributes:
        topics: by name.
        groups: subscription groups by name.
        consumer_offsets: group to topic to queue id to next queue offset, from the place that a broker reads.
        delay_offsets: delay level to next queue offset.
        topics_file, groups_file, delay_file: the parsed files, None if missing.
        offset_tables: all places with positions of groups.
        problems: files that could not be read, in words.
        sources: name of each file to the path that was read for it.
    """

    topics: dict[str, TopicConfig] = field(default_factory=dict)
    groups: dict[str, GroupConfig] = field(default_factory=dict)
    consumer_offsets: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)
    delay_offsets: dict[int, int] = field(default_factory=dict)
    topics_file: Topics | None = None
    groups_file: SubscriptionGroups | None = None
    offset_tables: OffsetTables = field(default_factory=OffsetTables)
    delay_file: DelayOffsets | None = None
    problems: tuple[str, ...] = ()
    sources: dict[str, Path] = field(default_factory=dict)


def load(directory: Path, config: BrokerConfig) -> Metadata:
    """Reads a store's config/ directory. Does not fail; see `problems`.

    Args:
        directory: config/ of the store.
        config: decides where a broker reads the positions of groups.
    """
    problems: list[str] = []
    sources: dict[str, Path] = {}
    try:
        list_directory(directory)
    except StoreError as error:
        return Metadata(problems=(str(error),))

    def read(name: str, parse: Callable[[bytes], T]) -> T | None:
        found = config_tables.from_file(directory, name, parse, problems)
        if found is None:
            return config_tables.from_database(directory, name, parse, problems)
        sources[name] = found[0]
        return found[1]

    topics = read(file_names.TOPICS, config_files.parse_topics)
    groups = read(file_names.SUBSCRIPTION_GROUPS, config_files.parse_groups)
    positions = offset_tables.load(directory, config)
    sources |= {table.file_name: table.path for table in positions.tables if not table.is_database}
    problems += positions.problems
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
    )
