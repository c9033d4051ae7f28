"""Reads the directory of a tiered store: queues with their segments, records and units."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from mqtool.errors import FormatError, StoreError
from mqtool.formats import commit_log, config_json, file_names, tiered
from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT, ConsumeQueueUnit
from mqtool.records.damage import Damage
from mqtool.store.files import MappedFile, ReadFile, list_directory, read_file, subdirectories
from mqtool.store.log_walk import walk_file
from mqtool.store.message import Message, from_record, messages_of

TYPES = (tiered.COMMIT_LOG, tiered.CONSUME_QUEUE, tiered.INDEX)
_PIECE = 20 << 15


class TieredQueue(Struct):
    """One queue of one broker.

    Attributes:
        broker, topic, queue_id: the queue.
        path: its directory.
        segments: segment files by type, ascending by base offset.
    """

    broker: str
    topic: str
    queue_id: int
    path: Path
    segments: dict[str, list[MappedFile]] = field(default_factory=dict)

    def messages(self) -> Iterator[Message | Damage]:
        """Yields the messages in order, with damage between them.

        Raises:
            StoreError: a file cannot be read.
        """
        logs = self.segments.get(tiered.COMMIT_LOG, [])
        for number, segment in enumerate(logs):
            with ReadFile(segment.path) as file:
                walk = walk_file(file, segment, is_last=number == len(logs) - 1)
                for item in walk:
                    if isinstance(item, Damage):
                        yield item.at(segment.path, segment.base)
                        continue
                    yield from messages_of(item)
                if walk.tail is not None and walk.tail.length:
                    start, detail = walk.tail.end, walk.tail.detail
                    yield Damage(start, segment.end, walk.tail.kind, detail, segment.path, start - segment.base)

    def record(self, position: int, size: int) -> Message:
        """Returns the record at a position in the queue's commit log.

        Raises:
            StoreError, FormatError: there is no record at the position.
        """
        for segment in self.segments.get(tiered.COMMIT_LOG, []):
            if segment.base <= position < segment.end:
                with ReadFile(segment.path) as file:
                    count = max(0, min(size, segment.end - position))
                    message = from_record(commit_log.parse_record(file.read(position - segment.base, count)))
                if (message.physical_offset, message.store_size) != (position, size):
                    found = f"the record there states {message.physical_offset} and {message.store_size} bytes"
                    raise StoreError(f"at {position}: {found}", segment.path)
                return message
        raise StoreError(f"has no data at {position}", self.path)

    def units(self) -> Iterator[tuple[int, ConsumeQueueUnit, Path]]:
        """Yields (queue offset, unit, path of the file).

        Raises:
            StoreError: a file cannot be read.
        """
        size = CONSUME_QUEUE_UNIT.size
        for segment in self.segments.get(tiered.CONSUME_QUEUE, []):
            with ReadFile(segment.path) as file:
                for start in range(0, segment.size - size + 1, _PIECE):
                    data = file.read(start, _PIECE)
                    for at in range(0, len(data) - size + 1, size):
                        offset = (segment.base + start + at) // size
                        yield offset, CONSUME_QUEUE_UNIT.parse(data, at), segment.path


class TieredStore:
    """The directory that `tieredStoreFilePath` names.

    Attributes:
        path: the directory.
        clusters: directory by cluster name.
        queues: the queues of all clusters.
        metadata: tieredStoreMetadata.json of the broker's store that contains the directory; None if it cannot be read.
        strays: paths that do not belong to a tiered store.
        open_indexes: index files outside the tier that the broker is still writing to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clusters: dict[str, Path] = {}
        self.queues: list[TieredQueue] = []
        self.strays: list[Path] = []
        for entry in list_directory(path):
            found = tiered.parse_cluster_name(entry.name)
            if found is None or not entry.is_dir():
                self.strays.append(path / entry.name)
                continue
            self.clusters[found[1]] = path / entry.name
            self._brokers(path / entry.name)
        self.metadata = _metadata(path)
        self.open_indexes = _open_indexes(path)

    def _brokers(self, cluster: Path) -> None:
        for broker in subdirectories(cluster):
            for topic in subdirectories(cluster / broker.name):
                for queue in subdirectories(cluster / broker.name / topic.name):
                    path = cluster / broker.name / topic.name / queue.name
                    if queue.name.isascii() and queue.name.isdigit() and len(queue.name) < 10:
                        found = TieredQueue(broker.name, topic.name, int(queue.name), path)
                        self._segments(found)
                        self.queues.append(found)
                    else:
                        self.strays.append(path)

    def _segments(self, queue: TieredQueue) -> None:
        for kind in TYPES:
            files = []
            for entry in list_directory(queue.path / kind):
                named, path = tiered.parse_segment_name(entry.name), queue.path / kind / entry.name
                if named is None or not entry.is_file():
                    self.strays.append(path)
                else:
                    files.append(MappedFile(path, named[1], entry.stat().st_size))
            queue.segments[kind] = sorted(files, key=lambda file: file.base)


def is_tiered(path: Path) -> bool:
    """Whether a directory is a tiered store: CLUSTER/BROKER/TOPIC/QUEUE with segments of a known type."""
    try:
        for cluster in subdirectories(path):
            if tiered.parse_cluster_name(cluster.name) is None:
                continue
            for kind in TYPES:
                if next((path / cluster.name).glob(f"*/*/*/{kind}"), None) is not None:
                    return True
    except (OSError, StoreError):
        return False
    return False


def _metadata(path: Path) -> dict[str, Any] | None:
    try:
        return dict(config_json.parse(read_file(path.parent / file_names.CONFIG / tiered.METADATA)))
    except (StoreError, FormatError):
        return None


def _open_indexes(path: Path) -> list[Path]:
    directory = path.parent / tiered.OPEN_INDEX
    entries = list_directory(directory) if directory.is_dir() else ()
    return sorted(directory / entry.name for entry in entries if entry.is_file() and entry.name.isdecimal())
