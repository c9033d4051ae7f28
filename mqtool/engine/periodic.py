"""Periodic: a thread that does one thing again and again until it is stopped."""

import logging
import threading
from collections.abc import Callable

_LOG = logging.getLogger(__name__)


class Periodic:
    """Runs a task at an interval. What the task raises is logged, and the next turn comes all the same."""

    def __init__(self, name: str, interval_ms: int, task: Callable[[], object]) -> None:
        """Takes the task.

        Args:
            name: of the thread, behind "mqtool-".
            interval_ms: from the end of one turn to the start of the next.
            task: what to do.
        """
        self._interval = interval_ms / 1000
        self._task = task
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"mqtool-{name}", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; a turn that has begun is finished."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                self._task()
            except Exception:  # noqa: BLE001 - whatever it was, the next turn must come
                _LOG.exception("task failed name=%s", self._thread.name)
