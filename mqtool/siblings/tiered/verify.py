"""Checks a tiered store: names, framing and CRC of records, queues against records, index, metadata."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from mqtool.errors import StoreError
from mqtool.formats import consume_queue, tiered
from mqtool.records.damage import Damage
from mqtool.siblings.base import finding
from mqtool.siblings.tiered.store import TieredQueue, TieredStore
from mqtool.siblings.tiered.verify_index import verify_index
from mqtool.store.message import Message
from mqtool.verify.findings import Finding, Severity

_BROKER = "the broker still has recent messages in its own log; older ones are in a backup of the tier or nowhere"
_DUMP = "mqtool dump {path} --table tiered-segment"
_MOST = 1000
"""Maximum number of findings of one queue that are listed one by one."""


def verify(store: TieredStore) -> Iterator[Finding]:
    """Yields a finding for each broken invariant of docs/formats/tiered.md."""
    for cluster, path in store.clusters.items():
        if tiered.hash_of(cluster) != path.name[:8]:
            yield _error("tiered-name", path, f"expected a name that begins with {tiered.hash_of(cluster)}")
    for path in store.strays:
        yield finding("tiered-stray", Severity.WARNING, path, "belongs to no queue", "look what it is")
    by_topic: dict[str, list[TieredQueue]] = {}
    for queue in store.queues:
        by_topic.setdefault(queue.topic, []).append(queue)
        yield from _files(queue)
        yield from _queue(queue)
    for queue in store.queues:
        for segment in queue.segments[tiered.INDEX]:
            yield from verify_index(segment.path, store, by_topic)
    for path in store.open_indexes:
        yield from verify_index(path, store, by_topic)
    yield from _metadata(store)


def _error(code: str, path: Any, detail: str, position: int | None = None) -> Finding:
    return finding(code, Severity.ERROR, path, detail, _BROKER, position)


def _files(queue: TieredQueue) -> Iterator[Finding]:
    for kind, segments in queue.segments.items():
        for segment in segments:
            if segment.path.name[:8] != tiered.hash_of(str(segment.base)):
                words = f"expected a name that begins with {tiered.hash_of(str(segment.base))}"
                yield _error("tiered-name", segment.path, words)
            if kind == tiered.CONSUME_QUEUE and segment.size % consume_queue.UNIT_SIZE:
                words = f"{segment.size} bytes are not a multiple of {consume_queue.UNIT_SIZE}"
                yield _error("tiered-queue-size", segment.path, words)
        for before, after in pairwise(segments if kind != tiered.INDEX else ()):
            if before.end != after.base:
                yield _error("tiered-gap", after.path, f"the segment before ends at {before.end}")


def _queue(queue: TieredQueue) -> Iterator[Finding]:
    """Checks that each record has a unit and each unit a record."""
    records: dict[int, tuple[int, int, int]] = {}
    try:
        for item in queue.messages():
            if isinstance(item, Damage):
                yield finding(
                    "tiered-damage", Severity.ERROR, item.path, f"{item.kind}: {item.detail}", _BROKER, item.position
                )
            else:
                yield from _place(queue, item)
                records[item.queue_offset] = (item.physical_offset, item.store_size, consume_queue.tags_code(item.tags))
        wrong = 0
        for offset, unit, path in queue.units():
            expected = records.pop(offset, None)
            if expected != (unit.physical_offset, unit.size, unit.tags_code):
                wrong += 1
                if wrong <= _MOST:
                    found = (unit.physical_offset, unit.size, unit.tags_code)
                    words = f"unit {offset}: expected {expected or 'none'}, found {found} (position, size, tags code)"
                    yield _error("tiered-unit", path, words)
    except StoreError as error:
        yield finding("tiered-unreadable", Severity.UNKNOWN, queue.path, str(error), _DUMP)
        return
    if records:
        words = f"{len(records)} record(s) without a unit, the first with queue offset {min(records)}"
        yield finding("tiered-no-unit", Severity.WARNING, queue.path, words, "the broker uploads units after records")


def _place(queue: TieredQueue, message: Message) -> Iterator[Finding]:
    if (message.topic, message.queue_id) != (queue.topic, queue.queue_id):
        words = f"the record at {message.physical_offset} is of {message.topic}/{message.queue_id}"
        yield _error("tiered-foreign-record", queue.path, words)


def _metadata(store: TieredStore) -> Iterator[Finding]:
    """Compares the sizes stated in the metadata with the files."""
    tables = ((tiered.COMMIT_LOG, "commitLogFileSegmentTable"), (tiered.CONSUME_QUEUE, "consumeQueueFileSegmentTable"))
    for kind, name in tables if store.metadata else ():
        table = store.metadata[name] if store.metadata and isinstance(store.metadata.get(name), dict) else {}
        for queue in store.queues:
            known = table.get(f"{queue.broker}/{queue.topic}/{queue.queue_id}", {})
            for segment in queue.segments[kind]:
                stated = known.get(segment.base, known.get(str(segment.base))) if isinstance(known, dict) else None
                size = stated.get("size") if isinstance(stated, dict) else None
                if isinstance(size, int) and size > segment.size:
                    words = f"the metadata knows {size} bytes, found {segment.size}"
                    yield _error("tiered-metadata", segment.path, words)
