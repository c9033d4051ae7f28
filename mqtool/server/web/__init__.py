"""The page of the admin port: topics, groups and lag, rates, health, and messages by what is known of them.

It only reads, works without scripts, and loads nothing from elsewhere. `Site` is all of it. Docs page: docs/serve.md.
"""

from mqtool.server.web.site import Access, Site

__all__ = ["Access", "Site"]
