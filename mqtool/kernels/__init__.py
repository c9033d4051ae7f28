"""Loops over records, compiled: what `records`, `verify`, `rebuild` and `engine` else do pass after pass over columns.

numba compiles them when they are first needed and keeps the result, which takes some seconds once; loading them again
takes half a second, so that they pay for large stores only. Without numba nothing is missing but speed: each kernel
stands in for array arithmetic beside which it is called, gives the same answers, and is held to them by tests.
"""

from mqtool.kernels.choice import LARGE, Kernels, kernels, load, start, use

__all__ = ["LARGE", "Kernels", "kernels", "load", "start", "use"]
