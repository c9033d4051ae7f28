"""The bars on the terminal, so that other output can remove them first."""

from typing import Protocol


class TerminalBar(Protocol):
    """A bar on the terminal's last line."""

    def show(self) -> None:
        """Lets it be drawn again."""

    def hide(self) -> None:
        """Clears the line until the bar is drawn again."""


DRAWN: list[TerminalBar] = []


def show() -> None:
    """Lets every bar be drawn again; called when work goes on after a question."""
    for bar in DRAWN:
        bar.show()


def hide() -> None:
    """Clears every bar; called before something is printed on the terminal."""
    for bar in DRAWN:
        bar.hide()
