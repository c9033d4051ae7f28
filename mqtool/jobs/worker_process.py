"""Worker processes that leave Ctrl-C to their parent from their first instruction."""

import signal
from multiprocessing import resource_tracker
from multiprocessing.context import BaseContext, ForkContext, ForkProcess, SpawnContext, SpawnProcess

from mqtool.signals import signals_blocked


class _ForkedProcess(ForkProcess):
    def start(self) -> None:
        with signals_blocked(
            signal.SIGINT, signal.SIGTERM
        ):  # a copy has its parent's handler of SIGTERM until `ignore_interrupts`
            super().start()


class _SpawnedProcess(SpawnProcess):
    def start(self) -> None:
        resource_tracker.ensure_running()  # else `start` begins it, and lets SIGINT through again
        with signals_blocked(signal.SIGINT):
            super().start()


class _ForkContext(ForkContext):
    Process = _ForkedProcess


class _SpawnContext(SpawnContext):
    Process = _SpawnedProcess


def context(*, copies: bool) -> BaseContext:
    """Returns the multiprocessing context for copies of this process or for new ones."""
    return _ForkContext() if copies else _SpawnContext()
