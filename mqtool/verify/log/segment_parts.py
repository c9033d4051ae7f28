"""Reads a large segment in parallel parts, and joins the results as if the segment had been read at once.

Parts are cut where a record seems to start. If one of them contains anything other than valid records up to the
exact position at which the next one begins, all results are discarded and the segment is read again as a whole.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import TypeVar

from mqtool.errors import StoreError
from mqtool.jobs.pool import PART_BYTES
from mqtool.store.log.cuts import cuts_of
from mqtool.verify.finding_collector import MAX_OF_A_CODE, FindingCollector
from mqtool.verify.findings import Finding
from mqtool.verify.log.checksums import Sums
from mqtool.verify.log.continuity import MAX_JUMPS, join
from mqtool.verify.log.log_findings import time_spikes
from mqtool.verify.log.record_rules import report_without_crc
from mqtool.verify.log.segment import SegmentFacts
from mqtool.verify.survey import Survey

MAX_PARTS = 16
"""Parts of a large log for each process. A part begins without known topics and queues, which costs about 2 ms."""

T = TypeVar("T")


def parts_of(survey: Survey, number: int, jobs: int) -> list[tuple[int, int | None]]:
    """Returns start and end positions of the parts of a segment, None for its end; one part if it is not divided.

    Args:
        survey: the store.
        number: of the segment.
        jobs: number of processes that read the log.
    """
    segment = survey.segments[number]
    log_bytes = sum(part.size for part in survey.segments[: survey.last_used + 1])
    size = max(PART_BYTES, log_bytes // (MAX_PARTS * jobs))
    is_indivisible = segment.entries or survey.live or survey.timeline
    try:
        cuts = [] if is_indivisible else list(cuts_of(segment, 0, size))
    except StoreError:  # whoever reads it will say so
        cuts = []
    return list(pairwise((0, *cuts, None)))  # type: ignore[arg-type]


def merge_parts(survey: Survey, parts: Sequence[SegmentFacts]) -> SegmentFacts | None:
    """Returns the facts of a segment from those of its parts, in order; None if the segment must be read as a whole."""
    if not all(_is_plain(part) for part in parts) or not all(_adjoin(*pair) for pair in pairwise(parts)):
        return None
    findings = _findings(survey, parts)
    span = join([part.span for part in parts])
    if len(span.jumps) >= MAX_JUMPS or len(findings) >= MAX_OF_A_CODE:
        return None  # of so many only the first are kept
    first, last = parts[0], parts[-1]
    joined = SegmentFacts(
        first.number,
        findings=findings,
        first_record=first.first_record.copy(),
        span=span,
        bad_bodies=_all(part.bad_bodies for part in parts),
        newest=max(part.newest for part in parts),
        end=last.end,
        ended_by_blank=last.ended_by_blank,
        tail=last.tail,
        first_times=first.first_times,
        last_times=last.last_times,
        has_plain_records=all(part.has_plain_records for part in parts),
    )
    joined.units, joined.keys = Sums(len(first.units.total)), Sums(len(first.keys.total))
    for part in parts:
        joined.records += part.records
        joined.bytes += part.bytes
        joined.units.merge(part.units)
        joined.keys.merge(part.keys)
        unknown = joined.first_record < 0
        joined.first_record[unknown] = part.first_record[unknown]
    return joined


def _is_plain(part: SegmentFacts) -> bool:
    """Whether nothing was found whose meaning depends on what is before or after the part."""
    return part.records > 1 and not part.damages and not part.failure and bool((part.span.messages > 0).all())


def _adjoin(before: SegmentFacts, after: SegmentFacts) -> bool:
    """Whether the records of one part lead exactly to the first record of the next."""
    return not before.ended_by_blank and before.end == after.first_times[0][1]


def _findings(survey: Survey, parts: Sequence[SegmentFacts]) -> list[Finding]:
    collector, segment = FindingCollector(survey.root, survey.config, survey.broker), survey.segments[parts[0].number]
    time_spikes(survey, parts, collector)
    without = [part for part in parts if part.without_crc]
    if without:
        report_without_crc(collector, segment, sum(part.without_crc for part in without), without[0].first_without_crc)
    return _all(part.findings for part in parts) + collector.findings()


def _all(lists: Iterable[list[T]]) -> list[T]:
    return list(chain.from_iterable(lists))
