"""Codes of what is derived from the CommitLog: queues and index."""

from mqtool.verify.catalogue.check import Check
from mqtool.verify.findings import Area, Severity

_REBUILD = "The CommitLog still has the messages: build the queue anew beside the store and compare."
_REBUILD_QUEUE = "mqtool rebuild consumequeue {store} --topic {topic} --queue {queue_id} --out DIR"
_REBUILD_INDEX = "mqtool rebuild index {store} --out DIR"
_LOOK_UNIT = "mqtool dump {path}"
_MENDED = " (A warning where the broker's next start writes them.)"


def _queue(code: str, meaning: str, remedy: str = _REBUILD, next_step: str = _REBUILD_QUEUE,
           severity: Severity = Severity.ERROR, area: Area = Area.CONSUME_QUEUE) -> Check:  # fmt: skip
    return Check(code, area, severity, meaning, remedy, next_step)


def _index(code: str, meaning: str, remedy: str = "Build the index anew beside the store.", next_step: str = _REBUILD_INDEX,
           severity: Severity = Severity.ERROR) -> Check:  # fmt: skip
    return Check(code, Area.INDEX, severity, meaning, remedy, next_step)


QUEUE_CHECKS = (
    _queue("queue-missing", "The CommitLog holds messages of a queue that has no files. Consumers do not see them, and no orderly start "
           "of the broker brings them back. (A warning if all queues are gone and the store was stopped in order: then the broker builds "
           "them all.)"),
    _queue("queue-missing-units", "Messages at the end of a queue have no unit: consumers do not get them, and their queue offsets are given "
           "away again." + _MENDED),
    _queue("queue-hole", "Units inside a queue are zeros. The broker's recovery ends the queue here and deletes what follows, if it looks at "
           "this file." + _MENDED),
    _queue("queue-file-missing", "A file of the queue is gone: consumers skip its messages." + _MENDED),
    _queue("queue-file-size", "The file's length is not that of queue files: the broker refuses to start. (A warning for an empty last file "
           "of a 5.x store, which the broker deletes.)",
           "Compare with mappedFileSizeConsumeQueue; build the queue anew if the configuration is right."),
    _queue("queue-file-extra", "A file without units follows one that is not full. The broker deletes it, or makes a unit of zeros of it after "
           "its log was cut.", "Move it out of the store while the broker is stopped.", _LOOK_UNIT, Severity.WARNING),
    _queue("queue-stray-file", "Something that is no queue file lies among the queues: the broker refuses to start. (A note where it ignores it.)",
           "Move it out of the store.", "mqtool info {store}"),
    _queue("queue-bad-unit", "A unit holds what cannot be: a negative or impossible address or size. The broker's recovery ends the queue here, "
           "if it looks at this file." + _MENDED),
    _queue("queue-dangling-unit", "A unit points into the CommitLog where no record starts."),
    _queue("queue-foreign-unit", "A unit points at a record of another queue: consumers get a foreign message."),
    _queue("queue-shifted-unit", "A unit points at a record of this queue that states another queue offset: the queue has slipped."),
    _queue("queue-wrong-size", "A unit states another size than its record has."),
    _queue("queue-wrong-tags", "A unit's tags code is not that of its record's tags: consumers that filter miss it or get it wrongly."),
    _queue("queue-transaction-unit", "A unit points at a prepared or rolled-back record, which belongs in no queue: consumers get it.",
           "Compare the record with a replica: its flags may be damaged.", "mqtool dump {store} -o {offsets} --format jsonl"),
    _queue("queue-duplicate-unit", "Two units point at the same record: consumers get it twice."),
    _queue("queue-wrong-batch", "A unit of a batch queue states another first offset, batch size or time than its record."),
    _queue("queue-ahead-of-log", "Units point at or beyond the end of the CommitLog: messages were dispatched that are not there any more. "
           "The broker cuts the units at its next start; the messages are lost.",
           "Fetch the end of the log from a replica before the broker starts.", "mqtool diff {store} REPLICA"),
    _queue("queue-unreadable", "The system reported an error while reading.", "Build the queue anew beside the store."),
    _queue("topic-only-in-log", "The CommitLog holds messages of a topic that neither the configuration nor the queues know. It was deleted, or "
           "its configuration is lost.", "Nothing, if it was deleted on purpose.", "mqtool dump {store} --topic {topic}", Severity.NOTE),
    _queue("ext-file-size", "The file's length is not that of extension files: the broker refuses to start.",
           "Compare with mappedFileSizeConsumeQueueExt.", area=Area.CONSUME_QUEUE_EXT),
    _queue("ext-bad-unit", "A unit of the extension is malformed; the rest of its file cannot be read.", area=Area.CONSUME_QUEUE_EXT),
    _queue("ext-dangling-address", "A unit of the queue states an address at which the extension has no unit: consumers that filter by "
           "property get nothing for it.", area=Area.CONSUME_QUEUE_EXT),
    _queue("ext-wrong-unit", "A unit of the extension states another tags code or time than the record it belongs to.",
           area=Area.CONSUME_QUEUE_EXT),
)  # fmt: skip

INDEX_CHECKS = (
    _index("index-missing", "There is no index file though the checkpoint or the configuration says that there was. The broker does not build "
           "one for messages that are there."),
    _index("index-file-size", "The file is shorter or longer than its slots and entries. The broker lengthens it and misreads it."),
    _index("index-header", "The header contradicts the file: counts beyond its capacity, ranges that are not its entries'."),
    _index("index-slot", "A slot does not lead to the newest of its entries: look-ups miss what lies behind."),
    _index("index-chain", "An entry names another predecessor than the one before it in its slot: chains end early, or run in a circle."),
    _index("index-dangling-entry", "An entry points into the CommitLog where no record starts."),
    _index("index-foreign-entry", "An entry points at a record that has no such key."),
    _index("index-wrong-time", "An entry's time is not its record's: look-ups in a time range miss it."),
    _index("index-missing-entry", "Keys of messages have no entry: look-ups do not find them. Left by a lost index file, by a crash (the broker "
           "deletes the last file and indexes anew only what it scans), or by damage."),
    _index("index-ahead-of-log", "The index ends beyond the end of the CommitLog: the broker will not index new messages until the log has "
           "grown up to there.", "Move the last index file out of the store before the broker starts, and build it anew.",
           severity=Severity.WARNING),
    _index("index-stray-file", "Something that is no index file lies in index/. (An error where the broker refuses to start or drops the whole "
           "index; a note where it ignores it.)", "Move it out of the store.", "mqtool info {store}", Severity.WARNING),
    _index("index-unreadable", "The system reported an error while reading."),
)  # fmt: skip
