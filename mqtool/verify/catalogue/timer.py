"""Codes of the timer."""

from functools import partial

from mqtool.verify.catalogue.check import check, run
from mqtool.verify.findings import Area, Severity

_REBUILD = "mqtool plan rebuild timer {store} -o {plan}"

_error = partial(check, Area.TIMER, Severity.ERROR)

CHECKS = (
    _error(
        "timer-not-file",
        "The timer wheel or config/timercheck is not a regular file: 5.x does not start.",
        "Move it out of the store, then rebuild the timer's files from the log.",
        run("RB-17"),
        "RB-17",
    ),
    _error(
        "timer-wheel-size",
        "The timer wheel is not 38,707,200 bytes long: the timer does not start.",
        "Rebuild the timer's files from the log.",
        _REBUILD,
        "RB-17",
    ),
    _error(
        "timer-log-size",
        "A timer log file has another length than its neighbours: the broker refuses to start.",
        "Compare with mappedFileSizeTimerLog; rebuild the timer's files from the log.",
        _REBUILD,
        "RB-17",
        "RB-01",
    ),
    _error(
        "timer-log-gap",
        "A file of the timer log is missing: chains that lead there end.",
        "Messages that wait there are not delivered; rebuild the timer's files from the log.",
        _REBUILD,
        "RB-17",
    ),
    _error(
        "timer-bad-unit",
        "A unit of the timer log is malformed: what follows in its file is not read.",
        "Messages that wait there are not delivered; rebuild the timer's files from the log.",
        _REBUILD,
        "RB-17",
    ),
    _error(
        "timer-bad-chain",
        "The predecessor that a unit of the timer log names does not exist.",
        "Messages after it are not delivered; rebuild the timer's files from the log.",
        _REBUILD,
        "RB-17",
    ),
    _error(
        "timer-dangling-unit",
        "A unit of the timer log points into the CommitLog where there is no such record: the timer stops there.",
        "Rebuild the timer's files from the log; fetch the record from a replica if it is missing.",
        _REBUILD,
        "RB-17",
    ),
    _error(
        "timer-bad-slot",
        "A slot of the timer wheel leads to positions that the timer log does not have.",
        "Rebuild the timer's files from the log.",
        _REBUILD,
        "RB-17",
    ),
    _error(
        "timer-missing-unit",
        "The timer log has no unit for waiting messages that the timer has already read: some or all of its files are "
        "missing. These messages are not delivered.",
        "The CommitLog still has the messages: rebuild the timer's files from it.",
        _REBUILD,
        "RB-17",
    ),
    _error(
        "timer-checkpoint-ahead",
        "config/timercheck is past the end of the timer log or its queue: messages are skipped.",
        "Rebuild the timer's files from the log.",
        _REBUILD,
        "RB-17",
    ),
)
