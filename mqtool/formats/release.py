"""Releases of RocketMQ as numbers that compare: `release >= (5, 5)`."""

import re
from typing import NamedTuple

from mqtool.errors import UsageError


class Release(NamedTuple):
    """A release line; compares with any tuple of numbers."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


V4_9 = Release(4, 9)
V5_5 = Release(5, 5)

_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})(\.\d{1,4})?", re.ASCII)

MEASURED = {V4_9: "4.9.7", V5_5: "5.5.0"}
"""The releases whose rules are known, and the version of each whose behaviour was read and measured."""


def release_of(text: str) -> Release:
    """Returns the known release line that a version such as `5.5` or `5.5.0` belongs to; UsageError without one."""
    for release in MEASURED:
        if text == str(release) or text.startswith(f"{release}."):
            return release
    known = ", ".join(map(str, MEASURED))
    raise UsageError(f"how RocketMQ {text[:40]} starts is not known; expected one of {known}")


def parse(text: str) -> Release:
    """Returns the release line of a version such as `4.9`, `5.1` or `5.5.0`; for `4` and `5` alone the one assumed.

    Raises UsageError if it is not a version.
    """
    if text in ("4", "5"):
        return assumed_release(text)
    match = _VERSION.fullmatch(text)
    if match is None:
        raise UsageError(f"broker version {text[:40]!r}: expected a release such as 4.9 or 5.5")
    return Release(int(match[1]), int(match[2]))


def assumed_release(line: str | None) -> Release:
    """Returns the known release whose rules stand in for a detected release line.

    That is 4.9 for any 4.x, and 5.5 for any 5.x and for None, where nothing in a store reveals the line, as a store is
    opened by a current broker next.
    """
    return V4_9 if line is not None and line.startswith("4") else V5_5
