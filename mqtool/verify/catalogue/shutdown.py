"""Codes of the files that mark a shutdown."""

from functools import partial

from mqtool.verify.catalogue.check import check, run
from mqtool.verify.findings import Area, Severity

_EXPLAIN = "mqtool explain-start {store}"

_error = partial(check, Area.SHUTDOWN, Severity.ERROR)
_warning = partial(check, Area.SHUTDOWN, Severity.WARNING)

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
