"""All facts about a store, and the comparison of the units that dispatch would write with those in the files."""

from collections.abc import Iterator
from functools import cached_property

from msgspec import Struct

from mqtool.errors import StoreError
from mqtool.verify.checksums import Buckets, Records, Sums, groups_of, read_records
from mqtool.verify.consume_queue import QueueFacts
from mqtool.verify.index_file import IndexFacts
from mqtool.verify.index_findings import IndexDetail, IndexDifferences
from mqtool.verify.record_rules import QueueSpan, join
from mqtool.verify.segment import DamagedRange, SegmentFacts, Timeline
from mqtool.verify.survey import Survey
from mqtool.verify.tasks import Result
from mqtool.verify.unit_detail import UnitDetail, UnitDifferences


class Facts(Struct, frozen=True, dict=True):
    """Results of all tasks, in the survey's order."""

    survey: Survey
    results: tuple[Result, ...]

    @cached_property
    def segments(self) -> list[SegmentFacts]:
        """Facts about each segment that contains data."""
        return [facts for result in self.results for facts in result.segments]

    @cached_property
    def queues(self) -> list[QueueFacts]:
        """Facts about each queue of the survey."""
        queue_facts = [facts for result in self.results for facts in result.queues]
        following = dict(zip(self.span.queues, self.span.following.tolist(), strict=True))
        for facts in queue_facts:
            _separate_cut_off(facts, following.get((facts.topic, facts.queue_id), 0))
        return queue_facts

    @cached_property
    def index(self) -> list[IndexFacts]:
        """Facts about each index file of the survey."""
        return [facts for result in self.results for facts in result.index]

    @cached_property
    def buckets(self) -> Buckets:
        """Buckets of the whole log."""
        return Buckets(self.survey.segments)

    @cached_property
    def span(self) -> QueueSpan:
        """Queue offsets over the whole log."""
        return join([facts.span for facts in self.segments])

    @cached_property
    def timeline(self) -> Timeline:
        """Messages by topic and minute."""
        timeline = Timeline()
        for facts in self.segments:
            timeline.merge(facts.timeline)
        return timeline

    @property
    def newest(self) -> int:
        """Latest store timestamp; 0 if there is no record."""
        return max((facts.newest for facts in self.segments), default=0)

    @property
    def records(self) -> int:
        """Number of valid records."""
        return sum(facts.records for facts in self.segments)

    def damages(self) -> list[DamagedRange]:
        """Returns the damaged ranges inside segments, in order."""
        return [damage for facts in self.segments for damage in facts.damages]

    @property
    def log_failure(self) -> str:
        """Why the log could not be read to its end; "" if it could."""
        return next((facts.failure for facts in self.segments if facts.failure), self.survey.failure)

    @property
    def index_failure(self) -> str:
        """Why the index could not be compared with the log; "" if it could."""
        return next((facts.failure for facts in self.index if facts.failure), self.log_failure)

    def compare_units(self, damages: list[DamagedRange]) -> UnitDifferences:
        """Compares queues and log; compares buckets that differ unit by unit.

        A file that can no longer be read gets a failure in its facts.
        """
        detail = UnitDetail(self.survey, self.queues, damages)
        for _, _, records in self._differing("units", "queues"):
            detail.compare(records)
        detail.differences.separate_moved()
        unread = {(facts.topic, facts.queue_id) for facts in self.queues if facts.failure}
        unknown_tags = {(facts.topic, facts.queue_id) for facts in self.queues if facts.ext_unread}
        wrong = [
            units
            for units in detail.differences.wrong
            if units.queue not in unread and (units.code != "queue-wrong-tags" or units.queue not in unknown_tags)
        ]
        listed = {queue.key for queue in self.survey.queues}
        missing = [
            run for run in detail.differences.missing if run.queue in listed and not self.survey.is_unlisted(run.queue)
        ]
        return UnitDifferences(wrong, [run for run in missing if run.queue not in unread])

    def compare_index(self, damages: list[DamagedRange]) -> IndexDifferences:
        """Compares index and log; compares buckets that differ entry by entry.

        A file that can no longer be read gets a failure in its facts; of an incomplete comparison nothing is returned.
        """
        detail = IndexDetail(self.survey, self.index, damages)
        if self.index and not self.index_failure:
            for number, first, records in self._differing("keys", "index"):
                try:
                    detail.compare(records, number, first)
                except StoreError as error:  # since the first pass
                    self._segment(number).failure = str(error)
                    break
        return IndexDifferences() if self.index_failure else detail.differences

    def _differing(self, due: str, kind: str) -> Iterator[tuple[int, int, Records]]:
        """Yields (segment, first record, records) of the buckets in which two sides disagree."""
        expected, actual = Sums(self.buckets.count), Sums(self.buckets.count)
        for facts in self.segments:
            expected.merge(getattr(facts, due), int(self.buckets.first[facts.number]))
        for result in self.results:
            if getattr(result, kind):
                result.sums.add_to(actual)
        for low, high in groups_of(expected.differ(actual), self.buckets):
            number = self.buckets.segment_of(low)
            segment, before = self._segment(number), self.buckets.first[number]
            inside = segment.first_record[low - before : high - before]
            starts = inside[inside >= 0]
            start = int(starts[0]) if len(starts) else -1
            span = self.buckets.span(low)[0], self.buckets.span(high - 1)[1]
            try:
                records = read_records(self.survey, number, span, start)
            except StoreError as error:  # since the first pass
                segment.failure = str(error)
                return
            yield number, start, records

    def _segment(self, number: int) -> SegmentFacts:
        return next(facts for facts in self.segments if facts.number == number)


def _separate_cut_off(facts: QueueFacts, following: int) -> None:
    """Separates units whose records were cut off the log from invalid ones.

    Physical offsets ascend in a queue. If a unit points past the end of the log but a later unit, or a later record of
    the queue, is inside the log, the unit is invalid and no message was cut off. `following` is the queue offset after
    the queue's last record in the log.
    """
    known = max(facts.max_offset, following)
    wrong = [run for run in facts.ahead if run.last_offset < known]
    if wrong:
        facts.ahead = [run for run in facts.ahead if run.last_offset >= known]
        facts.bad = sorted([*facts.bad, *wrong], key=lambda run: run.first)
