"""Reads tieredStoreMetadata.json: the topics' ids, and the segments that a broker knows.

It is in the config directory of the broker's own store, not in the tier. Source: DefaultMetadataStore (tieredstore),
ConfigManager.load (5.5.0).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from mqtool.errors import FormatError, StoreError, UnreadableError
from mqtool.formats import config_json, file_names, tiered
from mqtool.store.files import read_file

_TABLES = {
    tiered.COMMIT_LOG: "commitLogFileSegmentTable",
    tiered.CONSUME_QUEUE: "consumeQueueFileSegmentTable",
    tiered.INDEX: "indexFileSegmentTable",
}
_END = 1 << 63

Queue = tuple[str, str, int]
"""Broker, topic and queue id."""


class TieredMetadata(Struct, frozen=True):
    """The metadata of one broker.

    Attributes:
        path: of the file.
        problem: why the file cannot be used; "" if it can.
        is_read: whether the file was read, or else its backup, which the broker takes if it cannot use the file.
        topics: topic by its id.
        brokers: names of the brokers whose segments it lists.
        segments: by queue and type, size by base offset.
    """

    path: Path
    problem: str = ""
    is_read: bool = False
    topics: dict[int, str] = field(default_factory=dict)
    brokers: frozenset[str] = frozenset()
    segments: dict[Queue, dict[str, dict[int, int]]] = field(default_factory=dict)


def read_metadata(root: Path) -> TieredMetadata:
    """Reads the metadata in a broker's store, or its backup if the file is missing or cannot be parsed."""
    path = root / file_names.CONFIG / tiered.METADATA
    problem = ""
    for candidate in (path, path.with_name(path.name + file_names.BACKUP_SUFFIX)):
        try:
            document = config_json.parse(read_file(candidate))
        except (StoreError, FormatError) as error:
            problem = problem or str(error)
            if isinstance(error, UnreadableError):  # the broker may be able to read it
                break
            continue
        return _metadata_of(path, problem, document)
    return TieredMetadata(path, problem)


def _metadata_of(path: Path, problem: str, document: dict[Any, Any]) -> TieredMetadata:
    segments: dict[Queue, dict[str, dict[int, int]]] = {}
    for kind, name in _TABLES.items():
        for key, listed in _entries(document.get(name)):
            queue = _queue_of(key)
            if queue is not None:
                segments.setdefault(queue, {})[kind] = dict(_sizes(listed))
    topics = {
        entry["topicId"]: str(name)
        for name, entry in _entries(document.get("topicMetadataTable"))
        if isinstance(entry, dict) and type(entry.get("topicId")) is int
    }
    return TieredMetadata(path, problem, True, topics, frozenset(broker for broker, _, _ in segments), segments)


def _entries(table: Any) -> Iterator[tuple[Any, Any]]:
    yield from table.items() if isinstance(table, dict) else ()


def _queue_of(key: Any) -> Queue | None:
    parts = key.split("/") if isinstance(key, str) else []
    if len(parts) != 3 or not all(map(file_names.is_directory_name, parts)):
        return None
    broker, topic, queue_id = parts
    return (broker, topic, int(queue_id)) if queue_id.isascii() and queue_id.isdigit() and len(queue_id) < 10 else None


def _sizes(listed: Any) -> Iterator[tuple[int, int]]:
    for key, segment in _entries(listed):
        size = segment.get("size") if isinstance(segment, dict) else None
        base = int(key) if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 20 else key
        if type(base) is int and type(size) is int and 0 <= base < _END and 0 <= size < _END - base:
            yield base, size
