"""Runbooks for one store: its log, what is derived from it, and the start and environment of its broker."""

from pathlib import Path

from mqtool.commands import command
from mqtool.convert.queues import into_files, into_rocksdb
from mqtool.engine.disk.files import Files
from mqtool.engine.retention.rules import RetentionPolicy
from mqtool.formats import file_names, topics
from mqtool.repair.changes import (
    Change,
    RebuildIndex,
    RebuildMetadata,
    RebuildQueues,
    SetAside,
    Trim,
    Truncate,
    Undelete,
)
from mqtool.repair.from_findings import RepairProposal, changes_of
from mqtool.repair.paths import QUARANTINE, home_of
from mqtool.repair.runbooks.model import (
    Advice,
    Case,
    Detection,
    Made,
    NewDirectory,
    Proposal,
    Runbook,
    by_findings,
    codes_of,
    explain_start,
    next_verify,
    run_again,
    without_findings,
    words_of,
)
from mqtool.repair.salvage import SalvageOptions, salvage
from mqtool.store.groups.unread import combined, first_needed, needed_by_segment
from mqtool.store.lock import holder_words, lock_holder
from mqtool.store.paths import real_path
from mqtool.store.queues.rocksdb_queues import has_queue_database
from mqtool.store.store import open_store
from mqtool.store.waiting.held_back import waiting_by_segment
from mqtool.verify import CATALOGUE, Finding
from mqtool.verify.commit_log_files import may_have_record

_LINT = ("lint-size", "lint-legacy-key")
_NO_UNIT = "no unit in it: "
_TAILS = ("log-torn-tail", "log-stale-tail", "log-garbage-tail")
_TIMER_TOPIC = topics.TIMER_TOPIC
_ROCKSDB = "defaultRocksDB"
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "fuse.glusterfs", "ceph", "9p", "afs", "lustre"})


def repair_findings(case: Case, detection: Detection) -> RepairProposal:
    """Proposes the changes that repair the findings."""
    return changes_of(case.store, detection.findings, case.verification.losses.offsets)


def salvage_to_new_store(case: Case, _found: Detection) -> Proposal:
    """Proposes a new store with all provable records."""
    options = SalvageOptions(case.request.copies, config=case.request.config)
    copies = "".join(f" and {path}" for path in case.request.copies)

    def make(target: Path) -> Made:
        result = salvage(case.root, target, options)
        facts = [
            f"records: {result.records}, by copy {result.records_by_copy}",
            f"bytes of the log without a record: {result.lost_bytes}",
            *(f"lost {row.topic}/{row.queue_id}: {row.lost_offsets}" for row in result.queues if row.lost),
            *(
                f"group {group.group} will never see {group.unread} message(s) of {group.topic}/{group.queue_id}"
                for group in result.groups
            ),
            f"verify: {result.verify}",
            *result.notes,
        ]
        if result.has_unread_tables:
            facts.append("topics, groups and positions could not be read and are not in the new store")
        complete = result.starts and not result.has_unread_tables
        return Made(tuple(facts), complete, not result.is_complete, result.put_in_place)

    return NewDirectory(f"every provable record of {case.root}{copies}", make, repairs=True)


def _clear_way(case: Case, detection: Detection) -> Proposal:
    """Proposes to set aside files without a record and to rebuild queue files of a wrong length."""
    lint = [f"{finding.file}: {finding.evidence}" for finding in detection.findings if finding.code in _LINT]
    if lint:
        return Advice(("correct the configuration, not the files", *lint))
    proposal = changes_of(case.store, detection.findings, case.verification.losses.offsets)
    away = {
        finding.file
        for finding in proposal.remaining
        if finding.code == "log-segment-size"
        and _is_below(case, finding.file)
        and not may_have_record(case.root / finding.file)
    }
    known = [change for change in proposal.changes if isinstance(change, SetAside)]
    away.update(name for change in known for name in change.files)
    changes = [change for change in proposal.changes if change not in known]
    if away:
        changes.append(SetAside(tuple(sorted(away))))
    return RepairProposal(
        tuple(changes),
        tuple(finding for finding in proposal.remaining if finding.file not in away),
        proposal.needs_another_run,
    )


def _is_below(case: Case, name: str) -> bool:
    return not Path(name).is_absolute() and (case.root / name).is_file()


def _old_rule(case: Case, detection: Detection) -> Advice:
    start = case.start
    outcome = "unknown" if isinstance(start, str) else start.verdict
    return Advice(
        (
            "the store is valid: some releases wrote CRC 0 with a body; this is not damage",
            (
                f"RocketMQ {case.broker} on this store: {outcome}; choose a release that accepts CRC 0, or start "
                "without the CRC check"
            ),
            f"{len(detection.findings)} finding(s) under the old rule; do not cut the log for them",
        ),
        (explain_start(case),),
    )


def _empty_last_files(case: Case) -> Detection:
    """Finds queues whose last file has no unit."""
    names = {
        queue.files[-1].path.relative_to(case.root).as_posix()
        for queue in case.store.disk_queues()
        if queue.files and not len(queue.units_of(len(queue.files) - 1))
    }
    names.update(finding.file for finding in case.findings(codes_of("RB-07")))
    return Detection(bool(names), tuple(f"{_NO_UNIT}{name}" for name in sorted(names)))


def _set_empty_aside(_case: Case, detection: Detection) -> RepairProposal:
    return RepairProposal((SetAside(tuple(fact.removeprefix(_NO_UNIT) for fact in detection.evidence)),))


def _vanished(case: Case) -> Detection:
    topics = case.request.topics
    named = tuple(finding for finding in case.findings(codes_of("RB-10")) if not topics or finding.topic in topics)
    if not named:
        return without_findings(case, "RB-10")
    logged = _topics_of_log(case)
    findings = tuple(finding for finding in named if finding.topic in logged)
    return Detection(
        bool(findings), tuple(f"{finding.code}: {finding.topic}: {finding.evidence}" for finding in findings), findings
    )


def _topics_of_log(case: Case) -> set[str]:
    return {topic for batch in case.store.batches(["topic"]) for topic in batch.column(0).unique().to_pylist()}


def _undelete(_case: Case, detection: Detection) -> RepairProposal:
    return RepairProposal(
        (Undelete(tuple(sorted({finding.topic for finding in detection.findings if finding.topic is not None}))),)
    )


def _errors(case: Case) -> list[Finding]:
    return [finding for finding in case.verification.findings if finding.severity.is_serious]


def _unclean(case: Case) -> Detection:
    if case.store.clean_stop:
        return Detection(False, ("there is no abort file: the next start does not recover after a crash",))
    holder = lock_holder(case.root)
    if holder is not None:
        return Detection(False, (f"{holder_words(holder)} has the store open: abort exists because it is running",))
    facts = ["abort exists: recovery scans the log, deletes index files and dispatches again"]
    if not isinstance(case.start, str):
        effort = case.start.effort
        facts.append(
            f"{effort.scanned_bytes} bytes, {effort.scanned_records} records to scan: "
            f"{effort.min_minutes} to {effort.max_minutes} minutes"
        )
    return Detection(True, tuple(facts), case.findings(codes_of("RB-08")))


def _close_cleanly(case: Case, _found: Detection) -> Proposal:
    damage = [finding for finding in _errors(case) if finding.code.startswith("log-")]
    if damage:
        return Advice(
            (
                "the log is damaged: setting abort aside would hide that",
                *words_of(damage),
            ),
            (run_again(_first_book(damage), case.root, case.request),),
        )
    if case.findings(_TAILS):
        return RepairProposal((Truncate(case.store.commit_log.max_offset),), needs_another_run=True)
    changes: tuple[Change, ...] = (
        RebuildQueues(),
        RebuildMetadata((file_names.CHECKPOINT,)),
        SetAside((file_names.ABORT,)),
    )
    return RepairProposal((*changes, RebuildIndex()) if case.store.disk_index_files() else changes)


def _first_book(findings: list[Finding]) -> str:
    """Returns the first runbook named by findings; RB-05, which compares with copies, if there is none."""
    named = (name for finding in findings for name in CATALOGUE[finding.code].runbooks[:1])
    return next(named, "RB-05")


def _full(case: Case) -> Detection:
    used = case.request.used
    ratio = Files().used_ratio(case.root) if used is None else used / 100
    before, begins = case.request.before, case.store.commit_log.min_offset
    assumed = "" if used is None else ", as --used assumes"
    facts = (f"{ratio:.0%} of the disk are used{assumed}", f"the log begins at {begins}")
    if before is not None and not _has_segments_before(case, before):
        return Detection(
            False, (*facts, f"no segment ends at or before {before} now; run mqtool discard-undo to free their space")
        )
    return Detection(before is not None or ratio > RetentionPolicy().force, facts)


def _has_segments_before(case: Case, before: int) -> bool:
    """Whether there are segments to remove before an offset."""
    log = case.store.commit_log
    return any(segment.end <= before for segment in log.segments[: log.last_used])


def _make_room(case: Case, _found: Detection) -> Proposal:
    if case.request.before is not None:
        return RepairProposal((Trim(case.request.before),))
    log = case.store.commit_log
    segments, needed = log.segments[: log.last_used], needed_by_segment(case.store)[: log.last_used]
    safe, first = first_needed(case.store, needed)
    needed[safe : safe + 1] = [first] if safe < len(needed) else []
    offers = [
        f"--before {segment.end} {f'removes {number} segment(s)' if number <= safe else 'is not safe'}, up to "
        f"{segment.path.name}: {combined(needed[:number]).words}"
        for number, segment in enumerate(segments[:20], 1)
    ]
    unread = [
        f"group {lag.group} has {lag.lag} unread message(s) in {lag.topic}/{lag.queue_id}"
        for lag in case.store.lags()
        if lag.lag
    ]
    waiting = [
        messages.words_of(segment)
        for segment, undelivered in waiting_by_segment(case.store)
        for messages in undelivered
    ]
    if safe:
        step = run_again("RB-11", case.root, case.request, "--before", segments[safe - 1].end)
        return Advice(("choose up to which segment to delete", *offers, *unread, *waiting), (step,))
    groups = sorted({part.group for part in combined(needed).unread if part.group is not None})
    left = [
        *([f"let these groups read their messages: {', '.join(groups)}"] if groups else []),
        "use a larger disk, or another one",
        "remove a topic that nobody needs with `mqtool plan purge`",
    ]
    if (home_of(case.root) / QUARANTINE).exists():
        discard = command("discard-undo", case.root, "--yes")
        left.insert(0, f"check the result of the last change, and free the space of its undo data: `{discard}`")
    end = "nothing more can be deleted without losing messages that somebody needs or may need. What you can do:"
    steps = (next_verify(case.root, case.request),) if first.unknown else ()
    return Advice((end, *left, *offers, *unread, *waiting), steps)


def _renew_timer(case: Case, detection: Detection) -> RepairProposal:
    """Proposes to rebuild the timer's files, and its queue if damaged; cuts a damaged end of the log first."""
    if case.findings(_TAILS):
        return RepairProposal((Truncate(case.store.commit_log.max_offset),), needs_another_run=True)
    queue = tuple(finding for finding in case.verification.findings if finding.topic == _TIMER_TOPIC)
    proposal = changes_of(case.store, (*detection.findings, *queue))
    return RepairProposal(proposal.changes, proposal.remaining)


def _shared(case: Case) -> Detection:
    holder = lock_holder(case.root)
    kind = file_system_of(case.root, Path("/proc/mounts"))
    facts = []
    if holder is not None:
        facts.append(f"{holder_words(holder)} holds the store's lock")
    if kind in _NETWORK:
        facts.append(f"the store is on {kind}: locks of other hosts may be invisible, or hang")
    damage = _errors(case)
    return Detection(bool(facts), (*facts, *words_of(damage)), tuple(damage) if facts else ())


def file_system_of(path: Path, mounts: Path) -> str:
    """Returns the file system type of a path according to a list of mounts as Linux keeps it, "" if unknown."""
    try:
        lines = [line.split() for line in mounts.read_text("utf-8", "replace").splitlines()]
    except OSError:
        return ""
    where = real_path(path)
    mounted = [(len(Path(line[1]).parts), line[2]) for line in lines if len(line) > 2 and where.is_relative_to(line[1])]
    return max(mounted)[1] if mounted else ""


def _separate(case: Case, _found: Detection) -> Advice:
    return Advice(
        (
            "let only one broker use this storePathRootDir; give the other one its own directory",
            "a second broker recovers before it takes the lock: it cuts files and deletes index files of the first",
            "shut the first one down cleanly, then verify; RB-03 and RB-06 repair what is missing",
        ),
        (command("verify", case.request.opened(case.root)),),
    )


def _formats(case: Case) -> Detection:
    root, config = case.root, case.store.config.values
    files = sum(len(queue.files) for queue in case.store.disk_queues())
    in_rocksdb = has_queue_database(root, case.store.config)
    wants_rocksdb = config.get("storeType") == _ROCKSDB
    own = str(case.store.version.release)
    facts = [
        f"queues in files: {files} file(s)",
        f"queues in RocksDB: {'yes' if in_rocksdb else 'no'}",
        f"written by {own}, to be opened by {case.broker}",
    ]
    damage = case.findings(codes_of("RB-19"))
    is_mismatched = in_rocksdb is not wants_rocksdb or own != case.broker
    if not is_mismatched and not damage:
        return Detection(False, tuple(facts))
    findings = case.findings((*codes_of("RB-19"), *codes_of("RB-03")))
    return Detection(True, (*facts, *words_of(findings)), findings)


def _switch(case: Case, _found: Detection) -> Proposal:
    in_rocksdb = has_queue_database(case.root, case.store.config)
    if in_rocksdb is (case.store.config.text("storeType") == _ROCKSDB):
        return Advice(
            ("repair queues before the release is changed (RB-03), on a store that was shut down cleanly",),
            (explain_start(case),),
        )
    kind = "files" if in_rocksdb else "a RocksDB"

    def make(target: Path) -> Made:
        with open_store(case.root, case.request.config) as store:
            result = into_files(store, target) if in_rocksdb else into_rocksdb(store, target)
        facts = (
            f"queues: {result.queues}, units: {result.units}",
            f"damaged ranges of the log: {result.damage.count}",
            *(f"the old queues differ from the log: {words}" for words in result.differences.items),
        )
        return Made(facts, result.is_complete)

    return NewDirectory(f"a copy of {case.root} with its queues in {kind}", make)


STORE_RUNBOOKS = (
    Runbook("RB-01", by_findings("RB-01"), _clear_way),
    Runbook("RB-02", by_findings("RB-02"), repair_findings),
    Runbook("RB-03", by_findings("RB-03"), repair_findings),
    Runbook("RB-04", by_findings("RB-04"), repair_findings),
    Runbook("RB-05", by_findings("RB-05"), salvage_to_new_store),
    Runbook("RB-06", by_findings("RB-06"), repair_findings),
    Runbook("RB-07", _empty_last_files, _set_empty_aside),
    Runbook("RB-08", _unclean, _close_cleanly),
    Runbook("RB-09", by_findings("RB-09"), repair_findings),
    Runbook("RB-10", _vanished, _undelete),
    Runbook("RB-11", _full, _make_room),
    Runbook("RB-13", by_findings("RB-13"), salvage_to_new_store),
    Runbook("RB-17", by_findings("RB-17"), _renew_timer),
    Runbook("RB-18", _shared, _separate),
    Runbook("RB-19", _formats, _switch),
    Runbook("RB-20", by_findings("RB-20"), _old_rule),
)
