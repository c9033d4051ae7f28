"""The configuration files of a store: topics, groups, offsets.

A broken file falls back to its .bak, as in the broker (ConfigManager.load).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from mqtool.errors import FormatError, StoreError, UnavailableError
from mqtool.formats import config_files, file_names
from mqtool.formats.config_files import (
    ConsumerOffsets,
    DelayOffsets,
    GroupConfig,
    SubscriptionGroups,
    TopicConfig,
    Topics,
)
from mqtool.store import rocksdb
from mqtool.store.files import list_directory, noting_unlisted, read_file

T = TypeVar("T")


@dataclass(frozen=True)
class Metadata:
    """What the configuration files say.

    Attributes:
        topics: by name.
        groups: subscription groups by name.
        consumer_offsets: group to topic to queue id to next queue offset.
        delay_offsets: delay level to next queue offset.
        topics_file, groups_file, offsets_file, delay_file: the parsed files, None where there is none.
        problems: files that could not be read, in words.
        sources: file name to the file that was read in its place.
    """

    topics: dict[str, TopicConfig] = field(default_factory=dict)
    groups: dict[str, GroupConfig] = field(default_factory=dict)
    consumer_offsets: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)
    delay_offsets: dict[int, int] = field(default_factory=dict)
    topics_file: Topics | None = None
    groups_file: SubscriptionGroups | None = None
    offsets_file: ConsumerOffsets | None = None
    delay_file: DelayOffsets | None = None
    problems: tuple[str, ...] = ()
    sources: dict[str, Path] = field(default_factory=dict)


def load(directory: Path) -> Metadata:
    """Reads a store's config/ directory; never fails, see `problems`."""
    problems: list[str] = []
    sources: dict[str, Path] = {}
    try:
        list_directory(directory)
    except StoreError as error:
        return Metadata(problems=(str(error),))

    def read(name: str, parse: Callable[[bytes], T]) -> T | None:
        for path in (directory / name, directory / (name + file_names.BACKUP_SUFFIX)):
            try:
                if not path.exists():
                    continue
                parsed = parse(read_file(path))
            except (FormatError, StoreError, OSError) as error:  # OSError: the directory may not be searched
                problems.append(f"{path.name}: {error}")
                continue
            sources[name] = path
            return parsed
        try:
            with noting_unlisted(None):
                kept = rocksdb.table(directory, name)
            return None if kept is None else parse(kept)
        except (FormatError, StoreError, UnavailableError) as error:
            problems.append(f"{name}: {error}")
        return None

    topics = read(file_names.TOPICS, config_files.parse_topics)
    groups = read(file_names.SUBSCRIPTION_GROUPS, config_files.parse_groups)
    plain = read(file_names.CONSUMER_OFFSETS, config_files.parse_consumer_offsets)
    with_lmq = read(file_names.LMQ_CONSUMER_OFFSETS, config_files.parse_consumer_offsets)
    offsets = plain or with_lmq  # a broker with LMQ writes the second instead of the first
    delay = read(file_names.DELAY_OFFSETS, config_files.parse_delay_offsets)
    return Metadata(
        topics=dict(topics.topic_config_table) if topics else {},
        groups=dict(groups.subscription_group_table) if groups else {},
        consumer_offsets=offsets.by_group() if offsets else {},
        delay_offsets=dict(delay.offset_table) if delay else {},
        topics_file=topics,
        groups_file=groups,
        offsets_file=offsets,
        delay_file=delay,
        problems=tuple(problems),
        sources=sources,
    )
