"""Compiled loops over records, in place of the array operations in `records`, `verify`, `rebuild` and `engine`.

numba compiles them on first use and caches the result, which takes some seconds once; loading the cache takes half a
second, so they pay only for large stores. Without numba only speed is lost: each kernel replaces array operations
that are in the calling module, returns the same result, and is compared with them by property tests.
"""

from mqtool.kernels.choice import LARGE, Kernels, kernels, load, start, use

__all__ = ["LARGE", "Kernels", "kernels", "load", "start", "use"]
