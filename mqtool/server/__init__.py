"""Serving over the remoting protocol: connections, the name server, the broker.

Packages, each importing only those before it: `net` (connections), `namesrv` and `producer`, `replication`, `broker`,
`admin` (the port for browsers and Prometheus). `serve` puts them together. The protocol itself is in `mqtool.protocol`,
which opens no socket. Docs page: docs/protocol.md.
"""
