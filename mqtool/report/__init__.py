"""One page of HTML about a store that can be attached to a ticket: all that `verify` found, and how to look at it.

`report(store)` makes it. Docs page: docs/report.md.
"""

from mqtool.report.page import report

__all__ = ["report"]
