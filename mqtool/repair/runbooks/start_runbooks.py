"""Runbooks for a broker's start and its environment: recovery, disk, locks, timer, kinds of queues."""

import shutil
from pathlib import Path

from mqtool.commands import command
from mqtool.convert.queues import into_files, into_rocksdb
from mqtool.formats import file_names, topics
from mqtool.repair.changes import Change, RebuildIndex, RebuildMetadata, RebuildQueues, SetAside, Trim, Truncate
from mqtool.repair.from_findings import RepairProposal, changes_of
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
    run_again,
    words_of,
)
from mqtool.store.groups.unread import first_needed, needed_by_segment
from mqtool.store.lock import holder_words, lock_holder
from mqtool.store.paths import real_path
from mqtool.store.queues.rocksdb_queues import has_queue_database
from mqtool.store.store import open_store
from mqtool.store.waiting.held_back import waiting_by_segment
from mqtool.verify import CATALOGUE, Finding

_TAILS = ("log-torn-tail", "log-stale-tail", "log-garbage-tail")
_TIMER_TOPIC = topics.TIMER_TOPIC
_ROCKSDB = "defaultRocksDB"
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "fuse.glusterfs", "ceph", "9p", "afs", "lustre"})
_LITTLE_SPACE = 0.15
"""Below this share of free space a broker deletes segments whatever their age (85 per cent; CleanCommitLogService)."""


def _errors(case: Case) -> list[Finding]:
    return [finding for finding in case.verification.findings if finding.severity.is_serious]


def _unclean(case: Case) -> Detection:
    if case.store.clean_stop:
        return Detection(False, ("there is no abort file: the next start does not recover after a crash",))
    holder = lock_holder(case.root)
    if holder is not None:
        return Detection(False, (f"{holder_words(holder)} holds the store: abort is there because it runs",))
    facts = ["abort is there: recovery scans the log, deletes index files and dispatches again"]
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
                "the log is damaged: forcing its end would hide that",
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
    used, usage = case.request.used, shutil.disk_usage(case.root)
    ratio = usage.free / usage.total if used is None else 1 - used / 100
    before, begins = case.request.before, case.store.commit_log.min_offset
    assumed = "" if used is None else ", as --used assumes"
    facts = (f"free: {ratio:.1%} of the disk{assumed}", f"the log begins at {begins}")
    if before is not None and not _has_segments_before(case, before):
        return Detection(
            False, (*facts, f"no segment ends at or before {before} now; run mqtool discard-undo to free their space")
        )
    return Detection(before is not None or ratio < _LITTLE_SPACE, facts)


def _has_segments_before(case: Case, before: int) -> bool:
    """Whether there are segments to remove before an offset."""
    log = case.store.commit_log
    return any(segment.end <= before for segment in log.segments[: log.last_used])


def _make_room(case: Case, _found: Detection) -> Proposal:
    if case.request.before is not None:
        return RepairProposal((Trim(case.request.before),))
    log = case.store.commit_log
    offers = [
        f"--before {segment.end} removes {number + 1} segment(s), up to {segment.path.name}"
        for number, segment in enumerate(log.segments[: log.last_used][:20])
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
    usage = ("--dry-run",) if case.request.used is None else ("--used", case.request.used)
    step = command("clean", case.request.opened(case.root), *usage)
    if log.last_used and not first_needed(case.store, needed_by_segment(case.store)[:1])[1]:
        step = run_again("RB-11", case.root, case.request, "--before", log.segments[0].end)
    return Advice((*offers, *unread, *waiting), (step,))


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
        facts.append(f"the store is on {kind}: locks of other hosts may not be seen, or hang")
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
            "let only one broker have this storePathRootDir; give the other one its own",
            "a second broker recovers before it asks for the lock: it cuts files and deletes index files of the first",
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


START_RUNBOOKS = (
    Runbook("RB-08", _unclean, _close_cleanly),
    Runbook("RB-11", _full, _make_room),
    Runbook("RB-17", by_findings("RB-17"), _renew_timer),
    Runbook("RB-18", _shared, _separate),
    Runbook("RB-19", _formats, _switch),
)
