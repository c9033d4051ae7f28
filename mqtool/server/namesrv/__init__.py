"""The name server: `server.NameServer` listens, `requests` handles what a name server supports.

Start with `routes.Routes`, the topic routes; `bodies` writes them as JSON. Docs page: docs/protocol.md.
"""
