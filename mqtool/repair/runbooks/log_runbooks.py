"""Runbooks for the log: files in the way, torn ends, damaged bytes, missing segments, false alarms."""

from pathlib import Path

from mqtool.repair.changes import SetAside
from mqtool.repair.from_findings import changes_of
from mqtool.repair.runbooks.model import (
    Advice,
    Case,
    Detection,
    InPlaceChange,
    Made,
    NewDirectory,
    Proposal,
    Runbook,
    by_findings,
)
from mqtool.repair.runbooks.steps import explain_start
from mqtool.repair.salvage import SalvageOptions, salvage
from mqtool.verify.log.commit_log_files import may_have_record

_LINT = ("lint-size", "lint-legacy-key")


def repair_findings(case: Case, detection: Detection) -> InPlaceChange:
    """Proposes the changes that repair the findings."""
    proposal = changes_of(case.store, detection.findings)
    return InPlaceChange(proposal.changes, proposal.remaining, proposal.needs_another_run)


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
        # messages that are lost do not count: the old store has lost them too
        complete = result.starts and not result.has_unread_tables
        return Made(tuple(facts), complete, result.put_in_place)

    return NewDirectory(f"every provable record of {case.root}{copies}", make, repairs=True)


def _clear_way(case: Case, detection: Detection) -> Proposal:
    """Proposes to set aside files without a record and to rebuild queue files of a wrong length."""
    lint = [f"{finding.file}: {finding.evidence}" for finding in detection.findings if finding.code in _LINT]
    if lint:
        return Advice(("correct the configuration, not the files", *lint))
    proposal = changes_of(case.store, detection.findings)
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
    return InPlaceChange(
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


LOG_RUNBOOKS = (
    Runbook(
        "RB-01",
        "broker-will-not-start-length-mismatch",
        (
            "`… length not matched message store config value, please check it manually`, then the broker ends",
            "`java.lang.NumberFormatException: For input string: …` while loading",
            "often after kill -9, after an upgrade, or after somebody has copied a file into the store",
        ),
        "A file among segments or queue files has another length than configured, or is not a broker's file: a "
        "stray file, a segment that was preallocated and not finished, a queue file cut short, another "
        "`mappedFileSize…` than the one the files were created with.",
        "4.9 refuses to start; 5.x deletes an empty last file and refuses the others. Operators delete the file by "
        "hand, sometimes with messages in it.",
        (
            "distinguishes stray files, empty or short segments, queue files of a wrong length and wrong configuration",
            "renames segments whose records state that they belong under another name",
            "sets aside files without records, or with records that the log contains too",
            "makes short segments as long as the others, with zeros, and cuts zeros off longer ones",
            "rebuilds queue files of a wrong length from the log",
            "keeps every file with records that exist nowhere else",
        ),
        "A segment with more than zeros after the length of the others stays: `mqtool salvage` keeps its messages. "
        "If the configuration is wrong, change the configuration, not the files.",
        by_findings("RB-01"),
        _clear_way,
    ),
    Runbook(
        "RB-04",
        "torn-tail-after-power-loss",
        (
            "`found a half message at …, it will be truncated`",
            "the last message is missing or empty",
            "after a power cut or a killed virtual machine",
        ),
        "The last record was not written completely, or bytes of an earlier use of the file follow it.",
        "The broker cuts the log in memory only: the bytes stay, and a later record that ends exactly before an old "
        "one "
        "makes it part of the log again.",
        (
            "finds the true end by validating complete records",
            "cuts queues, index, checkpoint and offsets to it",
            "fills the rest with zeros, so that it stays cut",
        ),
        "What was never written completely cannot be restored. If complete records follow the damage, use RB-05.",
        by_findings("RB-04"),
        repair_findings,
    ),
    Runbook(
        "RB-05",
        "bad-bytes-in-the-middle-of-commitlog",
        (
            "`[BUG]dispatch message to consume queue error, COMMITLOG OFFSET: …`",
            "a slave repeats `found a illegal magic code 0x…` and its queues stop growing",
            "`CRC check failed. bodyCRC=…, currentCRC=…`",
            "clients cannot decode a message",
            "a compacted topic is damaged, or nothing of it is served",
        ),
        "Bytes of the log have changed since they were written: a bad sector, a page of zeros, a flipped bit.",
        "If recovery reads the damaged place, it cuts the log there and deletes every later segment, although these "
        "are intact. Otherwise consumers get the damaged bytes.",
        (
            "finds the next valid record after the damage",
            "takes missing records from copies (`--with`)",
            "copies all provable records to a new store at their old offsets, and fills the holes",
            "writes the logs of compacted topics, and takes what they lack from the CommitLog",
        ),
        "What no copy has is lost, and listed. The new store needs the space of the old one.",
        by_findings("RB-05"),
        salvage_to_new_store,
        ("-o /data/salvaged",),
    ),
    Runbook(
        "RB-13",
        "missing-or-duplicate-segment",
        (
            "a file in the middle of `commitlog/` is missing",
            "`The commitlog files are deleted, and delete the consume queue files`",
            "the same name in two directories of a multi-path log, one empty",
            "`the mappedFile queue's data is damaged, the adjacent mappedFile's offset don't match`",
        ),
        "A segment was deleted, moved or not mounted; or a second one was created under its name.",
        "The broker starts and logs nothing (4.9) or one line (5.x); consumers skip the messages.",
        (
            "lists the physical offsets that no file covers",
            "takes the segment from copies of the log (`--with`)",
            "copies everything to a new store; what no copy has becomes a hole that the broker can cross",
        ),
        "Without a copy the messages of the segment are lost, and listed by queue.",
        by_findings("RB-13"),
        salvage_to_new_store,
        ("--with /data/slave", "-o /data/salvaged"),
    ),
    Runbook(
        "RB-20",
        "false-corruption",
        (
            "valid messages are cut off or refused after an upgrade",
            "`CRC check failed` for messages that clients can read",
        ),
        "The records state CRC 0 although they have a body: some releases wrote them like that, and others treat it as "
        "damage.",
        "A release that checks cuts the log at the first such record.",
        (
            "finds records written by the old rule and distinguishes them from damage",
            "reports what the release that is to be started would do to them",
        ),
        "It changes nothing: the store is valid. Start a release that accepts such records.",
        by_findings("RB-20"),
        _old_rule,
    ),
)
