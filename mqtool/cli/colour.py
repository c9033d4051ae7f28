"""Colour on a terminal: https://no-color.org is respected, and nothing is coloured where output is not a terminal."""

import os
import sys
from enum import StrEnum
from typing import TextIO


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
