"""Serving over the remoting protocol: connections, the name server, the broker.

`shell` listens, `client` calls, `namesrv` and `broker` answer. The protocol itself is in `mqtool.protocol`,
which knows no socket. Docs page: docs/protocol.md.
"""
