"""Every finding code of `verify`: its meaning and remedy. Codes are stable: they are never renamed or reused.

docs/checks.md is generated from here, `mqtool help checks` prints it.
"""

from mqtool.verify.catalogue import (
    checkpoint,
    compaction,
    config,
    controller,
    dledger,
    extension,
    index,
    lint,
    log,
    queues,
    rocksdb,
    shutdown,
    timer,
)
from mqtool.verify.catalogue.check import Check

_AREAS = (
    log,
    queues,
    rocksdb,
    extension,
    index,
    checkpoint,
    shutdown,
    config,
    dledger,
    compaction,
    timer,
    controller,
    lint,
)

CATALOGUE: dict[str, Check] = {check.code: check for area in _AREAS for check in area.CHECKS}
"""Checks by code, in the order of the areas."""

__all__ = ["CATALOGUE", "Check"]
