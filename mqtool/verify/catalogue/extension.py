"""Codes of the ConsumeQueueExt."""

from functools import partial

from mqtool.verify.catalogue.check import check
from mqtool.verify.findings import Area, Severity

_REBUILD = "mqtool plan rebuild consumequeue {store} --topic {topic} --queue {queue_id} -o {plan}"

_error = partial(check, Area.CONSUME_QUEUE_EXT, Severity.ERROR)

CHECKS = (
    _error(
        "ext-file-size",
        "The file's length is not that of extension files: the broker refuses to start.",
        "Compare with mappedFileSizeConsumeQueueExt.",
        _REBUILD,
        "RB-01",
    ),
    _error(
        "ext-bad-unit",
        "A unit of the extension is malformed; the rest of its file cannot be read.",
        "The CommitLog still has the messages: rebuild the queue.",
        _REBUILD,
        "RB-02",
    ),
    _error(
        "ext-dangling-address",
        "A unit of the queue states an address at which the extension has no unit: consumers that filter by "
        "property get nothing for it.",
        "The CommitLog still has the messages: rebuild the queue.",
        _REBUILD,
        "RB-02",
    ),
    _error(
        "ext-wrong-unit",
        "A unit of the extension states another time than its record: consumers that filter by property use its bit "
        "map when they should not, or ignore it when they should use it.",
        "The CommitLog still has the messages: rebuild the queue.",
        _REBUILD,
        "RB-02",
    ),
    _error(
        "ext-missing-bits",
        "Bits are missing in a unit's bit map for a consumer group whose filter the message passes: the group does "
        "not get the message.",
        "The CommitLog still has the messages: rebuild the queue.",
        _REBUILD,
        "RB-02",
    ),
)
