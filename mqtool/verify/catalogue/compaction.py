"""Codes of compacted topics."""

from mqtool.verify.catalogue.check import Check, run
from mqtool.verify.findings import Area, Severity

_SALVAGE = (
    "Salvage the store: the new one has every valid record of the compacted log, and from the CommitLog what that log "
    "lacks. Do not remove the directory below compaction/: a broker never fills it again from its own log."
)


def _error(code: str, meaning: str, remedy: str = _SALVAGE) -> Check:
    return Check(code, Area.COMPACTION, Severity.ERROR, meaning, remedy, run("RB-05"), ("RB-05",))


CHECKS = (
    _error("compaction-damage", "A range of a compacted topic's log holds no valid record."),
    _error(
        "compaction-missing",
        "The CommitLog has messages of a compacted topic after the last one of its compacted log. The broker does not "
        "serve them: it reads compacted topics only there. (A warning where the next start dispatches them again.)",
    ),
    _error("compaction-unit", "A unit of a compacted topic's queue does not fit the record of its log."),
    _error("compaction-order", "Queue offsets in a compacted topic's log do not increase."),
    _error(
        "compaction-file",
        "The log and the queue of a compacted topic do not have the same files: the broker does not start.",
    ),
    _error(
        "compaction-leftover",
        "A compacted topic contains a file that belongs to no queue; if it is named *.delete, it prevents the "
        "broker from starting.",
        "Move it out of the store while the broker is stopped; if the topic has other findings, salvage the store.",
    ),
)
