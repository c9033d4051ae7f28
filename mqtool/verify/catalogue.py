"""Every finding code of `verify`: its meaning and remedy. Codes are stable: they are never renamed or reused.

docs/checks.md is generated from here, `mqtool help checks` prints it.
"""

from functools import partial

from msgspec import Struct

from mqtool.verify.findings import Area, Severity


class Check(Struct, frozen=True):
    """One finding code."""

    code: str  # stable name
    area: Area  # which check reports it
    severity: Severity  # the default; `meaning` states when the check reports another one
    meaning: str  # what is wrong, and how the broker reacts to it
    remedy: str  # what to do, as text
    # The command to run; `FindingCollector` fills in `{store}`, `{path}`, `{name}`, `{topic}`, `{queue_id}`, `{group}`,
    # `{offsets}`, `{plan}` and `{words}`.
    next_step: str
    runbooks: tuple[str, ...] = ()  # ids of its runbooks, most likely first
    no_runbook: str = ""  # if there is none, the reason


def _check(
    area: Area,
    severity: Severity,
    code: str,
    meaning: str,
    remedy: str,
    *runbooks: str,
    next_step: str | None = None,
    no_runbook: str = "",
) -> Check:
    """Returns an entry; each area binds the first two arguments.

    The next step is by default to run the first runbook without changing anything (dry run).
    """
    if next_step is None:
        next_step = f"mqtool runbook run {runbooks[0]} {{store}}"
    return Check(code, area, severity, meaning, remedy, next_step, runbooks, no_runbook)


NOT_READ = "Nothing is known to be wrong: `verify` could not read it."
NO_STEP = "No action is needed."
CONFIGURATION = "Correct the configuration, not the store."
REPLICA = "Only a replica has it; no other file of the store does."

_LOOK = "mqtool dump {store} --offset {offsets} --damage rows --format jsonl"
_EXPLAIN = "mqtool explain-start {store}"
_QUEUE = "mqtool dump {store} --topic {topic} --queue {queue_id}"
_CUT = "mqtool plan truncate {store} -o {plan}"
_RENAME = "mqtool plan rename-segments {store} --file {name} -o {plan}"
_REBUILD_QUEUE = "mqtool plan rebuild consumequeue {store} --topic {topic} --queue {queue_id} -o {plan}"
_AWAY = "mqtool plan set-aside {store} --file {name} -o {plan}"
_TOPIC = "mqtool dump {store} --topic {topic}"
_REBUILD_INDEX = "mqtool plan rebuild index {store} -o {plan}"
_METADATA = "mqtool plan rebuild metadata {store} --file checkpoint -o {plan}"
_INFO = "mqtool info {store}"
_POSITION = "mqtool offsets {store} --group {group} --topic {topic}"
_CLAMP = "mqtool plan offsets {store} --group {group} --topic {topic} --queue {queue_id} --clamp -o {plan}"
_DELAYS = "mqtool plan rebuild metadata {store} --file config/delayOffset.json -o {plan}"
_ENTRIES = "mqtool dump {path} --kind dledger-entry"
_SALVAGE = (
    "Salvage the store: the new one has every valid record of the compacted log, and from the CommitLog what that log "
    "lacks. Do not remove the directory below compaction/: a broker never fills it again from its own log."
)
_REBUILD_TIMER = "mqtool plan rebuild timer {store} -o {plan}"
_DUMP = "mqtool dump {path}"


_log_error = partial(_check, Area.COMMIT_LOG, Severity.ERROR)
_log_warning = partial(_check, Area.COMMIT_LOG, Severity.WARNING)
_log_note = partial(_check, Area.COMMIT_LOG, Severity.NOTE)
_log_unknown = partial(_check, Area.COMMIT_LOG, Severity.UNKNOWN)

_LOG = (
    _log_error(
        "log-missing",
        "There is no segment, but queues, index or checkpoint show that there were some. On its next start the "
        "broker deletes every queue.",
        "Do not start the broker. First restore the segments from a replica or a backup.",
        "RB-13",
    ),
    _log_error(
        "log-not-directory",
        "There is a file where the CommitLog's directory should be: the broker finds no message, deletes the queues "
        "and cannot store a new message.",
        "Do not start the broker. Move the file out of the store, then restore the segments from a replica or a "
        "backup.",
        "RB-13",
        next_step=_EXPLAIN,
    ),
    _log_error(
        "log-segment-missing",
        "No file covers a range between two segments, or up to where queues point. The broker starts and skips the "
        "range (4.9 may hang instead).",
        "Fetch these bytes from a replica: its log has the same physical offsets.",
        "RB-13",
    ),
    _log_error(
        "log-segment-overlap",
        "Two files cover the same physical offsets, in the same directory or in different ones.",
        "Compare them. Keep the file that agrees with its neighbours, and move the other out of the store.",
        "RB-13",
    ),
    _log_error(
        "log-segment-name",
        "The file's name is not the physical offset at which its records belong: somebody renamed it. The broker "
        "refuses to start, or does not find its messages.",
        "Rename it to the offset that its records state.",
        "RB-01",
        next_step=_RENAME,
    ),
    _log_error(
        "log-foreign-segment",
        "The segment is of another broker's log: the units that point into it were written for other records. The "
        "broker starts, and consumers get wrong bytes instead of the messages that were here.",
        "Do not start the broker. Bring the right segment back, or salvage with a copy of the log. Salvage without one "
        "keeps every other message.",
        "RB-13",
    ),
    _log_error(
        "log-segment-size",
        "The file's length is not the segment size: the broker refuses to start. (A warning for an empty last file "
        "of a 5.x store, which the broker deletes.)",
        "Compare with mappedFileSizeCommitLog. Pad a short file that has records with zeros; cut zeros off a long "
        "one; move an empty one out of the store.",
        "RB-01",
    ),
    _log_warning(
        "log-segment-extra",
        "A file of zeros is past the end of the log. The broker deletes it. (A note if it follows the last "
        "segment: a broker that was killed leaves such a file, one that shut down cleanly does not.)",
        "None. If the broker should have shut down cleanly, find out who removed the abort file.",
        next_step=_EXPLAIN,
        no_runbook=NO_STEP,
    ),
    _log_error(
        "log-stray-file",
        "There is something among the segments that is not a segment: the broker refuses to start, or takes it for "
        "a segment. (A warning or a note where it only deletes or ignores it.)",
        "Move it out of the store.",
        "RB-01",
    ),
    _log_error(
        "log-bad-body",
        "The framing is intact, but the body is not what was written: its CRC differs. The broker serves it, or "
        "cuts the log here if its recovery meets it.",
        "Fetch these bytes from a replica: its log has the same physical offsets.",
        "RB-05",
    ),
    _log_error(
        "log-bad-record-crc",
        "The record's own CRC over all its bytes (__CRC32#) differs: some field is not what was written.",
        "Fetch these bytes from a replica: its log has the same physical offsets.",
        "RB-05",
    ),
    _log_note(
        "log-crc-zero",
        "Records state CRC 0 though they have a body. Some releases wrote them so; a newer broker that checks CRCs "
        "takes them for corrupt and cuts the log there.",
        "Start with checkCRCOnRecover=false after an upgrade.",
        "RB-20",
    ),
    _log_error(
        "log-bad-offset",
        "The record does not state its own physical offset. The broker serves it, and "
        "dispatches it to the stated offset if its recovery meets it.",
        "Fetch these bytes from a replica: its log has the same physical offsets.",
        "RB-05",
    ),
    _log_error(
        "log-bad-lengths",
        "The lengths inside the record do not add up to its size. The broker cuts the log here if its recovery "
        "meets it.",
        "Fetch these bytes from a replica: its log has the same physical offsets.",
        "RB-05",
    ),
    _log_error(
        "log-bad-header",
        "No record starts where one should. The broker cuts the log here if its recovery meets it.",
        "Fetch these bytes from a replica: its log has the same physical offsets.",
        "RB-05",
    ),
    _log_error(
        "log-displaced-block",
        "Complete records of damaged places are in other places of the same segment: blocks of the file were "
        "exchanged or moved. The broker does not serve these messages, but they are not lost.",
        "Salvage: it puts them back.",
        "RB-05",
    ),
    _log_error(
        "log-zeros",
        "Zeros where records were. The broker cuts the log here if its recovery meets them, else it serves them.",
        "Fetch these bytes from a replica: its log has the same physical offsets.",
        "RB-05",
    ),
    _log_error(
        "log-bad-blank",
        "The BLANK at the end of a segment does not cover the rest of it. No message is lost; the broker ignores "
        "the length.",
        "Write the correct length, or take the segment from a replica.",
        "RB-05",
    ),
    _log_error(
        "log-no-blank",
        "The segment does not end in a BLANK though the log continues. No message is lost yet, but a broker whose "
        "recovery meets this deletes all later segments (4.9 looks at the last three).",
        "Write the eight bytes of the BLANK before the broker starts, or take the segment from a replica.",
        "RB-05",
    ),
    _log_error(
        "log-cut",
        "The file ends in the middle of a record.",
        "Fetch these bytes from a replica: its log has the same physical offsets.",
        "RB-05",
    ),
    _log_error(
        "log-bad-field",
        "A field of an otherwise valid record has a value that no broker writes: a negative queue, a time at or "
        "before 1970.",
        "Fetch these bytes from a replica: its log has the same physical offsets. Salvage corrects what the queues "
        "prove.",
        "RB-05",
    ),
    _log_warning(
        "log-bad-time",
        "One record's store time is far from those of both neighbours, which agree. Search by time and the start of "
        "recovery rely on it.",
        "Compare with a replica to see whether this record or the clock was wrong.",
        next_step=_LOOK,
        no_runbook="The record may be right and the clock wrong; this needs a decision.",
    ),
    _log_error(
        "log-bad-compression",
        "The record states that its body is compressed, but the body does not start like compressed data.",
        "Fetch these bytes from a replica: its log has the same physical offsets. Salvage corrects what the queues "
        "prove.",
        "RB-05",
    ),
    _log_error(
        "log-wrong-queue",
        "The record names another queue than the one whose unit points at it and in whose queue offsets it is "
        "missing: its topic or queue id is not what was written. Consumers of another queue get it; after a crash "
        "the broker dispatches it to the wrong queue.",
        "Fetch these bytes from a replica: its log has the same physical offsets. Salvage corrects what the queues "
        "prove.",
        "RB-05",
    ),
    _log_error(
        "log-wrong-flags",
        "The record states that it was prepared or rolled back, but a unit of its queue points at it and has its "
        "queue offset: its flags are not what was written.",
        "Fetch these bytes from a replica: its log has the same physical offsets. Salvage corrects what the queues "
        "prove.",
        "RB-05",
    ),
    _log_error(
        "log-wrong-offset",
        "The record's queue offset is not the one between its neighbours': it is not what was written.",
        "Fetch these bytes from a replica: its log has the same physical offsets. Salvage corrects what the queues "
        "prove.",
        "RB-05",
    ),
    _log_warning(
        "log-offset-gap",
        "The queue offsets of neighbouring records of a queue skip numbers, and there is no damage between them "
        "that would explain it. A rejected message or an earlier cut leaves such a gap, and so does a lost record. (A "
        "note if a repair recorded the loss in mqtool-known-losses.json.)",
        "Compare with a replica. Consumers see this as skipped offsets.",
        next_step=_QUEUE,
        no_runbook="A rejected message or a truncation leaves the same gap; decide whether a record is missing.",
    ),
    _log_warning(
        "log-offset-repeat",
        "Queue offsets of a queue are repeated: it was truncated and continued, or its topic was deleted and created "
        "again. (A note if it starts again at 0.)",
        "None if the topic was deleted and created again; otherwise compare with a replica to see what was cut.",
        next_step=_QUEUE,
        no_runbook=NO_STEP,
    ),
    _log_warning(
        "log-torn-tail",
        "The last record is incomplete. The broker cuts it off at its next start.",
        "None if no producer got an acknowledgement for it; lost messages are listed if a queue has units for them.",
        "RB-04",
        next_step=_CUT,
    ),
    _log_warning(
        "log-stale-tail",
        "After the end of the log there are complete old records, left by a truncation. They are not damaged, but the "
        "broker may take them for new records when the log reaches them.",
        "Overwrite them with zeros while the broker is stopped.",
        "RB-04",
        next_step=_CUT,
    ),
    _log_warning(
        "log-garbage-tail",
        "After the end of the log there are bytes that are not a record. The broker ignores them.",
        "None. Find out which program wrote them.",
        "RB-04",
        next_step=_CUT,
    ),
    _log_unknown(
        "log-unreadable",
        "The system reported an error while reading.",
        "Copy what can be read to another disk, then verify the copy.",
        "RB-05",
    ),
    _log_unknown(
        "permission-denied",
        "This user may not read a file or directory, of whatever part of the store: its contents are "
        "unknown, and nothing is known to be wrong with it.",
        "Verify as root, who may read everything.",
        next_step="sudo mqtool verify {store}",
        no_runbook=NOT_READ,
    ),
    _log_unknown(
        "owner-denied",
        "The owner of the store, as whom the broker runs, may not read and write a file or directory, of whatever part "
        "of the store. Only root sees this, by owner, group and mode.",
        "Give the store to its owner, or its owner the permission; then verify again.",
        next_step="{words}",
        no_runbook="No file is damaged: change its owner or mode.",
    ),
    _log_unknown(
        "log-not-listed",
        "A directory of the CommitLog cannot be listed: its contents are unknown.",
        "Verify as a user who may read it; on a failing disk copy what can be read to another disk first.",
        next_step="mqtool verify {store}",
        no_runbook=NOT_READ,
    ),
    _log_warning(
        "log-unusable-message",
        "The background service of a system topic (delays, timers, transactions, POP) cannot use this message: a "
        "real broker retries it forever and delivers nothing after it; mqtool serve skips it. (A note if the "
        "service has passed it already.)",
        "Inspect the message, then move the service's position past it, or serve the store with mqtool.",
        next_step=_LOOK,
        no_runbook="The store is valid; move the position of the service past the message.",
    ),
)

_queues_error = partial(_check, Area.CONSUME_QUEUE, Severity.ERROR)
_queues_warning = partial(_check, Area.CONSUME_QUEUE, Severity.WARNING)
_queues_note = partial(_check, Area.CONSUME_QUEUE, Severity.NOTE)
_queues_unknown = partial(_check, Area.CONSUME_QUEUE, Severity.UNKNOWN)

_QUEUES = (
    _queues_error(
        "queue-missing",
        "The CommitLog contains messages of a queue that has no files. Consumers do not see them, and a start after a "
        "clean shutdown does not restore them. (A warning if all queues are missing and the broker was shut down "
        "cleanly: then the broker builds all of them.)",
        "The CommitLog still has the messages: rebuild the queue.",
        "RB-03",
        next_step=_REBUILD_QUEUE,
    ),
    _queues_error(
        "queue-missing-units",
        "Messages at the end of a queue have no unit: consumers do not get them, and their queue offsets are "
        "assigned again. (A warning where the broker's next start writes them.)",
        "The CommitLog still has the messages: rebuild the queue.",
        "RB-03",
        next_step=_REBUILD_QUEUE,
    ),
    _queues_error(
        "queue-hole",
        "Units inside a queue are zeros. The broker's recovery ends the queue here and deletes what follows, if it "
        "looks at this file. (A warning where the broker's next start writes them.)",
        "The CommitLog still has the messages: rebuild the queue.",
        "RB-02",
        next_step=_REBUILD_QUEUE,
    ),
    _queues_error(
        "queue-file-missing",
        "A file of the queue is missing: consumers skip its messages. (A warning where the broker's next start "
        "writes them.)",
        "The CommitLog still has the messages: rebuild the queue.",
        "RB-03",
        next_step=_REBUILD_QUEUE,
    ),
    _queues_error(
        "queue-file-size",
        "The file's length is not that of queue files: the broker refuses to start. (A warning for an empty last "
        "file of a 5.x store, which the broker deletes.)",
        "Compare with mappedFileSizeConsumeQueue; rebuild the queue if the configuration is right.",
        "RB-01",
        next_step=_REBUILD_QUEUE,
    ),
    _queues_warning(
        "queue-file-extra",
        "A file without units follows one that is not full. The broker deletes it, or, after its log was cut, takes "
        "a unit of zeros from it.",
        "Move it out of the store while the broker is stopped.",
        "RB-07",
        next_step=_AWAY,
    ),
    _queues_error(
        "queue-stray-file",
        "There is something among the queue files that is not a queue file: the broker refuses to start. (A note "
        "where it ignores it.)",
        "Move it out of the store.",
        "RB-01",
    ),
    _queues_error(
        "queue-bad-unit",
        "A unit has an impossible value: a negative or impossible address or size. The broker's recovery ends the "
        "queue here, if it looks at this file. (A warning where the broker's next start writes them.)",
        "The CommitLog still has the messages: rebuild the queue.",
        "RB-02",
        next_step=_REBUILD_QUEUE,
    ),
    _queues_error(
        "queue-dangling-unit",
        "A unit points into the CommitLog where no record starts.",
        "The CommitLog still has the messages: rebuild the queue.",
        "RB-02",
        next_step=_REBUILD_QUEUE,
    ),
    _queues_error(
        "queue-foreign-unit",
        "A unit points at a record of another queue: consumers get a message of another queue.",
        "The CommitLog still has the messages: rebuild the queue.",
        "RB-02",
        next_step=_REBUILD_QUEUE,
    ),
    _queues_error(
        "queue-shifted-unit",
        "A unit points at a record of this queue that states another queue offset: the units of the queue are shifted.",
        "The CommitLog still has the messages: rebuild the queue.",
        "RB-02",
        next_step=_REBUILD_QUEUE,
    ),
    _queues_error(
        "queue-wrong-size",
        "The size in a unit is not that of its record.",
        "The CommitLog still has the messages: rebuild the queue.",
        "RB-02",
        next_step=_REBUILD_QUEUE,
    ),
    _queues_error(
        "queue-wrong-tags",
        "A unit's tags code is not that of its record's tags: consumers that filter miss it or get it wrongly.",
        "The CommitLog still has the messages: rebuild the queue.",
        "RB-02",
        next_step=_REBUILD_QUEUE,
    ),
    _queues_note(
        "queue-other-delay",
        "A unit of SCHEDULE_TOPIC_XXXX is due after a different delay than most others of its level. No file of a "
        "store contains the delays: the broker's messageDelayLevel was changed, or the unit is wrong. The check is "
        "`unknown`.",
        "Give the broker's configuration with --config.",
        next_step=_TOPIC,
        no_runbook=CONFIGURATION,
    ),
    _queues_error(
        "queue-transaction-unit",
        "A unit points at a prepared or rolled-back record, which belongs in no queue: consumers get it.",
        "Compare the record with a replica: its flags may be damaged.",
        "RB-05",
    ),
    _queues_error(
        "queue-duplicate-unit",
        "Two units point at the same record: consumers get it twice.",
        "The CommitLog still has the messages: rebuild the queue.",
        "RB-02",
        next_step=_REBUILD_QUEUE,
    ),
    _queues_note(
        "queue-filled-hole",
        "The messages of some queue offsets are lost, and a rebuild or a salvage has put the unit of the next "
        "remaining message in their place: consumers skip them, and one that does not select by tags may get that "
        "message again.",
        "None, unless another copy of the log still has the messages: then salvage both copies together.",
        next_step="",
        no_runbook=NO_STEP,
    ),
    _queues_error(
        "queue-wrong-batch",
        "A unit of a batch queue states another first offset, batch size or time than its record.",
        "The CommitLog still has the messages: rebuild the queue.",
        "RB-02",
        next_step=_REBUILD_QUEUE,
    ),
    _queues_error(
        "queue-ahead-of-log",
        "Units point at or beyond the end of the CommitLog: messages were dispatched that the log no longer has. "
        "The broker cuts the units at its next start; the messages are lost.",
        "Fetch the end of the log from a replica before the broker starts.",
        "RB-13",
    ),
    _queues_error(
        "queue-not-directory",
        "There is a file where the directory of all queues should be: the broker starts, finds no queue and cannot "
        "create one. Consumers get nothing, though the messages are in the CommitLog.",
        "Move it out of the store, then rebuild the queues.",
        "RB-03",
        next_step=_AWAY,
    ),
    _queues_unknown(
        "queue-unreadable",
        "The system reported an error while reading.",
        "Rebuild the queue.",
        "RB-02",
        next_step=_REBUILD_QUEUE,
    ),
    _queues_unknown(
        "queue-not-listed",
        "A directory of the ConsumeQueues cannot be listed: its contents are unknown.",
        "Verify as a user who may read it; on a failing disk copy what can be read to another disk first.",
        next_step="mqtool verify {store}",
        no_runbook=NOT_READ,
    ),
    _queues_note(
        "topic-only-in-log",
        "The CommitLog contains messages of a topic that is in neither the configuration nor the queues. The topic "
        "was deleted, or its configuration is lost.",
        "None if it was deleted on purpose.",
        "RB-10",
        next_step=_TOPIC,
    ),
)


def _rocksdb_error(code: str, meaning: str, remedy: str) -> Check:
    return _queues_error(code, meaning, remedy, "RB-19")


_ROCKSDB = (
    _rocksdb_error(
        "rocksdb-unreadable",
        "The RocksDB of the queues is damaged, or contains keys that are not queues.",
        "Rebuild the queues from the log: `mqtool rebuild consumequeue`.",
    ),
    _check(
        Area.CONSUME_QUEUE,
        Severity.UNKNOWN,
        "rocksdb-not-read",
        "The system does not let the RocksDB of the queues be read: its contents are unknown.",
        "Verify as a user who may read it; on a failing disk copy what can be read to another disk first.",
        next_step="mqtool verify {store}",
        no_runbook=NOT_READ,
    ),
    _rocksdb_error(
        "rocksdb-missing-unit",
        "A record has no unit in its queue in RocksDB: consumers do not see it. (A warning after a crash, because the "
        "next start dispatches from the position in the database.)",
        "Rebuild the queues from the log: `mqtool rebuild consumequeue`.",
    ),
    _rocksdb_error(
        "rocksdb-wrong-unit",
        "A unit in RocksDB contradicts its record.",
        "Rebuild the queues from the log: `mqtool rebuild consumequeue`.",
    ),
    _rocksdb_error(
        "rocksdb-extra-unit",
        "A queue in RocksDB has units without a record.",
        "Rebuild the queues from the log: `mqtool rebuild consumequeue`.",
    ),
    _rocksdb_error(
        "rocksdb-bound",
        "The stored end of a queue in RocksDB is not the real one, or the dispatch position is after the end of the "
        "log.",
        "Rebuild the queues from the log: `mqtool rebuild consumequeue`.",
    ),
    _queues_note(
        "rocksdb-leftover",
        "A queue in RocksDB has units after its stored end. A broker that cut the log on its start leaves them until "
        "new messages replace them; consumers do not get them.",
        "None.",
        next_step="",
        no_runbook=NO_STEP,
    ),
)

_extension_error = partial(_check, Area.CONSUME_QUEUE_EXT, Severity.ERROR)

_EXTENSION = (
    _extension_error(
        "ext-file-size",
        "The file's length is not that of extension files: the broker refuses to start.",
        "Compare with mappedFileSizeConsumeQueueExt.",
        "RB-01",
        next_step=_REBUILD_QUEUE,
    ),
    _extension_error(
        "ext-bad-unit",
        "A unit of the extension is malformed; the rest of its file cannot be read.",
        "The CommitLog still has the messages: rebuild the queue.",
        "RB-02",
        next_step=_REBUILD_QUEUE,
    ),
    _extension_error(
        "ext-dangling-address",
        "A unit of the queue states an address at which the extension has no unit: consumers that filter by "
        "property get nothing for it.",
        "The CommitLog still has the messages: rebuild the queue.",
        "RB-02",
        next_step=_REBUILD_QUEUE,
    ),
    _extension_error(
        "ext-wrong-unit",
        "A unit of the extension states another time than its record: consumers that filter by property use its bit "
        "map when they should not, or ignore it when they should use it.",
        "The CommitLog still has the messages: rebuild the queue.",
        "RB-02",
        next_step=_REBUILD_QUEUE,
    ),
    _extension_error(
        "ext-missing-bits",
        "Bits are missing in a unit's bit map for a consumer group whose filter the message passes: the group does "
        "not get the message.",
        "The CommitLog still has the messages: rebuild the queue.",
        "RB-02",
        next_step=_REBUILD_QUEUE,
    ),
)

_index_error = partial(_check, Area.INDEX, Severity.ERROR)
_index_warning = partial(_check, Area.INDEX, Severity.WARNING)
_index_unknown = partial(_check, Area.INDEX, Severity.UNKNOWN)

_INDEX = (
    _index_error(
        "index-missing",
        "There is no index file, but the checkpoint or the configuration shows that one existed. The broker does "
        "not build one for existing messages.",
        "Rebuild the index.",
        "RB-06",
        next_step=_REBUILD_INDEX,
    ),
    _index_error(
        "index-file-size",
        "The file is shorter or longer than its slots and entries. The broker lengthens it and misreads it.",
        "Rebuild the index.",
        "RB-06",
        next_step=_REBUILD_INDEX,
    ),
    _index_error(
        "index-header",
        "The header contradicts the file: counts beyond its capacity, ranges that are not its entries'.",
        "Rebuild the index.",
        "RB-06",
        next_step=_REBUILD_INDEX,
    ),
    _index_error(
        "index-slot",
        "A slot does not lead to the newest of its entries: lookups miss the entries after it.",
        "Rebuild the index.",
        "RB-06",
        next_step=_REBUILD_INDEX,
    ),
    _index_error(
        "index-chain",
        "An entry names another predecessor than the one before it in its slot: chains end early, or run in a circle.",
        "Rebuild the index.",
        "RB-06",
        next_step=_REBUILD_INDEX,
    ),
    _index_error(
        "index-dangling-entry",
        "An entry points into the CommitLog where no record starts.",
        "Rebuild the index.",
        "RB-06",
        next_step=_REBUILD_INDEX,
    ),
    _index_error(
        "index-foreign-entry",
        "An entry points at a record that has no such key.",
        "Rebuild the index.",
        "RB-06",
        next_step=_REBUILD_INDEX,
    ),
    _index_error(
        "index-wrong-time",
        "An entry's time is not its record's: lookups in a time range miss it.",
        "Rebuild the index.",
        "RB-06",
        next_step=_REBUILD_INDEX,
    ),
    _index_error(
        "index-missing-entry",
        "Keys of messages have no entry: lookups do not find them. Causes: a lost index file, a crash (the broker "
        "deletes the last file and indexes again only the records that it scans), or damage.",
        "Rebuild the index.",
        "RB-06",
        next_step=_REBUILD_INDEX,
    ),
    _index_warning(
        "index-ahead-of-log",
        "The index ends beyond the end of the CommitLog: the broker will not index new messages until the log has "
        "grown up to there.",
        "Move the last index file out of the store before the broker starts, and rebuild it.",
        "RB-06",
        next_step=_REBUILD_INDEX,
    ),
    _index_warning(
        "index-stray-file",
        "index/ contains something that is not an index file. (An error where the broker refuses to start or drops "
        "the whole index; a note where it ignores it.)",
        "Move it out of the store.",
        "RB-06",
    ),
    _index_error(
        "index-order",
        "The names of two index files do not follow the order of their entries: they were swapped, or the clock was "
        "set back. The broker ends a query too early, and appends to the wrong file.",
        "Rebuild the index.",
        "RB-06",
        next_step=_REBUILD_INDEX,
    ),
    _index_error(
        "index-not-directory",
        "There is a file where the directory of index files should be: the broker starts, but finds no message by key.",
        "Move it out of the store, then rebuild the index.",
        "RB-06",
        next_step="mqtool plan set-aside {store} --file {name} -o {plan}",
    ),
    _index_unknown(
        "index-unreadable",
        "The system reported an error while reading.",
        "Rebuild the index.",
        "RB-06",
        next_step=_REBUILD_INDEX,
    ),
    _index_unknown(
        "index-not-listed",
        "A directory of index files cannot be listed: its contents are unknown.",
        "Verify as a user who may read it; on a failing disk copy what can be read to another disk first.",
        next_step="mqtool verify {store}",
        no_runbook=NOT_READ,
    ),
)

_checkpoint_error = partial(_check, Area.CHECKPOINT, Severity.ERROR)
_checkpoint_warning = partial(_check, Area.CHECKPOINT, Severity.WARNING)
_checkpoint_unknown = partial(_check, Area.CHECKPOINT, Severity.UNKNOWN)

_CHECKPOINT = (
    _checkpoint_warning(
        "checkpoint-missing",
        "There is no checkpoint. The broker starts; after a crash it deletes every index file and scans the entire "
        "log.",
        "None after a clean shutdown; otherwise rebuild it first.",
        "RB-09",
        next_step=_METADATA,
    ),
    _checkpoint_warning(
        "checkpoint-size",
        "The checkpoint is not 4096 bytes long; missing bytes count as 0.",
        "Rebuild it.",
        "RB-09",
        next_step=_METADATA,
    ),
    _checkpoint_warning(
        "checkpoint-zero",
        "All times of the checkpoint are 0 though the log contains messages and there are full index files. After a "
        "crash the broker deletes every index file and scans the entire log.",
        "Rebuild it.",
        "RB-09",
        next_step=_METADATA,
    ),
    _checkpoint_warning(
        "checkpoint-ahead",
        "The checkpoint is past the newest message: after a crash the broker scans too little and misses damage "
        "at the end.",
        "Rebuild it.",
        "RB-09",
        next_step=_METADATA,
    ),
    _checkpoint_warning(
        "checkpoint-behind",
        "An index file that is full ends after the checkpoint's index time: a start after a crash deletes it and "
        "does not index all of its messages again.",
        "Rebuild it.",
        "RB-09",
        next_step=_METADATA,
    ),
    _checkpoint_warning(
        "checkpoint-bad-value",
        "A field of the checkpoint is negative, or an offset that is impossible for a log of this length.",
        "Rebuild it.",
        "RB-09",
        next_step=_METADATA,
    ),
    _checkpoint_warning(
        "checkpoint-foreign",
        "The checkpoint is of another log: it names a place where no record begins, or a time before the first record. "
        "After a crash the broker starts its scan at a wrong segment, and deletes wrong index files.",
        "Rebuild it.",
        "RB-09",
        next_step=_METADATA,
    ),
    _checkpoint_unknown(
        "checkpoint-unreadable",
        "The system reported an error while reading.",
        "Make it readable, or move it out of the store and rebuild it.",
        "RB-09",
    ),
    _checkpoint_error(
        "checkpoint-not-file",
        "The checkpoint is not a regular file: the broker refuses to start.",
        "Move it out of the store and rebuild it.",
        "RB-09",
    ),
)

_shutdown_error = partial(_check, Area.SHUTDOWN, Severity.ERROR)
_shutdown_warning = partial(_check, Area.SHUTDOWN, Severity.WARNING)

_SHUTDOWN = (
    _shutdown_warning(
        "abort-present",
        "The broker was not shut down cleanly: there is an abort file. On its next start it recovers: it scans the "
        "log from the last point that is safe, cuts a torn tail, brings queues up to date and deletes index files that "
        "are newer than the checkpoint.",
        "Verify before the start; if nothing else is found, start.",
        "RB-08",
        next_step=_EXPLAIN,
    ),
    _shutdown_error(
        "abort-bad",
        "abort is not a regular file. 5.5 recovers as after a crash and then fails to start.",
        "Move it out of the store.",
        "RB-01",
    ),
)

_config_error = partial(_check, Area.CONFIG, Severity.ERROR)
_config_warning = partial(_check, Area.CONFIG, Severity.WARNING)
_config_unknown = partial(_check, Area.CONFIG, Severity.UNKNOWN)

_CONFIG = (
    _config_error(
        "config-unreadable",
        "A configuration file cannot be read, and neither can its .bak: the broker does not start, and overwrites "
        "the file with an empty table. (A warning if the .bak is good: the broker takes that. A note if the broker "
        "does not read the file: with enableLmq it reads lmqConsumerOffset.json, without it consumerOffset.json.)",
        "Copy both aside, then take the .bak or rebuild the file.",
        "RB-09",
    ),
    _config_unknown(
        "config-not-read",
        "The system does not allow reading a configuration file or config/: what the broker would load is unknown.",
        "Verify as a user who may read it; move the object that has its name out of the store.",
        next_step="mqtool verify {store}",
        no_runbook=NOT_READ,
    ),
    _config_error(
        "config-missing",
        "A configuration file and its .bak are missing: the broker starts with an empty table. (A warning if the "
        ".bak exists: the broker takes that.)",
        "Rebuild it before the broker starts.",
        "RB-09",
    ),
    _config_warning(
        "config-topic-missing",
        "A topic has queues but no configuration: the broker answers clients that it does not exist.",
        "Create the topic again with at least as many queues.",
        "RB-09",
        "RB-10",
    ),
    _config_error(
        "config-queue-type",
        "The topic's queue type is not that of its files: the broker refuses to start.",
        "Correct queue.type in topics.json.",
        next_step=_INFO,
        no_runbook="Decide whether the configuration or the files are right.",
    ),
    _config_error(
        "config-offset-ahead",
        "A group's consumer offset is past the end of the queue: it gets nothing, or is reset to the queue's end.",
        "If the queue has lost its end, rebuild it first. Then move the position to the end of the queue.",
        "RB-09",
        next_step=_CLAMP,
    ),
    _config_error(
        "config-offset-negative",
        "A group's consumer offset is negative.",
        "Move the position to the start of the queue.",
        "RB-09",
        next_step=_CLAMP,
    ),
    _config_warning(
        "config-offset-orphan",
        "A group has an offset for a queue that does not exist.",
        "None if the topic was deleted: `plan offsets --delete` removes the position. Else rebuild the queue.",
        next_step=_POSITION,
        no_runbook=NO_STEP,
    ),
    _config_warning(
        "config-delay-ahead",
        "The position of a delay level is past the end of its queue in SCHEDULE_TOPIC_XXXX. Brokers since 4.9.2 "
        "set it to the end on startup; older ones deliver no delayed message of this level.",
        "If the queue has lost its end, rebuild it first. Then set the position to the first message that was not "
        "delivered.",
        "RB-09",
        next_step=_DELAYS,
    ),
    _config_warning(
        "config-delay-expired",
        "The position of a delay level is before the first message that its queue still has: messages were deleted "
        "before they were delivered.",
        "Take the messages from a replica or a backup; keep the log longer than the longest delay.",
        "RB-09",
        next_step=_DELAYS,
    ),
    _config_warning(
        "config-delay-behind",
        "The position of a delay level is before messages that the log shows to be delivered: the broker delivers "
        "them again. Reported after a clean stop only: a crash leaves positions up to ten seconds old.",
        "Set the position to the first message that was not delivered.",
        "RB-09",
        next_step=_DELAYS,
    ),
    _config_warning(
        "config-delay-missing",
        "A delay level has messages in its queue and no position in delayOffset.json: the broker delivers all of them, "
        "also those that it has delivered before.",
        "Set the position to the first message that was not delivered.",
        "RB-09",
        next_step=_DELAYS,
    ),
    _config_warning(
        "config-delay-orphan",
        "A delay level has a position, and its queue in SCHEDULE_TOPIC_XXXX is missing. Brokers since 4.9.2 "
        "begin a new queue at its first message; older ones skip the number of messages that the position states.",
        "Rebuild the queue if the log has its messages, else delete the position.",
        "RB-09",
        next_step=_DELAYS,
    ),
)

_dledger_check = partial(_check, Area.DLEDGER)

_DLEDGER = (
    _dledger_check(
        Severity.ERROR,
        "dledger-index-order",
        "The index of an entry does not follow that of the entry before: the ledger's recovery refuses such a log.",
        "Copy the ledger's directory from another node, or convert the log to an ordinary one.",
        "RB-15",
    ),
    _dledger_check(
        Severity.ERROR,
        "dledger-term-order",
        "The term of an entry is below that of an entry before it.",
        "Copy the ledger's directory from another node, or convert the log to an ordinary one.",
        "RB-15",
    ),
    _dledger_check(
        Severity.ERROR,
        "dledger-index-unit",
        "A unit of the ledger's index file does not point to its entry: the entry cannot be fetched by its index. "
        "(A warning where the broker's next start writes the unit again.)",
        "None for a warning. For an error, copy the ledger's directory from another node, or convert the log to an "
        "ordinary one.",
        "RB-15",
    ),
    _dledger_check(
        Severity.NOTE,
        "dledger-unused-field",
        "channel, chainCrc or bodyCrc of an entry is not 0; no known release sets them.",
        "None: nothing reads them.",
        next_step=_ENTRIES,
        no_runbook=NO_STEP,
    ),
    _dledger_check(
        Severity.WARNING,
        "dledger-checkpoint-ahead",
        "The ledger's file checkpoint names an index after the last entry: entries that had been written are missing.",
        "Compare the end of the log with the other nodes; they may have more entries.",
        "RB-15",
    ),
    _dledger_check(
        Severity.WARNING,
        "dledger-term-behind",
        "The ledger's file currterm names a term below that of the last entry.",
        "The node learns the term from the others; a lone node takes it from its last entry.",
        "RB-15",
    ),
    _dledger_check(
        Severity.WARNING,
        "dledger-text",
        "The ledger's file checkpoint or currterm is missing or does not state its number as properties do.",
        "Compare it with the .bak file next to it.",
        "RB-15",
    ),
)


def _compaction_error(code: str, meaning: str, remedy: str = _SALVAGE) -> Check:
    return _check(Area.COMPACTION, Severity.ERROR, code, meaning, remedy, "RB-05")


_COMPACTION = (
    _compaction_error("compaction-damage", "A range of a compacted topic's log holds no valid record."),
    _compaction_error(
        "compaction-missing",
        "The CommitLog has messages of a compacted topic after the last one of its compacted log. The broker does not "
        "serve them: it reads compacted topics only there. (A warning where the next start dispatches them again.)",
    ),
    _compaction_error("compaction-unit", "A unit of a compacted topic's queue does not fit the record of its log."),
    _compaction_error("compaction-order", "Queue offsets in a compacted topic's log do not increase."),
    _compaction_error(
        "compaction-file",
        "The log and the queue of a compacted topic do not have the same files: the broker does not start.",
    ),
    _compaction_error(
        "compaction-leftover",
        "A compacted topic contains a file that belongs to no queue; if it is named *.delete, it prevents the "
        "broker from starting.",
        "Move it out of the store while the broker is stopped; if the topic has other findings, salvage the store.",
    ),
)

_timer_error = partial(_check, Area.TIMER, Severity.ERROR)

_TIMER = (
    _timer_error(
        "timer-not-file",
        "The timer wheel or config/timercheck is not a regular file: 5.x does not start.",
        "Move it out of the store, then rebuild the timer's files from the log.",
        "RB-17",
    ),
    _timer_error(
        "timer-wheel-size",
        "The timer wheel is not 38,707,200 bytes long: the timer does not start.",
        "Rebuild the timer's files from the log.",
        "RB-17",
        next_step=_REBUILD_TIMER,
    ),
    _timer_error(
        "timer-log-size",
        "A timer log file has another length than its neighbours: the broker refuses to start.",
        "Compare with mappedFileSizeTimerLog; rebuild the timer's files from the log.",
        "RB-17",
        "RB-01",
        next_step=_REBUILD_TIMER,
    ),
    _timer_error(
        "timer-log-gap",
        "A file of the timer log is missing: chains that lead there end.",
        "Messages that wait there are not delivered; rebuild the timer's files from the log.",
        "RB-17",
        next_step=_REBUILD_TIMER,
    ),
    _timer_error(
        "timer-bad-unit",
        "A unit of the timer log is malformed: what follows in its file is not read.",
        "Messages that wait there are not delivered; rebuild the timer's files from the log.",
        "RB-17",
        next_step=_REBUILD_TIMER,
    ),
    _timer_error(
        "timer-bad-chain",
        "The predecessor that a unit of the timer log names does not exist.",
        "Messages after it are not delivered; rebuild the timer's files from the log.",
        "RB-17",
        next_step=_REBUILD_TIMER,
    ),
    _timer_error(
        "timer-dangling-unit",
        "A unit of the timer log points into the CommitLog where there is no such record: the timer stops there.",
        "Rebuild the timer's files from the log; fetch the record from a replica if it is missing.",
        "RB-17",
        next_step=_REBUILD_TIMER,
    ),
    _timer_error(
        "timer-bad-slot",
        "A slot of the timer wheel leads to positions that the timer log does not have.",
        "Rebuild the timer's files from the log.",
        "RB-17",
        next_step=_REBUILD_TIMER,
    ),
    _timer_error(
        "timer-missing-unit",
        "The timer log has no unit for waiting messages that the timer has already read: some or all of its files are "
        "missing. These messages are not delivered.",
        "The CommitLog still has the messages: rebuild the timer's files from it.",
        "RB-17",
        next_step=_REBUILD_TIMER,
    ),
    _timer_error(
        "timer-checkpoint-ahead",
        "config/timercheck is past the end of the timer log or its queue: messages are skipped.",
        "Rebuild the timer's files from the log.",
        "RB-17",
        next_step=_REBUILD_TIMER,
    ),
)

_controller_error = partial(_check, Area.CONTROLLER, Severity.ERROR)

_CONTROLLER = (
    _controller_error(
        "epoch-missing",
        "A broker of controller mode has messages, but neither epochFileCheckpoint nor its .bak: it does not know "
        "which master wrote which part of its log, and cannot find where the log agrees with a replica's.",
        "Copy it from a replica that was in sync.",
        next_step="mqtool info {store}",
        no_runbook=REPLICA,
    ),
    _controller_error(
        "epoch-unreadable",
        "epochFileCheckpoint cannot be read, and neither can its .bak. (A warning if the .bak can.)",
        "Copy it from a replica that was in sync.",
        next_step=_DUMP,
        no_runbook=REPLICA,
    ),
    _controller_error(
        "epoch-order",
        "Epochs do not ascend, or one starts beyond the end of the log.",
        "Compare with a replica before it joins: a wrong epoch cuts the log in the wrong place.",
        next_step=_DUMP,
        no_runbook=REPLICA,
    ),
)

_lint_error = partial(_check, Area.LINT, Severity.ERROR)
_lint_warning = partial(_check, Area.LINT, Severity.WARNING)

_LINT = (
    _lint_warning(
        "lint-legacy-key",
        "The configuration has a key in its old spelling, which brokers ignore: the default applies.",
        "Spell it as the broker does.",
        "RB-01",
        next_step="",
    ),
    _lint_warning(
        "lint-unknown-key",
        "The configuration has a key that no broker reads: it is ignored, and the default applies.",
        "Spell it as the broker does.",
        next_step=_INFO,
        no_runbook=CONFIGURATION,
    ),
    _lint_warning(
        "lint-misread-value",
        "The broker reads this value differently, or ignores it and uses the default.",
        "Write the value as the finding states: numbers and booleans without blanks, in the form that the broker "
        "accepts.",
        next_step=_INFO,
        no_runbook=CONFIGURATION,
    ),
    _lint_error(
        "lint-size",
        "The configured size is not that of the files: the broker refuses to start, or misreads them.",
        "Set the key to the value that fits the files; the finding states both.",
        "RB-01",
        next_step="",
    ),
    _lint_warning(
        "lint-disk-ratio",
        "The disk ratios contradict each other: writes stop before old files are deleted.",
        "diskMaxUsedSpaceRatio < diskSpaceCleanForciblyRatio < diskSpaceWarningLevelRatio.",
        next_step=_INFO,
        no_runbook=CONFIGURATION,
    ),
    _lint_warning(
        "lint-path",
        "The configuration names a directory without a store: the broker would start with an empty store there.",
        "Correct storePathRootDir.",
        next_step=_INFO,
        no_runbook=CONFIGURATION,
    ),
)

_AREAS = (
    _LOG,
    _QUEUES,
    _ROCKSDB,
    _EXTENSION,
    _INDEX,
    _CHECKPOINT,
    _SHUTDOWN,
    _CONFIG,
    _DLEDGER,
    _COMPACTION,
    _TIMER,
    _CONTROLLER,
    _LINT,
)

CATALOGUE: dict[str, Check] = {check.code: check for checks in _AREAS for check in checks}
"""Checks by code, in the order of the areas."""
