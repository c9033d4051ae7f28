"""How kernels are compiled: with fixed types, once for a machine."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit, types

F = TypeVar("F", bound=Callable[..., Any])

BYTES = types.Array(types.uint8, 1, "C", readonly=True)
"""uint8, one dimension, read-only; writable memory is accepted as well."""
WRITABLE = types.uint8[::1]
"""uint8, one dimension, writable."""
WORDS = types.Array(types.uint64, 1, "A", readonly=True, aligned=False)
"""The eight bytes at every position of a buffer, the first one lowest (`records.words.words_of`)."""
I32, I64, U32, U64 = (kind[::1] for kind in (types.int32, types.int64, types.uint32, types.uint64))


def compiled(result: Any, *arguments: Any) -> Callable[[F], F]:
    """Compiles a function for these types; the code is cached next to the source, or in the user's cache directory."""
    return cast("Callable[[F], F]", njit(result(*arguments), cache=True, nogil=True))


def inlined(function: F) -> F:
    """Makes a function that kernels call."""
    return cast("F", njit(function, inline="always"))
