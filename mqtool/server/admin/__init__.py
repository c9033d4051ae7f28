"""The admin port: metrics, health, and a page with topics, groups and lag, rates and messages.

`port` listens, `site` makes the page, `metrics` the text for Prometheus. The page only reads, works without scripts,
and loads nothing from elsewhere. Docs page: docs/serve.md.
"""

from mqtool.server.admin.site import Access, Site

__all__ = ["Access", "Site"]
