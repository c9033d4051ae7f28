"""Codes of compacted topics."""

from mqtool.verify.catalogue.check import COMPACTION, Check
from mqtool.verify.findings import Area, Severity

_DUMP = "mqtool dump {path}"
_REMAKE = (
    "Move the topic's directory below compaction/ out of the store while the broker is stopped: the broker "
    "compacts the log again."
)


def _error(code: str, meaning: str, remedy: str = _REMAKE) -> Check:
    return Check(code, Area.COMPACTION, Severity.ERROR, meaning, remedy, _DUMP, no_runbook=COMPACTION)


CHECKS = (
    _error("compaction-damage", "A range of a compacted topic's log holds no valid record."),
    _error("compaction-unit", "A unit of a compacted topic's queue does not fit the record of its log."),
    _error("compaction-order", "Queue offsets in a compacted topic's log do not increase."),
    _error("compaction-file", "The log and the queue of a compacted topic do not have the same files."),
    _error(
        "compaction-leftover",
        "A compacted topic contains a file that belongs to no queue; if it is named *.delete, it prevents the "
        "broker from starting.",
        "Move it out of the store while the broker is stopped.",
    ),
)
