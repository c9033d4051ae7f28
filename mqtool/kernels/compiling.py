"""How kernels are compiled: with fixed types, once for a machine."""

import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit, types
from numba.core import event

F = TypeVar("F", bound=Callable[..., Any])

BYTES = types.Array(types.uint8, 1, "C", readonly=True)
"""uint8, one dimension, read-only; writable memory is accepted as well."""
WRITABLE = types.uint8[::1]
"""uint8, one dimension, writable."""
WORDS = types.Array(types.uint64, 1, "A", readonly=True, aligned=False)
"""The eight bytes at every position of a buffer, the first one lowest (`records.words.words_of`)."""
I32, I64, U32, U64 = (kind[::1] for kind in (types.int32, types.int64, types.uint32, types.uint64))

_LOG = logging.getLogger(__name__)


class _Notice(event.Listener):  # type: ignore[misc]  # numba is untyped
    """Reports the first compilation of a process; what comes from the cache is not compiled."""

    def __init__(self) -> None:
        self.reported = False

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        """Logs one warning, which a program without logging of its own prints to stderr."""
        if not self.reported:
            self.reported = True
            _LOG.warning("mqtool: compiling loops for large logs, once on this machine; this takes some seconds")

    def on_end(self, event: Any) -> None:
        """Does nothing: the command's own output follows."""


event.register("numba:compile", _Notice())


def compiled(result: Any, *arguments: Any) -> Callable[[F], F]:
    """Compiles a function for these types; the code is cached next to the source, or in the user's cache directory."""
    return cast("Callable[[F], F]", njit(result(*arguments), cache=True, nogil=True))


def inlined(function: F) -> F:
    """Makes a function that kernels call."""
    return cast("F", njit(function, inline="always"))
