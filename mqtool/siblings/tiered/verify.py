"""Checks a tiered store: names, framing and CRC of records, queues against records, index, metadata."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from mqtool.formats import consume_queue, tiered
from mqtool.records.damage import Damage, DamageKind
from mqtool.siblings.base import READ_IT, finding
from mqtool.siblings.tiered.store import TieredQueue, TieredStore
from mqtool.siblings.tiered.verify_index import verify_index
from mqtool.store.message import Message
from mqtool.verify.findings import Finding, Severity

_BROKER = "the broker still has recent messages in its own log; older ones are in a backup of the tier or nowhere"
_METADATA = "restore tieredStoreMetadata.json of the broker, and check the tier below that broker's store"
_MAX = 1000
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
            if wrong <= _MAX:
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
        evidence = f"the broker takes the backup: {known.problem}"
        yield finding("tiered-metadata", Severity.WARNING, known.path, evidence, "copy the backup to this name")
    for cluster, broker in sorted({queue.owner for queue in store.queues} - store.owners):
        evidence = f"which segments of {broker} there should be is unknown: the metadata is not that of this broker"
        yield finding("tiered-metadata", Severity.UNKNOWN, store.clusters[cluster] / broker, evidence, _METADATA)
    for queue in store.queues:
        for kind, stated in queue.stated.items():
            segments = {segment.base: segment for segment in queue.segments[kind]}
            for base, size in sorted(stated.items()):
                segment = segments.get(base)
                if segment is not None and size > segment.size:
                    evidence = f"the metadata knows {size} bytes, found {segment.size}"
                    yield _error("tiered-metadata", segment.path, evidence)
                if segment is None and size:
                    evidence = f"the metadata knows {size} bytes, the file is missing"
                    yield _error("tiered-metadata", queue.path / kind / tiered.segment_name(base), evidence)
