"""Servers for the remoting protocol: connections, the name server, the broker.

Packages, each of which imports only those before it: `net` (connections), `namesrv` and `producer`, `replication`,
`broker`, `admin` (the port for browsers and Prometheus). `serve` assembles them. The protocol itself is in
`mqtool.protocol`, which opens no socket. Docs page: docs/protocol.md.
"""
