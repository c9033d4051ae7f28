"""Progress on stderr: a bar on a terminal, JSON lines on request, otherwise nothing."""

import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from mqtool.cli import terminal
from mqtool.cli.options import ProgressMode
from mqtool.jobs.progress import OnProgress

INTERVAL = 0.5
"""Seconds between two JSON lines."""
PATIENCE = 2.0
"""Seconds after which a command that knows no total shows how long it has been working."""
_STDERR = 2
REDRAW = 0.1
"""Seconds between two drawings of the bar."""


class Progress:
    """A context manager that receives the progress of work; this one shows nothing."""

    def update(self, at: int) -> None:
        """Reports the position of the work; call it for every thousandth record or so."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Removes the display, or reports completion."""


class JsonLinesProgress(Progress):
    """Lines `{"progress": {"what", "done", "total", "per_second", "seconds_left", "finished"}}`; the last is finished.

    All in bytes; `seconds_left` is null until something is done.
    """

    def __init__(self, what: str, start: int, end: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._start = self._at = start
        self._total = max(0, end - start)
        self._clock = clock
        self._began = clock()
        self._next = self._began + INTERVAL

    def update(self, at: int) -> None:
        """Prints a line if the last one is old enough."""
        self._at = at
        now = self._clock()
        if now >= self._next:
            self._next = now + INTERVAL
            self._print(finished=False)

    def _print(self, *, finished: bool) -> None:
        from mqtool.cli.render import encode

        done = max(0, self._at - self._start)
        seconds = self._clock() - self._began
        rate = round(done / seconds) if seconds > 0 else 0
        left = round((self._total - done) / rate, 1) if rate else None
        fields = {
            "what": self._what,
            "done": done,
            "total": self._total,
            "per_second": rate,
            "seconds_left": left,
            "finished": finished,
        }
        print(encode({"progress": fields}).decode(), file=sys.stderr, flush=True)  # noqa: T201

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Prints the last line, unless the work failed."""
        if kind is None:
            self._print(finished=True)


class Elapsed:
    """`plan repair: 12 s` on the terminal, until something else is printed: for work whose length is unknown.

    A thread draws it. It ends before anything else is printed, and writes past the buffer of stderr, whose lock a
    worker process would inherit.
    """

    def __init__(self, what: str, patience: float = PATIENCE, descriptor: int = _STDERR) -> None:
        self._what = what
        self._patience = patience
        self._descriptor = descriptor
        self._ended = threading.Event()
        self._drawn = False
        self.show()

    def _draw(self) -> None:
        began, pause = time.monotonic(), self._patience
        while not self._ended.wait(pause):
            pause, self._drawn = 1.0, True
            line = f"\r\x1b[2K{self._what}: {time.monotonic() - began:.0f} s"
            os.write(self._descriptor, line.encode("utf-8", "replace"))

    def show(self) -> None:
        """Begins to wait, again after `hide`."""
        self._ended.clear()
        self._thread = threading.Thread(target=self._draw, daemon=True)
        self._thread.start()

    def hide(self) -> None:
        """Ends it and clears its line."""
        self._ended.set()
        self._thread.join()
        if self._drawn:
            self._drawn = False
            os.write(self._descriptor, b"\r\x1b[2K")

    def __enter__(self) -> Self:
        """Lets other output end it."""
        terminal.DRAWN.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        """Ends it."""
        self.hide()
        terminal.DRAWN.remove(self)


class Bar(Progress):
    """A bar on the last line of the terminal, removed when the work ends.

    Rows may be printed to the same terminal meanwhile: `Output` hides the bar first, and the next `update` draws it
    below them.
    `update` draws it, not a thread, so that the two never mix.
    """

    def __init__(self, what: str, start: int, end: int, clock: Callable[[], float] = time.monotonic) -> None:
        from rich import progress as rich_progress
        from rich.console import Console

        self._terminal = sys.stderr  # while the bar is shown, rich puts a proxy in its place
        self._start = start
        self._clock = clock
        self._next = 0.0
        self._hidden = True
        self._bar = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            rich_progress.DownloadColumn(),
            rich_progress.TransferSpeedColumn(),
            rich_progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            auto_refresh=False,
            redirect_stdout=False,  # `Output` writes bytes past sys.stdout and hides the bar itself
            transient=True,
        )
        self._task = self._bar.add_task(what, total=max(0, end - start))

    def update(self, at: int) -> None:
        """Moves the bar; redraws it if the last time was long enough ago."""
        self._bar.update(self._task, completed=at - self._start)
        now = self._clock()
        if now >= self._next:
            self._next = now + REDRAW
            self._hidden = False
            self._bar.refresh()

    def show(self) -> None:
        """Nothing: the next `update` draws it."""

    def hide(self) -> None:
        """Clears the bar's line until the bar is drawn again."""
        if not self._hidden:
            self._hidden = True
            self._terminal.write("\r\x1b[2K")
            self._terminal.flush()

    def __enter__(self) -> Self:
        """Shows the bar."""
        terminal.hide_bars()
        terminal.DRAWN.append(self)
        self._bar.start()
        self._hidden = False
        return self

    def __exit__(self, *_: object) -> None:
        """Removes the bar."""
        terminal.DRAWN.remove(self)
        self._bar.stop()


def share_of(bar: Progress, size: int) -> OnProgress:
    """Returns a progress callback that moves a bar from 0 to a size, whatever unit the work counts in."""

    def move(done: int, total: int) -> None:
        bar.update(size * done // max(1, total))

    return move


def show_progress(mode: ProgressMode, what: str, start: int, end: int) -> Progress:
    """Returns the progress display for `--progress`, from start to end in bytes; AUTO draws a bar on a terminal."""
    if mode is ProgressMode.JSON:
        return JsonLinesProgress(what, start, end)
    if mode is ProgressMode.AUTO and sys.stderr.isatty():
        return Bar(what, start, end)
    return Progress()
