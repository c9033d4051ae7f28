"""Reads the directory of a tiered store: queues with their segments, records and units.

tieredStoreMetadata.json states the topics' ids, and the segments that a broker knows. It is in the config directory of
the broker's own store, not in the tier. Source: DefaultMetadataStore (tieredstore), ConfigManager.load (5.5.0).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from mqtool.errors import FormatError, StoreError, UnreadableError
from mqtool.formats import commit_log, config_json, file_names, tiered
from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT, ConsumeQueueUnit
from mqtool.records.damage import Damage, DamageKind
from mqtool.store.files import MappedFile, ReadFile, is_directory, is_regular, list_directory, read_file, subdirectories
from mqtool.store.log.log_walk import walk_file
from mqtool.store.log.message import Message, from_record, messages_of
from mqtool.store.log.readable_parts import UnreadableParts

_TABLES = {
    tiered.COMMIT_LOG: "commitLogFileSegmentTable",
    tiered.CONSUME_QUEUE: "consumeQueueFileSegmentTable",
    tiered.INDEX: "indexFileSegmentTable",
}
_END = 1 << 63

Queue = tuple[str, str, int]
"""Broker, topic and queue id."""


class TieredMetadata(Struct, frozen=True):
    """The metadata of one broker."""

    path: Path  # of the file
    problem: str = ""  # why the file cannot be used; "" if it can
    # whether the file was read, or else its backup, which the broker takes if it cannot use the file
    is_read: bool = False
    topics: dict[int, str] = field(default_factory=dict)  # topic by its id
    brokers: frozenset[str] = frozenset()  # names of the brokers whose segments it lists
    # by queue and type, size by base offset
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


TYPES = (tiered.COMMIT_LOG, tiered.CONSUME_QUEUE, tiered.INDEX)
_PIECE = 20 << 15


Owner = tuple[str, str]
"""Cluster and broker; several brokers may share a tier."""


class TieredQueue(Struct):
    """One queue of one broker."""

    # cluster, broker, topic, queue_id: the queue
    cluster: str
    broker: str
    topic: str
    queue_id: int
    path: Path  # its directory
    # segment files by type, ascending by base offset
    segments: dict[str, list[MappedFile]] = field(default_factory=dict)
    # by type, size by base offset of the segments that the metadata lists
    stated: dict[str, dict[int, int]] = field(default_factory=dict)

    @property
    def owner(self) -> Owner:
        """Cluster and broker."""
        return self.cluster, self.broker

    @property
    def min_log_offset(self) -> int:
        """Position of the first byte of its log, 0 without one. The broker deletes the oldest segments."""
        return self._first_base(tiered.COMMIT_LOG)

    def _first_base(self, kind: str) -> int:
        return min([*(segment.base for segment in self.segments.get(kind, [])), *self.stated.get(kind, {})], default=0)

    def messages(self) -> Iterator[Message | Damage]:
        """Yields the messages in order, with damage between them and for missing segments."""
        missing = self._missing(tiered.COMMIT_LOG)
        for item in self.records():
            while missing and missing[0].start < (item.start if isinstance(item, Damage) else item.physical_offset):
                yield missing.pop(0)
            yield item
        yield from missing

    def _missing(self, kind: str) -> list[Damage]:
        """Returns a damage for each range of a type that a segment should cover, by the others or the metadata."""
        files, stated = self.segments.get(kind, []), self.stated.get(kind, {})
        end = max([*(base + size for base, size in stated.items()), *(file.end for file in files)], default=0)
        missing, at = [], self._first_base(kind)
        for base, after in [*((file.base, file.end) for file in files), (end, end)]:
            if base > at:
                path = self.path / kind / tiered.segment_name(at)
                missing.append(Damage(at, base, DamageKind.MISSING, "no file covers the range", path))
            at = max(at, after)
        return missing

    def records(self) -> Iterator[Message | Damage]:
        """Yields the messages of the segments that exist, with damage between them, of which some is unreadable."""
        unreadable = UnreadableParts()
        logs = self.segments.get(tiered.COMMIT_LOG, [])
        for number, segment in enumerate(logs):
            with unreadable.open(segment.path, segment.size) as file:
                walk = walk_file(file, segment, is_last=number == len(logs) - 1)
                for item in walk:
                    parts = (item,) if isinstance(item, Damage) else unreadable.split(item, segment)
                    for part in parts:
                        if isinstance(part, Damage):
                            yield unreadable.reason_of(part.at(segment.path, segment.base), segment)
                        else:
                            yield from messages_of(part)
                tail = walk.tail
                if tail is not None and tail.end < segment.end:
                    rest = Damage(tail.end, segment.end, tail.kind, tail.detail).at(segment.path, segment.base)
                    damage = unreadable.reason_of(rest, segment)
                    if tail.length or damage is not rest:
                        yield damage

    def record(self, position: int, size: int) -> Message:
        """Returns the record at a position in the queue's commit log; StoreError or FormatError if there is none."""
        segment = self._log_of(position)
        if segment is None:
            raise StoreError(f"has no data at {position}", self.path)
        with ReadFile(segment.path) as file:
            count = max(0, min(size, segment.end - position))
            message = from_record(commit_log.parse_record(file.read(position - segment.base, count)))
        if (message.physical_offset, message.store_size) != (position, size):
            stated = f"the record there states {message.physical_offset} and {message.store_size} bytes"
            raise StoreError(f"at {position}: {stated}", segment.path)
        return message

    def _log_of(self, position: int) -> MappedFile | None:
        """Returns the segment that contains a position in the queue's commit log."""
        logs = self.segments.get(tiered.COMMIT_LOG, [])
        return next((segment for segment in logs if segment.base <= position < segment.end), None)

    def message_at(self, offset: int) -> Message | Damage | None:
        """Returns the message at a queue offset, or why it cannot be read; None if the queue has no such offset."""
        size = CONSUME_QUEUE_UNIT.size
        for segment in self.segments.get(tiered.CONSUME_QUEUE, []):
            at = (offset - segment.base // size) * size
            if not 0 <= at <= segment.size - size:
                continue
            try:
                with ReadFile(segment.path) as file:
                    unit = CONSUME_QUEUE_UNIT.parse(file.read(at, size))
            except (StoreError, FormatError) as error:
                return _damage(error, segment.base + at, size, segment)
            try:
                return self.record(unit.physical_offset, unit.size)
            except (StoreError, FormatError) as error:
                return _damage(error, unit.physical_offset, max(0, unit.size), self._log_of(unit.physical_offset))
        at = offset * size
        return next((damage for damage in self.unread_units() if damage.start <= at < damage.end), None)

    def unread_units(self) -> list[Damage]:
        """Returns a damage for each range of units that no segment covers, and for the end of a torn unit."""
        torn = [
            Damage(
                segment.end - part,
                segment.end,
                DamageKind.MISSING,
                "a unit is cut off",
                segment.path,
                segment.size - part,
            )
            for segment in self.segments.get(tiered.CONSUME_QUEUE, [])
            if (part := segment.size % CONSUME_QUEUE_UNIT.size)
        ]
        return [*self._missing(tiered.CONSUME_QUEUE), *torn]

    def units(self) -> Iterator[tuple[int, ConsumeQueueUnit, Path] | Damage]:
        """Yields (queue offset, unit, path of the file), and damage for units that the system cannot read."""
        size, unreadable = CONSUME_QUEUE_UNIT.size, UnreadableParts()
        for segment in self.segments.get(tiered.CONSUME_QUEUE, []):
            with unreadable.open(segment.path, segment.size) as file:
                for start in range(0, segment.size - size + 1, _PIECE):
                    data = file.read(start, _PIECE)
                    ranges = unreadable.ranges(segment.path, -start)
                    places = range(0, len(data) - size + 1, size)
                    unread = {at for at in places if any(low < at + size and at < high for low, high in ranges)}
                    if unread:
                        first, after = (segment.base + start + at for at in (min(unread), max(unread) + size))
                        damage = Damage(first, after, DamageKind.UNREADABLE, "")
                        yield unreadable.reason_of(damage.at(segment.path, segment.base), segment)
                    for at in places:
                        if at not in unread:
                            offset = (segment.base + start + at) // size
                            yield offset, CONSUME_QUEUE_UNIT.parse(data, at), segment.path


def _damage(error: StoreError | FormatError, start: int, size: int, segment: MappedFile | None) -> Damage:
    """Returns the damage for bytes of a segment that could not be read as what they should be."""
    kind = DamageKind.UNREADABLE if isinstance(error, UnreadableError) else "no-record"
    if segment is None:
        return Damage(start, start + size, kind, str(error))
    detail = error.reason if isinstance(error, StoreError) else str(error)
    return Damage(start, start + size, kind, detail, segment.path, start - segment.base)


class TieredStore:
    """The directory that `tieredStoreFilePath` names.

    `queues` are those of all clusters, also those that only the metadata lists; `metadata` is what the store that
    contains the directory knows of its segments, and `owners` are the clusters and brokers to which it belongs.
    `strays` are paths that do not belong to a tiered store, `open_indexes` index files outside the tier that the broker
    is still writing to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clusters: dict[str, Path] = {}
        self.queues: list[TieredQueue] = []
        self.strays: list[Path] = []
        for entry in list_directory(path):
            match = tiered.parse_cluster_name(entry.name)
            if match is None or not is_directory(entry):
                self.strays.append(path / entry.name)
                continue
            self.clusters[match[1]] = path / entry.name
            self._brokers(match[1], path / entry.name)
        self.metadata = read_metadata(path.parent)
        self.owners = frozenset(owner for name in self.metadata.brokers if (owner := self._owner(name)) is not None)
        self._add_stated()
        self.open_indexes = _open_indexes(path)

    def _owner(self, broker: str) -> Owner | None:
        """Returns the broker with its cluster, which the metadata does not state; None if it is not known."""
        having = [name for name, path in self.clusters.items() if (path / broker).is_dir()] or list(self.clusters)
        return (having[0], broker) if len(having) == 1 else None

    def _add_stated(self) -> None:
        """Adds to the queues what the metadata states about them."""
        queues = {(queue.owner, queue.topic, queue.queue_id): queue for queue in self.queues}
        for (broker, topic, queue_id), stated in self.metadata.segments.items():
            owner = self._owner(broker)
            if owner is None:
                continue
            queue = queues.get((owner, topic, queue_id))
            if queue is None:
                path = self.clusters[owner[0]] / broker / topic / str(queue_id)
                queue = TieredQueue(*owner, topic, queue_id, path, {kind: [] for kind in TYPES})
                self.queues.append(queue)
            queue.stated = stated

    def _brokers(self, cluster_name: str, cluster: Path) -> None:
        for broker in subdirectories(cluster):
            for topic in subdirectories(cluster / broker.name):
                for queue in subdirectories(cluster / broker.name / topic.name):
                    path = cluster / broker.name / topic.name / queue.name
                    if queue.name.isascii() and queue.name.isdigit() and len(queue.name) < 10:
                        tiered_queue = TieredQueue(cluster_name, broker.name, topic.name, int(queue.name), path)
                        self._segments(tiered_queue)
                        self.queues.append(tiered_queue)
                    else:
                        self.strays.append(path)

    def _segments(self, queue: TieredQueue) -> None:
        for kind in TYPES:
            files = []
            for entry in list_directory(queue.path / kind):
                named, path = tiered.parse_segment_name(entry.name), queue.path / kind / entry.name
                if named is None or not is_regular(entry):
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


def _open_indexes(path: Path) -> list[Path]:
    directory = path.parent / tiered.OPEN_INDEX
    entries = list_directory(directory) if directory.is_dir() else ()
    return sorted(directory / entry.name for entry in entries if is_regular(entry) and entry.name.isdecimal())
