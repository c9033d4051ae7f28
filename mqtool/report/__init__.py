"""A self-contained HTML page about a store, e.g.

to attach to a ticket: all findings of `verify`, and how to follow them up.

`report(store)` creates it. Docs page: docs/report.md.
"""

from mqtool.report.page import report

__all__ = ["report"]
