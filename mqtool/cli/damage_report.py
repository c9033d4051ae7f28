"""Reports damage that a command meets: one line on stderr for each, and exit code 1 in the end."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import note

if TYPE_CHECKING:
    from mqtool.records.damage import Damage, Tail

MAX_LINES = 1000
"""Lines of damage; the rest is counted. A store of zeros must not flood a terminal."""


class DamageReport:
    """Counts and reports damage.

    Attributes:
        count: number of damages so far.
    """

    def __init__(self, *, lines: bool = True) -> None:
        """Starts with none.

        Args:
            lines: print a line for each; otherwise the damage is among the rows.
        """
        self.count = 0
        self._lines = lines
        self._missing = False

    def missing(self) -> None:
        """Notes that something requested does not exist."""
        self._missing = True

    def report(self, text: str) -> None:
        """Counts one damage and prints its line."""
        self.count += 1
        if self._lines and self.count <= MAX_LINES:
            note(text)

    def damage(self, damage: "Damage") -> None:
        """Reports a range without a valid record."""
        self.report(f"damage: {damage}")

    def unknown(self, sentences: Iterable[str]) -> None:
        """Reports what could not be read and makes the result incomplete."""
        for sentence in sentences:
            note(f"unknown: {sentence}")
            self._missing = True

    def tail(self, tail: "Tail") -> None:
        """Reports what follows the last record; bytes that are not a record count as damage."""
        text = f"tail: {tail.kind}, {tail.length} bytes after physical offset {tail.end}: {tail.detail}"
        if tail.kind == "garbage":
            self.report(f"damage: {text}")
        elif tail.kind != "clean":
            note(text)

    def code(self) -> ExitCode:
        """Returns the exit code."""
        if self._lines and self.count > MAX_LINES:
            note(f"damage: {self.count - MAX_LINES} more; `mqtool info --deep` sums them up")
        return ExitCode.NO if self.count or self._missing else ExitCode.OK
