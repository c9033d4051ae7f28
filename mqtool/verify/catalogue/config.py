"""Codes of config/."""

from functools import partial

from mqtool.verify.catalogue.check import NO_STEP, NOT_READ, check, run
from mqtool.verify.findings import Area, Severity

_INFO = "mqtool info {store}"
_POSITION = "mqtool offsets {store} --group {group} --topic {topic}"
_CLAMP = "mqtool plan offsets {store} --group {group} --topic {topic} --queue {queue_id} --clamp -o {plan}"
_DELAYS = "mqtool plan rebuild metadata {store} --file config/delayOffset.json -o {plan}"

_error = partial(check, Area.CONFIG, Severity.ERROR)
_warning = partial(check, Area.CONFIG, Severity.WARNING)
_unknown = partial(check, Area.CONFIG, Severity.UNKNOWN)

CHECKS = (
    _error(
        "config-unreadable",
        "A configuration file cannot be read, and neither can its .bak: the broker does not start, and overwrites "
        "the file with an empty table. (A warning if the .bak is good: the broker takes that. A note if the broker "
        "does not read the file: with enableLmq it reads lmqConsumerOffset.json, without it consumerOffset.json.)",
        "Copy both aside, then take the .bak or rebuild the file.",
        run("RB-09"),
        "RB-09",
    ),
    _unknown(
        "config-not-read",
        "The system does not allow reading a configuration file or config/: what the broker would load is unknown.",
        "Verify as a user who may read it; move the object that has its name out of the store.",
        "mqtool verify {store}",
        no_runbook=NOT_READ,
    ),
    _error(
        "config-missing",
        "A configuration file and its .bak are missing: the broker starts with an empty table. (A warning if the "
        ".bak exists: the broker takes that.)",
        "Rebuild it before the broker starts.",
        run("RB-09"),
        "RB-09",
    ),
    _warning(
        "config-topic-missing",
        "A topic has queues but no configuration: the broker answers clients that it does not exist.",
        "Create the topic again with at least as many queues.",
        run("RB-09"),
        "RB-09",
        "RB-10",
    ),
    _error(
        "config-queue-type",
        "The topic's queue type is not that of its files: the broker refuses to start.",
        "Correct queue.type in topics.json.",
        _INFO,
        no_runbook="Decide whether the configuration or the files are right.",
    ),
    _error(
        "config-offset-ahead",
        "A group's consumer offset is past the end of the queue: it gets nothing, or is reset to the queue's end.",
        "If the queue has lost its end, rebuild it first. Then move the position to the end of the queue.",
        _CLAMP,
        "RB-09",
    ),
    _error(
        "config-offset-negative",
        "A group's consumer offset is negative.",
        "Move the position to the start of the queue.",
        _CLAMP,
        "RB-09",
    ),
    _warning(
        "config-offset-orphan",
        "A group has an offset for a queue that does not exist.",
        "None if the topic was deleted: `plan offsets --delete` removes the position. Else rebuild the queue.",
        _POSITION,
        no_runbook=NO_STEP,
    ),
    _warning(
        "config-delay-ahead",
        "The position of a delay level is past the end of its queue in SCHEDULE_TOPIC_XXXX. Brokers since 4.9.2 "
        "set it to the end on startup; older ones deliver no delayed message of this level.",
        "If the queue has lost its end, rebuild it first. Then set the position to the first message that was not "
        "delivered.",
        _DELAYS,
        "RB-09",
    ),
    _warning(
        "config-delay-expired",
        "The position of a delay level is before the first message that its queue still has: messages were deleted "
        "before they were delivered.",
        "Take the messages from a replica or a backup; keep the log longer than the longest delay.",
        _DELAYS,
        "RB-09",
    ),
    _warning(
        "config-delay-behind",
        "The position of a delay level is before messages that the log shows to be delivered: the broker delivers "
        "them again. Reported after a clean stop only: a crash leaves positions up to ten seconds old.",
        "Set the position to the first message that was not delivered.",
        _DELAYS,
        "RB-09",
    ),
    _warning(
        "config-delay-missing",
        "A delay level has messages in its queue and no position in delayOffset.json: the broker delivers all of them, "
        "also those that it has delivered before.",
        "Set the position to the first message that was not delivered.",
        _DELAYS,
        "RB-09",
    ),
    _warning(
        "config-delay-orphan",
        "A delay level has a position, and its queue in SCHEDULE_TOPIC_XXXX is missing. Brokers since 4.9.2 "
        "begin a new queue at its first message; older ones skip the number of messages that the position states.",
        "Rebuild the queue if the log has its messages, else delete the position.",
        _DELAYS,
        "RB-09",
    ),
)
