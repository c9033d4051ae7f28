"""Codes of the queues."""

from functools import partial

from mqtool.verify.catalogue.check import CONFIGURATION, NO_STEP, NOT_READ, check, run
from mqtool.verify.findings import Area, Severity

_REBUILD = "mqtool plan rebuild consumequeue {store} --topic {topic} --queue {queue_id} -o {plan}"
_AWAY = "mqtool plan set-aside {store} --file {name} -o {plan}"
_TOPIC = "mqtool dump {store} --topic {topic}"

_error = partial(check, Area.CONSUME_QUEUE, Severity.ERROR)
_warning = partial(check, Area.CONSUME_QUEUE, Severity.WARNING)
_note = partial(check, Area.CONSUME_QUEUE, Severity.NOTE)
_unknown = partial(check, Area.CONSUME_QUEUE, Severity.UNKNOWN)

CHECKS = (
    _error(
        "queue-missing",
        "The CommitLog contains messages of a queue that has no files. Consumers do not see them, and a start after a "
        "clean shutdown does not restore them. (A warning if all queues are missing and the broker was shut down "
        "cleanly: then the broker builds all of them.)",
        "The CommitLog still has the messages: rebuild the queue.",
        _REBUILD,
        "RB-03",
    ),
    _error(
        "queue-missing-units",
        "Messages at the end of a queue have no unit: consumers do not get them, and their queue offsets are "
        "assigned again. (A warning where the broker's next start writes them.)",
        "The CommitLog still has the messages: rebuild the queue.",
        _REBUILD,
        "RB-03",
    ),
    _error(
        "queue-hole",
        "Units inside a queue are zeros. The broker's recovery ends the queue here and deletes what follows, if it "
        "looks at this file. (A warning where the broker's next start writes them.)",
        "The CommitLog still has the messages: rebuild the queue.",
        _REBUILD,
        "RB-02",
    ),
    _error(
        "queue-file-missing",
        "A file of the queue is missing: consumers skip its messages. (A warning where the broker's next start "
        "writes them.)",
        "The CommitLog still has the messages: rebuild the queue.",
        _REBUILD,
        "RB-03",
    ),
    _error(
        "queue-file-size",
        "The file's length is not that of queue files: the broker refuses to start. (A warning for an empty last "
        "file of a 5.x store, which the broker deletes.)",
        "Compare with mappedFileSizeConsumeQueue; rebuild the queue if the configuration is right.",
        _REBUILD,
        "RB-01",
    ),
    _warning(
        "queue-file-extra",
        "A file without units follows one that is not full. The broker deletes it, or, after its log was cut, takes "
        "a unit of zeros from it.",
        "Move it out of the store while the broker is stopped.",
        _AWAY,
        "RB-07",
    ),
    _error(
        "queue-stray-file",
        "There is something among the queue files that is not a queue file: the broker refuses to start. (A note "
        "where it ignores it.)",
        "Move it out of the store.",
        run("RB-01"),
        "RB-01",
    ),
    _error(
        "queue-bad-unit",
        "A unit has an impossible value: a negative or impossible address or size. The broker's recovery ends the "
        "queue here, if it looks at this file. (A warning where the broker's next start writes them.)",
        "The CommitLog still has the messages: rebuild the queue.",
        _REBUILD,
        "RB-02",
    ),
    _error(
        "queue-dangling-unit",
        "A unit points into the CommitLog where no record starts.",
        "The CommitLog still has the messages: rebuild the queue.",
        _REBUILD,
        "RB-02",
    ),
    _error(
        "queue-foreign-unit",
        "A unit points at a record of another queue: consumers get a message of another queue.",
        "The CommitLog still has the messages: rebuild the queue.",
        _REBUILD,
        "RB-02",
    ),
    _error(
        "queue-shifted-unit",
        "A unit points at a record of this queue that states another queue offset: the units of the queue are shifted.",
        "The CommitLog still has the messages: rebuild the queue.",
        _REBUILD,
        "RB-02",
    ),
    _error(
        "queue-wrong-size",
        "The size in a unit is not that of its record.",
        "The CommitLog still has the messages: rebuild the queue.",
        _REBUILD,
        "RB-02",
    ),
    _error(
        "queue-wrong-tags",
        "A unit's tags code is not that of its record's tags: consumers that filter miss it or get it wrongly.",
        "The CommitLog still has the messages: rebuild the queue.",
        _REBUILD,
        "RB-02",
    ),
    _note(
        "queue-other-delay",
        "A unit of SCHEDULE_TOPIC_XXXX is due after a different delay than most others of its level. No file of a "
        "store contains the delays: the broker's messageDelayLevel was changed, or the unit is wrong. The check is "
        "`unknown`.",
        "Give the broker's configuration with --config.",
        _TOPIC,
        no_runbook=CONFIGURATION,
    ),
    _error(
        "queue-transaction-unit",
        "A unit points at a prepared or rolled-back record, which belongs in no queue: consumers get it.",
        "Compare the record with a replica: its flags may be damaged.",
        run("RB-05"),
        "RB-05",
    ),
    _error(
        "queue-duplicate-unit",
        "Two units point at the same record: consumers get it twice.",
        "The CommitLog still has the messages: rebuild the queue.",
        _REBUILD,
        "RB-02",
    ),
    _note(
        "queue-filled-hole",
        "The messages of some queue offsets are lost, and a rebuild or a salvage has put the unit of the next "
        "remaining message in their place: consumers skip them, and one that does not select by tags may get that "
        "message again.",
        "None, unless another copy of the log still has the messages: then salvage both copies together.",
        "",
        no_runbook=NO_STEP,
    ),
    _error(
        "queue-wrong-batch",
        "A unit of a batch queue states another first offset, batch size or time than its record.",
        "The CommitLog still has the messages: rebuild the queue.",
        _REBUILD,
        "RB-02",
    ),
    _error(
        "queue-ahead-of-log",
        "Units point at or beyond the end of the CommitLog: messages were dispatched that the log no longer has. "
        "The broker cuts the units at its next start; the messages are lost.",
        "Fetch the end of the log from a replica before the broker starts.",
        run("RB-13"),
        "RB-13",
    ),
    _error(
        "queue-not-directory",
        "There is a file where the directory of all queues should be: the broker starts, finds no queue and cannot "
        "create one. Consumers get nothing, though the messages are in the CommitLog.",
        "Move it out of the store, then rebuild the queues.",
        _AWAY,
        "RB-03",
    ),
    _unknown(
        "queue-unreadable",
        "The system reported an error while reading.",
        "Rebuild the queue.",
        _REBUILD,
        "RB-02",
    ),
    _unknown(
        "queue-not-listed",
        "A directory of the ConsumeQueues cannot be listed: its contents are unknown.",
        "Verify as a user who may read it; on a failing disk copy what can be read to another disk first.",
        "mqtool verify {store}",
        no_runbook=NOT_READ,
    ),
    _note(
        "topic-only-in-log",
        "The CommitLog contains messages of a topic that is in neither the configuration nor the queues. The topic "
        "was deleted, or its configuration is lost.",
        "None if it was deleted on purpose.",
        _TOPIC,
        "RB-10",
    ),
)
