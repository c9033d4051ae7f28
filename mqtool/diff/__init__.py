"""Comparing two stores: master and slave, before and after, copy and original; neither is ever changed.

`compare(a, b)` answers with what each side has alone. Docs page: docs/diff.md.
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
