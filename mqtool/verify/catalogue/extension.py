"""Codes of the ConsumeQueueExt."""

from mqtool.verify.catalogue.check import Check
from mqtool.verify.findings import Area, Severity

_REBUILD = "mqtool plan rebuild consumequeue {store} --topic {topic} --queue {queue_id} -o PLAN"


def _error(code: str, meaning: str, remedy: str, next_step: str) -> Check:
    return Check(code, Area.CONSUME_QUEUE_EXT, Severity.ERROR, meaning, remedy, next_step)


CHECKS = (
    _error(
        "ext-file-size",
        "The file's length is not that of extension files: the broker refuses to start.",
        "Compare with mappedFileSizeConsumeQueueExt.",
        _REBUILD,
    ),
    _error(
        "ext-bad-unit",
        "A unit of the extension is malformed; the rest of its file cannot be read.",
        "The CommitLog still has the messages: build the queue anew.",
        _REBUILD,
    ),
    _error(
        "ext-dangling-address",
        "A unit of the queue states an address at which the extension has no unit: consumers that filter by "
        "property get nothing for it.",
        "The CommitLog still has the messages: build the queue anew.",
        _REBUILD,
    ),
    _error(
        "ext-wrong-unit",
        "A unit of the extension states another tags code or time than the record it belongs to.",
        "The CommitLog still has the messages: build the queue anew.",
        _REBUILD,
    ),
)
