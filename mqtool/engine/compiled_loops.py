"""CompiledLoops: uses the compiled loops while a store is open, and compiles them once that is worth it."""

import sys

from mqtool import kernels


class CompiledLoops:
    """Counts the bytes that came as columns."""

    __slots__ = ("_done", "_next")

    def __init__(self, *, enabled: bool) -> None:
        """Loads the loops if they are compiled, which takes ten milliseconds once in a process.

        Args:
            enabled: False to load and to compile nothing (`StoreOptions.compiled_loops`).
        """
        self._done = 0
        self._next = kernels.COMPILE if enabled else sys.maxsize
        if enabled:
            kernels.start(0)

    def count(self, size: int) -> bool:
        """Counts bytes; compiles the loops, in half a minute, after `kernels.COMPILE` of them; returns whether."""
        self._done += size
        if self._done < self._next:
            return False
        self._next = sys.maxsize
        kernels.start(self._done)
        return True
