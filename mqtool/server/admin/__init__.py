"""The admin port: metrics, health checks, and web pages with topics, consumer groups, lag, rates and messages.

`port` listens and `metrics` builds the text for Prometheus. Start with `site`, which serves the pages: `snapshot`
copies the tables, `content` and `message` have the values of the pages. The pages only read, work without scripts, and
load nothing from other hosts. Docs page: docs/serve.md.
"""

from mqtool.server.admin.site import Access, Site

__all__ = ["Access", "Site"]
