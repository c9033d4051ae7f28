"""Codes of ConsumeQueues in RocksDB."""

from mqtool.verify.catalogue.check import NO_STEP, NOT_READ, Check, check, run
from mqtool.verify.findings import Area, Severity


def _error(code: str, meaning: str, remedy: str) -> Check:
    return Check(code, Area.CONSUME_QUEUE, Severity.ERROR, meaning, remedy, run("RB-19"), ("RB-19",))


CHECKS = (
    _error(
        "rocksdb-unreadable",
        "The RocksDB of the queues is damaged, or contains keys that are not queues.",
        "Rebuild the queues from the log: `mqtool rebuild consumequeue`.",
    ),
    check(
        Area.CONSUME_QUEUE,
        Severity.UNKNOWN,
        "rocksdb-not-read",
        "The system does not let the RocksDB of the queues be read: its contents are unknown.",
        "Verify as a user who may read it; on a failing disk copy what can be read to another disk first.",
        "mqtool verify {store}",
        no_runbook=NOT_READ,
    ),
    _error(
        "rocksdb-missing-unit",
        "A record has no unit in its queue in RocksDB: consumers do not see it. (A warning after a crash, because the "
        "next start dispatches from the position in the database.)",
        "Rebuild the queues from the log: `mqtool rebuild consumequeue`.",
    ),
    _error(
        "rocksdb-wrong-unit",
        "A unit in RocksDB contradicts its record.",
        "Rebuild the queues from the log: `mqtool rebuild consumequeue`.",
    ),
    _error(
        "rocksdb-extra-unit",
        "A queue in RocksDB has units without a record.",
        "Rebuild the queues from the log: `mqtool rebuild consumequeue`.",
    ),
    _error(
        "rocksdb-bound",
        "The stored end of a queue in RocksDB is not the real one, or the dispatch position is after the end of the "
        "log.",
        "Rebuild the queues from the log: `mqtool rebuild consumequeue`.",
    ),
    Check(
        "rocksdb-leftover",
        Area.CONSUME_QUEUE,
        Severity.NOTE,
        "A queue in RocksDB has units after its stored end. A broker that cut the log on its start leaves them until "
        "new messages replace them; consumers do not get them.",
        "None.",
        "",
        no_runbook=NO_STEP,
    ),
)
