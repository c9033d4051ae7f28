"""Segments of another broker's log, as ranges in which no message of this log is left."""

from collections.abc import Sequence
from functools import partial

from mqtool.store import Store
from mqtool.store.log.foreign_segments import ForeignSegments, units_by_place
from mqtool.verify.log.segment import FOREIGN, DamagedRange
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
