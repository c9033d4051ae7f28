"""Blocks that are in another place of their segment: which messages salvage gets from them."""

from collections.abc import Iterable

from mqtool.errors import StoreError
from mqtool.formats import commit_log
from mqtool.formats.java import decode_utf8
from mqtool.formats.topics import TopicQueue
from mqtool.store import Store
from mqtool.store.log.displaced_blocks import DisplacedRecords
from mqtool.verify.facts import Facts
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.log.segment import FOREIGN, DamagedRange
from mqtool.verify.losses import Interval


def displaced_messages(
    store: Store, facts: Facts, damages: Iterable[DamagedRange], collector: FindingCollector
) -> dict[TopicQueue, list[Interval]]:
    """Returns the queue offsets of messages in displaced blocks, and reports these blocks.

    Only damaged ranges are searched. A segment that cannot be read then has none.
    """
    log, saved = store.commit_log, dict[TopicQueue, list[Interval]]()
    ranges: dict[int, list[Interval]] = {}
    bodies = [(physical, physical + size) for part in facts.segments for *_, physical, size in part.bad_bodies]
    tails = [(tail.end, tail.end + tail.length) for part in facts.segments if (tail := part.tail) is not None]
    for start, end in [*((part.start, part.end) for part in damages if part.kind != FOREIGN), *bodies, *tails]:
        number = log.segment_at(start)
        if number is not None and end <= log.segments[number].end and not log.segments[number].entries:
            ranges.setdefault(number, []).append((start, end))
    for number, inside in sorted(ranges.items()):
        segment, places = log.segments[number], []
        try:
            for frames in DisplacedRecords(log, number, inside).between(segment.base, segment.end):
                record = commit_log.parse_record(frames.view)
                places.append(record.physical_offset)
                if commit_log.is_queued(record.sys_flag):
                    queue = decode_utf8(record.topic), record.queue_id
                    saved.setdefault(queue, []).append((record.queue_offset, record.queue_offset))
        except StoreError:
            continue
        if places:
            evidence = (
                f"{len(places)} record(s) for physical offsets {places[0]} to {places[-1]} are in other places of it"
            )
            collector.add("log-displaced-block", segment.path, evidence, span=(places[0], places[-1] + 1))
    return saved
