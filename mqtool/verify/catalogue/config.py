"""Codes of config/."""

from functools import partial

from mqtool.verify.catalogue.check import NO_STEP, NOT_READ, check, run
from mqtool.verify.findings import Area, Severity

_INFO = "mqtool info {store}"

_error = partial(check, Area.CONFIG, Severity.ERROR)
_warning = partial(check, Area.CONFIG, Severity.WARNING)
_unknown = partial(check, Area.CONFIG, Severity.UNKNOWN)

CHECKS = (
    _error(
        "config-unreadable",
        "A configuration file cannot be read, and neither can its .bak: the broker does not start, and overwrites "
        "the file with an empty table. (A warning if the .bak is good: the broker takes that.)",
        "Copy both aside, then take the .bak or rebuild the file.",
        run("RB-09"),
        "RB-09",
    ),
    _unknown(
        "config-not-read",
        "The system does not let a configuration file or config/ be read: what the broker would take is unknown.",
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
        "Reset the group's offset; look whether the queue lost its end.",
        run("RB-09"),
        "RB-09",
    ),
    _error(
        "config-offset-negative",
        "A group's consumer offset is negative.",
        "Reset the group's offset.",
        run("RB-09"),
        "RB-09",
    ),
    _warning(
        "config-offset-orphan",
        "A group has an offset for a queue that does not exist.",
        "None if the topic was deleted.",
        _INFO,
        no_runbook=NO_STEP,
    ),
)
