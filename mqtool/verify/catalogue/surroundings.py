"""Codes of checkpoint, shutdown, configuration, timer, controller files and the configuration lint."""

from mqtool.verify.catalogue.check import Check
from mqtool.verify.findings import Area, Severity

_METADATA = "mqtool rebuild metadata {store} --out DIR"
_INFO = "mqtool info {store}"
_DUMP = "mqtool dump {path}"
_ERROR, _WARNING, _NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

_CHECKPOINT = (
    Check("checkpoint-missing", Area.CHECKPOINT, _WARNING, "There is no checkpoint. The broker starts; after a crash it deletes every index file "
          "and scans the whole log.", "Nothing after an orderly stop; else build it anew first.", _METADATA),
    Check("checkpoint-size", Area.CHECKPOINT, _WARNING, "The checkpoint is not 4096 bytes long; what is missing counts as 0.",
          "Build it anew.", _METADATA),
    Check("checkpoint-zero", Area.CHECKPOINT, _WARNING, "All times of the checkpoint are 0 though the log holds messages and index files that "
          "were full. After a crash the broker deletes every index file and scans the whole log.", "Build it anew.", _METADATA),
    Check("checkpoint-ahead", Area.CHECKPOINT, _WARNING, "The checkpoint lies beyond the newest message: after a crash the broker scans too "
          "little and misses damage at the end.", "Build it anew.", _METADATA),
    Check("checkpoint-behind", Area.CHECKPOINT, _WARNING, "An index file that is full ends after the checkpoint's index time: a start after a "
          "crash deletes it and does not index all of its messages again.", "Build it anew.", _METADATA),
    Check("checkpoint-bad-value", Area.CHECKPOINT, _WARNING, "A field of the checkpoint is negative.", "Build it anew.", _METADATA),
    Check("checkpoint-unreadable", Area.CHECKPOINT, _ERROR, "The checkpoint is no file that can be read: the broker refuses to start.",
          "Move it out of the store and build it anew.", _METADATA),
)  # fmt: skip
_SHUTDOWN = (
    Check("abort-present", Area.SHUTDOWN, _WARNING, "The broker did not stop in order: there is an abort file. Its next start recovers: it scans "
          "the end of the log, cuts a torn tail, brings queues up to date and deletes the last index file.",
          "Verify before the start; if nothing else is found, start.", "mqtool verify {store}"),
    Check("abort-bad", Area.SHUTDOWN, _ERROR, "abort is no file. 5.5 recovers as after a crash and then fails to start.",
          "Move it out of the store.", _INFO),
)  # fmt: skip
_CONFIG = (
    Check("config-unreadable", Area.CONFIG, _ERROR, "A configuration file cannot be read, and neither can its .bak: the broker does not start, "
          "and overwrites the file with an empty table. (A warning if the .bak is good: the broker takes that.)",
          "Copy both aside, then take the .bak or build the file anew.", _METADATA),
    Check("config-missing", Area.CONFIG, _ERROR, "A configuration file and its .bak are gone: the broker starts with an empty table. (A warning if "
          "the .bak is there: the broker takes that.)", "Build it anew before the broker starts.", _METADATA),
    Check("config-topic-missing", Area.CONFIG, _WARNING, "A topic has queues but no configuration: clients are told that it does not exist.",
          "Make the topic again with at least as many queues.", _METADATA),
    Check("config-queue-type", Area.CONFIG, _ERROR, "The topic's queue type is not that of its files: the broker refuses to start.",
          "Correct queue.type in topics.json.", _INFO),
    Check("config-offset-ahead", Area.CONFIG, _ERROR, "A group's consumer offset lies beyond the end of the queue: it gets nothing, or is set "
          "back to the queue's end.", "Reset the group's offset; look whether the queue lost its end.", _INFO),
    Check("config-offset-negative", Area.CONFIG, _ERROR, "A group's consumer offset is negative.", "Reset the group's offset.", _INFO),
    Check("config-offset-orphan", Area.CONFIG, _WARNING, "A group has consumed from a queue that is not there.",
          "Nothing, if the topic was deleted.", _INFO),
)  # fmt: skip
_TIMER = (
    Check("timer-wheel-size", Area.TIMER, _ERROR, "The timer wheel is not 38,707,200 bytes long: the timer does not start.",
          "Move it aside; the broker makes an empty one and reads the timer log.", _DUMP),
    Check("timer-log-size", Area.TIMER, _ERROR, "A timer log file has another length than its neighbours: the broker refuses to start.",
          "Compare with mappedFileSizeTimerLog.", _DUMP),
    Check("timer-log-gap", Area.TIMER, _ERROR, "A file of the timer log is gone: chains that lead there end.",
          "Messages that wait there are not delivered; find them in the queue rmq_sys_wheel_timer.", _DUMP),
    Check("timer-bad-unit", Area.TIMER, _ERROR, "A unit of the timer log is malformed: what follows in its file is not read.",
          "Messages that wait there are not delivered; find them in the queue rmq_sys_wheel_timer.", _DUMP),
    Check("timer-bad-chain", Area.TIMER, _ERROR, "A unit of the timer log names a predecessor that is none.",
          "Messages behind it are not delivered; find them in the queue rmq_sys_wheel_timer.", _DUMP),
    Check("timer-dangling-unit", Area.TIMER, _ERROR, "A unit of the timer log points into the CommitLog where no such record is: the timer "
          "stops there.", "Fetch the record from a replica.", "mqtool dump {store} -o {offsets}"),
    Check("timer-bad-slot", Area.TIMER, _ERROR, "A slot of the timer wheel leads to positions that the timer log does not have.",
          "Move the wheel aside; the broker makes it anew from the timer log.", _DUMP),
    Check("timer-checkpoint-ahead", Area.TIMER, _ERROR, "config/timercheck lies beyond the timer log or its queue: messages are skipped.",
          "Move it aside while the broker is stopped.", _DUMP),
)  # fmt: skip
_CONTROLLER = (
    Check("epoch-unreadable", Area.CONTROLLER, _ERROR, "epochFileCheckpoint cannot be read, and neither can its .bak. (A warning if the .bak "
          "can.)", "Copy it from a replica that was in sync.", _DUMP),
    Check("epoch-order", Area.CONTROLLER, _ERROR, "Epochs do not ascend, or one starts beyond the end of the log.",
          "Compare with a replica before it joins: a wrong epoch cuts the log in the wrong place.", _DUMP),
)  # fmt: skip
_LINT = (
    Check("lint-legacy-key", Area.LINT, _WARNING, "The configuration has a key in its old spelling, which brokers ignore: the default applies.",
          "Spell it as the broker does.", _INFO),
    Check("lint-size", Area.LINT, _ERROR, "The configured size is not that of the files: the broker refuses to start, or misreads them.",
          "Correct the configuration.", _INFO),
    Check("lint-disk-ratio", Area.LINT, _WARNING, "The disk ratios contradict each other: writes stop before old files are deleted.",
          "diskMaxUsedSpaceRatio < diskSpaceCleanForciblyRatio < diskSpaceWarningLevelRatio.", _INFO),
    Check("lint-path", Area.LINT, _WARNING, "The configuration names a directory without a store: the broker would begin anew there.", "Correct storePathRootDir.",
          _INFO),
)  # fmt: skip

CHECKS = (*_CHECKPOINT, *_SHUTDOWN, *_CONFIG, *_TIMER, *_CONTROLLER, *_LINT)
