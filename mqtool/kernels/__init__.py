"""Compiled loops over records, in place of Python code in `records`, `verify`, `rebuild` and `engine`.

numba compiles them in a process of its own into a file, which takes about 25 s once on a machine. The file is
mapped and called without numba, which takes some ten milliseconds. Where there is no such file and no numba, only
speed is lost: each kernel replaces array operations or another way to the same result, and is compared with it by
property tests.
"""

from mqtool.kernels.choice import COMPILE, LARGE, Kernels, kernels, load, start, use

__all__ = ["COMPILE", "LARGE", "Kernels", "kernels", "load", "start", "use"]
