"""Checks the index files of a tiered store: compacted ones in the tier, and open ones outside it.

In a compacted file, the entries of a slot are adjacent. In an open file, which is still being written to, they form
chains, as in an ordinary IndexFile. An open file does not state its number of slots; it is derived from the entries.
Source: IndexStoreFile, IndexItem (5.5.0).
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mqtool.errors import FormatError, StoreError, UnreadableError
from mqtool.formats import java, properties, tiered
from mqtool.formats.tiered import INDEX_HEADER, INDEX_ITEM, INDEX_NODE, INDEX_SLOT, TieredIndexHeader
from mqtool.siblings.base import finding
from mqtool.siblings.tiered.store import Owner, TieredQueue, TieredStore
from mqtool.store.files import ReadFile
from mqtool.verify.findings import Finding, Severity

MAX_INDEX_BYTES = 1 << 26
_NEXT = "the broker writes entries again only for messages that it uploads again"
_ZEROS_AT_END = 16
"""Maximum number of zero bytes at the end of an entry."""

Item = tiered.TieredIndexItem | tiered.TieredIndexNode


def verify_index(path: Path, store: TieredStore, owners: frozenset[Owner], *, is_open: bool) -> Iterator[Finding]:
    """Yields the findings about one index file.

    Args:
        path: the file.
        store: its metadata maps topic ids to topics.
        owners: the brokers to which the file may belong, of those to which the metadata belongs.
        is_open: whether the file is outside of the tier, in `tiered_index_file`. A full one has the magic code of a
            compacted file, and still chains (IndexStoreFile.flushNewMetadata).
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
        yield _error(path, str(error))
        return
    if header.magic != tiered.MAGIC_FULL and not (is_open and header.magic == tiered.MAGIC_OPEN):
        expected = "bcc50285 or bcc50289" if is_open else "bcc50285"
        yield _error(path, f"expected magic {expected}, found {header.magic & 0xFFFFFFFF:08x}")
        return
    if is_open:
        entries: _Compacted = _Open(path, data, header, size)
    else:
        entries = _Compacted(path, data.ljust(min(size, MAX_INDEX_BYTES), b"\0"), header, size)
    yield from entries.check()
    if not owners and entries.items:
        evidence = "which topic an entry means is not known: there is no metadata of this broker"
        yield finding("tiered-index", Severity.UNKNOWN, path, evidence, "")
        return
    queues = {(queue.topic, queue.queue_id, queue.owner): queue for queue in store.queues if queue.owner in owners}
    for at, item in entries.items:
        topic = store.metadata.topics.get(item.topic_id, "")
        wrong = _entry(item, topic, [queue for owner in owners if (queue := queues.get((topic, item.queue_id, owner)))])
        if wrong:
            yield _error(path, wrong, at)


def _error(path: Path, detail: str, position: int | None = None) -> Finding:
    return finding("tiered-index", Severity.ERROR, path, detail, _NEXT, position)


class _Compacted:
    """A compacted index file.

    Attributes:
        items: (position in the file, entry), filled by `check`.
    """

    def __init__(self, path: Path, data: bytes, header: TieredIndexHeader, size: int) -> None:
        """Stores the used part of a file, and the size of the whole file in bytes."""
        self._path, self._data, self._header, self._size = path, data, header, size
        self.items: list[tuple[int, Item]] = []

    def check(self) -> Iterator[Finding]:
        """Yields findings about slots, and fills `items`."""
        path, data, header = self._path, self._data, self._header
        slots = len(data) - INDEX_HEADER.size - header.index_count * INDEX_ITEM.size
        if header.index_count < 0 or slots < 0 or slots % INDEX_SLOT.size:
            yield _error(path, f"{header.index_count} entries do not fit into {len(data)} bytes")
            return
        count, first, used, claimed = slots // INDEX_SLOT.size, INDEX_HEADER.size + slots, 0, 0
        for number in range(count):
            slot = INDEX_SLOT.parse(data, INDEX_HEADER.size + number * INDEX_SLOT.size)
            used += slot.length > 0
            inside = first <= slot.position and slot.position + slot.length <= len(data)
            if slot.length < 0 or slot.length % INDEX_ITEM.size or (slot.length and not inside):
                yield _error(path, f"slot {number}: {slot.length} bytes at {slot.position}")
                continue
            claimed += slot.length
            if claimed > len(data) - first:  # checking overlapping claims would cost slots × entries
                yield _error(
                    path, f"slot {number}: the slots up to it claim more than the {len(data) - first} bytes of entries"
                )
                break
            for at in range(slot.position, slot.position + slot.length, INDEX_ITEM.size):
                if INDEX_ITEM.parse(data, at).key_hash % count != number:
                    yield _error(path, f"an entry of another slot in slot {number}", at)
        if used != header.used_slots:
            yield _error(path, f"{header.used_slots} slots stated, {used} used")
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
            yield _error(path, f"{header.index_count} entries in {header.used_slots} slots cannot be found")
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
                    yield _error(path, f"the chain of slot {number} leads to entry {at}, which is not its own", place)
                    break
                reached.add(at)
                at = nodes[at - 1].previous
        if used != header.used_slots:
            yield _error(path, f"{header.used_slots} slots stated, {used} used")
        if len(reached) < len(nodes):
            lost = len(nodes) - len(reached)
            yield _error(path, f"{lost} of {len(nodes)} entries are in no chain: no key finds them")

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
