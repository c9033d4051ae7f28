"""Converts facts to findings, area by area, and findings to a verdict."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mqtool.errors import StoreError, UnavailableError, UnreadableError
from mqtool.formats import file_names
from mqtool.formats.topics import SCHEDULE_TOPIC
from mqtool.store import Store
from mqtool.store.file_sizes import BATCH_CONSUME_QUEUE, COMMIT_LOG, CONSUME_QUEUE, FileSize, KnownSize
from mqtool.store.files import recording_unlisted
from mqtool.store.known_losses import NONE, KnownLosses, LostOffsets, known_losses
from mqtool.store.paths import denied_to_owner, is_denied
from mqtool.store.queues.filter_bit_maps import bit_maps_of
from mqtool.store.queues.rocksdb_queues import has_queue_database, queue_database
from mqtool.verify import checkpoint, commit_log_files, config, consume_queue, queue_findings, replication
from mqtool.verify.commit_log_files import displaced_messages, foreign_ranges, without_foreign
from mqtool.verify.compaction import CompactionCheck
from mqtool.verify.consume_queue import QueueFacts
from mqtool.verify.facts import Facts
from mqtool.verify.finding_collector import FindingCollector, area_of, in_order
from mqtool.verify.findings import (
    OWNER_DENIED,
    Area,
    CheckState,
    Finding,
    Losses,
    LostRange,
    QueueLoss,
    Severity,
    State,
    Statistics,
    Verification,
    state_of,
    worst,
)
from mqtool.verify.index_findings import IndexReport, check_absent
from mqtool.verify.log_findings import LogReport, WrongRecords, explain_jumps, refine, time_spikes
from mqtool.verify.losses import LossAccount, add_proved_losses, confirmed_messages, cut_off, known_queues, losses_of
from mqtool.verify.next_start import next_start, without_timer
from mqtool.verify.queue_findings import Dispatched, QueueReport, absent_queues
from mqtool.verify.replication import LedgerCheck
from mqtool.verify.rocksdb_queue import RocksCheck
from mqtool.verify.segment import DamagedRange
from mqtool.verify.services import DAMAGED, UNREAD, ServiceRecordCheck, TimerCheck
from mqtool.verify.services import TOPIC as TIMER_TOPIC
from mqtool.verify.survey import recovery_plan
from mqtool.verify.unit_detail import UnitDifferences

_NOT_LISTED = {
    Area.COMMIT_LOG: "log-not-listed",
    Area.CONSUME_QUEUE: "queue-not-listed",
    Area.BATCH_CONSUME_QUEUE: "queue-not-listed",
    Area.INDEX: "index-not-listed",
    Area.CONFIG: "config-not-read",
}
"""Codes of directories that cannot be listed."""
_BIG = (Area.COMMIT_LOG, Area.CONSUME_QUEUE)
"""Checks that are unknown if reading was stopped early."""
_READ = {*_BIG, Area.BATCH_CONSUME_QUEUE, Area.CONSUME_QUEUE_EXT, Area.DLEDGER, Area.COMPACTION}
"""Checks of the files from which consumers are served."""


class Classifier:
    """Collects the findings of one run."""

    def __init__(self, store: Store, facts: Facts) -> None:
        self._store = store
        self._facts = facts
        self._survey = facts.survey
        self._config = store.config
        self._collector = FindingCollector(store.path, self._survey.config, self._survey.broker)
        self._recovery = recovery_plan(self._survey, store)
        self._details: dict[Area, str] = {}
        self._unknown: dict[Area, str] = {}
        self._losses = Losses()
        self._known = NONE
        self._gaps: list[LostOffsets] = []  # skipped queue offsets that are not known to be lost
        self._known_queues: tuple[QueueLoss, ...] = ()
        self._in_foreign = 0

    def classify(self) -> None:
        """Produces all findings."""
        damages = [] if self._unlisted_in(Area.COMMIT_LOG) else self._log_files()
        if self._facts.log_failure:
            self._classify_log_only(damages)
        else:
            self._classify_all(damages)
        self._unlisted()
        for denial in denied_to_owner(self._store.path, *self._store.layout.log_dirs):
            if not is_denied(denial.path):  # to this user, which is a finding of its own
                self._collector.add(OWNER_DENIED, denial.path, denial.evidence, words=denial.words)

    def _classify_all(self, damages: list[DamagedRange]) -> None:
        facts = self._facts
        units = facts.compare_units(damages)
        if failed := next((segment for segment in facts.segments if segment.failure), None):
            self._collector.add("log-unreadable", self._survey.segments[failed.number].path, failed.failure)
            self._classify_log_only(damages)
            return
        jumps = facts.span.jumps
        if foreign := foreign_ranges(self._store, units.wrong):
            damages = without_foreign(damages, foreign)
            units = facts.compare_units(damages)
            jumps = [
                jump
                for jump in jumps
                if not any(part.start <= at < part.end for part in foreign for at in (jump.before, jump.after))
            ]
        refine(self._store.commit_log, units.wrong)
        saved = {} if self._survey.live else displaced_messages(self._store, facts, damages, self._collector)
        confirmed = {} if self._survey.live else confirmed_messages(self._store, units.wrong, facts.queues)
        for message in confirmed.values():
            saved.setdefault(message.queue, []).append((message.offset, message.offset))
        account = LossAccount(damages, saved, confirmed)
        bodies = [body for segment in facts.segments for body in segment.bad_bodies]
        add_proved_losses(account, units.wrong, facts.queues, bodies)
        wrong = explain_jumps(jumps, account, units.wrong)
        ranges = self._log(account, wrong, units)
        ranges += cut_off(facts.queues, account)
        ranges += [self._bad_body(physical, size) for *_, physical, size in bodies]
        self._queues(units, wrong, account)
        if self._survey.topics is None:
            self._index(damages)
            self._around(damages)
        self._config_files()
        ranges.sort(key=lambda part: part.start)
        self._losses = losses_of(account, ranges, self._store, self._survey.includes)
        reported = (*self._losses.offsets, *self._gaps)
        self._known_queues = known_queues(self._known, reported, self._survey.includes)
        self._in_foreign = self._losses.messages if foreign else 0

    def _classify_log_only(self, damages: list[DamagedRange]) -> None:
        """Reports findings of the readable segments alone; without the others no comparison is possible."""
        ranges = self._log(LossAccount(damages), WrongRecords({}, []), UnitDifferences())
        bodies = (body for segment in self._facts.segments for body in segment.bad_bodies)
        ranges += [self._bad_body(physical, size) for *_, physical, size in bodies]
        ranges.sort(key=lambda part: part.start)
        self._losses = Losses(tuple(ranges))
        self._unknown[Area.COMMIT_LOG] = self._facts.log_failure
        config.check_config_files(self._survey, self._config, self._collector)
        areas = [Area.CONSUME_QUEUE, Area.INDEX, Area.CHECKPOINT, Area.CONFIG]
        if any(queue.is_batch for queue in self._survey.queues):
            areas.append(Area.BATCH_CONSUME_QUEUE)
        for area in areas:
            self._unknown[area] = "not compared: the CommitLog could not be read"

    def _unlisted(self) -> None:
        """Reports each directory that cannot be listed, and marks its check as incomplete."""
        for path, area in self._unlisted_areas():
            self._collector.add(_NOT_LISTED[area], path, f"cannot be listed: {self._survey.unlisted[path]}")
            self._unknown[area] = f"{path} cannot be listed: {self._survey.unlisted[path]}"

    def _unlisted_in(self, area: Area) -> bool:
        return any(of_path is area for _, of_path in self._unlisted_areas())

    def _unlisted_areas(self) -> Iterator[tuple[Path, Area]]:
        survey = self._survey
        for path in sorted(survey.unlisted):
            if self._store.layout.is_of_log(path):
                yield path, Area.COMMIT_LOG
            elif survey.unlisted.keys().isdisjoint(path.parents):
                tree = path.relative_to(survey.root).parts[0]
                yield from ((path, area) for area in _NOT_LISTED if area.value == tree)

    def _findings(self) -> list[Finding]:
        in_log = [finding for segment in self._facts.segments for finding in segment.findings]
        return in_log + self._collector.findings()

    def _concerns(self, finding: Finding) -> bool:
        """Whether a finding concerns the requested topics; damage of the log does, because a start may cut it there."""
        return finding.topic is None or finding.lost_bytes > 0 or self._survey.includes(finding.topic)

    def verdict(self, seconds: float, *, complete: bool) -> Verification:
        """Returns the verification; for a check that was stopped early, only what is already certain."""
        facts, survey = self._facts, self._survey
        findings = [finding for finding in self._findings() if self._concerns(finding)]
        checks = tuple(self._checks(findings, complete=complete))
        statistics = Statistics(
            facts.records,
            sum(segment.bytes for segment in facts.segments),
            sum(queue.units for queue in facts.queues),
            sum(index.entries for index in facts.index),
            round(seconds, 3),
        )
        state = worst(check.state for check in checks)
        start = None
        if complete:
            is_consistent = not any(
                check.area in _READ and (check.findings or check.area in self._unknown) for check in checks
            )
            start = next_start(self._store, facts, state, self._in_foreign, survey.broker, is_consistent=is_consistent)
        timer = [item for item in findings if area_of(item) is Area.TIMER and item.severity is Severity.ERROR]
        if start is not None and (timer or Area.TIMER in self._unknown):
            start = without_timer(start, DAMAGED if timer else UNREAD)
        return Verification(
            str(survey.root),
            state,
            survey.live,
            complete,
            checks,
            in_order(findings),
            self._losses,
            statistics,
            start,
            self._store.config.file,
            self._known_queues,
        )

    def _checks(self, findings: list[Finding], *, complete: bool) -> list[CheckState]:
        """Returns the state of each check that applies to this store."""
        checks = []
        for area in Area:
            mine = [finding for finding in findings if area_of(finding) is area]
            begun = not complete and area in _BIG
            if not (mine or begun or area in self._details or area in self._unknown):
                continue
            state = state_of(mine)
            detail = self._details.get(area, "")
            if not complete or area in self._unknown:
                state = worst([state, State.UNKNOWN])
                detail = self._unknown.get(area, "stopped early")
            checks.append(CheckState(area, state, len(mine), detail))
        return checks

    def _log_files(self) -> list[DamagedRange]:
        """Checks the segments; returns every damaged range of the log, in order."""
        survey, facts = self._survey, self._facts
        if commit_log_files.is_missing(survey, self._store.checkpoint):
            self._collector.add("log-missing", self._store.path / file_names.COMMIT_LOG, "no segment")
        layout = self._store.layout
        ahead = [] if facts.log_failure else [run for queue in facts.queues for run in (*queue.ahead, *queue.lost)]
        size = _size(COMMIT_LOG, layout.commit_log_size, [file.size for file in layout.segments])
        gaps = commit_log_files.check_files(survey, layout, size, ahead, self._collector)
        damages = facts.damages() + gaps
        if survey.has_dledger:
            self._unknown[Area.COMMIT_LOG] = "the DLedger log has no data file, or is not in use"
        segments = f"{len(survey.segments)} segment(s), {survey.min_offset} to {survey.end}"
        self._details[Area.COMMIT_LOG] = f"{facts.records} record(s) in {segments}"
        return sorted(damages, key=lambda damage: damage.start)

    def _log(self, account: LossAccount, wrong: WrongRecords, units: UnitDifferences) -> list[LostRange]:
        time_spikes(self._survey, self._facts.segments, self._collector)
        self._known = self._known_losses()
        report = LogReport(self._survey, self._facts.segments, account, self._known, self._collector)
        ranges = report.write(wrong, units.wrong)
        self._gaps = report.gaps
        return ranges

    def _known_losses(self) -> KnownLosses:
        try:
            return known_losses(self._store.path, self._survey.min_offset)
        except StoreError as error:
            self._unknown[Area.COMMIT_LOG] = str(error)
            return NONE

    def _bad_body(self, physical: int, size: int) -> LostRange:
        segment = next(s for s in self._survey.segments if s.base <= physical < s.end)
        path = self._collector.relative(segment.path)
        return LostRange(physical, physical + size, "bad-crc", path, physical - segment.base, 1)

    def _queues(self, units: UnitDifferences, wrong: WrongRecords, account: LossAccount) -> None:
        for wrong_units in units.wrong:
            if wrong_units.code == "queue-shifted-unit" and wrong_units.start in wrong.offsets:
                wrong_units.code = "log-wrong-offset"
        self._queue_files({run.queue for run in units.missing})
        facts = self._facts
        dispatched = Dispatched(self._store.commit_log, facts.queues, self._store.checkpoint)
        QueueReport(self._survey, self._recovery, self._collector, facts.queues, units, account, dispatched).write()
        self._absent_queues(units, dispatched)
        self._queue_details()
        self._extensions()

    def _queue_files(self, lagging: set[tuple[str, int]]) -> None:
        """Checks names and lengths of queue files, and their directories; `lagging` queues lack a unit for a record."""
        survey, layout = self._survey, self._store.layout
        sizes: dict[bool, list[int]] = {False: [], True: []}
        for queue in survey.queues:
            sizes[queue.is_batch] += [file.size for file in queue.files]
        simple = _size(CONSUME_QUEUE, layout.consume_queue_size, sizes[False])
        batch = _size(BATCH_CONSUME_QUEUE, layout.batch_consume_queue_size, sizes[True])
        for queue, queue_facts in zip(survey.queues, self._facts.queues, strict=True):
            if survey.includes(queue.topic):
                size = batch if queue.is_batch else simple
                is_whole = queue.key not in lagging and not queue_facts.failure
                queue_findings.check_queue_files(survey, queue, queue_facts, size, self._collector, is_whole=is_whole)
                if queue_facts.failure:
                    area = Area.BATCH_CONSUME_QUEUE if queue.is_batch else Area.CONSUME_QUEUE
                    self._unknown[area] = f"{queue.topic}/{queue.queue_id}: {queue_facts.failure}"
        queue_findings.check_trees(survey, self._collector)

    def _absent_queues(self, units: UnitDifferences, dispatched: Dispatched) -> None:
        """Reports queues that have records and no files; records that name a wrong queue do not count."""
        explained: Counter[tuple[str, int]] = Counter()
        for wrong_units in units.wrong:
            if wrong_units.code == "log-wrong-queue" and wrong_units.expected is not None:
                explained[wrong_units.expected[0]] += wrong_units.last - wrong_units.first + 1
        metadata = self._store.metadata
        undecided = absent_queues(
            self._survey,
            self._facts.span,
            explained,
            metadata.topics,
            readable=metadata.topics_file is not None,
            recovery=self._recovery,
            dispatched=dispatched,
            collector=self._collector,
        )
        if undecided:
            self._unknown[Area.CONSUME_QUEUE] = undecided

    def _extensions(self) -> None:
        survey, size = self._survey, self._store.layout.consume_queue_ext_size
        unread = consume_queue.check_extensions(survey, self._facts.queues, size, self._collector)
        if unread:
            self._unknown[Area.CONSUME_QUEUE_EXT] = unread
        if (survey.root / file_names.CONSUME_QUEUE_EXT).is_dir() and not survey.has_dledger:
            bit_maps = bit_maps_of(self._store)
            consume_queue.compare_extensions(survey, bit_maps, self._collector)
            if bit_maps.problems:
                self._unknown[Area.CONSUME_QUEUE_EXT] = f"bit maps could not be compared: {bit_maps.problems[0]}"

    def _queue_details(self) -> None:
        survey, facts = self._survey, self._facts
        for area, is_batch in ((Area.CONSUME_QUEUE, False), (Area.BATCH_CONSUME_QUEUE, True)):
            mine = [queue for queue in facts.queues if queue.is_batch is is_batch and survey.includes(queue.topic)]
            if mine or not is_batch:
                self._details[area] = f"{sum(queue.units for queue in mine)} unit(s) in {len(mine)} queue(s)"
        if (survey.root / file_names.CONSUME_QUEUE_EXT).is_dir():
            self._details[Area.CONSUME_QUEUE_EXT] = "compared with the units that point there and with their records"
        if survey.has_rocksdb:
            try:
                self._details[Area.CONSUME_QUEUE] = RocksCheck(self._store, survey, self._collector).run()
            except (UnavailableError, UnreadableError) as error:
                self._unknown[Area.CONSUME_QUEUE] = str(error)
        elif has_queue_database(survey.root, self._config):
            place = queue_database(survey.root, self._config).name
            self._unknown[Area.CONSUME_QUEUE] = f"{place}: the RocksDB next to the queue files was not checked"
        elif survey.has_dledger:
            self._unknown[Area.CONSUME_QUEUE] = "units may point into the DLedger log, which is not read"
        if any(finding.code == "queue-other-delay" for finding in self._collector.findings()):
            evidence = f"units of {SCHEDULE_TOPIC} show several delays of a level: give --config with messageDelayLevel"
            self._unknown[Area.CONSUME_QUEUE] = evidence

    def _index(self, damages: list[DamagedRange]) -> None:
        survey, facts = self._survey, self._facts
        if self._unlisted_in(Area.INDEX):
            return
        self._details[Area.INDEX] = f"{sum(f.entries for f in facts.index)} entries in {len(facts.index)} file(s)"
        if not survey.with_index:
            reason = check_absent(
                survey, self._store.checkpoint, self._config.flag("messageIndexEnable"), facts.records, self._collector
            )
            if reason:
                self._unknown[Area.INDEX] = reason
            return
        wrong = {finding.physical_offset for finding in self._findings() if area_of(finding) is Area.COMMIT_LOG}
        report = IndexReport(survey, self._store.commit_log, facts.index, self._recovery, self._collector)
        report.write(facts.compare_index(damages), wrong)
        if facts.index_failure:
            self._unknown[Area.INDEX] = facts.index_failure
        if survey.has_dledger:
            self._unknown[Area.INDEX] = "entries may point into the DLedger log, which is not read"

    def _around(self, damages: list[DamagedRange]) -> None:
        """Checks all files other than log, queues and index."""
        survey, collector = self._survey, self._collector
        checkpoint.check_checkpoint(survey, self._store, self._facts.newest, damages, self._facts.index, collector)
        checkpoint.check_shutdown(survey, collector)
        self._details[Area.CHECKPOINT] = "fields against log and index"
        self._details[Area.SHUTDOWN] = "a broker is running" if survey.live else "abort file"
        try:
            with recording_unlisted(None):
                queue = self._by_key().get((TIMER_TOPIC, 0))
                queue_end = None if queue is None else queue.end
                timer = TimerCheck(survey, queue_end, self._facts.newest, self._config, collector)
                if survey.is_unlisted((TIMER_TOPIC, 0)):
                    self._unknown[Area.TIMER] = f"the queue of {TIMER_TOPIC} cannot be listed"
                elif timer.applies:
                    self._details[Area.TIMER] = timer.run()
        except StoreError as error:
            self._unknown[Area.TIMER] = str(error)
        for area, check in (
            (Area.DLEDGER, LedgerCheck(survey, collector)),
            (Area.COMPACTION, CompactionCheck(self._store, survey, self._recovery, collector)),
        ):
            try:
                with recording_unlisted(None):
                    if check.applies:
                        self._details[area] = check.run()
            except StoreError as error:
                self._unknown[area] = str(error)
        if not survey.has_dledger and not survey.has_rocksdb:
            try:
                unread = ServiceRecordCheck(self._store, survey, collector).run()
            except StoreError as error:
                unread = f"not all messages waiting for a broker service were checked: {error}"
            if unread:
                self._unknown[Area.COMMIT_LOG] = unread
        epochs = replication.check_controller(survey, self._config, collector)
        if epochs is not None:
            self._details[Area.CONTROLLER] = epochs
        if self._config.values:
            config.check_lint(survey, self._config, collector)
            self._details[Area.LINT] = f"{len(self._config.values)} key(s)"

    def _config_files(self) -> None:
        survey, metadata = self._survey, self._store.metadata
        reason, unread = config.check_config_files(survey, self._config, self._collector)
        reason = reason or next((problem for problem in metadata.problems if "RocksDB" in problem), "")
        if reason:
            self._unknown[Area.CONFIG] = reason
            return
        evidence = f"{len(metadata.topics)} topic(s), {len(metadata.consumer_offsets)} group(s) with offsets"
        self._details[Area.CONFIG] = evidence
        if file_names.TOPICS not in unread:
            config.check_topics(survey, metadata.topics, metadata.topics_file is not None, self._collector)
        queues = self._by_key()
        if survey.has_rocksdb:
            problem = self._rocksdb_problem()
            if problem:
                self._unknown[Area.CONFIG] = f"positions were not compared with the queues in RocksDB: {problem}"
                return
            queues = config.rocksdb_facts(self._store)
        if unread.isdisjoint((file_names.CONSUMER_OFFSETS, file_names.LMQ_CONSUMER_OFFSETS)):
            config.check_offsets(survey, metadata, queues, self._collector)
        if file_names.DELAY_OFFSETS not in unread:
            config.check_delay_offsets(survey, self._store, queues, self._collector)

    def _rocksdb_problem(self) -> str:
        """Returns why the ends of queues in RocksDB are unknown; "" if they are known."""
        if not self._survey.clean_stop:
            return "the broker was not shut down cleanly, and its next start completes them"
        database = self._store.rocksdb
        return "they are not read" if database is None else database.problem

    def _by_key(self) -> dict[tuple[str, int], QueueFacts]:
        return {(facts.topic, facts.queue_id): facts for facts in self._facts.queues}


def _size(kind: FileSize, known: KnownSize | None, sizes: list[int]) -> int | None:
    """Returns the expected file size: the configured one, unless several files exist and none has it."""
    if known is None:
        return None
    return config.misfit(known.value, [size for size in sizes if kind.is_possible(size)]) or known.value
