"""Runbooks for the log and everything derived from it: queues, index, tables, topics."""

from pathlib import Path

from mqtool.repair.changes import SetAside, Undelete
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
)
from mqtool.repair.salvage import SalvageOptions, salvage
from mqtool.verify.commit_log_files import may_have_record

_LINT = ("lint-size", "lint-legacy-key")
_NO_UNIT = "no unit in it: "


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
            *(f"gone {row.topic}/{row.queue_id}: {row.lost_offsets}" for row in result.queues if row.lost),
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
            "the records are as they were written: CRC 0 with a body is what some releases stored, not damage",
            (
                f"RocketMQ {case.broker} on this store: {outcome}; choose a release that takes CRC 0, or start without "
                "the CRC check"
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
    logged = _topics_of_log(case) if named else set()
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


LOG_RUNBOOKS = (
    Runbook("RB-01", by_findings("RB-01"), _clear_way),
    Runbook("RB-02", by_findings("RB-02"), repair_findings),
    Runbook("RB-03", by_findings("RB-03"), repair_findings),
    Runbook("RB-04", by_findings("RB-04"), repair_findings),
    Runbook("RB-05", by_findings("RB-05"), salvage_to_new_store),
    Runbook("RB-06", by_findings("RB-06"), repair_findings),
    Runbook("RB-07", _empty_last_files, _set_empty_aside),
    Runbook("RB-09", by_findings("RB-09"), repair_findings),
    Runbook("RB-10", _vanished, _undelete),
    Runbook("RB-13", by_findings("RB-13"), salvage_to_new_store),
    Runbook("RB-20", by_findings("RB-20"), _old_rule),
)
