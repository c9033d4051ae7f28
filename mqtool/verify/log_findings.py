"""Findings of the CommitLog: damage with the messages lost, bytes after the end, jumps in queue offsets."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise

import numpy as np
from msgspec import Struct

from mqtool.errors import StoreError
from mqtool.formats.java import decode_utf8
from mqtool.formats.topics import is_lmq
from mqtool.records.damage import DamageKind
from mqtool.store.files import MappedFile
from mqtool.store.known_losses import KnownLosses, LostOffsets
from mqtool.store.log.commit_log import CommitLog
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.findings import LostRange, Severity
from mqtool.verify.losses import LossAccount
from mqtool.verify.record_rules import Jump, spike_words, spikes
from mqtool.verify.segment import FOREIGN, SegmentFacts
from mqtool.verify.survey import Survey
from mqtool.verify.unit_detail import WrongUnits

_CODES: dict[str, str] = {
    DamageKind.BAD_OFFSET: "log-bad-offset",
    DamageKind.BAD_LENGTHS: "log-bad-lengths",
    DamageKind.BAD_HEADER: "log-bad-header",
    DamageKind.ZEROS: "log-zeros",
    DamageKind.BAD_BLANK: "log-bad-blank",
    DamageKind.MISSING: "log-cut",
    FOREIGN: "log-foreign-segment",
}
_TAILS = {"torn": "log-torn-tail", "stale": "log-stale-tail", "garbage": "log-garbage-tail"}
_GAP = "missing"
_MAX_NAMED = 10
_CLAIMED = ("log-wrong-queue", "log-wrong-flags")
"""Codes for records that belong to the queue of their unit although their own fields differ."""


def refine(log: CommitLog, wrong_units: Sequence[WrongUnits]) -> None:
    """Separates units that wrongly refer to transaction records from records whose flags are damaged.

    A prepared or rolled-back record has queue offset 0, so one with its unit's queue offset was neither.
    """
    for units in wrong_units:
        if units.code != "queue-transaction-unit" or units.first_offset == 0:
            continue
        try:
            record = log.record(units.start)
        except StoreError:
            continue
        if (decode_utf8(record.topic), record.queue_id, record.queue_offset) == (*units.queue, units.first_offset):
            units.code = "log-wrong-flags"


class WrongRecords(Struct, frozen=True):
    """Records whose own fields, rather than their units, are wrong."""

    # Physical offsets of records with a wrong queue offset, to (expected, found, topic, queue id).
    offsets: dict[int, Jump]
    jumps: list[Jump]  # those that remain unexplained


def explain_jumps(jumps: Iterable[Jump], account: LossAccount, wrong_units: Sequence[WrongUnits]) -> WrongRecords:
    """Explains jumps: by damage, by one record with a wrong queue offset, or by a record that states a wrong queue."""
    misnamed = {units.start for units in wrong_units if units.code in _CLAIMED}
    claimed = {(units.queue, units.first_offset) for units in wrong_units if units.code in _CLAIMED}
    by_queue: dict[tuple[str, int], list[Jump]] = {}
    for jump in jumps:
        by_queue.setdefault((jump.topic, jump.queue_id), []).append(jump)
    wrong: dict[int, Jump] = {}
    left = []
    for queue, parts in sorted(by_queue.items()):
        skip: Jump | None = None
        for number, jump in enumerate(parts):
            if jump is skip:
                continue
            after = parts[number + 1] if number + 1 < len(parts) else None
            lone = after is not None and after.before == jump.after and after.actual == jump.expected + 1
            if lone and not is_lmq(queue[0]):  # `Placement` does not move the record of a light queue
                skip = after
                if jump.after not in misnamed:
                    wrong[jump.after] = jump
            elif not (_claimed(queue, jump, claimed) or account.by_jump(jump)):
                left.append(jump)
    return WrongRecords(wrong, left)


def _claimed(queue: tuple[str, int], jump: Jump, claimed: set[tuple[tuple[str, int], int]]) -> bool:
    """Whether units of the queue point to records that state another queue, for every offset skipped."""
    skipped = range(jump.expected, jump.actual)
    return 0 < len(skipped) <= len(claimed) and all((queue, offset) in claimed for offset in skipped)


class LogReport:
    """Reports the findings of the CommitLog; `gaps` are skipped queue offsets that nothing explains or records."""

    def __init__(
        self,
        survey: Survey,
        facts: Sequence[SegmentFacts],
        account: LossAccount,
        known: KnownLosses,
        collector: FindingCollector,
    ) -> None:
        self.gaps: list[LostOffsets] = []
        self._known = known
        self._survey = survey
        self._facts = facts
        self._account = account
        self._collector = collector
        self._bases = [segment.base for segment in survey.segments]

    def write(self, wrong: WrongRecords, wrong_units: Sequence[WrongUnits]) -> list[LostRange]:
        """Reports everything; returns the ranges without a valid record."""
        lost = [lost_range for number in range(len(self._account.damages)) if (lost_range := self._damage(number))]
        self._ends()
        for jump in wrong.offsets.values():
            evidence = f"queue offset {jump.actual}, but its neighbours require {jump.expected}"
            self._record("log-wrong-offset", jump.after, evidence, (jump.topic, jump.queue_id))
        for units in wrong_units:
            claim = f"unit {units.first} of {units.queue[0]} queue {units.queue[1]} points at it"
            if units.code == "log-wrong-flags":
                self._record(units.code, units.start, f"prepared or rolled back; {claim}", units.queue)
            if units.code == "log-wrong-queue" and units.expected is not None:
                (topic, queue_id), _ = units.expected
                self._record(units.code, units.start, f"names {topic} queue {queue_id}; {claim}", (topic, queue_id))
        for jump in wrong.jumps:
            self._jump(jump)
        return lost

    def _segment(self, physical: int) -> MappedFile | None:
        number = bisect_right(self._bases, physical) - 1
        return self._survey.segments[number] if number >= 0 else None

    def _record(
        self, code: str, physical: int, evidence: str, queue: tuple[str, int], severity: Severity | None = None
    ) -> None:
        segment = self._segment(physical)
        assert segment is not None
        self._add(code, segment, evidence, (physical, physical + 1), queue, severity)

    def _add(
        self,
        code: str,
        segment: MappedFile,
        evidence: str,
        span: tuple[int, int],
        queue: tuple[str, int] | None = None,
        severity: Severity | None = None,
    ) -> None:
        at = span[0] - segment.base
        self._collector.add(code, segment.path, evidence, position=at, span=span, queue=queue, severity=severity)

    def _damage(self, number: int) -> LostRange | None:
        damage, taken = self._account.damages[number], self._account.by_damage[number]
        messages = sum(taken.values())
        segment = self._segment(damage.start)
        path = segment.path if segment else self._survey.root
        position = damage.start - segment.base if segment else 0
        code = self._code(damage.kind, damage.end, segment, messages)
        harmless = code in ("log-no-blank", "log-bad-blank")
        evidence = f"{damage.count} consecutive records, the first: " if damage.count > 1 else ""
        evidence += damage.detail
        if len(taken) > 1:
            parts = (f"{count} of {topic}/{queue_id}" for (topic, queue_id), count in sorted(taken.items()))
            evidence += "; lost " + ", ".join(islice(parts, _MAX_NAMED)) + (", …" if len(taken) > _MAX_NAMED else "")
        confirmed = [item for at, item in self._account.confirmed.items() if damage.start <= at < damage.end]
        if confirmed:
            named = (f"{item.queue[0]} queue {item.queue[1]} offset {item.offset}" for item in confirmed)
            evidence += f"; not lost, because its unit confirms it: {', '.join(islice(named, _MAX_NAMED))}"
            evidence += ", …" if len(confirmed) > _MAX_NAMED else ""
        whose = {*taken, *(item.queue for item in confirmed)}
        queue = next(iter(whose)) if len(whose) == 1 else None
        lost = 0 if harmless else damage.end - damage.start - sum(item.size for item in confirmed)
        self._collector.add(
            code,
            path,
            evidence,
            position=position,
            span=(damage.start, damage.end),
            queue=queue,
            lost_bytes=max(0, lost),
            lost_messages=messages,
        )
        if harmless:
            return None
        return LostRange(damage.start, damage.end, damage.kind, self._collector.relative(path), position, messages)

    def _code(self, kind: str, end: int, segment: MappedFile | None, messages: int) -> str:
        if kind == _GAP and (segment is None or end > segment.end):
            return "log-segment-missing"
        reaches_end = segment is not None and end == segment.end
        if kind == DamageKind.ZEROS and reaches_end and not messages and self._survey.end > end:
            return "log-no-blank"
        if kind == DamageKind.BAD_BLANK and not (reaches_end and not messages):
            return "log-bad-header"
        return _CODES[kind]

    def _ends(self) -> None:
        """Checks how each segment ends."""
        ended = {damage.end for damage in self._account.damages}
        for facts in self._facts:
            segment = self._survey.segments[facts.number]
            if facts.number < self._survey.last_used:
                if not facts.ended_by_blank and segment.end not in ended and not facts.failure and segment.size:
                    evidence = f"{segment.end - facts.end} bytes follow the last record"
                    self._add("log-no-blank", segment, evidence, (facts.end, segment.end))
            elif facts.tail is not None and not self._survey.live and facts.tail.kind in _TAILS:
                tail = facts.tail
                evidence = f"{tail.detail} ({tail.length} bytes)"
                self._add(_TAILS[tail.kind], segment, evidence, (tail.end, tail.end + tail.length))

    def _jump(self, jump: Jump) -> None:
        queue = (jump.topic, jump.queue_id)
        if not self._survey.includes(jump.topic):
            return
        if jump.actual > jump.expected:
            count = jump.actual - jump.expected
            evidence = f"queue offset {jump.actual} follows {jump.expected - 1}: {count} are skipped"
            is_known = self._known.includes(queue, jump.expected, jump.actual - 1, jump.after)
            if is_known:
                evidence += ", recorded as lost by a repair"
            else:
                self.gaps.append(LostOffsets(*queue, ((jump.expected, jump.actual - 1),)))
            self._record("log-offset-gap", jump.after, evidence, queue, Severity.NOTE if is_known else None)
        else:
            evidence = f"queue offset {jump.actual} follows {jump.expected - 1}"
            self._record("log-offset-repeat", jump.after, evidence, queue, None if jump.actual else Severity.NOTE)


def time_spikes(survey: Survey, facts: Sequence[SegmentFacts], collector: FindingCollector) -> None:
    """Reports outlying store timestamps at the boundary of two segments; a segment's own check reports the others."""
    for before, after in pairwise(facts):
        joint = before.last_times + after.first_times
        times = np.array([time for time, _ in joint], np.int64)
        for middle in spikes(times):
            number = before.number if middle < len(before.last_times) else after.number
            segment, at = survey.segments[number], joint[middle][1]
            collector.add(
                "log-bad-time", segment.path, spike_words(times, middle), position=at - segment.base, span=(at, at + 1)
            )
