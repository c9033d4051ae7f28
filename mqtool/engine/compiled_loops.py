"""CompiledLoops: loads the compiled loops once so much was done that they are worth it."""

import sys

from mqtool import kernels


class CompiledLoops:
    """Counts the bytes that one part of the engine has worked on."""

    __slots__ = ("_after", "_done", "_may_compile")

    def __init__(self, after: int, *, may_compile: bool = False) -> None:
        """Starts at nothing.

        Args:
            after: bytes before the loops are loaded (`StoreOptions.kernels_after`).
            may_compile: whether to compile them after `kernels.COMPILE` bytes where they are not; that takes seconds.
        """
        self._after = after
        self._may_compile = may_compile
        self._done = 0

    def count(self, size: int) -> None:
        """Counts bytes."""
        self._done += size
        if self._done >= self._after:
            self.load()

    def load(self) -> None:
        """Loads the loops if it is time."""
        if self._done < self._after:
            return
        may_compile = self._may_compile and self._done < kernels.COMPILE
        kernels.start(self._done if self._may_compile else kernels.LARGE)
        self._after = kernels.COMPILE if may_compile else sys.maxsize
