"""Progress on stderr: a bar on a terminal, JSON lines where asked for, else nothing."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self

from mqtool.cli.options import ProgressMode

INTERVAL = 0.5
"""Seconds between two JSON lines."""


class Progress(Protocol):
    """A context manager that is told how far the work has come."""

    def update(self, done: int, total: int | None = None) -> None:
        """Says how much is done; cheap enough to be called per block of records, not per record."""

    def __enter__(self) -> Self:
        """Shows it."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Takes it away, or says that it is complete."""


class Silent:
    """No progress."""

    def update(self, done: int, total: int | None = None) -> None:
        """Nothing."""

    def __enter__(self) -> Self:
        """Nothing."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing."""


class JsonLinesProgress:
    """Lines `{"progress": {"what", "done", "total", "unit"}}`, the last of them with `"finished": true`."""

    def __init__(self, what: str, total: int, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._fields: dict[str, Any] = {"what": what, "done": 0, "total": total, "unit": unit}
        self._clock = clock
        self._next = clock()

    def update(self, done: int, total: int | None = None) -> None:
        """Prints a line if the last one is old enough."""
        self._fields["done"] = done
        if total is not None:
            self._fields["total"] = total
        now = self._clock()
        if now >= self._next:
            self._next = now + INTERVAL
            self._print(finished=False)

    def _print(self, *, finished: bool) -> None:
        from mqtool.cli.render import encode  # noqa: PLC0415

        line = encode({"progress": {**self._fields, "finished": finished}}).decode()
        print(line, file=sys.stderr, flush=True)  # noqa: T201

    def __enter__(self) -> Self:
        """Nothing."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Prints the last line, unless the work failed."""
        if kind is None:
            self._print(finished=True)


class Bar:
    """A bar that goes away when the work ends."""

    def __init__(self, what: str, total: int, unit: str) -> None:
        from rich import progress as rich_progress  # noqa: PLC0415 - drawn on a terminal only
        from rich.console import Console  # noqa: PLC0415

        amount: Any = rich_progress.DownloadColumn() if unit == "bytes" else rich_progress.MofNCompleteColumn()
        self._bar = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            amount,
            rich_progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(what, total=total)

    def update(self, done: int, total: int | None = None) -> None:
        """Moves the bar."""
        self._bar.update(self._task, completed=done, total=total)

    def __enter__(self) -> Self:
        """Shows the bar."""
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Removes the bar."""
        self._bar.stop()


def progress(mode: ProgressMode, what: str, total: int, unit: str = "bytes") -> Progress:
    """Returns what `--progress` asks for.

    Args:
        mode: the option's value; AUTO draws a bar if stderr is a terminal and stdout is none, where data scrolls by.
        what: a word or two.
        total: units of work; grows by `update` if need be.
        unit: "bytes", or any plural.
    """
    if mode is ProgressMode.JSON:
        return JsonLinesProgress(what, total, unit)
    if mode is ProgressMode.AUTO and sys.stderr.isatty() and not sys.stdout.isatty():
        return Bar(what, total, unit)
    return Silent()
