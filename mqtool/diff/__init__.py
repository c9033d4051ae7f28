"""Compares two stores (master and slave, before and after, copy and original); never changes them.

`compare(a, b)` returns the differences. Docs page: docs/diff.md.
"""

from mqtool.diff.differences import (
    Alone,
    Difference,
    LogDifference,
    OffsetDifference,
    QueueDifference,
    Region,
    Side,
    TailSide,
)
from mqtool.diff.stores import compare

__all__ = [
    "Alone",
    "Difference",
    "LogDifference",
    "OffsetDifference",
    "QueueDifference",
    "Region",
    "Side",
    "TailSide",
    "compare",
]
