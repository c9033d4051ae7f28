"""Checks the files of queues, and converts facts about queues, and their differences from the CommitLog, to findings.

Source: MappedFileQueue.load, ConsumeQueueStore.loadConsumeQueues (4.9.7, 5.5.0).
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from msgspec import Struct, field

from mqtool.errors import FormatError, StoreError
from mqtool.formats import file_names
from mqtool.formats.checkpoint import Checkpoint
from mqtool.formats.java import parse_int
from mqtool.formats.topics import TopicQueue, is_made_by_broker
from mqtool.store.files import ReadFile, is_directory, list_directory, list_mapped_files
from mqtool.store.known_losses import Interval, without
from mqtool.store.log.commit_log import CommitLog
from mqtool.verify.consume_queue import QueueFacts, Run
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.findings import Severity
from mqtool.verify.losses import LossAccount
from mqtool.verify.record_rules import QueueSpan
from mqtool.verify.survey import QueueFiles, Recovery, Survey, stray_file
from mqtool.verify.unit_detail import MissingUnit, UnitDifferences, WrongUnits

_TREES = (file_names.CONSUME_QUEUE, file_names.BATCH_CONSUME_QUEUE)


def place(queue: QueueFiles, number: int) -> tuple[Path, int | None]:
    """Returns the file that contains a unit, or would contain it, and the byte in it; the directory if no file does."""
    byte = number * queue.unit.size
    file = next((file for file in queue.files if file.base <= byte < file.end), None)
    return (queue.path, None) if file is None else (file.path, byte - file.base)


def check_queue_files(
    survey: Survey,
    queue: QueueFiles,
    facts: QueueFacts,
    size: int | None,
    collector: FindingCollector,
    *,
    is_whole: bool,
) -> None:
    """Checks names and lengths of one queue's files.

    `size` is the bytes of a queue file, None if unknown; `is_whole` means that no unit of the queue is missing.
    """
    for file in queue.files:
        if size is not None and file.size != size:
            tolerated = file == queue.files[-1] and file.size == 0 and survey.release >= (5, 0)
            severity = Severity.WARNING if tolerated else None
            evidence = f"expected {size} bytes, found {file.size}"
            collector.add("queue-file-size", file.path, evidence, queue=queue.key, severity=severity)
    for path in queue.strays:
        _stray(survey, path, queue, size, collector)
    for before, after in pairwise(queue.files):
        if before.size and before.end < after.base:
            units = (after.base - before.end) // queue.unit.size
            evidence = f"{units} unit(s) between {before.path.name} and {after.path.name}"
            collector.add("queue-file-missing", queue.path, evidence, queue=queue.key)
    last = queue.files[-1] if len(queue.files) > 1 else None
    is_extra = last is not None and facts.used_end * queue.unit.size < last.base  # empty, the one before is not full
    if last is not None and last.size and is_whole and not survey.live and is_extra:
        collector.add("queue-file-extra", last.path, f"units end at {facts.used_end}", queue=queue.key)


def _stray(survey: Survey, path: Path, queue: QueueFiles, size: int | None, collector: FindingCollector) -> None:
    is_last = all(path.name > file.path.name for file in queue.files)
    length, evidence, severity = stray_file(path, "offset", survey.release, is_last=is_last)
    if severity is None and length is not None and length == size:
        evidence += ", as long as a queue file"
    collector.add("queue-stray-file", path, evidence, queue=queue.key, severity=severity)


def check_trees(survey: Survey, collector: FindingCollector) -> None:
    """Reports files that are in no topic or queue directory; the broker ignores them."""
    if survey.has_rocksdb:
        return
    for name in _TREES:
        for topic in list_directory(survey.root / name):
            if not is_directory(topic):
                collector.add("queue-stray-file", topic.path, "not a topic's directory", severity=Severity.NOTE)
                continue
            for queue in list_directory(Path(topic.path)):
                if not is_directory(queue) or not _is_int(queue.name):
                    collector.add("queue-stray-file", queue.path, "not a queue's directory", severity=Severity.NOTE)


def _is_int(name: str) -> bool:
    try:
        parse_int(name)
    except FormatError:
        return False
    return True


class QueueReport(Struct):
    """Reports the findings of all queues."""

    survey: Survey  # and recovery, collector: of the store
    recovery: Recovery
    collector: FindingCollector
    queues: list[QueueFacts]  # facts of each queue of the survey, in its order
    detail: UnitDifferences  # differences between queues and log
    account: LossAccount  # what is lost
    dispatched: "Dispatched"  # which records a running broker has dispatched
    _files: dict[TopicQueue, QueueFiles] = field(default_factory=dict)
    _facts: dict[TopicQueue, QueueFacts] = field(default_factory=dict)
    _occupied: dict[TopicQueue, list[Interval]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._files = {queue.key: queue for queue in self.survey.queues}
        self._facts = {(facts.topic, facts.queue_id): facts for facts in self.queues}

    def write(self) -> None:
        """Reports wrong units, then missing units."""
        self.detail.missing = joined(self.detail.missing)
        missing: dict[TopicQueue, list[Interval]] = {}
        for run in self.detail.missing:
            missing.setdefault(run.queue, []).append((run.first, run.last))
        for units in self.detail.wrong:
            self._report_wrong(units, missing.get(units.queue, []))
        for queue, facts in zip(self.survey.queues, self.queues, strict=True):
            if self.survey.includes(queue.topic):
                self._invalid(queue, facts, missing.get(queue.key, []))
        for run in self.detail.missing:
            self._missing(run)

    def _report_wrong(self, units: WrongUnits, missing: list[Interval]) -> None:
        queue = self._files[units.queue]
        if units.is_hole and _overlap(units.first_offset, units.last_offset, missing):
            units.code = "queue-duplicate-unit"  # the log has these messages: the units are in their place
        self._occupy(units.queue, units.first_offset, units.last_offset)
        if not units.code or units.code.startswith("log-"):
            return
        count = units.last - units.first + 1
        evidence = units.evidence if count == 1 else f"{count} units, the first: {units.evidence}"
        self._unit(units.code, queue, units.first, evidence, (units.start, units.end))

    def _invalid(self, queue: QueueFiles, facts: QueueFacts, missing: list[Interval]) -> None:
        if facts.failure:
            self.collector.add("queue-unreadable", Path(facts.failed_file), facts.failure, queue=queue.key)
        kinds = (("queue-hole", facts.holes, "of zeros"), ("queue-bad-unit", facts.bad, "that cannot be"))
        for code, runs, what in kinds:
            for run in runs:
                self._occupy(queue.key, run.first, run.last)
                known = _overlap(run.first, run.last, missing) if not queue.is_batch else 0
                repaired = self.recovery.repairs_units(queue, run.first, self._physical_at(queue.key, run.first))
                evidence = f"{run.last - run.first + 1} unit(s) {what}; {known} of their messages are in the CommitLog"
                self._unit(code, queue, run.first, evidence, None, Severity.WARNING if repaired else None)
        for run in facts.late:
            evidence = f"{run.last - run.first + 1} unit(s) point before the log's first byte, {self.survey.min_offset}"
            self._unit("queue-dangling-unit", queue, run.first, evidence, (run.start, run.end))
        for run in facts.ahead if not self.survey.has_dledger else ():
            self._ahead(queue, run)

    def _ahead(self, queue: QueueFiles, run: Run) -> None:
        if self.account.damage_at(run.start) is not None:
            return  # a missing segment explains it
        evidence = (
            f"{run.last - run.first + 1} unit(s) point at {run.start} and after it, but the log ends at "
            f"{self.survey.end}"
        )
        path, position = place(queue, run.first)
        self.collector.add(
            "queue-ahead-of-log",
            path,
            evidence,
            position=position,
            span=(run.start, run.end),
            queue=queue.key,
            lost_bytes=run.bytes,
            lost_messages=run.messages,
        )

    def _missing(self, run: MissingUnit) -> None:
        facts, queue = self._facts[run.queue], self._files[run.queue]
        for first, last in without(run.first, run.last, self._occupied.get(run.queue, [])):
            end = facts.max_offset if queue.is_batch else facts.used_end
            if last < end or first >= end:
                self._missing_part(queue, facts, run, first, last)
            else:
                self._missing_part(queue, facts, run, first, end - 1)
                self._missing_part(queue, facts, run, end, last)

    def _missing_part(self, queue: QueueFiles, facts: QueueFacts, run: MissingUnit, first: int, last: int) -> None:
        at_end = first >= (facts.max_offset if queue.is_batch else facts.used_end)
        if self.survey.live and at_end and not self._is_missing_now(queue, first, run.start):
            return  # dispatch may not have come so far
        in_file = queue.is_batch or place(queue, first)[1] is not None
        code = "queue-missing-units" if at_end or in_file else "queue-file-missing"
        if code == "queue-file-missing" and first >= facts.first:
            return  # between two files: reported by the files
        repaired = self.recovery.repairs_units(queue, first, run.start)
        evidence = f"{last - first + 1} message(s) with queue offsets {first} to {last} have no unit"
        if in_file and not at_end:  # zeros and wrong units are reported by themselves
            evidence += ": other records with these offsets have one"
            repaired = True
        path, position = place(queue, first)
        span, severity = (run.start, run.end), Severity.WARNING if repaired else None
        self.collector.add(code, path, evidence, position=position, span=span, queue=queue.key, severity=severity)

    def _is_missing_now(self, queue: QueueFiles, first: int, physical_offset: int) -> bool:
        """Whether a running broker has dispatched a record whose unit is still missing when the queue is read again."""
        if queue.is_batch or not self.dispatched.has(physical_offset):
            return False
        size, files = queue.unit.size, list_mapped_files(queue.path).files
        file = next((file for file in files if file.base <= first * size < file.end), None)
        if file is None:
            return True
        try:
            with ReadFile(file.path) as opened:
                return not any(opened.read(first * size - file.base, size))
        except StoreError:  # deleted meanwhile
            return False

    def _physical_at(self, queue: TopicQueue, number: int) -> int:
        """Returns the physical offset at which the records of missing units begin; -1 if they are not in the log."""
        starts = [run.start for run in self.detail.missing if run.queue == queue and run.first <= number <= run.last]
        return min(starts, default=self.survey.end)

    def _unit(
        self,
        code: str,
        queue: QueueFiles,
        number: int,
        evidence: str,
        span: tuple[int, int] | None,
        severity: Severity | None = None,
    ) -> None:
        path, position = place(queue, number)
        self.collector.add(
            code, path, f"unit {number}: {evidence}", position=position, span=span, queue=queue.key, severity=severity
        )

    def _occupy(self, queue: TopicQueue, first: int, last: int) -> None:
        self._occupied.setdefault(queue, []).append((first, last))


def joined(runs: list[MissingUnit]) -> list[MissingUnit]:
    """Returns runs by queue; adjacent runs are joined."""
    result: list[MissingUnit] = []
    for run in sorted(runs, key=lambda run: (run.queue, run.first)):
        last = result[-1] if result else None
        if last is not None and last.queue == run.queue and last.last + 1 == run.first:
            start, end = min(last.start, run.start), max(last.end, run.end)
            result[-1] = MissingUnit(run.queue, last.first, run.last, start, end)
        else:
            result.append(run)
    return result


def absent_queues(
    survey: Survey,
    span: QueueSpan,
    explained: Mapping[TopicQueue, int],
    topics: Iterable[str],
    *,
    readable: bool,
    recovery: Recovery,
    dispatched: "Dispatched",
    collector: FindingCollector,
) -> str:
    """Reports queues that have messages in the log but no files on disk.

    `explained` are messages of a queue that are reported as records of another; `readable` is whether the configured
    topics are known; `dispatched` is which records a running broker has dispatched. Returns why it is unknown whether
    queues are missing; "" if it is known.
    """
    if survey.has_rocksdb or survey.has_dledger:
        return ""
    in_the_way = {name for name in _TREES if (path := survey.root / name).exists() and not path.is_dir()}
    blocked = dict.fromkeys(sorted(in_the_way), 0)
    undecided = 0
    known = {queue.topic for queue in survey.queues} | set(topics)
    deleted: dict[str, list[int]] = {}
    for number, (topic, queue_id), count in _without_files(survey, span, explained):
        tree = _TREES[topic in survey.rules.batch_topics]
        if readable and topic not in known and not is_made_by_broker(topic):
            deleted.setdefault(topic, []).append(count)
        elif tree in in_the_way:
            blocked[tree] += count
        elif survey.live and list_mapped_files(survey.root / tree / topic / str(queue_id)).files:
            continue  # it was made meanwhile
        elif survey.live and not dispatched.has(int(span.first_at[number])):
            undecided += 1
        else:
            _absent(survey, span, number, count, recovery, collector)
    for tree, count in blocked.items():
        evidence = f"a file, not a directory; {count} message(s) of the CommitLog are in no queue"
        collector.add("queue-not-directory", survey.root / tree, evidence)
    for topic, counts in sorted(deleted.items()):
        evidence = f"{sum(counts)} message(s) in {len(counts)} queue(s)"
        collector.add("topic-only-in-log", survey.root / "consumequeue" / topic, evidence, queue=(topic, None))
    return f"a broker is writing: {undecided} queue(s) are missing or not yet created" if undecided else ""


def _without_files(
    survey: Survey, span: QueueSpan, explained: Mapping[TopicQueue, int]
) -> Iterator[tuple[int, TopicQueue, int]]:
    """Yields number, name and messages of each queue that has messages in the log and no files."""
    here = {queue.key for queue in survey.queues}
    for number, queue in enumerate(span.queues):
        count = int(span.messages[number]) - explained.get(queue, 0)
        if queue not in here and count > 0 and survey.includes(queue[0]) and not survey.is_unlisted(queue):
            yield number, queue, count


class Dispatched:
    """Which records of a running broker's log are dispatched: dispatch follows the order of the log."""

    def __init__(self, log: CommitLog, queues: Iterable[QueueFacts], checkpoint: Checkpoint | None) -> None:
        self._log = log
        self._newest = max((high for facts in queues for *_, high in facts.chunks), default=-1)
        self._checkpoint = checkpoint or Checkpoint()

    def has(self, physical_offset: int) -> bool:
        """Whether the record at an offset has certainly been dispatched: a queue or the checkpoint has a later one."""
        if physical_offset < max(self._newest, self._checkpoint.logics_physical_offset):
            return True
        try:
            return self._log.record(physical_offset).store_timestamp < self._checkpoint.logics_msg_timestamp
        except StoreError:
            return False


def _absent(
    survey: Survey, span: QueueSpan, number: int, count: int, recovery: Recovery, collector: FindingCollector
) -> None:
    queue = span.queues[number]
    tree = _TREES[queue[0] in survey.rules.batch_topics]
    first_at, last_at = int(span.first_at[number]), int(span.last_at[number])
    all_built = not survey.queues and survey.clean_stop
    repaired = all_built or recovery.repairs_records(first_at)
    evidence = f"{count} message(s), queue offsets {span.first[number]} to {span.following[number] - 1}"
    path, severity = survey.root / tree / queue[0] / str(queue[1]), Severity.WARNING if repaired else None
    collector.add("queue-missing", path, evidence, span=(first_at, last_at + 1), queue=queue, severity=severity)


def _overlap(first: int, last: int, parts: Iterable[Interval]) -> int:
    return last - first + 1 - sum(high - low + 1 for low, high in without(first, last, parts))
