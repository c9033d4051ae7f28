"""Codes of the configuration that is given."""

from mqtool.verify.catalogue.check import Check
from mqtool.verify.findings import Area, Severity

_INFO = "mqtool info {store}"


def _error(code: str, meaning: str, remedy: str, next_step: str) -> Check:
    return Check(code, Area.LINT, Severity.ERROR, meaning, remedy, next_step)


def _warning(code: str, meaning: str, remedy: str, next_step: str) -> Check:
    return Check(code, Area.LINT, Severity.WARNING, meaning, remedy, next_step)


CHECKS = (
    _warning(
        "lint-legacy-key",
        "The configuration has a key in its old spelling, which brokers ignore: the default applies.",
        "Spell it as the broker does.",
        _INFO,
    ),
    _error(
        "lint-size",
        "The configured size is not that of the files: the broker refuses to start, or misreads them.",
        "Correct the configuration.",
        _INFO,
    ),
    _warning(
        "lint-disk-ratio",
        "The disk ratios contradict each other: writes stop before old files are deleted.",
        "diskMaxUsedSpaceRatio < diskSpaceCleanForciblyRatio < diskSpaceWarningLevelRatio.",
        _INFO,
    ),
    _warning(
        "lint-path",
        "The configuration names a directory without a store: the broker would begin anew there.",
        "Correct storePathRootDir.",
        _INFO,
    ),
)
