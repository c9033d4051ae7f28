"""Checks a tiered store: names, framing and CRC of records, queues against records, index, metadata.

In a compacted index file, the entries of a slot are adjacent. In an open file, which is still being written to and is
outside the tier, they form chains, as in an ordinary IndexFile. An open file does not state its number of slots; it is
derived from the entries. Source: IndexStoreFile, IndexItem (5.5.0).
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from mqtool.errors import FormatError, StoreError, UnreadableError
from mqtool.formats import consume_queue, java, properties, tiered
from mqtool.formats.tiered import INDEX_HEADER, INDEX_ITEM, INDEX_NODE, INDEX_SLOT, TieredIndexHeader
from mqtool.records.damage import Damage, DamageKind
from mqtool.siblings.base import READ_IT, finding
from mqtool.siblings.tiered.store import Owner, TieredQueue, TieredStore
from mqtool.store.files import ReadFile
from mqtool.store.log.message import Message
from mqtool.verify.findings import Finding, Severity

MAX_INDEX_BYTES = 1 << 26
_NEXT = "the broker rewrites entries only for messages that it uploads again"
_ZEROS_AT_END = 16
"""Maximum number of zero bytes at the end of an entry."""

Item = tiered.TieredIndexItem | tiered.TieredIndexNode


def verify_index(path: Path, store: TieredStore, owners: frozenset[Owner], *, is_open: bool) -> Iterator[Finding]:
    """Yields the findings about one index file; the store's metadata maps topic ids to topics.

    `owners` are the brokers to which the file may belong, of those to which the metadata belongs. An `is_open` file is
    outside of the tier, in `tiered_index_file`. A full one has the magic code of a compacted file, and still chains
    (IndexStoreFile.flushNewMetadata).
    """
    try:
        with ReadFile(path) as file:
            end = file.data_end()
            if end > MAX_INDEX_BYTES:
                evidence = f"{end} bytes in use are more than the {MAX_INDEX_BYTES} that are checked"
                yield finding("tiered-index", Severity.UNKNOWN, path, evidence, "")
                return
            data, size = file.read(0, end), file.size
        header = INDEX_HEADER.parse(data)
    except UnreadableError as error:
        yield finding("tiered-unreadable", Severity.UNKNOWN, path, str(error), "")
        return
    except (StoreError, FormatError) as error:
        yield _index_error(path, str(error))
        return
    if header.magic != tiered.MAGIC_FULL and not (is_open and header.magic == tiered.MAGIC_OPEN):
        expected = "bcc50285 or bcc50289" if is_open else "bcc50285"
        yield _index_error(path, f"expected magic {expected}, found {header.magic & 0xFFFFFFFF:08x}")
        return
    if is_open:
        entries: _Compacted = _Open(path, data, header, size)
    else:
        entries = _Compacted(path, data.ljust(min(size, MAX_INDEX_BYTES), b"\0"), header, size)
    yield from entries.check()
    if not owners and entries.items:
        evidence = "cannot know to which topic an entry belongs: the metadata of this broker is missing"
        yield finding("tiered-index", Severity.UNKNOWN, path, evidence, "")
        return
    queues = {(queue.topic, queue.queue_id, queue.owner): queue for queue in store.queues if queue.owner in owners}
    for at, item in entries.items:
        topic = store.metadata.topics.get(item.topic_id, "")
        wrong = _entry(item, topic, [queue for owner in owners if (queue := queues.get((topic, item.queue_id, owner)))])
        if wrong:
            yield _index_error(path, wrong, at)


def _index_error(path: Path, detail: str, position: int | None = None) -> Finding:
    return finding("tiered-index", Severity.ERROR, path, detail, _NEXT, position)


class _Compacted:
    """A compacted index file; `check` fills `items` with (position in the file, entry)."""

    def __init__(self, path: Path, data: bytes, header: TieredIndexHeader, size: int) -> None:
        """Stores the used part of a file, and the size of the whole file in bytes."""
        self._path, self._data, self._header, self._size = path, data, header, size
        self.items: list[tuple[int, Item]] = []

    def check(self) -> Iterator[Finding]:
        """Yields findings about slots, and fills `items`."""
        path, data, header = self._path, self._data, self._header
        slots = len(data) - INDEX_HEADER.size - header.index_count * INDEX_ITEM.size
        if header.index_count < 0 or slots < 0 or slots % INDEX_SLOT.size:
            yield _index_error(path, f"{header.index_count} entries do not fit into {len(data)} bytes")
            return
        count, first, used, claimed = slots // INDEX_SLOT.size, INDEX_HEADER.size + slots, 0, 0
        for number in range(count):
            slot = INDEX_SLOT.parse(data, INDEX_HEADER.size + number * INDEX_SLOT.size)
            used += slot.length > 0
            inside = first <= slot.position and slot.position + slot.length <= len(data)
            if slot.length < 0 or slot.length % INDEX_ITEM.size or (slot.length and not inside):
                yield _index_error(path, f"slot {number}: {slot.length} bytes at {slot.position}")
                continue
            claimed += slot.length
            if claimed > len(data) - first:  # checking overlapping claims would cost slots × entries
                yield _index_error(
                    path, f"slot {number}: the slots up to it claim more than the {len(data) - first} bytes of entries"
                )
                break
            for at in range(slot.position, slot.position + slot.length, INDEX_ITEM.size):
                if INDEX_ITEM.parse(data, at).key_hash % count != number:
                    yield _index_error(path, f"an entry of another slot in slot {number}", at)
        if used != header.used_slots:
            yield _index_error(path, f"{header.used_slots} slots stated, {used} used")
        self.items = [(at, INDEX_ITEM.parse(data, at)) for at in range(first, len(data), INDEX_ITEM.size)]


class _Open(_Compacted):
    """An open index file, which the broker is still writing to."""

    def check(self) -> Iterator[Finding]:
        """Yields findings about slots and chains, and fills `items`."""
        path, data, header = self._path, self._data, self._header
        if not header.index_count and not header.used_slots:
            return
        count = self._slots()
        if count is None:
            yield _index_error(path, f"{header.index_count} entries in {header.used_slots} slots cannot be found")
            return
        first = INDEX_HEADER.size + count * INDEX_SLOT.size
        places = [first + number * INDEX_NODE.size for number in range(1, header.index_count + 1)]
        nodes = [INDEX_NODE.parse(data, at) for at in places]
        self.items = list(zip(places, nodes, strict=True))
        reached, used = set[int](), 0
        for number in range(count):
            place = INDEX_HEADER.size + number * INDEX_SLOT.size
            at = INDEX_SLOT.parse(data, place).position
            used += at > 0
            while at > 0:
                if at > len(nodes) or at in reached or nodes[at - 1].key_hash % count != number:
                    yield _index_error(
                        path, f"the chain of slot {number} leads to entry {at}, which is not its own", place
                    )
                    break
                reached.add(at)
                at = nodes[at - 1].previous
        if used != header.used_slots:
            yield _index_error(path, f"{header.used_slots} slots stated, {used} used")
        if len(reached) < len(nodes):
            lost = len(nodes) - len(reached)
            yield _index_error(path, f"{lost} of {len(nodes)} entries are in no chain: no lookup by key finds them")

    def _slots(self) -> int | None:
        """Returns the number of slots for which the last entry ends at the end of the data; None if there is none."""
        if self._header.index_count < 0:
            return None
        end = len(self._data.rstrip(b"\0"))
        self._data = self._data.ljust(min(self._size, end + _ZEROS_AT_END + INDEX_NODE.size), b"\0")
        entries = (self._header.index_count + 1) * INDEX_NODE.size
        best: tuple[int, int] | None = None
        for last in range(end, end + _ZEROS_AT_END):
            count, rest = divmod(last - INDEX_HEADER.size - entries, INDEX_SLOT.size)
            full_size = INDEX_HEADER.size + count * INDEX_SLOT.size + entries
            if rest or count <= 0 or full_size > self._size:
                continue
            best = max(best or (0, 0), (self._fits(count), count))
        return best[1] if best is not None and best[0] else None

    def _fits(self, count: int) -> int:
        """Returns how many slots point to an entry whose key hash belongs to the slot, if there are `count` slots."""
        heads = np.frombuffer(self._data, INDEX_SLOT.dtype, count, INDEX_HEADER.size)["position"]
        first = INDEX_HEADER.size + count * INDEX_SLOT.size
        nodes = np.frombuffer(self._data, INDEX_NODE.dtype, self._header.index_count + 1, first)
        used = np.flatnonzero((heads > 0) & (heads <= self._header.index_count))
        return int((nodes["key_hash"][heads[used]] % count == used).sum())


def _entry(item: Item, topic: str, queues: list[TieredQueue]) -> str:
    """Returns a description of what is wrong with an index entry; "" if one of the queues has its record."""
    wrong = f"points to topic {item.topic_id}, queue {item.queue_id}, which does not exist"
    for queue in queues:
        wrong = _lookup(item, topic, queue)
        if not wrong:
            break
    return wrong


def _words(keys: str) -> list[str]:
    """Returns the keys that the tier's dispatcher indexes, with the empty ones between blanks.

    Source: MessageStoreDispatcherImpl.constructIndexFile0 (5.5.0).
    """
    return java.split_drop_trailing(keys, properties.KEY_SEPARATOR) if keys.strip() else []


def _lookup(item: Item, topic: str, queue: TieredQueue) -> str:
    if item.offset < queue.min_log_offset:
        return ""  # the segment of the record has expired, the index not yet
    try:
        message = queue.record(item.offset, item.size)
    except UnreadableError:
        return ""  # a finding of the queue
    except (StoreError, FormatError) as error:
        return f"leads to no record: {error}"
    words = [*_words(message.properties.get(properties.KEYS, "")), message.properties.get(properties.UNIQUE_KEY, "")]
    hashes = {java.index_hash(f"{topic}#{word}") for word in words}
    return "" if item.key_hash in hashes else f"no key of the record at {item.offset} has hash {item.key_hash}"


_BROKER = "the broker's own log still has recent messages; older ones are only in a backup of the tier, if at all"
_METADATA = "restore tieredStoreMetadata.json of the broker, and check the tier below that broker's store"
MAX = 1000
"""Maximum number of findings of one queue that are listed one by one."""


def verify(store: TieredStore) -> Iterator[Finding]:
    """Yields a finding for each broken invariant of docs/formats/tiered.md."""
    for cluster, path in store.clusters.items():
        if tiered.hash_of(cluster) != path.name[:8]:
            yield _error("tiered-name", path, f"expected a name that begins with {tiered.hash_of(cluster)}")
    for path in store.strays:
        yield finding("tiered-stray", Severity.WARNING, path, "belongs to no queue", "look what it is")
    for queue in store.queues:
        yield from _files(queue)
        yield from _queue(queue)
    for queue in store.queues:
        for segment in queue.segments[tiered.INDEX]:
            yield from verify_index(segment.path, store, store.owners & {queue.owner}, is_open=False)
    for path in store.open_indexes:
        yield from verify_index(path, store, store.owners, is_open=True)
    yield from _metadata(store)


def _error(code: str, path: Any, detail: str, position: int | None = None) -> Finding:
    return finding(code, Severity.ERROR, path, detail, _BROKER, position)


def _files(queue: TieredQueue) -> Iterator[Finding]:
    for kind, segments in queue.segments.items():
        for segment in segments:
            if segment.path.name[:8] != tiered.hash_of(str(segment.base)):
                evidence = f"expected a name that begins with {tiered.hash_of(str(segment.base))}"
                yield _error("tiered-name", segment.path, evidence)
            if kind == tiered.CONSUME_QUEUE and segment.size % consume_queue.UNIT_SIZE:
                evidence = f"{segment.size} bytes are not a multiple of {consume_queue.UNIT_SIZE}"
                yield _error("tiered-queue-size", segment.path, evidence)
        for before, after in pairwise(segments if kind != tiered.INDEX else ()):
            if before.end != after.base:
                yield _error("tiered-gap", after.path, f"the segment before ends at {before.end}")


def _queue(queue: TieredQueue) -> Iterator[Finding]:
    """Checks that each record has a unit and each unit a record."""
    records: dict[int, tuple[int, int, int]] = {}
    unread: list[Damage] = []
    for item in queue.records():
        if isinstance(item, Damage):
            yield _damage(item)
            unread += [item] if item.kind == DamageKind.UNREADABLE else []
        else:
            yield from _place(queue, item)
            records[item.queue_offset] = (item.physical_offset, item.store_size, consume_queue.tags_code(item.tags))
    wrong, all_units_read = 0, True
    for entry in queue.units():
        if isinstance(entry, Damage):
            yield _damage(entry)
            all_units_read = False
            continue
        offset, unit, path = entry
        expected, actual = records.pop(offset, None), (unit.physical_offset, unit.size, unit.tags_code)
        if expected is None and unit.physical_offset < queue.min_log_offset:
            continue  # the segment of the record expired first: FlatMessageFile.destroyExpiredFile
        if expected is None and any(part.start <= unit.physical_offset < part.end for part in unread):
            continue
        if expected != actual:
            wrong += 1
            if wrong <= MAX:
                evidence = f"unit {offset}: expected {expected or 'none'}, found {actual} (position, size, tags code)"
                yield _error("tiered-unit", path, evidence)
    if records and all_units_read:
        evidence = f"{len(records)} record(s) without a unit, the first with queue offset {min(records)}"
        yield finding(
            "tiered-no-unit", Severity.WARNING, queue.path, evidence, "the broker uploads units after records"
        )


def _damage(item: Damage) -> Finding:
    if item.kind == DamageKind.UNREADABLE:
        return finding("tiered-unreadable", Severity.UNKNOWN, item.path, item.detail, READ_IT, item.position)
    return finding("tiered-damage", Severity.ERROR, item.path, f"{item.kind}: {item.detail}", _BROKER, item.position)


def _place(queue: TieredQueue, message: Message) -> Iterator[Finding]:
    if (message.topic, message.queue_id) != (queue.topic, queue.queue_id):
        evidence = f"the record at {message.physical_offset} is of {message.topic}/{message.queue_id}"
        yield _error("tiered-foreign-record", queue.path, evidence)


def _metadata(store: TieredStore) -> Iterator[Finding]:
    """Compares the segments that the metadata lists with the files."""
    known = store.metadata
    if not known.is_read:
        evidence = f"which segments there should be is unknown: {known.problem}"
        yield finding("tiered-metadata", Severity.UNKNOWN, known.path, evidence, _METADATA)
        return
    if known.problem:
        evidence = f"the broker uses the backup: {known.problem}"
        yield finding("tiered-metadata", Severity.WARNING, known.path, evidence, "copy the backup to this name")
    for cluster, broker in sorted({queue.owner for queue in store.queues} - store.owners):
        evidence = f"which segments of {broker} there should be is unknown: the metadata is of another broker"
        yield finding("tiered-metadata", Severity.UNKNOWN, store.clusters[cluster] / broker, evidence, _METADATA)
    for queue in store.queues:
        for kind, stated in queue.stated.items():
            segments = {segment.base: segment for segment in queue.segments[kind]}
            for base, size in sorted(stated.items()):
                segment = segments.get(base)
                if segment is not None and size > segment.size:
                    evidence = f"the metadata states {size} bytes, found {segment.size}"
                    yield _error("tiered-metadata", segment.path, evidence)
                if segment is None and size:
                    evidence = f"the metadata states {size} bytes, but the file is missing"
                    yield _error("tiered-metadata", queue.path / kind / tiered.segment_name(base), evidence)
