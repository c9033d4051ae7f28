"""Compares two stores (master and slave, before and after, copy and original); never changes them.

`compare(a, b)` returns the differences. Docs page: docs/diff.md.
"""

from mqtool.diff.differences import (
    Difference,
    LogDifference,
    LogTail,
    OffsetDifference,
    QueueDifference,
    Region,
    RegionContent,
    UnsharedRange,
)
from mqtool.diff.stores import compare

__all__ = [
    "Difference",
    "LogDifference",
    "LogTail",
    "OffsetDifference",
    "QueueDifference",
    "Region",
    "RegionContent",
    "UnsharedRange",
    "compare",
]
