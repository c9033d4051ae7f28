"""A self-contained HTML page about a store: all findings of `verify`, and how to follow them up.

`report(store)` creates it. Docs page: docs/report.md.
"""

from mqtool.report.page import report

__all__ = ["report"]
