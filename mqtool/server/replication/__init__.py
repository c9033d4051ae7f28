"""Replication: copies a real master's store over its HA protocol, and sends the log to slaves.

`mirror.Mirror` follows a master; `mqtool.protocol.replication` has the wire format. Docs page: docs/protocol.md.
"""
