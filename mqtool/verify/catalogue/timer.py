"""Codes of the timer."""

from mqtool.verify.catalogue.check import Check
from mqtool.verify.findings import Area, Severity

_DUMP = "mqtool dump {path}"
_RECORD = "mqtool dump {store} -o {offsets}"


def _error(code: str, meaning: str, remedy: str, next_step: str) -> Check:
    return Check(code, Area.TIMER, Severity.ERROR, meaning, remedy, next_step)


CHECKS = (
    _error(
        "timer-wheel-size",
        "The timer wheel is not 38,707,200 bytes long: the timer does not start.",
        "Move it aside; the broker makes an empty one and reads the timer log.",
        _DUMP,
    ),
    _error(
        "timer-log-size",
        "A timer log file has another length than its neighbours: the broker refuses to start.",
        "Compare with mappedFileSizeTimerLog.",
        _DUMP,
    ),
    _error(
        "timer-log-gap",
        "A file of the timer log is gone: chains that lead there end.",
        "Messages that wait there are not delivered; find them in the queue rmq_sys_wheel_timer.",
        _DUMP,
    ),
    _error(
        "timer-bad-unit",
        "A unit of the timer log is malformed: what follows in its file is not read.",
        "Messages that wait there are not delivered; find them in the queue rmq_sys_wheel_timer.",
        _DUMP,
    ),
    _error(
        "timer-bad-chain",
        "A unit of the timer log names a predecessor that is none.",
        "Messages behind it are not delivered; find them in the queue rmq_sys_wheel_timer.",
        _DUMP,
    ),
    _error(
        "timer-dangling-unit",
        "A unit of the timer log points into the CommitLog where no such record is: the timer stops there.",
        "Fetch the record from a replica.",
        _RECORD,
    ),
    _error(
        "timer-bad-slot",
        "A slot of the timer wheel leads to positions that the timer log does not have.",
        "Move the wheel aside; the broker makes it anew from the timer log.",
        _DUMP,
    ),
    _error(
        "timer-checkpoint-ahead",
        "config/timercheck lies beyond the timer log or its queue: messages are skipped.",
        "Move it aside while the broker is stopped.",
        _DUMP,
    ),
)
