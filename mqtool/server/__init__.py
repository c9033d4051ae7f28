"""Servers for RocketMQ's protocols: connections, the name server, the broker, gRPC, the admin port.

`serve` assembles them; start there. Packages and modules, each of which imports only those before it: `net`
(connections), `routes` (tables of a name server), `namesrv`, `producer` (a client that sends), `replication`, `mirror`,
`broker`, `auth`, `grpc`, `admin` (the port for browsers and Prometheus). `offsets` asks a running broker, `testing`
runs one in tests. The protocol itself is in `mqtool.protocol`, which opens no socket. Docs page: docs/protocol.md.
"""
