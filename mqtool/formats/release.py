"""Releases of RocketMQ as numbers that compare: `release >= (5, 0)`."""

import re
from typing import NamedTuple

from mqtool.errors import UsageError


class Release(NamedTuple):
    """A release; compares with any tuple of numbers."""

    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        return ".".join(map(str, self if self.patch else self[:2]))


V4_9 = Release(4, 9)
V5_3 = Release(5, 3)
V5_4 = Release(5, 4)
V5_5 = Release(5, 5)
V5_5_1 = Release(5, 5, 1)

_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?", re.ASCII)

MEASURED = {V4_9: "4.9.7", V5_3: "5.3.3", V5_4: "5.4.0", V5_5: "5.5.0", V5_5_1: "5.5.1"}
"""The releases whose rules are known, oldest first, and the version of each that was read and measured."""

ON_THE_WIRE = {V4_9: 407, V5_3: 479, V5_4: 493, V5_5: 513, V5_5_1: 515}
"""The number that each of these versions sends: its ordinal in MQVersion."""


def release_of(text: str) -> Release:
    """Returns the known release that a version is or stands for; UsageError without one.

    `5.5` is 5.5.0. Of other lines each patch release, such as 5.3.1, stands for the one that was measured.
    """
    for release, version in MEASURED.items():
        if text in (str(release), version) or (release < V5_5 and text.startswith(f"{release}.")):
            return release
    known = ", ".join(map(str, MEASURED))
    raise UsageError(f"how RocketMQ {text[:40]} starts is not known; expected one of {known}")


def parse(text: str) -> Release:
    """Returns the release of a version such as `4.9`, `5.1` or `5.5.0`; for `4` and `5` alone the one assumed.

    Raises UsageError if it is not a version.
    """
    if text in ("4", "5"):
        return assumed_release(text)
    match = _VERSION.fullmatch(text)
    if match is None:
        raise UsageError(f"broker version {text[:40]!r}: expected a release such as 4.9 or 5.5")
    return Release(*(int(part or 0) for part in match.groups()))


def assumed_release(line: str | None) -> Release:
    """Returns the known release whose rules stand in for a detected release line.

    That is 4.9 for any 4.x, and 5.5 for any 5.x and for None, where nothing in a store reveals the line, as a store is
    opened by a current broker next.
    """
    return V4_9 if line is not None and line.startswith("4") else V5_5
