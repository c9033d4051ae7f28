"""What goes wrong while a command prints: a line on stderr each, and exit code 1 in the end."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import note

if TYPE_CHECKING:
    from mqtool.records.damage import Damage, Tail

MOST_LINES = 1000
"""Lines of damage; the rest is counted. A store of zeros must not flood a terminal."""


class DamageReport:
    """Counts damage and says it.

    Attributes:
        count: how much was met.
    """

    def __init__(self, *, lines: bool = True) -> None:
        """Starts with none.

        Args:
            lines: print a line each; else the damage is among the rows.
        """
        self.count = 0
        self._lines = lines
        self._missing = False

    def missing(self) -> None:
        """Notes that something that was asked for is not there."""
        self._missing = True

    def say(self, text: str) -> None:
        """Counts one damage and prints its line."""
        self.count += 1
        if self._lines and self.count <= MOST_LINES:
            note(text)

    def damage(self, damage: "Damage") -> None:
        """Tells of a range without a valid record."""
        self.say(f"damage: {damage}")

    def unknown(self, sentences: Iterable[str]) -> None:
        """Names what could not be looked at; the result is incomplete because of it."""
        for sentence in sentences:
            note(f"unknown: {sentence}")
            self._missing = True

    def tail(self, tail: "Tail") -> None:
        """Tells what follows the last record; bytes that are not a record count as damage."""
        text = f"tail: {tail.kind}, {tail.length} bytes after physical offset {tail.end}: {tail.detail}"
        if tail.kind == "garbage":
            self.say(f"damage: {text}")
        elif tail.kind != "clean":
            note(text)

    def code(self) -> ExitCode:
        """Ends the report."""
        if self._lines and self.count > MOST_LINES:
            note(f"damage: {self.count - MOST_LINES} more; `mqtool info --deep` sums them up")
        return ExitCode.NO if self.count or self._missing else ExitCode.OK
