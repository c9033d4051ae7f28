"""Codes of the checkpoint."""

from functools import partial

from mqtool.verify.catalogue.check import check, run
from mqtool.verify.findings import Area, Severity

_METADATA = "mqtool plan rebuild metadata {store} --file checkpoint -o {plan}"

_error = partial(check, Area.CHECKPOINT, Severity.ERROR)
_warning = partial(check, Area.CHECKPOINT, Severity.WARNING)
_unknown = partial(check, Area.CHECKPOINT, Severity.UNKNOWN)

CHECKS = (
    _warning(
        "checkpoint-missing",
        "There is no checkpoint. The broker starts; after a crash it deletes every index file and scans the entire "
        "log.",
        "None after a clean shutdown; otherwise rebuild it first.",
        _METADATA,
        "RB-09",
    ),
    _warning(
        "checkpoint-size",
        "The checkpoint is not 4096 bytes long; missing bytes count as 0.",
        "Rebuild it.",
        _METADATA,
        "RB-09",
    ),
    _warning(
        "checkpoint-zero",
        "All times of the checkpoint are 0 though the log contains messages and there are full index files. After a "
        "crash the broker deletes every index file and scans the entire log.",
        "Rebuild it.",
        _METADATA,
        "RB-09",
    ),
    _warning(
        "checkpoint-ahead",
        "The checkpoint is past the newest message: after a crash the broker scans too little and misses damage "
        "at the end.",
        "Rebuild it.",
        _METADATA,
        "RB-09",
    ),
    _warning(
        "checkpoint-behind",
        "An index file that is full ends after the checkpoint's index time: a start after a crash deletes it and "
        "does not index all of its messages again.",
        "Rebuild it.",
        _METADATA,
        "RB-09",
    ),
    _warning(
        "checkpoint-bad-value",
        "A field of the checkpoint is negative, or an offset that is impossible for a log of this length.",
        "Rebuild it.",
        _METADATA,
        "RB-09",
    ),
    _warning(
        "checkpoint-foreign",
        "The checkpoint is of another log: it names a place where no record begins, or a time before the first record. "
        "After a crash the broker starts its scan at a wrong segment, and deletes wrong index files.",
        "Rebuild it.",
        _METADATA,
        "RB-09",
    ),
    _unknown(
        "checkpoint-unreadable",
        "The system reported an error while reading.",
        "Make it readable, or move it out of the store and rebuild it.",
        run("RB-09"),
        "RB-09",
    ),
    _error(
        "checkpoint-not-file",
        "The checkpoint is not a regular file: the broker refuses to start.",
        "Move it out of the store and rebuild it.",
        run("RB-09"),
        "RB-09",
    ),
)
