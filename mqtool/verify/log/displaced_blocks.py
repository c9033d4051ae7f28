"""Bytes in the wrong place: blocks of a segment, from which salvage gets messages, and segments of another log."""

from collections.abc import Iterable, Sequence
from functools import partial

from mqtool.errors import StoreError
from mqtool.formats import commit_log
from mqtool.formats.java import decode_utf8
from mqtool.formats.topics import TopicQueue
from mqtool.store import Store
from mqtool.store.log.displaced_blocks import DisplacedRecords
from mqtool.store.log.foreign_segments import ForeignSegments, units_by_place
from mqtool.verify.facts import Facts
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.log.segment import FOREIGN, DamagedRange
from mqtool.verify.losses import Interval
from mqtool.verify.queues.unit_detail import WrongUnits

_JUDGED = 16
"""Maximum number of segments that are judged: each takes a pass over the queues."""


def foreign_ranges(store: Store, wrong: Sequence[WrongUnits]) -> list[DamagedRange]:
    """Returns the segments of another broker's log, in order.

    Only those are judged into which wrong units point.
    """
    log = store.commit_log
    pointed_at = {log.segment_at(units.start) for units in wrong if units.code}
    queues = [queue for queue in store.disk_queues() if not queue.is_batch]
    judge = ForeignSegments(log, queues, partial(units_by_place, queues))
    ranges = []
    for number in sorted(number for number in pointed_at if number is not None)[:_JUDGED]:
        evidence = judge.evidence(number)
        if evidence:
            segment = log.segments[number]
            ranges.append(DamagedRange(segment.base, segment.end, FOREIGN, evidence))
    return ranges


def without_foreign(damages: Sequence[DamagedRange], foreign: Sequence[DamagedRange]) -> list[DamagedRange]:
    """Returns damaged ranges, in order, with those inside foreign segments replaced by the complete segments."""
    outside = (part for part in damages if not any(other.start <= part.start < other.end for other in foreign))
    return sorted([*outside, *foreign], key=lambda damage: damage.start)


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
