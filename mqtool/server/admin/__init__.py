"""The admin port: metrics, health checks, and web pages with topics, consumer groups, lag, rates and messages.

`port` listens and builds the text for Prometheus. Start with `site`, which serves the pages: `content` and `message`
have their values. The pages only read, work without scripts, and load nothing from other hosts. Docs page:
docs/serve.md.
"""
