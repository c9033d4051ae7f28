"""The clock of a server, which a test can advance.

It times what belongs to the broker: when messages are stored, delivered, visible again and deleted, and how long a poll
waits. `SystemClock` times what shows whether another process is alive, because that process has a clock of its own:
heartbeats, queue locks, idle connections, and time-outs of requests.
"""

import asyncio
import bisect
from collections.abc import Callable
from pathlib import Path

from mqtool.engine.clock import SystemClock
from mqtool.engine.disk.files import Files


class ServerClock:
    """The machine's clock until it is advanced; from then on it is ahead of it."""

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._jumps: list[tuple[int, int]] = []
        self._timers: set[Timer] = set()

    def now(self) -> int:
        """Returns milliseconds since the epoch."""
        return SystemClock.now() + self._ahead_ms

    def monotonic(self) -> float:
        """Returns seconds since an arbitrary time in the past; never goes back."""
        return SystemClock.monotonic() + self._ahead_ms / 1000

    @staticmethod
    def sleep(seconds: float) -> None:
        """Waits, for as long on the machine's clock."""
        SystemClock.sleep(seconds)

    def call_later(self, seconds: float, function: Callable[[], None]) -> "Timer":
        """Calls a function after some time, in the running event loop."""
        return Timer(self._timers, self.monotonic() + seconds, seconds, function)

    def advance(self, ms: int) -> None:
        """Advances the clock, and makes the calls that are due, in order. Must be called in the event loop's thread."""
        self._ahead_ms += ms
        self._jumps.append((SystemClock.now(), self._ahead_ms))
        now = self.monotonic()
        for timer in sorted(self._timers, key=lambda timer: timer.due):
            if timer in self._timers:  # not cancelled by an earlier call
                timer.move(timer.due - now)

    def reset(self) -> None:
        """Sets the clock to the machine's; nothing must wait for a time."""
        self._ahead_ms = 0
        self._jumps.clear()

    def moved(self, machine_ms: int) -> int:
        """Returns what this clock showed at a time of the machine's clock, both in ms since epoch."""
        past = bisect.bisect_right(self._jumps, machine_ms, key=lambda jump: jump[0])
        return machine_ms + (self._jumps[past - 1][1] if past else 0)


class Timer:
    """A call that will be made at `due`, a time of the monotonic clock, unless it is cancelled."""

    __slots__ = ("_function", "_handle", "_timers", "due")

    def __init__(self, timers: "set[Timer]", due: float, seconds: float, function: Callable[[], None]) -> None:
        """Starts to wait `seconds`; belongs to `timers` until the call."""
        self.due = due
        self._timers, self._function = timers, function
        self._handle = asyncio.get_running_loop().call_later(seconds, self._call)
        timers.add(self)

    def _call(self) -> None:
        self.cancel()
        self._function()

    def move(self, seconds: float) -> None:
        """Changes the rest of the wait; makes the call at once if there is none."""
        self._handle.cancel()
        if seconds > 0:
            self._handle = asyncio.get_running_loop().call_later(seconds, self._call)
        else:
            self._call()

    def cancel(self) -> None:
        """Prevents the call; does nothing after it."""
        self._handle.cancel()
        self._timers.discard(self)


class MovedFiles(Files):
    """Files whose modification times are those of a server's clock."""

    def __init__(self, clock: ServerClock) -> None:
        self._clock = clock

    def modified(self, path: Path) -> int:
        """Returns when a file was last written, ms since epoch."""
        return self._clock.moved(super().modified(path))
