"""Codes of compacted topics."""

from mqtool.verify.catalogue.check import COMPACTION, Check
from mqtool.verify.findings import Area, Severity

_DUMP = "mqtool dump {path}"
_REMAKE = "Move the topic below compaction/ aside while the broker is stopped: it compacts again what its log has."


def _error(code: str, meaning: str, remedy: str = _REMAKE) -> Check:
    return Check(code, Area.COMPACTION, Severity.ERROR, meaning, remedy, _DUMP, no_runbook=COMPACTION)


CHECKS = (
    _error("compaction-damage", "A range of a compacted topic's log holds no valid record."),
    _error("compaction-unit", "A unit of a compacted topic's queue does not fit the record of its log."),
    _error("compaction-order", "Queue offsets in a compacted topic's log do not grow."),
    _error("compaction-file", "A compacted topic's log and queue have not the same files."),
    _error(
        "compaction-leftover",
        "A file that belongs to no queue lies in a compacted topic; named *.delete, it keeps the broker from starting.",
        "Move it aside while the broker is stopped.",
    ),
)
