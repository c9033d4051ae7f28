"""Runbooks for everything derived from the log: queues, index, tables, topics."""

from mqtool.repair.changes import SetAside, Undelete
from mqtool.repair.runbooks.log_runbooks import repair_findings
from mqtool.repair.runbooks.model import Case, Detection, InPlaceChange, Runbook, by_findings, codes_of

_NO_UNIT = "no unit in it: "


def _empty_last_files(case: Case) -> Detection:
    """Finds queues whose last file has no unit."""
    names = {
        queue.files[-1].path.relative_to(case.root).as_posix()
        for queue in case.store.disk_queues()
        if queue.files and not len(queue.units_of(len(queue.files) - 1))
    }
    names.update(finding.file for finding in case.findings(codes_of("RB-07")))
    return Detection(bool(names), tuple(f"{_NO_UNIT}{name}" for name in sorted(names)))


def _set_empty_aside(_case: Case, detection: Detection) -> InPlaceChange:
    return InPlaceChange((SetAside(tuple(fact.removeprefix(_NO_UNIT) for fact in detection.evidence)),))


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


def _undelete(_case: Case, detection: Detection) -> InPlaceChange:
    return InPlaceChange(
        (Undelete(tuple(sorted({finding.topic for finding in detection.findings if finding.topic is not None}))),)
    )


DERIVED_RUNBOOKS = (
    Runbook(
        "RB-02",
        "logic-queue-order-maybe-wrong",
        (
            "`[BUG]logic queue order maybe wrong, expectLogicOffset: … currentLogicOffset: … Diff: …`, again and again",
            "consumers get messages twice, of another queue, or miss some",
        ),
        "Units of a queue are not at the queue offsets of their messages: there is a hole, a duplicate or a shifted "
        "end. The broker logs that line and appends anyway, so every later message is shifted too.",
        "Operators delete all queues and start the broker, which takes hours for a large log; with an abort file it "
        "rebuilds only the part that recovery scans.",
        (
            "shows the first bad unit of each queue",
            "rebuilds only these queues, each message at its own queue offset",
        ),
        "Messages whose records are lost leave holes; consumers skip them.",
        by_findings("RB-02"),
        repair_findings,
    ),
    Runbook(
        "RB-03",
        "consumequeue-lost-or-deleted",
        (
            "consumers see nothing though messages were sent",
            "the max offset of a queue is 0 or an old one",
            "directories below `consumequeue/` are missing",
        ),
        "Queue files were deleted or lost. The broker dispatches again only from the largest end of any queue, so "
        "one complete queue prevents the others from being rebuilt.",
        "Operators delete the other queues too and start the broker. After a clean shutdown it rebuilds all of them; "
        "after a crash only the part that recovery scans.",
        (
            "sets aside a file that is in the place of the directory `consumequeue`; then run it again",
            "rebuilds the queues that are missing or end too early",
            "keeps queue offsets, so consumers continue where they were",
        ),
        "Messages that retention has deleted from the log are not restored.",
        by_findings("RB-03"),
        repair_findings,
    ),
    Runbook(
        "RB-06",
        "index-lost-corrupt-or-silent",
        (
            "a query by key or unique key finds nothing for old messages after an unclean restart",
            "new messages are not found by key, and there is no error",
            "a query never ends",
            "`load file …/index/… error java.lang.NumberFormatException` or `Failed to create file …/index/…`",
        ),
        "Index files are missing, cut or inconsistent; after an unclean shutdown the broker deletes the newest ones "
        "while loading. An index whose end is past the end of the log silently accepts no new message.",
        "Nothing: the broker does not rebuild them on startup.",
        ("checks headers, slots, chains, addresses and times", "rebuilds the index from the log"),
        "Keys of messages that retention has deleted are lost.",
        by_findings("RB-06"),
        repair_findings,
    ),
    Runbook(
        "RB-07",
        "start-fails-in-correctMinOffset",
        ("`load exception java.lang.IllegalArgumentException` in `ConsumeQueue.correctMinOffset`",),
        "The last file of a queue contains no unit, and the broker reads the unit before its first one.",
        "Operators delete the empty file; newer releases handle it.",
        (
            "finds the last files without a unit, of all queues",
            "sets them aside; the broker makes them when it needs them",
        ),
        "If units are missing before the empty file, use RB-03.",
        _empty_last_files,
        _set_empty_aside,
    ),
    Runbook(
        "RB-09",
        "config-json-corrupted-after-power-loss",
        (
            "`delayOffset.json`, `consumerOffset.json` or `topics.json` cannot be read",
            "`load …/config/… failed, and try to load backup file`",
            "the broker ends while loading",
            "`checkpoint` is missing, too short, or contains impossible times",
            "consumers begin again at the first or last message",
        ),
        "A table or the checkpoint was being written when the power failed; a table's `.bak` may be torn too.",
        "With an intact `.bak` the broker loads it. Without one it starts with an empty table, or exits and "
        "overwrites the old one with an empty table.",
        (
            "reads each table and its `.bak`",
            "keeps what can be read, and completes it from the log and the queues",
            "makes a new checkpoint from the log and the index",
            "lists every value that is a guess",
        ),
        "Consumer offsets that no file contains are unknown: those groups start where their configuration says.",
        by_findings("RB-09"),
        repair_findings,
    ),
    Runbook(
        "RB-10",
        "topic-vanished-or-deleted-by-mistake",
        ("`CODE: 17 DESC: topic[…] not exist`", "queue directories and the entry in `topics.json` are missing"),
        "The topic was deleted, by mistake or by a broker that had lost its tables; its messages are still in the log.",
        "The topic is created again, empty: its messages remain unreachable, and new ones start at queue offset 0.",
        (
            "lists topics that are in the log but not in the configuration",
            "restores all of them, or those of `--topic`: configuration, and queues with their old offsets",
        ),
        "Permissions and attributes of the topic are guesses; they are listed.",
        _vanished,
        _undelete,
    ),
)
