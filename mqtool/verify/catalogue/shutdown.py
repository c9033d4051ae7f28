"""Codes of the marks of a shutdown."""

from mqtool.verify.catalogue.check import Check, run
from mqtool.verify.findings import Area, Severity

_EXPLAIN = "mqtool explain-start {store}"


def _error(code: str, meaning: str, remedy: str, next_step: str, *runbooks: str) -> Check:
    return Check(code, Area.SHUTDOWN, Severity.ERROR, meaning, remedy, next_step, runbooks)


def _warning(code: str, meaning: str, remedy: str, next_step: str, *runbooks: str) -> Check:
    return Check(code, Area.SHUTDOWN, Severity.WARNING, meaning, remedy, next_step, runbooks)


CHECKS = (
    _warning(
        "abort-present",
        "The broker was not shut down cleanly: there is an abort file. On its next start it recovers: it scans the "
        "end of the log, cuts a torn tail, brings queues up to date and deletes the last index file.",
        "Verify before the start; if nothing else is found, start.",
        _EXPLAIN,
        "RB-08",
    ),
    _error(
        "abort-bad",
        "abort is not a regular file. 5.5 recovers as after a crash and then fails to start.",
        "Move it out of the store.",
        run("RB-01"),
        "RB-01",
    ),
)
