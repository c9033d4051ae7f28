"""Replication: a copy of a real master's store, kept by its own HA protocol.

`mirror.Mirror` follows a master; what goes over the wire is in `mqtool.protocol.replication`. docs/protocol.md.
"""
