"""CompiledLoops: uses the compiled loops while a store is open, and compiles them once enough data justifies it."""

import sys

from mqtool import kernels


class CompiledLoops:
    """Counts the bytes that were put as columns, and decides when to compile."""

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
        """Counts bytes; after `kernels.COMPILE` of them compiles the loops. Returns whether it did.

        Compiling takes half a minute.
        """
        self._done += size
        if self._done < self._next:
            return False
        self._next = sys.maxsize
        kernels.start(self._done)
        return True
