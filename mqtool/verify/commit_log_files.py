"""Checks the files of the CommitLog: names, lengths, contiguity over all paths, stray files, bytes in the wrong place.

Bytes in the wrong place are blocks of a segment, from which salvage gets messages, and segments of another log.
Source of the broker's reactions: MappedFileQueue.load and checkSelf, MultiPathMappedFileQueue (4.9.7, 5.5.0).
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from mqtool.errors import FormatError, StoreError
from mqtool.formats import commit_log, file_names, java
from mqtool.formats.checkpoint import Checkpoint
from mqtool.formats.java import decode_utf8
from mqtool.formats.topics import TopicQueue
from mqtool.records.record_search import next_magic
from mqtool.store import Store
from mqtool.store.files import MappedFile, ReadFile
from mqtool.store.known_losses import Interval
from mqtool.store.layout import StoreLayout
from mqtool.store.log.misplaced_bytes import DisplacedRecords, ForeignSegments, units_by_place
from mqtool.store.version import had_log
from mqtool.verify.consume_queue import Run
from mqtool.verify.facts import Facts
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.findings import Severity
from mqtool.verify.segment import FOREIGN, DamagedRange
from mqtool.verify.survey import Survey, correctly_named, stray_file
from mqtool.verify.unit_detail import WrongUnits

MISSING = "missing"
"""Kind of a damaged range that no file covers (`records.damage.DamageKind`)."""

_WITNESSES = 2
"""Units pointing past the last file that prove a missing file: a single one may be damaged itself."""

_JUDGED = 16
"""Maximum number of segments that are judged: each takes a pass over the queues."""


def check_files(
    survey: Survey, layout: StoreLayout, size: int | None, ahead: Sequence[Run], collector: FindingCollector
) -> list[DamagedRange]:
    """Checks names and lengths; returns the ranges that no file covers.

    `size` is the bytes of a segment, None if unknown; `ahead` has the units of all queues that point to or past the end
    of the log.
    """
    directory = survey.root / file_names.COMMIT_LOG
    if directory.exists() and not directory.is_dir():
        collector.add("log-not-directory", directory, "a file, not a directory: the broker finds no message")
    moved = {segment.path for segment in layout.misplaced}
    named = correctly_named(layout.segments, size)
    is_named = {segment.path for segment in named}
    for segment in layout.segments:
        if segment in layout.blocked:  # a stray file
            continue
        _length(survey, segment, segment is layout.segments[-1], size, collector)
        if segment.path in moved:
            name = file_names.mapped_file_name(segment.base)
            name = f"{file_names.COMMIT_LOG}/{name}" if segment.path.parent == survey.root else name
            evidence = f"expected the name {name}: its records belong at that offset"
            collector.add("log-segment-name", segment.path, evidence)
        elif segment.path not in is_named:
            evidence = f"expected a multiple of {size}; "
            if may_have_record(segment.path):
                evidence += f"the first record states {_stated(segment)}"
                collector.add("log-segment-name", segment.path, evidence)
            else:
                collector.add("log-stray-file", segment.path, f"{evidence}it has no record")
    last_name = max((part.path.name for part in survey.segments if part not in layout.blocked), default="")
    for path in layout.commit_log.strays:
        if path not in moved:
            _stray(survey, path, size, path.name > last_name, collector)
    named = tuple(segment for segment in named if segment.size)
    for before, after in pairwise(named):
        if before.end > after.base and before.size in (size, after.size):
            span = after.base, before.end
            collector.add("log-segment-overlap", after.path, f"{before.path} ends at {before.end}", span=span)
    gaps = [*_gaps(survey, named, size, ahead), *_past_last_file(survey, named, ahead)]
    explained = [(gap.end, gap.end + 1) for gap in gaps] + [(run.start, run.end) for run in ahead]
    _leftovers(survey, [segment for segment in named if size in (None, segment.size)], explained, collector)
    return gaps


def is_missing(survey: Survey, checkpoint: Checkpoint | None) -> bool:
    """Whether the complete log is missing: there is no segment, but there are files derived from one."""
    if survey.segments or survey.has_dledger:
        return False
    derived = any(queue.files for queue in survey.queues) or bool(survey.index.files)
    return had_log(checkpoint, has_derived_files=derived)


def may_have_record(path: Path) -> bool:
    """Whether a file has the magic code of a record anywhere, or cannot be read; if not, no record is lost with it."""
    try:
        with ReadFile(path) as file:
            return next_magic(file, 0) is not None
    except StoreError:
        return True


def _stated(segment: MappedFile) -> str:
    """Returns, as text, the physical offset that the first record of a file states."""
    try:
        with ReadFile(segment.path) as file:
            head = file.read(commit_log.field_offset("physical_offset"), 8)
    except StoreError as error:
        return str(error)
    return str(int.from_bytes(head, "big", signed=True)) if len(head) == 8 else "nothing"


def _length(survey: Survey, segment: MappedFile, is_last: bool, size: int | None, collector: FindingCollector) -> None:
    if size is None or segment.size == size:
        return
    tolerated = is_last and segment.size == 0 and survey.release >= (5, 0)
    evidence, severity = f"expected {size} bytes, found {segment.size}", Severity.WARNING if tolerated else None
    collector.add("log-segment-size", segment.path, evidence, severity=severity)


def _stray(survey: Survey, path: Path, size: int | None, is_last: bool, collector: FindingCollector) -> None:
    length, evidence, severity = stray_file(path, "physical offset", survey.release, is_last=is_last)
    if severity is Severity.WARNING:
        evidence += "; the broker deletes it"
    elif length is not None and length == size and _is_number(path.name):
        evidence += "; the broker reads it as a segment, in the order of the names"
    collector.add("log-stray-file", path, evidence, severity=severity)


def _is_number(name: str) -> bool:
    try:
        java.parse_long(name)
    except FormatError:
        return False
    return True


def _gaps(survey: Survey, named: Sequence[MappedFile], size: int | None, ahead: Sequence[Run]) -> list[DamagedRange]:
    """Returns the gaps between segments; a gap before a file of zeros only if other files prove that it had records."""
    gaps = []
    end = survey.segments[survey.last_used].end if survey.segments else 0
    for before, after in pairwise(named):
        if before.end >= after.base:
            continue
        pointed_at = any(run.start < after.base and run.end > before.end for run in ahead)
        is_full = size in (None, before.size)
        if after.base < end or pointed_at or (is_full and not survey.clean_stop):
            is_short = size is not None and before.size < size
            missing = f"{after.base - before.end} bytes are missing" if is_short else "no file"
            evidence = f"{missing} between {before.path.name} and {after.path.name}"
            gaps.append(DamagedRange(before.end, after.base, MISSING, evidence))
    return gaps


def _past_last_file(survey: Survey, named: Sequence[MappedFile], ahead: Sequence[Run]) -> list[DamagedRange]:
    """Returns the range after the last file if units refer to records there."""
    if not named or survey.has_dledger or survey.live:
        return []
    last = named[-1]
    past_end = [run for run in ahead if run.end > last.end]
    if sum(run.messages for run in past_end) < _WITNESSES:
        return []
    end = max(run.end for run in past_end)
    return [DamagedRange(last.end, end, MISSING, f"queues point up to {end}, but the last file ends at {last.end}")]


def _leftovers(
    survey: Survey, named: Sequence[MappedFile], explained: list[tuple[int, int]], collector: FindingCollector
) -> None:
    """Reports files after the end of the log that contain zeros or bytes that do not belong to the log.

    `named` are files of the right size; `explained` are half-open ranges of physical offsets that other findings
    report.
    """
    full = [segment.path for segment, _ in survey.behind]
    end = survey.segments[survey.last_used].end if survey.segments else 0
    for segment in named:
        is_explained = any(low < segment.end and high > segment.base for low, high in explained)
        if segment.base >= end and segment.path not in full and not is_explained:
            adjacent = any(other.base + segment.size == segment.base for other in survey.segments)
            _leftover(survey, segment, adjacent, collector)
    for segment, tail in survey.behind:
        code = "log-garbage-tail" if tail.kind == "garbage" else "log-stale-tail"
        evidence = f"this file contains no record of the log: {tail.detail}"
        collector.add(code, segment.path, evidence, position=0, span=(segment.base, segment.end))


def _leftover(survey: Survey, segment: MappedFile, adjacent: bool, collector: FindingCollector) -> None:
    """Reports a file of zeros, unless it directly follows another segment, which is normal until a clean shutdown."""
    if survey.live or (adjacent and not survey.clean_stop):
        return
    evidence = f"zeros, {segment.base - survey.end} bytes after the end of the log"
    collector.add("log-segment-extra", segment.path, evidence, severity=Severity.NOTE if adjacent else None)


def foreign_ranges(store: Store, wrong: Sequence[WrongUnits]) -> list[DamagedRange]:
    """Returns the segments of another broker's log, in order. Only those are judged into which wrong units point."""
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
                f"{len(places)} record(s) for physical offsets {places[0]} to {places[-1]} are in other places of "
                "this segment"
            )
            collector.add("log-displaced-block", segment.path, evidence, span=(places[0], places[-1] + 1))
    return saved
