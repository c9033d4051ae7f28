"""Codes of controller mode."""

from mqtool.verify.catalogue.check import Check
from mqtool.verify.findings import Area, Severity

_DUMP = "mqtool dump {path}"


def _error(code: str, meaning: str, remedy: str, next_step: str) -> Check:
    return Check(code, Area.CONTROLLER, Severity.ERROR, meaning, remedy, next_step)


CHECKS = (
    _error(
        "epoch-unreadable",
        "epochFileCheckpoint cannot be read, and neither can its .bak. (A warning if the .bak can.)",
        "Copy it from a replica that was in sync.",
        _DUMP,
    ),
    _error(
        "epoch-order",
        "Epochs do not ascend, or one starts beyond the end of the log.",
        "Compare with a replica before it joins: a wrong epoch cuts the log in the wrong place.",
        _DUMP,
    ),
)
