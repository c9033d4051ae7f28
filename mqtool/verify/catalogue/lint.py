"""Codes of the given configuration."""

from functools import partial

from mqtool.verify.catalogue.check import CONFIGURATION, check
from mqtool.verify.findings import Area, Severity

_INFO = "mqtool info {store}"

_error = partial(check, Area.LINT, Severity.ERROR)
_warning = partial(check, Area.LINT, Severity.WARNING)

CHECKS = (
    _warning(
        "lint-legacy-key",
        "The configuration has a key in its old spelling, which brokers ignore: the default applies.",
        "Spell it as the broker does.",
        "",
        "RB-01",
    ),
    _warning(
        "lint-unknown-key",
        "The configuration has a key that no broker reads: it is ignored, and the default applies.",
        "Spell it as the broker does.",
        _INFO,
        no_runbook=CONFIGURATION,
    ),
    _warning(
        "lint-misread-value",
        "The broker reads this value differently, or ignores it and uses the default.",
        "Write the value as the finding states: numbers and booleans without blanks, in the form that the broker "
        "accepts.",
        _INFO,
        no_runbook=CONFIGURATION,
    ),
    _error(
        "lint-size",
        "The configured size is not that of the files: the broker refuses to start, or misreads them.",
        "Set the key to the value that fits the files; the finding states both.",
        "",
        "RB-01",
    ),
    _warning(
        "lint-disk-ratio",
        "The disk ratios contradict each other: writes stop before old files are deleted.",
        "diskMaxUsedSpaceRatio < diskSpaceCleanForciblyRatio < diskSpaceWarningLevelRatio.",
        _INFO,
        no_runbook=CONFIGURATION,
    ),
    _warning(
        "lint-path",
        "The configuration names a directory without a store: the broker would start with an empty store there.",
        "Correct storePathRootDir.",
        _INFO,
        no_runbook=CONFIGURATION,
    ),
)
