"""Codes of the CommitLog."""

from mqtool.verify.catalogue.check import NO_STEP, NOT_READ, Check, run
from mqtool.verify.findings import Area, Severity

_LOOK = "mqtool dump {store} --offset {offsets} --damage rows --format jsonl"
_EXPLAIN = "mqtool explain-start {store}"
_QUEUE = "mqtool dump {store} --topic {topic} --queue {queue_id}"
_CUT = "mqtool plan truncate {store} -o {plan}"
_RENAME = "mqtool plan rename-segments {store} --file {name} -o {plan}"


def _error(code: str, meaning: str, remedy: str, next_step: str, *runbooks: str, no_runbook: str = "") -> Check:
    return Check(code, Area.COMMIT_LOG, Severity.ERROR, meaning, remedy, next_step, runbooks, no_runbook)


def _warning(code: str, meaning: str, remedy: str, next_step: str, *runbooks: str, no_runbook: str = "") -> Check:
    return Check(code, Area.COMMIT_LOG, Severity.WARNING, meaning, remedy, next_step, runbooks, no_runbook)


def _note(code: str, meaning: str, remedy: str, next_step: str, *runbooks: str, no_runbook: str = "") -> Check:
    return Check(code, Area.COMMIT_LOG, Severity.NOTE, meaning, remedy, next_step, runbooks, no_runbook)


CHECKS = (
    _error(
        "log-missing",
        "There is no segment, though queues, index or checkpoint say that there were. At its next start the broker "
        "deletes every queue.",
        "Do not start the broker. Bring the segments back from a replica or a backup first.",
        run("RB-13"),
        "RB-13",
    ),
    _error(
        "log-not-directory",
        "A file lies in the place of the CommitLog's directory: the broker finds no message, deletes the queues and "
        "cannot store a new message.",
        "Do not start the broker. Move the file out of the store, then bring the segments back from a replica or a "
        "backup.",
        _EXPLAIN,
        "RB-13",
    ),
    _error(
        "log-segment-missing",
        "No file covers a range between two segments, or up to where queues point. The broker starts and skips the "
        "range (4.9 may hang instead).",
        "Fetch these bytes from a replica: it holds the same physical offsets.",
        run("RB-13"),
        "RB-13",
    ),
    _error(
        "log-segment-overlap",
        "Two files cover the same physical offsets, in one directory or in several.",
        "Compare them, keep the one that agrees with its neighbours, move the other out of the store.",
        run("RB-13"),
        "RB-13",
    ),
    _error(
        "log-segment-name",
        "The file's name is not the physical offset at which its records belong: somebody renamed it. The broker "
        "refuses to start, or does not find its messages.",
        "Give it the name that its records state.",
        _RENAME,
        "RB-01",
    ),
    _error(
        "log-segment-size",
        "The file's length is not the segment size: the broker refuses to start. (A warning for an empty last file "
        "of a 5.x store, which the broker deletes.)",
        "Compare with mappedFileSizeCommitLog. A short file with records needs zeros up to its length, an empty one "
        "moves out.",
        run("RB-01"),
        "RB-01",
    ),
    _warning(
        "log-segment-extra",
        "A file of zeros lies beyond the end of the log. The broker deletes it. (A note if it follows the last "
        "segment: a broker that was killed leaves such a file, one that stopped in order does not.)",
        "Nothing. If the store was said to be stopped in order, ask who removed the abort file.",
        _EXPLAIN,
        no_runbook=NO_STEP,
    ),
    _error(
        "log-stray-file",
        "Something that is no segment lies among the segments: the broker refuses to start, or takes it for a "
        "segment. (A warning or a note where it only deletes or ignores it.)",
        "Move it out of the store.",
        run("RB-01"),
        "RB-01",
    ),
    _error(
        "log-bad-body",
        "The framing is intact, but the body is not what was written: its CRC differs. The broker serves it, or "
        "cuts the log here if its recovery meets it.",
        "Fetch these bytes from a replica: it holds the same physical offsets.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-bad-record-crc",
        "The record's own CRC over all its bytes (__CRC32#) differs: some field is not what was written.",
        "Fetch these bytes from a replica: it holds the same physical offsets.",
        run("RB-05"),
        "RB-05",
    ),
    _note(
        "log-crc-zero",
        "Records state CRC 0 though they have a body. Some releases wrote them so; a newer broker that checks CRCs "
        "takes them for corrupt and cuts the log there.",
        "Start with checkCRCOnRecover=false after an upgrade.",
        run("RB-20"),
        "RB-20",
    ),
    _error(
        "log-bad-offset",
        "The record states another physical offset than the one at which it lies. The broker serves it, and "
        "dispatches it to the stated offset if its recovery meets it.",
        "Fetch these bytes from a replica: it holds the same physical offsets.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-bad-lengths",
        "The lengths inside the record do not add up to its size. The broker cuts the log here if its recovery "
        "meets it.",
        "Fetch these bytes from a replica: it holds the same physical offsets.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-bad-header",
        "No record starts where one should. The broker cuts the log here if its recovery meets it.",
        "Fetch these bytes from a replica: it holds the same physical offsets.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-zeros",
        "Zeros where records were. The broker cuts the log here if its recovery meets them, else it serves them.",
        "Fetch these bytes from a replica: it holds the same physical offsets.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-bad-blank",
        "The BLANK at the end of a segment does not cover the rest of it. No message is lost; the broker ignores "
        "the length.",
        "Write the length anew, or take the segment from a replica.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-no-blank",
        "The segment does not end in a BLANK though the log goes on. No message is lost yet, but a broker whose "
        "recovery meets this deletes all later segments (4.9 looks at the last three).",
        "Write the eight bytes of the BLANK before the broker starts, or take the segment from a replica.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-cut",
        "The file ended before its records did.",
        "Fetch these bytes from a replica: it holds the same physical offsets.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-bad-field",
        "A field of an otherwise sound record holds what no broker writes: a negative queue, a time at or before 1970.",
        "Fetch these bytes from a replica: it holds the same physical offsets. Salvage corrects what the queues prove.",
        run("RB-05"),
        "RB-05",
    ),
    _warning(
        "log-bad-time",
        "One record's store time lies apart from both its neighbours, which agree. Search by time and the start of "
        "recovery rely on it.",
        "Compare with a replica: is it this record or the clock?",
        _LOOK,
        no_runbook="The record may be right and the clock wrong: a person decides.",
    ),
    _error(
        "log-bad-compression",
        "The record says that its body is compressed, but it does not begin like compressed data.",
        "Fetch these bytes from a replica: it holds the same physical offsets. Salvage corrects what the queues prove.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-wrong-queue",
        "The record names another queue than the one whose unit points at it and whose queue offsets lack it: its "
        "topic or queue id is not what was written. Consumers get it as a foreign message; after a crash the broker "
        "queues it again under the wrong name.",
        "Fetch these bytes from a replica: it holds the same physical offsets. Salvage corrects what the queues prove.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-wrong-flags",
        "The record says that it was prepared or rolled back, but a unit of its queue points at it and has its "
        "queue offset: its flags are not what was written.",
        "Fetch these bytes from a replica: it holds the same physical offsets. Salvage corrects what the queues prove.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-wrong-offset",
        "The record's queue offset is not the one between its neighbours': it is not what was written.",
        "Fetch these bytes from a replica: it holds the same physical offsets. Salvage corrects what the queues prove.",
        run("RB-05"),
        "RB-05",
    ),
    _warning(
        "log-offset-gap",
        "The queue offsets of neighbouring records of a queue skip numbers, and there is no damage between them "
        "that would explain it. A rejected message or an earlier cut leaves such a gap, and so does a lost record.",
        "Compare with a replica. Consumers see this as skipped offsets.",
        _QUEUE,
        no_runbook="A rejected message or a cut leaves the same gap: a person decides whether a record is missing.",
    ),
    _warning(
        "log-offset-repeat",
        "Queue offsets of a queue occur again: it was cut and went on, or its topic was made anew. (A note where it "
        "begins again at 0.)",
        "Nothing, if the topic was deleted and made again; else see what was cut with a replica.",
        _QUEUE,
        no_runbook=NO_STEP,
    ),
    _warning(
        "log-torn-tail",
        "The last record was not written to its end. The broker cuts it off at its next start.",
        "Nothing, if no producer got an answer for it; lost messages are listed if a queue knows them.",
        _CUT,
        "RB-04",
    ),
    _warning(
        "log-stale-tail",
        "Behind the end of the log lie whole records of an earlier time, left by a cut. They are old, not bad; but "
        "the broker may take them for new ones when the log grows up to them.",
        "Overwrite them with zeros while the broker is stopped.",
        _CUT,
        "RB-04",
    ),
    _warning(
        "log-garbage-tail",
        "Bytes that are no record lie behind the end of the log. The broker ignores them.",
        "Nothing. Ask what wrote them.",
        _CUT,
        "RB-04",
    ),
    _error(
        "log-unreadable",
        "The system reported an error while reading.",
        "Copy what can be read to another disk, then verify the copy.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-not-listed",
        "The system does not list a directory of the CommitLog: what is in it is unknown.",
        "Verify as a user who may read it; on a failing disk copy what can be read to another disk first.",
        "mqtool verify {store}",
        no_runbook=NOT_READ,
    ),
    _warning(
        "log-unusable-message",
        "The background service of a system topic (delays, timers, transactions, POP) cannot use this message: a real "
        "broker tries it again for ever and delivers nothing after it; mqtool serve skips it. (A note if the service "
        "has passed it already.)",
        "Look at the message, then move the service's position past it, or serve the store with mqtool.",
        _LOOK,
        no_runbook="The store is right; the position of the service is to be moved past the message.",
    ),
)
