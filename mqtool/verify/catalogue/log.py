"""Codes of the CommitLog."""

from functools import partial

from mqtool.verify.catalogue.check import NO_STEP, NOT_READ, check, run
from mqtool.verify.findings import Area, Severity

_LOOK = "mqtool dump {store} --offset {offsets} --damage rows --format jsonl"
_EXPLAIN = "mqtool explain-start {store}"
_QUEUE = "mqtool dump {store} --topic {topic} --queue {queue_id}"
_CUT = "mqtool plan truncate {store} -o {plan}"
_RENAME = "mqtool plan rename-segments {store} --file {name} -o {plan}"

_error = partial(check, Area.COMMIT_LOG, Severity.ERROR)
_warning = partial(check, Area.COMMIT_LOG, Severity.WARNING)
_note = partial(check, Area.COMMIT_LOG, Severity.NOTE)
_unknown = partial(check, Area.COMMIT_LOG, Severity.UNKNOWN)

CHECKS = (
    _error(
        "log-missing",
        "There is no segment, but queues, index or checkpoint show that there were some. On its next start the "
        "broker deletes every queue.",
        "Do not start the broker. First restore the segments from a replica or a backup.",
        run("RB-13"),
        "RB-13",
    ),
    _error(
        "log-not-directory",
        "There is a file where the CommitLog's directory should be: the broker finds no message, deletes the queues "
        "and cannot store a new message.",
        "Do not start the broker. Move the file out of the store, then restore the segments from a replica or a "
        "backup.",
        _EXPLAIN,
        "RB-13",
    ),
    _error(
        "log-segment-missing",
        "No file covers a range between two segments, or up to where queues point. The broker starts and skips the "
        "range (4.9 may hang instead).",
        "Fetch these bytes from a replica: its log has the same physical offsets.",
        run("RB-13"),
        "RB-13",
    ),
    _error(
        "log-segment-overlap",
        "Two files cover the same physical offsets, in the same directory or in different ones.",
        "Compare them. Keep the file that agrees with its neighbours, and move the other out of the store.",
        run("RB-13"),
        "RB-13",
    ),
    _error(
        "log-segment-name",
        "The file's name is not the physical offset at which its records belong: somebody renamed it. The broker "
        "refuses to start, or does not find its messages.",
        "Rename it to the offset that its records state.",
        _RENAME,
        "RB-01",
    ),
    _error(
        "log-foreign-segment",
        "The segment is of another broker's log: the units that point into it were written for other records. The "
        "broker starts, and consumers get wrong bytes instead of the messages that were here.",
        "Do not start the broker. Bring the right segment back, or salvage with a copy of the log. Salvage without one "
        "keeps every other message.",
        run("RB-13"),
        "RB-13",
    ),
    _error(
        "log-segment-size",
        "The file's length is not the segment size: the broker refuses to start. (A warning for an empty last file "
        "of a 5.x store, which the broker deletes.)",
        "Compare with mappedFileSizeCommitLog. Pad a short file that has records with zeros; cut zeros off a long "
        "one; move an empty one out of the store.",
        run("RB-01"),
        "RB-01",
    ),
    _warning(
        "log-segment-extra",
        "A file of zeros is past the end of the log. The broker deletes it. (A note if it follows the last "
        "segment: a broker that was killed leaves such a file, one that shut down cleanly does not.)",
        "None. If the broker should have shut down cleanly, find out who removed the abort file.",
        _EXPLAIN,
        no_runbook=NO_STEP,
    ),
    _error(
        "log-stray-file",
        "There is something among the segments that is not a segment: the broker refuses to start, or takes it for "
        "a segment. (A warning or a note where it only deletes or ignores it.)",
        "Move it out of the store.",
        run("RB-01"),
        "RB-01",
    ),
    _error(
        "log-bad-body",
        "The framing is intact, but the body is not what was written: its CRC differs. The broker serves it, or "
        "cuts the log here if its recovery meets it.",
        "Fetch these bytes from a replica: its log has the same physical offsets.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-bad-record-crc",
        "The record's own CRC over all its bytes (__CRC32#) differs: some field is not what was written.",
        "Fetch these bytes from a replica: its log has the same physical offsets.",
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
        "The record does not state its own physical offset. The broker serves it, and "
        "dispatches it to the stated offset if its recovery meets it.",
        "Fetch these bytes from a replica: its log has the same physical offsets.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-bad-lengths",
        "The lengths inside the record do not add up to its size. The broker cuts the log here if its recovery "
        "meets it.",
        "Fetch these bytes from a replica: its log has the same physical offsets.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-bad-header",
        "No record starts where one should. The broker cuts the log here if its recovery meets it.",
        "Fetch these bytes from a replica: its log has the same physical offsets.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-displaced-block",
        "Complete records of damaged places are in other places of the same segment: blocks of the file were "
        "exchanged or moved. The broker does not serve these messages, but they are not lost.",
        "Salvage: it puts them back.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-zeros",
        "Zeros where records were. The broker cuts the log here if its recovery meets them, else it serves them.",
        "Fetch these bytes from a replica: its log has the same physical offsets.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-bad-blank",
        "The BLANK at the end of a segment does not cover the rest of it. No message is lost; the broker ignores "
        "the length.",
        "Write the correct length, or take the segment from a replica.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-no-blank",
        "The segment does not end in a BLANK though the log continues. No message is lost yet, but a broker whose "
        "recovery meets this deletes all later segments (4.9 looks at the last three).",
        "Write the eight bytes of the BLANK before the broker starts, or take the segment from a replica.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-cut",
        "The file ends in the middle of a record.",
        "Fetch these bytes from a replica: its log has the same physical offsets.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-bad-field",
        "A field of an otherwise valid record has a value that no broker writes: a negative queue, a time at or "
        "before 1970.",
        "Fetch these bytes from a replica: its log has the same physical offsets. Salvage corrects what the queues "
        "prove.",
        run("RB-05"),
        "RB-05",
    ),
    _warning(
        "log-bad-time",
        "One record's store time is far from those of both neighbours, which agree. Search by time and the start of "
        "recovery rely on it.",
        "Compare with a replica to see whether this record or the clock was wrong.",
        _LOOK,
        no_runbook="The record may be right and the clock wrong; this needs a decision.",
    ),
    _error(
        "log-bad-compression",
        "The record states that its body is compressed, but the body does not start like compressed data.",
        "Fetch these bytes from a replica: its log has the same physical offsets. Salvage corrects what the queues "
        "prove.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-wrong-queue",
        "The record names another queue than the one whose unit points at it and in whose queue offsets it is "
        "missing: its topic or queue id is not what was written. Consumers of another queue get it; after a crash "
        "the broker dispatches it to the wrong queue.",
        "Fetch these bytes from a replica: its log has the same physical offsets. Salvage corrects what the queues "
        "prove.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-wrong-flags",
        "The record states that it was prepared or rolled back, but a unit of its queue points at it and has its "
        "queue offset: its flags are not what was written.",
        "Fetch these bytes from a replica: its log has the same physical offsets. Salvage corrects what the queues "
        "prove.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "log-wrong-offset",
        "The record's queue offset is not the one between its neighbours': it is not what was written.",
        "Fetch these bytes from a replica: its log has the same physical offsets. Salvage corrects what the queues "
        "prove.",
        run("RB-05"),
        "RB-05",
    ),
    _warning(
        "log-offset-gap",
        "The queue offsets of neighbouring records of a queue skip numbers, and there is no damage between them "
        "that would explain it. A rejected message or an earlier cut leaves such a gap, and so does a lost record. (A "
        "note if a repair recorded the loss in mqtool-known-losses.json.)",
        "Compare with a replica. Consumers see this as skipped offsets.",
        _QUEUE,
        no_runbook="A rejected message or a truncation leaves the same gap; decide whether a record is missing.",
    ),
    _warning(
        "log-offset-repeat",
        "Queue offsets of a queue are repeated: it was truncated and continued, or its topic was deleted and created "
        "again. (A note if it starts again at 0.)",
        "None if the topic was deleted and created again; otherwise compare with a replica to see what was cut.",
        _QUEUE,
        no_runbook=NO_STEP,
    ),
    _warning(
        "log-torn-tail",
        "The last record is incomplete. The broker cuts it off at its next start.",
        "None if no producer got an acknowledgement for it; lost messages are listed if a queue has units for them.",
        _CUT,
        "RB-04",
    ),
    _warning(
        "log-stale-tail",
        "After the end of the log there are complete old records, left by a truncation. They are not damaged, but the "
        "broker may take them for new records when the log reaches them.",
        "Overwrite them with zeros while the broker is stopped.",
        _CUT,
        "RB-04",
    ),
    _warning(
        "log-garbage-tail",
        "After the end of the log there are bytes that are not a record. The broker ignores them.",
        "None. Find out which program wrote them.",
        _CUT,
        "RB-04",
    ),
    _unknown(
        "log-unreadable",
        "The system reported an error while reading.",
        "Copy what can be read to another disk, then verify the copy.",
        run("RB-05"),
        "RB-05",
    ),
    _unknown(
        "permission-denied",
        "This user may not read a file or directory, of whatever part of the store: its contents are unknown, and "
        "nothing is wrong with it.",
        "Verify as its owner, or as root.",
        "sudo -u {owner} mqtool verify {store}",
        no_runbook=NOT_READ,
    ),
    _unknown(
        "log-not-listed",
        "A directory of the CommitLog cannot be listed: its contents are unknown.",
        "Verify as a user who may read it; on a failing disk copy what can be read to another disk first.",
        "mqtool verify {store}",
        no_runbook=NOT_READ,
    ),
    _warning(
        "log-unusable-message",
        "The background service of a system topic (delays, timers, transactions, POP) cannot use this message: a "
        "real broker retries it forever and delivers nothing after it; mqtool serve skips it. (A note if the "
        "service has passed it already.)",
        "Inspect the message, then move the service's position past it, or serve the store with mqtool.",
        _LOOK,
        no_runbook="The store is valid; move the position of the service past the message.",
    ),
)
