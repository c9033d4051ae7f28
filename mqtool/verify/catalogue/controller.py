"""Codes of controller mode."""

from functools import partial

from mqtool.verify.catalogue.check import REPLICA, check
from mqtool.verify.findings import Area, Severity

_DUMP = "mqtool dump {path}"

_error = partial(check, Area.CONTROLLER, Severity.ERROR)

CHECKS = (
    _error(
        "epoch-missing",
        "A broker of controller mode has messages, but neither epochFileCheckpoint nor its .bak: it does not know "
        "which master wrote which part of its log, and cannot find where the log agrees with a replica's.",
        "Copy it from a replica that was in sync.",
        "mqtool info {store}",
        no_runbook=REPLICA,
    ),
    _error(
        "epoch-unreadable",
        "epochFileCheckpoint cannot be read, and neither can its .bak. (A warning if the .bak can.)",
        "Copy it from a replica that was in sync.",
        _DUMP,
        no_runbook=REPLICA,
    ),
    _error(
        "epoch-order",
        "Epochs do not ascend, or one starts beyond the end of the log.",
        "Compare with a replica before it joins: a wrong epoch cuts the log in the wrong place.",
        _DUMP,
        no_runbook=REPLICA,
    ),
)
