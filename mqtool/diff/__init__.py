"""Compares two stores (master and slave, before and after, copy and original); never changes them.

`compare(a, b)` returns the differences. Docs page: docs/diff.md.
"""

from mqtool.diff.log_records import Region
from mqtool.diff.stores import Difference, LogDifference, QueueDifference, compare

__all__ = ["Difference", "LogDifference", "QueueDifference", "Region", "compare"]
