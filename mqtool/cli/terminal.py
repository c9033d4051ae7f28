"""The terminal: colour, and the bars that other output removes first.

https://no-color.org is respected, and nothing is coloured where output is not a terminal.
"""

import os
import sys
from enum import StrEnum
from typing import Protocol, TextIO

DRAWN: list["TerminalBar"] = []


class Style(StrEnum):
    """What a piece of text is; the value is its SGR code (ECMA-48)."""

    BAD = "1;31"
    DOUBTFUL = "33"
    GOOD = "32"
    COMMAND = "36"
    HEADER = "1"


def enabled(stream: TextIO) -> bool:
    """Whether text for a stream is coloured: it is a terminal that knows colours, and NO_COLOR is unset or empty."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: Style) -> str:
    """Returns text in a style, or unchanged if stdout is not coloured."""
    return f"\x1b[{style}m{text}\x1b[0m" if text and enabled(sys.stdout) else text


class TerminalBar(Protocol):
    """A bar on the terminal's last line."""

    def show(self) -> None:
        """Lets it be drawn again."""

    def hide(self) -> None:
        """Clears the line until the bar is drawn again."""


def show_bars() -> None:
    """Lets every bar be drawn again; called when work goes on after a question."""
    for bar in DRAWN:
        bar.show()


def hide_bars() -> None:
    """Clears every bar; called before something is printed on the terminal."""
    for bar in DRAWN:
        bar.hide()
